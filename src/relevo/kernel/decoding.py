"""From bytes and plain values to typed ones, with faults that say where they lie. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

import msgspec
from msgspec import inspect

from relevo.errors import InvalidJson, InvalidValue, MissingField

T = TypeVar("T")

SHOWN_MAX: Final = 100
"""The most characters of a caller's text that an error repeats."""
_WHERE: Final = re.compile(r"^(?P<what>.*?)(?: - at `\$(?P<where>.*)`)?$", re.DOTALL)
_FIELD: Final = re.compile(r"Object (?:contains unknown|missing required) field `(?P<name>[^`]*)`")
_NO_CHOICE: Final = ("Invalid enum value", "Invalid value")
_MISSING: Final = "Object missing required field"
_STEP: Final = re.compile(r"\.(?P<name>[^.\[]+)|\[(?P<index>[^\]]*)\]")


def json_object(body: bytes) -> dict[str, Any]:
    """Return the JSON object of a body; an empty body is an empty object.

    Raises `InvalidJson`, or `InvalidValue` for another kind of value and unstorable text.
    """
    if not body:
        return {}
    try:
        decoded = msgspec.json.decode(body)
    except RecursionError:
        raise InvalidJson("the body is nested too deeply") from None
    except ValueError as error:
        raise InvalidJson(f"the body is not JSON: {error}") from None
    if not isinstance(decoded, dict):
        raise InvalidValue(f"the body must be a JSON object, not {json_name(decoded)}")
    if has_nul(body):
        try:
            refuse_unstorable(decoded, "")
        except RecursionError:
            raise InvalidJson("the body is nested too deeply") from None
    return decoded


def has_nul(json: bytes) -> bool:
    """Return whether some text of a JSON document has the NUL character, which PostgreSQL rejects.

    >>> has_nul(rb'"a\\u0000"'), has_nul(rb'"the six letters \\\\u0000"')
    (True, False)
    """
    # What is left without the escaped backslashes is the start of an escape.
    return b"\\u0000" in json and b"\\u0000" in json.replace(rb"\\", b"")


def converted(value: Any, kind: type[T], pointer: str = "", *, strict: bool = True) -> T:
    """Return a plain value as a typed one.

    Raises `InvalidValue`, or `MissingField`, with a pointer at the fault.
    """
    try:
        return msgspec.convert(value, kind, strict=strict)
    except msgspec.ValidationError as error:
        what, where = explain(str(error))
        if what.startswith(_NO_CHOICE):
            what = _with_choices(what, kind, where)
        fault = MissingField if what.startswith(_MISSING) else InvalidValue
        raise fault(what, pointer=pointer + where) from None


def _with_choices(what: str, kind: Any, pointer: str) -> str:
    """Return a fault of a choice with the values that there are at the pointer."""
    found = [inspect.type_info(kind)]
    for step in pointer.split("/")[1:]:
        found = [below for each in found for below in _below(each, step)]
    choices = sorted({str(choice) for each in found for choice in _choices(each)})
    return f"{what}; choose one of: {', '.join(choices)}" if choices else what


def _below(kind: inspect.Type, step: str) -> list[inspect.Type]:
    """Return the types of what a step of a pointer leads to."""
    match kind:
        case inspect.UnionType():
            return [below for each in kind.types for below in _below(each, step)]
        case inspect.Metadata():
            return _below(kind.type, step)
        case inspect.StructType():
            if step == kind.tag_field:
                return [inspect.LiteralType((kind.tag,))]
            return [field.type for field in kind.fields if field.encode_name == step]
        case inspect.CollectionType() | inspect.VarTupleType():
            return [kind.item_type]
        case inspect.DictType():
            return [kind.value_type]
        case _:
            return []


def _choices(kind: inspect.Type) -> list[Any]:
    match kind:
        case inspect.UnionType():
            return [choice for each in kind.types for choice in _choices(each)]
        case inspect.Metadata():
            return _choices(kind.type)
        case inspect.LiteralType():
            return list(kind.values)
        case inspect.EnumType():
            return [each.value for each in kind.cls]
        case _:
            return []


def explain(message: str) -> tuple[str, str]:
    """Split a message of msgspec into the fault and a JSON pointer to its place.

    >>> explain("Expected `int`, got `str` - at `$.limit`")
    ('Expected `int`, got `str`', '/limit')
    """
    match = _WHERE.match(message)
    assert match is not None
    steps = [step["name"] or step["index"] for step in _STEP.finditer(match["where"] or "")]
    field = _FIELD.match(match["what"])
    if field is not None:
        steps.append(field["name"])
    pointer = "".join(f"/{escape(step[:SHOWN_MAX])}" for step in steps)
    return match["what"][: 2 * SHOWN_MAX], pointer


def escape(step: str) -> str:
    """Return a name as a step of a JSON pointer."""
    return step.replace("~", "~0").replace("/", "~1")


def json_name(value: Any) -> str:
    """Return the JSON type of a value, with its article."""
    names = {
        dict: "an object", list: "an array", str: "a string", bool: "a boolean",
        type(None): "null",
    }  # fmt: skip
    return names.get(type(value), "a number")


def refuse_unstorable(value: Any, pointer: str) -> None:
    """Raise `InvalidValue` if PostgreSQL cannot store something inside a value.

    Text with U+0000 or lone surrogates; a time that has no counterpart in UTC.
    """
    match value:
        case str():
            if "\0" in value or not is_unicode(value):
                raise InvalidValue("a text is not UTF-8 or contains U+0000", pointer=pointer)
        case dict():
            for key, each in value.items():
                refuse_unstorable(key, pointer)
                refuse_unstorable(each, f"{pointer}/{escape(key)}")
        case list() | tuple():
            for index, each in enumerate(value):
                refuse_unstorable(each, f"{pointer}/{index}")
        case datetime() if value.tzinfo is not None:  # without a zone it is taken for UTC
            try:
                value.astimezone(UTC)
            except (OverflowError, ValueError):
                raise InvalidValue("this time is out of range", pointer=pointer) from None
        case _:
            pass


def is_unicode(text: str) -> bool:
    """Whether a text has no lone surrogates, so that it can be written as UTF-8."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
