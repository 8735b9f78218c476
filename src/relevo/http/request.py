"""Reads a request: its head, and the command that its operation gets.

Paths are split before they are decoded, since an id may contain an encoded slash. The raw target is
kept because signatures cover it.
"""

from __future__ import annotations

import difflib
import functools
import re
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, quote, unquote_to_bytes, urlencode

import msgspec
from msgspec import Struct

from relevo.errors import InvalidValue, UnsupportedMediaType
from relevo.kernel.decoding import SHOWN_MAX, converted, escape, json_object, refuse_unstorable
from relevo.kernel.networks import Networks
from relevo.kernel.operation import Operation

if TYPE_CHECKING:
    from collections.abc import Mapping

JSON_TYPES = frozenset({"application/json", "application/merge-patch+json"})
_NUMBER: Final = re.compile(r"\s*[+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?\s*")
_CLIENT_LENGTH_MAX: Final = 64
NOBODY: Final = Networks()
_HOST: Final = re.compile(rb"[A-Za-z0-9._:\[\]-]{1,255}")


class Head(Struct, frozen=True):
    """A request without its body."""

    method: str
    target: bytes
    """Path and query exactly as sent."""
    segments: tuple[str, ...]
    """The path, split and then decoded; bytes that are not UTF-8 are lone surrogates."""
    query: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    """Names in lower case, in the order they came."""
    scheme: str = "http"
    """How it came to this host; before a proxy it may have been another."""
    version: str = "1.1"
    client: str = ""
    """The address that it comes from, behind the proxies that are trusted."""
    forwarded: bool = False
    """Whether a trusted proxy forwarded it, so that its forwarding headers count."""
    crowded: str | None = None
    """The bound that its connection exceeds: then probes are answered and nothing else."""

    def values(self, name: bytes) -> list[bytes]:
        """Return every value of a header."""
        return [value for key, value in self.headers if key == name]

    def value(self, name: bytes) -> bytes | None:
        """Return the value of a header that is there exactly once, else None."""
        found = self.values(name)
        return found[0] if len(found) == 1 else None


def head_of(scope: Mapping[str, Any], trusted: Networks = NOBODY) -> Head:
    """Read the head from an ASGI scope; `trusted` are the proxies that may speak for others."""
    raw_path: bytes = scope.get("raw_path") or scope["path"].encode()
    query: bytes = scope.get("query_string", b"")
    composed = raw_path + b"?" + query if query else raw_path
    # A server that keeps the target verbatim tells `/a?` from `/a`; one signed over it may differ.
    target: bytes = scope.get("target", composed)
    peer = scope.get("client")
    client = peer[0] if peer else ""
    headers = tuple((bytes(name).lower(), bytes(value)) for name, value in scope["headers"])
    forwarded = client in trusted
    return Head(
        method=scope["method"],
        target=target if target.startswith(b"/") else composed,
        segments=split_path(raw_path),
        query=query,
        headers=headers,
        scheme=scope.get("scheme", "http"),
        version=scope.get("http_version", "1.1"),
        client=_client(client, headers, trusted) if forwarded else client,
        forwarded=forwarded,
        crowded=scope.get("crowded"),
    )


def _client(peer: str, headers: tuple[tuple[bytes, bytes], ...], trusted: Networks) -> str:
    """Return the last forwarded address that is no trusted proxy; earlier ones may be forged."""
    listed = b",".join(value for name, value in headers if name == b"x-forwarded-for")
    for part in reversed(listed.decode("latin-1").split(",")):
        address = part.strip().removeprefix("[").partition("]")[0]
        if address and address not in trusted:
            return address[:_CLIENT_LENGTH_MAX]
    return peer


def check_host(head: Head) -> None:
    """Refuse a request without exactly one Host: proxies would disagree about its host."""
    hosts = head.values(b"host")
    if len(hosts) > 1 or (not hosts and head.version != "1.0"):
        sent = f"{len(hosts)} of them" if hosts else "none"
        raise InvalidValue(f"send the Host header once; there were {sent}", pointer="Host")


