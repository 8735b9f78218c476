"""A request's head as it came over the wire, and the command that is made from it.

Paths are split before they are decoded, since an id may contain an encoded slash. The raw target is
kept because signatures are made over it.
"""

from __future__ import annotations

import difflib
import functools
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, unquote_to_bytes, urlencode

import msgspec
from msgspec import Struct

from relevo.api.problem import InvalidJson
from relevo.errors import InvalidValue, UnsupportedMediaType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from relevo.api.contract import Operation

JSON_TYPES = frozenset({"application/json", "application/merge-patch+json"})

_SHOWN_MAX = 100
"""How much of what a caller sent is repeated to it."""
_WHERE = re.compile(r"^(?P<what>.*?)(?: - at `\$(?P<where>.*)`)?$", re.DOTALL)
_UNKNOWN = re.compile(r"Object (?:contains unknown|missing required) field `(?P<name>[^`]*)`")
_STEP = re.compile(r"\.(?P<name>[^.\[]+)|\[(?P<index>[^\]]*)\]")


class Head(Struct, frozen=True):
    """Everything of a request but its body."""

    method: str
    target: bytes
    """Path and query exactly as sent."""
    segments: tuple[str, ...]
    """The path, split and then decoded; bytes that are not UTF-8 are lone surrogates."""
    query: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    """Names in lower case, in the order they came."""

    def values(self, name: bytes) -> list[bytes]:
        """Return every value of a header."""
        return [value for key, value in self.headers if key == name]

    def value(self, name: bytes) -> bytes | None:
        """Return the value of a header that is there exactly once, else None."""
        found = self.values(name)
        return found[0] if len(found) == 1 else None


def head_of(scope: Mapping[str, Any]) -> Head:
    """Read the head from an ASGI scope."""
    raw_path: bytes = scope.get("raw_path") or scope["path"].encode()
    query: bytes = scope.get("query_string", b"")
    composed = raw_path + b"?" + query if query else raw_path
    # A server that keeps the target verbatim tells `/a?` from `/a`; one signed over it may differ.
    target: bytes = scope.get("target", composed)
    return Head(
        method=scope["method"],
        target=target if target.startswith(b"/") else composed,
        segments=split_path(raw_path),
        query=query,
        headers=tuple((bytes(name).lower(), bytes(value)) for name, value in scope["headers"]),
    )


def split_path(raw_path: bytes) -> tuple[str, ...]:
    """Split a raw path into decoded segments; none if it is not a path (`OPTIONS *`)."""
    if not raw_path.startswith(b"/"):
        return ()
    parts = raw_path[1:].split(b"/")
    return tuple(unquote_to_bytes(part).decode("utf-8", "surrogateescape") for part in parts)


class _Plan(Struct, frozen=True):
    """What is known of a request type before any request: its fields by their names on the wire."""

    types: dict[str, Any]
    many: frozenset[str]
    """Fields that hold several values, which a query repeats."""
    instants: dict[str, str]
    """Fields that hold a time, with their names in Python."""


@functools.cache
def _plan(request: type[Struct]) -> _Plan:
    info = msgspec.inspect.type_info(request)
    assert isinstance(info, msgspec.inspect.StructType)
    lists = (msgspec.inspect.CollectionType, msgspec.inspect.VarTupleType)
    times = (msgspec.inspect.DateTimeType,)
    return _Plan(
        types={field.encode_name: field.type for field in msgspec.structs.fields(request)},
        many=frozenset(field.encode_name for field in info.fields if _holds(field.type, lists)),
        instants={f.encode_name: f.name for f in info.fields if _holds(f.type, times)},
    )


def _holds(kind: msgspec.inspect.Type, wanted: tuple[type, ...]) -> bool:
    if isinstance(kind, msgspec.inspect.UnionType):
        return any(_holds(each, wanted) for each in kind.types)
    if isinstance(kind, msgspec.inspect.Metadata):
        return _holds(kind.type, wanted)
    return isinstance(kind, wanted)


def command_of(
    operation: Operation, parameters: Mapping[str, str], head: Head, body: bytes, *, strict: bool
) -> Any:
    """Make the operation's command from path, query and body.

    Raises `InvalidValue` with a pointer at the fault, or `UnsupportedMediaType`. `strict` refuses
    what the operation does not know; otherwise it is ignored.
    """
    plan = _plan(operation.request)
    query = _query(head.query, plan, strict=strict)
    values, spare = (_body(head, body), query) if operation.takes_body else (query, {})
    if strict:
        _refuse_unknown(values, [name for name in plan.types if name not in parameters])
        _refuse_unknown(spare, [])
        if body and not operation.takes_body:
            raise InvalidValue(f"{operation.method} takes no body here; send none")
    for name, text in parameters.items():
        refuse_unstorable(text, f"/{name}")
        values[name] = _convert(text, plan.types[name], f"/{name}", strict=False)
    command = _convert(values, operation.request, "", strict=operation.takes_body)
    for name, attribute in plan.instants.items():
        refuse_unstorable(getattr(command, attribute), f"/{name}")
    return command


