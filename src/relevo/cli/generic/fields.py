"""Turns the fields of a request into the arguments and options of a command.

Path parameters and the main content become arguments, all other fields options. A list becomes an
option in the singular that may be repeated. Values are returned under their API names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click
import msgspec
from msgspec import inspect

from relevo.cli.generic.ids import IdText, takes_short
from relevo.cli.generic.values import (
    Instant,
    Json,
    JsonLines,
    Key,
    KeyText,
    Null,
    Pair,
    Text,
    Where,
)
from relevo.kernel.command_words import singular

if TYPE_CHECKING:
    from collections.abc import Mapping

    from relevo.kernel.operation import Operation


_SIMPLE: Final[dict[type[inspect.Type], click.ParamType[Any]]] = {
    inspect.StrType: Text(),
    inspect.BytesType: Text(),
    inspect.UUIDType: click.UUID,
    inspect.IntType: click.INT,
    inspect.FloatType: click.FLOAT,
    inspect.BoolType: click.BOOL,
    inspect.DateTimeType: Instant(),
}
_MANY: Final = (inspect.CollectionType, inspect.VarTupleType)
_CONTENT: Final = (inspect.BytesType, inspect.DictType, inspect.StructType, inspect.UnionType)
_SHORT: Final[dict[str, click.ParamType[Any]]] = {"ItemCondition": Where()}
"""Types with a short form on the command line, by name: they need not be imported."""


def parameters(operation: Operation) -> list[click.Parameter]:
    """Return the parameters of an operation's command, in the order of its fields."""
    info = inspect.type_info(operation.request)
    assert isinstance(info, inspect.StructType)
    by_name = {field.encode_name: field for field in info.fields}
    named = [name for name in operation.parameters if name not in operation.fixed]
    arguments = [_argument(by_name[name]) for name in named]
    if takes_short(operation):
        for argument in arguments:
            if argument.type is click.UUID:
                argument.type = IdText()
    handled = {*operation.parameters, *operation.fixed, operation.url}
    others = [field for field in info.fields if field.encode_name not in handled]
    arguments += [_content(field) for field in others if _is_content(field)]
    return [*arguments, *(_option(field) for field in others if not _is_content(field))]


def values(operation: Operation, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the given values under their API names."""
    result: dict[str, Any] = dict(operation.fixed)
    for field in msgspec.structs.fields(operation.request):
        value = given.get(field.name)
        if value is None or value == ():
            continue
        if value is Null:
            value = None
        if isinstance(value, tuple):
            value = dict(value) if isinstance(value[0], tuple) else list(value)
        result[field.encode_name] = value
    return result


def _argument(field: inspect.Field) -> click.Argument:
    kind, help_text = _plain(field.type)
    return click.Argument(
        [field.name],
        type=_click_type(kind),
        metavar=field.name.upper().replace("_", "-"),
        help=help_text,
    )


def _is_content(field: inspect.Field) -> bool:
    """Whether a field is the main content of a command: one or several required objects."""
    kind, _ = _plain(field.type)
    if isinstance(kind, _MANY):
        kind, _ = _plain(kind.item_type)
    text = isinstance(kind, inspect.DictType) and isinstance(kind.value_type, inspect.StrType)
    return field.required and isinstance(kind, _CONTENT) and not text


def _content(field: inspect.Field) -> click.Argument:
    kind, help_text = _plain(field.type)
    many = isinstance(kind, _MANY)
    form = "a JSON array or one object per line" if many else "JSON"
    return click.Argument(
        [field.name],
        type=JsonLines() if many else Json(),
        metavar=field.name.upper(),
        help=_sentences(help_text, f"As {form}, @FILE, or - for standard input."),
    )


def _option(field: inspect.Field) -> click.Option:
    kind, help_text = _plain(field.type)
    if isinstance(kind, inspect.DateTimeType):
        help_text = _sentences(help_text, "With its time zone, such as 2031-05-30T18:00:00Z.")
    name = field.name.replace("_", "-")
    # On a required option a default, even None, would count as given.
    attributes: dict[str, Any] = {"required": True} if field.required else {"default": None}
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
        attributes |= {"type": Pair(), "multiple": True}
        help_text = _sentences(help_text, "May be repeated.")
    else:
        declarations = [f"--{name}"]
        attributes["type"] = KeyText() if _holds_json(field.type) else _click_type(kind)
    help_text = _sentences(help_text, _default(field))
    return click.Option([field.name, *declarations], help=help_text, **attributes)


def _click_type(kind: inspect.Type) -> click.ParamType[Any]:
    if isinstance(kind, inspect.LiteralType | inspect.EnumType):
        choices = kind.values if isinstance(kind, inspect.LiteralType) else list(kind.cls)
        return click.Choice([str(getattr(choice, "value", choice)) for choice in choices])
    if isinstance(kind, inspect.StructType) and kind.cls.__name__ in _SHORT:
        return _SHORT[kind.cls.__name__]
    if isinstance(kind, inspect.AnyType):
        return Key()
    return _SIMPLE.get(type(kind), Json())


def _holds_json(kind: inspect.Type) -> bool:
    """Whether a text field holds JSON, by `contentMediaType` in its schema."""
    if isinstance(kind, inspect.UnionType):
        return any(_holds_json(each) for each in kind.types)
    if not isinstance(kind, inspect.Metadata):
        return False
    return "contentMediaType" in (kind.extra_json_schema or {}) or _holds_json(kind.type)


def _plain(kind: inspect.Type) -> tuple[inspect.Type, str]:
    """Return a type without `None` and metadata, and its description."""
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
    if field.default in (msgspec.NODEFAULT, None, (), "") or isinstance(field.default, bool):
        return ""
    return f"Default: {field.default}."


def _sentences(*texts: str) -> str:
    return " ".join(text if text.endswith(".") else f"{text}." for text in texts if text)