def origin(head: Head) -> str:
    """Return scheme and host of the address that the client itself has used."""
    scheme, host = head.scheme.encode(), head.value(b"host") or b""
    if head.forwarded:
        scheme = _first(head.value(b"x-forwarded-proto")) or scheme
        host = _first(head.value(b"x-forwarded-host")) or host
    if not _HOST.fullmatch(host):
        host = b"localhost"
    return f"{'https' if scheme.lower() == b'https' else 'http'}://{host.decode()}"


def _first(value: bytes | None) -> bytes:
    return (value or b"").partition(b",")[0].strip()


def split_path(raw_path: bytes) -> tuple[str, ...]:
    """Split a raw path into decoded segments; none if it is not a path (`OPTIONS *`)."""
    if not raw_path.startswith(b"/"):
        return ()
    parts = raw_path[1:].split(b"/")
    return tuple(unquote_to_bytes(part).decode("utf-8", "surrogateescape") for part in parts)


class _RequestPlan(Struct, frozen=True):
    """The fields of a request type, by their names on the wire."""

    types: dict[str, Any]
    many: frozenset[str]
    """Fields that hold several values, which a query repeats."""
    instants: dict[str, str]
    """Fields that hold a time, with their names in Python."""
    raw: frozenset[str]
    """Fields that hold bytes as they came."""


@functools.cache
def _plan(request: type[Struct]) -> _RequestPlan:
    info = msgspec.inspect.type_info(request)
    assert isinstance(info, msgspec.inspect.StructType)
    lists = (msgspec.inspect.CollectionType, msgspec.inspect.VarTupleType)
    times = (msgspec.inspect.DateTimeType,)
    raw = (msgspec.inspect.BytesType,)
    return _RequestPlan(
        types={field.encode_name: field.type for field in msgspec.structs.fields(request)},
        many=frozenset(field.encode_name for field in info.fields if _holds(field.type, lists)),
        instants={f.encode_name: f.name for f in info.fields if _holds(f.type, times)},
        raw=frozenset(f.encode_name for f in info.fields if _holds(f.type, raw)),
    )


def _holds(kind: msgspec.inspect.Type, wanted: tuple[type, ...]) -> bool:
    if isinstance(kind, msgspec.inspect.UnionType):
        return any(_holds(each, wanted) for each in kind.types)
    if isinstance(kind, msgspec.inspect.Metadata):
        return _holds(kind.type, wanted)
    return isinstance(kind, wanted)


def takes_raw(operation: Operation) -> bool:
    """Whether an operation takes its body as it came, undecoded."""
    return operation.body in _plan(operation.request).raw


def command_of(
    operation: Operation, parameters: Mapping[str, str], head: Head, body: bytes, *, strict: bool
) -> Any:
    """Make the operation's command from path, query and body.

    Raises `InvalidValue` with a pointer at the fault, or `UnsupportedMediaType`. `strict` refuses
    what the operation does not know; otherwise it is ignored.
    """
    plan = _plan(operation.request)
    values: dict[str, Any] = _query(head.query, plan, strict=strict)
    spare: dict[str, Any] = {}
    in_members = operation.takes_body and operation.body is None
    if in_members:
        if body:
            _check_media_type(head)
        values, spare = json_object(body), values
    if strict:
        _refuse_unknown(values, [name for name in plan.types if name not in operation.elsewhere])
        _refuse_unknown(spare, list(operation.query))
        if body and not operation.takes_body:
            raise InvalidValue(f"{operation.method} takes no body here; send none")
    values = {name: each for name, each in values.items() if name not in operation.elsewhere}
    values |= {name: spare[name] for name in operation.query if name in spare}
    for name, text in parameters.items():
        refuse_unstorable(text, f"/{name}")
        values[name] = converted(text, plan.types[name], f"/{name}", strict=False)
    values |= _from_headers(operation, head)
    if operation.url is not None:
        values[operation.url] = origin(head) + head.target.decode("latin-1")
    if operation.body is not None:
        if body:
            _check_media_type(head)
        kind = plan.types[operation.body]
        raw = takes_raw(operation)
        values[operation.body] = body if raw else converted(json_object(body), kind)
    command = converted(values, operation.request, strict=in_members)
    for name, attribute in plan.instants.items():
        refuse_unstorable(getattr(command, attribute), f"/{name}")
    return command