def request_of(operation: Operation, command: Struct) -> tuple[str, bytes]:
    """Return the target and the body that `command_of` makes this command from: a client's part.

    Raises `InvalidValue` for an empty value in the path, which no path can carry.
    """
    values = {k: v for k, v in msgspec.to_builtins(command).items() if v is not None}
    target = operation.path
    for name in operation.parameters:
        text = str(values.pop(name))
        if not text:
            raise InvalidValue(f"{name} may not be empty", pointer=f"/{name}")
        target = target.replace(f"{{{name}}}", quote(text, safe=""))
    if operation.takes_body:
        return target, msgspec.json.encode(values)
    plain = {k: str(v).lower() if isinstance(v, bool) else v for k, v in values.items()}
    return target + (f"?{urlencode(plain, doseq=True)}" if plain else ""), b""


def _query(raw: bytes, plan: _Plan, *, strict: bool) -> dict[str, Any]:
    try:
        pairs = parse_qsl(raw.decode("ascii"), keep_blank_values=True, errors="strict")
    except (UnicodeDecodeError, ValueError):
        raise InvalidValue("the query is not percent-encoded UTF-8") from None
    values: dict[str, Any] = {}
    for name, text in pairs:
        refuse_unstorable(text, f"/{name}")
        if name in plan.many:
            values.setdefault(name, []).append(text)
        elif name in values and strict:
            raise InvalidValue(f"{name!r} is given twice; send it once", pointer=f"/{name}")
        else:
            values[name] = text
    return values


def _body(head: Head, body: bytes) -> dict[str, Any]:
    if not body:
        return {}
    content_type = (head.value(b"content-type") or b"application/json").decode("latin-1")
    if content_type.partition(";")[0].strip().lower() not in JSON_TYPES:
        raise UnsupportedMediaType(
            f"the body is {content_type!r}; send it with Content-Type: application/json"
        )
    try:
        decoded = msgspec.json.decode(body)
    except RecursionError:
        raise InvalidJson("the body is nested too deeply") from None
    except ValueError as error:
        raise InvalidJson(f"the body is not JSON: {error}") from None
    if not isinstance(decoded, dict):
        raise InvalidValue(f"the body must be a JSON object, not {_json_name(decoded)}")
    if b"\\u0000" in body:
        refuse_unstorable(decoded, "")
    return decoded


def _json_name(value: Any) -> str:
    names = {list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")


def refuse_unstorable(value: Any, pointer: str) -> None:
    """Raise `InvalidValue` for what PostgreSQL cannot hold, anywhere inside a value.

    Text with U+0000 or lone surrogates; a time that has no counterpart in UTC.
    """
    match value:
        case str():
            if "\0" in value or (not value.isascii() and _has_surrogate(value)):
                raise InvalidValue("a text is not UTF-8 or contains U+0000", pointer=pointer)
        case dict():
            for key, each in value.items():
                refuse_unstorable(key, pointer)
                refuse_unstorable(each, f"{pointer}/{_escape(key)}")
        case list() | tuple():
            for index, each in enumerate(value):
                refuse_unstorable(each, f"{pointer}/{index}")
        case datetime():
            try:
                value.astimezone(UTC)
            except (OverflowError, ValueError):
                raise InvalidValue("this time is out of range", pointer=pointer) from None
        case _:
            pass


def _has_surrogate(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)


def _refuse_unknown(values: Mapping[str, Any], known: list[str]) -> None:
    for name in values:
        if name not in known:
            shown = name[:_SHOWN_MAX]
            close = difflib.get_close_matches(shown, known, n=1)
            if close:
                hint = f"did you mean {close[0]!r}?"
            else:
                hint = f"it takes {', '.join(known)}" if known else "it takes none here"
            raise InvalidValue(f"unknown field {shown!r}; {hint}", pointer=f"/{_escape(shown)}")


def _convert(value: Any, kind: Any, pointer: str, *, strict: bool) -> Any:
    try:
        return msgspec.convert(value, kind, strict=strict)
    except msgspec.ValidationError as error:
        what, where = explain(str(error))
        raise InvalidValue(what, pointer=pointer + where) from None


def explain(message: str) -> tuple[str, str]:
    """Split a message of msgspec into what is wrong and a JSON pointer to where.

    >>> explain("Expected `int`, got `str` - at `$.limit`")
    ('Expected `int`, got `str`', '/limit')
    """
    match = _WHERE.match(message)
    assert match is not None
    steps = [step["name"] or step["index"] for step in _STEP.finditer(match["where"] or "")]
    field = _UNKNOWN.match(match["what"])
    if field is not None:
        steps.append(field["name"])
    pointer = "".join(f"/{_escape(step[:_SHOWN_MAX])}" for step in steps)
    return match["what"][: 2 * _SHOWN_MAX], pointer


def _escape(step: str) -> str:
    return step.replace("~", "~0").replace("/", "~1")
