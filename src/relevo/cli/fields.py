"""From the fields of a request to the arguments and options of a command.

What the path names becomes an argument, the rest options; a list is an option that may be repeated,
named in the singular. The command's values come back under their names on the wire.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec
from msgspec import inspect

if TYPE_CHECKING:
    from collections.abc import Mapping

    from relevo.api.contract import Operation


class _Text(click.ParamType[str]):
    """Text that can be stored: what came in as bytes that are not UTF-8 is refused."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        if any("\ud800" <= character <= "\udfff" for character in text):
            self.fail("this is not UTF-8", param, ctx)
        return text


class _Instant(click.ParamType[datetime]):
    """A date and time that says its zone, so that it means the same everywhere."""

    name = "timestamp"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime:
        try:
            instant = value if isinstance(value, datetime) else datetime.fromisoformat(value)
        except ValueError:
            self.fail(f"{value!r} is no time; write it like 2031-05-30T18:00:00Z", param, ctx)
        if instant.tzinfo is None:
            self.fail(
                f"{value!r} lacks its time zone; end it with Z or an offset such as +02:00",
                param,
                ctx,
            )
        return instant


class _Json(click.ParamType[Any]):
    """Whatever has no simpler form on a command line."""

    name = "json"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return json.loads(value)
        except ValueError as error:
            self.fail(f"this is not JSON: {error}", param, ctx)


class _Pair(click.ParamType[tuple[str, str]]):
    """One entry of a mapping from text to text."""

    name = "name=value"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        name, equals, text = _Text().convert(value, param, ctx).partition("=")
        if not name or not equals:
            self.fail(f"{value!r} is not of the form name=value", param, ctx)
        return name, text


_SIMPLE: Final[dict[type[inspect.Type], click.ParamType[Any]]] = {
    inspect.StrType: _Text(),
    inspect.UUIDType: click.UUID,
    inspect.IntType: click.INT,
    inspect.FloatType: click.FLOAT,
    inspect.BoolType: click.BOOL,
    inspect.DateTimeType: _Instant(),
}
_MANY: Final = (inspect.CollectionType, inspect.VarTupleType)


def parameters(operation: Operation) -> list[click.Parameter]:
    """Return the parameters of the command for an operation, in the order of its fields."""
    info = inspect.type_info(operation.request)
    assert isinstance(info, inspect.StructType)
    by_name = {field.encode_name: field for field in info.fields}
    arguments = [_argument(by_name[name]) for name in operation.parameters]
    options = [_option(f) for f in info.fields if f.encode_name not in operation.parameters]
    return [*arguments, *options]


def values(operation: Operation, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was given on the command line, under the names of the wire."""
    found: dict[str, Any] = {}
    for field in msgspec.structs.fields(operation.request):
        value = given.get(field.name)
        if value is None or value == ():
            continue
        if isinstance(value, tuple):
            value = dict(value) if isinstance(value[0], tuple) else list(value)
        found[field.encode_name] = value
    return found


def _argument(field: inspect.Field) -> click.Argument:
    kind, help_text = _plain(field.type)
    return click.Argument(
        [field.name],
        type=_click_type(kind),
        metavar=field.name.upper().replace("_", "-"),
        help=help_text,
    )


def _option(field: inspect.Field) -> click.Option:
    kind, help_text = _plain(field.type)
    if isinstance(kind, inspect.DateTimeType):
        help_text = _sentences(help_text, "With its time zone, such as 2031-05-30T18:00:00Z.")
    name = field.name.replace("_", "-")
    attributes: dict[str, Any] = {"required": field.required, "default": None}
    if isinstance(kind, inspect.BoolType):
        attributes |= {"is_flag": True}
        declarations = [f"--{name}/--no-{name}"]
    elif isinstance(kind, _MANY):
        item, item_help = _plain(kind.item_type)
        declarations = [f"--{singular(name)}"]
        attributes |= {"type": _click_type(item), "multiple": True}
        help_text = _sentences(help_text or item_help, "May be repeated.")
    elif isinstance(kind, inspect.DictType) and isinstance(kind.value_type, inspect.StrType):
        declarations = [f"--{singular(name)}"]
        attributes |= {"type": _Pair(), "multiple": True}
        help_text = _sentences(help_text, "May be repeated.")
    else:
        declarations = [f"--{name}"]
        attributes["type"] = _click_type(kind)
    help_text = _sentences(help_text, _default(field))
    return click.Option([field.name, *declarations], help=help_text, **attributes)


def _click_type(kind: inspect.Type) -> click.ParamType[Any]:
    if isinstance(kind, inspect.LiteralType | inspect.EnumType):
        choices = kind.values if isinstance(kind, inspect.LiteralType) else list(kind.cls)
        return click.Choice([str(getattr(choice, "value", choice)) for choice in choices])
    return _SIMPLE.get(type(kind), _Json())


def _plain(kind: inspect.Type) -> tuple[inspect.Type, str]:
    """Return a type without `None` and metadata, and the description found on the way."""
    text = ""
    while True:
        if isinstance(kind, inspect.Metadata):
            text = text or (kind.extra_json_schema or {}).get("description", "")
            kind = kind.type
        elif isinstance(kind, inspect.UnionType):
            choices = [each for each in kind.types if not isinstance(each, inspect.NoneType)]
            if len(choices) != 1:
                return kind, text
            kind = choices[0]
        else:
            return kind, text


def _default(field: inspect.Field) -> str:
    if field.default in (msgspec.NODEFAULT, None, ()) or isinstance(field.default, bool):
        return ""
    return f"Default: {field.default}."


def _sentences(*texts: str) -> str:
    return " ".join(text if text.endswith(".") else f"{text}." for text in texts if text)


def singular(noun: str) -> str:
    """Return the singular of a plural of our vocabulary.

    >>> singular("policies"), singular("hosts"), singular("status")
    ('policy', 'host', 'status')
    """
    if noun.endswith("ies"):
        return f"{noun[:-3]}y"
    if noun.endswith("s") and not noun.endswith(("ss", "us")):
        return noun[:-1]
    return noun