def _from_headers(operation: Operation, head: Head) -> dict[str, str]:
    """Return the fields that headers bring; one that is there several times is a list."""
    found = {}
    for name, header in operation.headers.items():
        values = [value.decode("latin-1") for value in head.values(header.lower().encode())]
        if values:
            found[name] = ", ".join(values)
            refuse_unstorable(found[name], header)
    return found


def request_of(operation: Operation, command: Struct) -> tuple[str, bytes]:
    """Return the target and body that `command_of` turns into this command; for clients.

    What headers bring is not in it. Raises `InvalidValue` for an empty value in the path, which no
    path can carry.
    """
    plain_command = msgspec.to_builtins(command, builtin_types=(bytes,))
    values = {
        k: v
        for k, v in plain_command.items()
        if v is not None and k not in operation.headers and k != operation.url
    }
    target = operation.path
    for name in operation.parameters:
        text = str(values.pop(name))
        if not text:
            raise InvalidValue(f"{name} may not be empty", pointer=f"/{name}")
        target = target.replace(f"{{{name}}}", quote(text, safe=""))
    body = b""
    if operation.body is not None:
        whole = values.pop(operation.body, b"")
        body = whole if isinstance(whole, bytes) else msgspec.json.encode(whole)
    elif operation.takes_body:
        body = msgspec.json.encode({k: v for k, v in values.items() if k not in operation.query})
        values = {k: v for k, v in values.items() if k in operation.query}
    plain = {k: str(v).lower() if isinstance(v, bool) else v for k, v in values.items()}
    return target + (f"?{urlencode(plain, doseq=True)}" if plain else ""), body


def _query(raw: bytes, plan: _RequestPlan, *, strict: bool) -> dict[str, Any]:
    try:
        pairs = parse_qsl(raw.decode("ascii"), keep_blank_values=True, errors="strict")
    except (UnicodeDecodeError, ValueError):
        raise InvalidValue("the query is not percent-encoded UTF-8") from None
    values: dict[str, Any] = {}
    for name, text in pairs:
        refuse_unstorable(text, f"/{name}")
        if name in plan.instants and _NUMBER.fullmatch(text):  # else it would be epoch seconds
            raise InvalidValue(
                f"{text[:SHOWN_MAX]} is not a time; write it like 2031-05-30T18:00:00Z",
                pointer=f"/{name}",
            )
        if name in plan.many:
            values.setdefault(name, []).append(text)
        elif name in values and strict:
            raise InvalidValue(f"{name!r} is given twice; send it once", pointer=f"/{name}")
        else:
            values[name] = text
    return values


def _check_media_type(head: Head) -> None:
    content_type = (head.value(b"content-type") or b"application/json").decode("latin-1")
    if content_type.partition(";")[0].strip().lower() not in JSON_TYPES:
        raise UnsupportedMediaType(
            f"the body is {content_type!r}; send it with Content-Type: application/json"
        )


def _refuse_unknown(values: Mapping[str, Any], known: list[str]) -> None:
    for name in values:
        if name not in known:
            shown = name[:SHOWN_MAX]
            close = difflib.get_close_matches(shown, known, n=1)
            if close:
                hint = f"did you mean {close[0]!r}?"
            else:
                hint = f"it takes {', '.join(known)}" if known else "it takes none here"
            raise InvalidValue(f"unknown field {shown!r}; {hint}", pointer=f"/{escape(shown)}")
