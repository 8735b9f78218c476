"""A surface is a prefix and its manners: how errors look, which headers it sends, how strict."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from msgspec import Struct

from relevo.errors import RelevoError
from relevo.http.paging import Page
from relevo.http.problem import PROBLEM, Answer, Headers, Problem
from relevo.http.request import Head, split_path

SECURITY: Final[Headers] = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)


class Surface(Struct, frozen=True, kw_only=True):
    """How everything under one first path segment answers, also before a route is found."""

    segment: str
    """The first segment of its paths; the empty one stands for all others."""
    render: Callable[[RelevoError, str], Answer]
    challenge: bytes
    """`WWW-Authenticate` of a 401."""
    strict: bool
    """Whether unknown fields are refused; an ancestor's clients may send more than we know."""
    headers: Callable[[Head, str], Headers]
    """Added to every answer, from the request and its id."""
    check: Callable[[Head], None] = lambda _: None
    """Looks at what all its requests must have, once it is known who asks."""
    page: Callable[[Head, Page[Any]], Any] = lambda _, page: page
    """How a page of a list looks."""
    url_bytes: int | None = None
    """How long its URLs may be, if it is not the usual."""
    body_bytes: int | None = None
    """How large its bodies may be, if it is not the usual."""
    problem: type[Struct] = Problem
    """What `render` makes an error of."""
    problem_type: str = PROBLEM.decode()
    code: Callable[[type[RelevoError]], str] = lambda kind: kind.code
    """What it calls a class of errors."""


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
