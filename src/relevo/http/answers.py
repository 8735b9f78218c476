"""Answers over HTTP: what handlers returned, errors as RFC 9457 problems, and surfaces.

A surface is a path prefix and its conventions: how errors look, which headers it sends, how strict
it is. A caller's error is shown with its own message. The message of a system fault may name
addresses, tables or other callers' values: it goes to the log, and the caller gets the meaning of
the error's class.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC
from email.utils import format_datetime
from typing import Any, Final

import msgspec
from msgspec import UNSET, Struct, UnsetType

from relevo.errors import (
    ActorError,
    CallerError,
    InternalError,
    Overloaded,
    RelevoError,
    TooLarge,
)
from relevo.http import streaming
from relevo.http.paging import Page
from relevo.http.request import Head, split_path
from relevo.kernel.operation import Operation, Reply, Stream, Text, Versioned, encoded

Headers = tuple[tuple[bytes, bytes], ...]

PROBLEM: Final = b"application/problem+json"
JSON: Final = b"application/json; charset=utf-8"


class UrlTooLong(TooLarge):
    """The request target exceeds `URL_BYTES_MAX`."""

    code = "url_too_long"
    status = 414


class HeadersTooLarge(TooLarge):
    """The head of the request exceeds `HEADER_BYTES_MAX`."""

    code = "headers_too_large"
    status = 431


class RequestTimeout(CallerError):
    """The request did not arrive completely in time; nothing was done."""

    code = "request_timeout"
    status = 408
    retryable = True


class Answer(Struct, frozen=True):
    """A response: status, headers and body."""

    status: int
    headers: Headers
    body: bytes
    chunks: AsyncIterator[bytes] | None = None
    """The chunks of a stream, sent while the client listens."""


class Problem(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An error as `application/problem+json` (RFC 9457)."""

    type: str
    """A name for this kind of problem; it ends in the code."""
    title: str
    status: int
    code: str
    """Stable and meant for programs; new codes may appear."""
    detail: str
    instance: str
    """Identifies this request, also in the server's log."""
    retryable: bool
    """Whether the same request may be sent again safely, and may then succeed."""
    pointer: str | None = None
    """Where in the request the fault lies: a JSON pointer, or the name of a parameter."""
    executed: bool | UnsetType | None = UNSET
    """Of a call of an actor: false if the method did not run, true if it ran without effect on the
    actor's state, null if the effect is not known."""


def public(error: Exception) -> RelevoError:
    """Return the error a caller may see; any other exception is an internal error."""
    return error if isinstance(error, RelevoError) else InternalError("unexpected")


def sentence(kind: type[RelevoError]) -> str:
    """Return the meaning of a class of errors: the first line of its docstring."""
    return (kind.__doc__ or kind.__name__).strip().splitlines()[0]


def detail(error: RelevoError) -> str:
    """Return the text for the caller: the message of its own errors and of overload."""
    own_words = error.fault == "caller" or isinstance(error, Overloaded)
    return error.message if own_words else sentence(type(error))


def retry_after(error: RelevoError) -> Headers:
    """Return the `Retry-After` header of a retryable error, in whole seconds."""
    seconds = getattr(error, "retry_after", None)
    if seconds is None or not error.retryable:
        return ()
    return ((b"retry-after", str(max(1, math.ceil(seconds))).encode()),)


def render(error: RelevoError, request_id: str) -> Answer:
    """Return an error as a problem."""
    problem = Problem(
        type=f"urn:relevo:problem:{error.code}",
        title=sentence(type(error)),
        status=error.status,
        code=error.code,
        detail=detail(error),
        instance=f"urn:relevo:request:{request_id}",
        retryable=error.retryable,
        pointer=error.pointer,
        executed=error.executed if isinstance(error, ActorError) else UNSET,
    )
    return Answer(
        error.status,
        ((b"content-type", PROBLEM), *retry_after(error)),
        msgspec.json.encode(problem),
    )


def encode(operation: Operation, surface: Surface, head: Head, response: Any) -> Answer:
    """Return the answer for a handler's result."""
    if response is None:
        return Answer(204 if operation.status == 200 else operation.status, (), b"")
    headers: Headers = ((b"content-type", JSON),)
    status = operation.status_of(response)
    match response:
        case Stream():
            return Answer(200, streaming.HEADERS, b"", streaming.chunks(response))
        case Text():
            headers = ((b"content-type", response.content_type.encode()),)
        case Reply():
            headers = _reply_headers(response)
        case Versioned():
            changed = format_datetime(response.modified_at.astimezone(UTC), usegmt=True)
            headers += ((b"etag", response.etag.encode()), (b"last-modified", changed.encode()))
        case Page():
            response = surface.page(head, response)
        case _:
            pass
    return Answer(status, headers, encoded(response))


def _reply_headers(reply: Reply) -> Headers:
    kind = {} if reply.body is None else {"content-type": reply.content_type}
    sent = {**kind, **reply.headers}
    return tuple((name.lower().encode(), value.encode()) for name, value in sent.items())


def with_headers(answer: Answer, headers: Headers) -> Answer:
    """Return an answer with more headers."""
    return msgspec.structs.replace(answer, headers=(*answer.headers, *headers))


async def send_answer(send: streaming.Send, head: Head, answer: Answer) -> None:
    """Send an answer that is no stream."""
    headers = list(answer.headers)
    if answer.status != 204:
        headers.append((b"content-length", str(len(answer.body)).encode()))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    body = b"" if head.method == "HEAD" else answer.body
    await send({"type": "http.response.body", "body": body})


SECURITY: Final[Headers] = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)


class Surface(Struct, frozen=True, kw_only=True):
    """The conventions of all paths under a first segment, also before a route is found."""

    segment: str
    """The first segment of its paths; empty for all others."""
    render: Callable[[RelevoError, str], Answer]
    challenge: bytes
    """`WWW-Authenticate` of a 401."""
    strict: bool
    """Whether unknown fields are refused; Microsoft's clients may send more than Relevo knows."""
    headers: Callable[[Head, str], Headers]
    """Added to every answer, from the request and its id."""
    check: Callable[[Head], None] = lambda _: None
    """Checks the fields that all its requests need, after authentication."""
    page: Callable[[Head, Page[Any]], Any] = lambda _, page: page
    """How a page of a list looks."""
    url_bytes: int | None = None
    """The longest URL, if not the default."""
    body_bytes: int | None = None
    """The largest body, if not the default."""
    problem: type[Struct] = Problem
    """The type of its errors."""
    problem_type: str = PROBLEM.decode()
    code: Callable[[type[RelevoError]], str] = lambda kind: kind.code
    """Its code for a class of errors."""


class Surfaces:
    """Finds the surface of a request."""

    def __init__(self, surfaces: tuple[Surface, ...]) -> None:
        self._by_segment = {surface.segment: surface for surface in surfaces}
        assert "" in self._by_segment, "one surface must be the default"
        assert len(self._by_segment) == len(surfaces), "two surfaces share a segment"

    def __iter__(self) -> Iterator[Surface]:
        return iter(self._by_segment.values())

    def of(self, head: Head) -> Surface:
        """Return the surface that a request's path lies under."""
        return self._under(head.segments)

    def at(self, path: str) -> Surface:
        """Return the surface of an operation's path."""
        return self._under(split_path(path.encode()))

    def _under(self, segments: tuple[str, ...]) -> Surface:
        first = segments[0] if segments else ""
        return self._by_segment.get(first, self._by_segment[""])
