"""From a request to what answers it: a surface by its first path segment, an operation by a tree.

A surface is a prefix and its manners: how errors look, which headers it sends, how strict it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from msgspec import Struct, field

from relevo.errors import MethodNotAllowed, NotFound, RelevoError
from relevo.http.answers import PROBLEM, Answer, Headers, Problem
from relevo.http.paging import Page
from relevo.http.request import Head, split_path
from relevo.kernel.operation import Operation

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


class Match(Struct, frozen=True):
    """An operation and the path's variable parts, decoded."""

    operation: Operation
    parameters: dict[str, str]


_PARAMETER: Final = re.compile(r"\{[^}]*\}")


class _Node(Struct):
    fixed: dict[str, _Node] = field(default_factory=dict)
    variable: dict[tuple[str, ...], _Node] = field(default_factory=dict)
    """By the texts between the variable parts of a segment: `("", ":cancel")` for `{id}:cancel`,
    `("", "(", ")")` for `{name}({id})`; those with most text first."""
    operations: dict[str, Operation] = field(default_factory=dict)


class Routes:
    """Finds the operation of a request.

    A path may match several patterns, for an id may look like a word or end in `:verb`. The more
    literal one wins, but only if it has the method: `POST /jobs/x:cancel` cancels job `x`, while
    `GET /jobs/x:cancel` reads the job of that name.
    """

    def __init__(self, operations: Iterable[Operation]) -> None:
        self._root = _Node()
        for operation in operations:
            self._add(operation)

    def find(self, method: str, segments: tuple[str, ...]) -> Match:
        """Return the operation and its parameters, or raise `NotFound` or `MethodNotAllowed`."""
        found = list(_ends(self._root, segments, ()))
        wanted = "GET" if method == "HEAD" else method
        for node, values in found:
            operation = node.operations.get(wanted)
            if operation is not None:
                return Match(operation, dict(zip(operation.parameters, values, strict=True)))
        if not found:
            raise NotFound("there is nothing at this path; /openapi.json lists what there is")
        allowed = " or ".join(_methods(node for node, _ in found))
        raise MethodNotAllowed(f"{method} is not possible here; use {allowed}")

    def allowed(self, segments: tuple[str, ...]) -> tuple[str, ...]:
        """Return the methods of a path; none if there is nothing."""
        return _methods(node for node, _ in _ends(self._root, segments, ()))

    def _add(self, operation: Operation) -> None:
        node = self._root
        for part in operation.path[1:].split("/"):
            texts = tuple(_PARAMETER.split(part))
            if len(texts) > 1:
                node.variable.setdefault(texts, _Node())
                node.variable = dict(
                    sorted(node.variable.items(), key=lambda item: -len("".join(item[0])))
                )
                node = node.variable[texts]
            else:
                node = node.fixed.setdefault(part, _Node())
        assert operation.method not in node.operations, f"{operation.name} is there twice"
        node.operations[operation.method] = operation


def _ends(
    node: _Node, segments: tuple[str, ...], values: tuple[str, ...]
) -> Iterator[tuple[_Node, tuple[str, ...]]]:
    """Every place of the tree that a path leads to, the more literal ones first."""
    if not segments:
        if node.operations:
            yield node, values
        return
    segment, rest = segments[0], segments[1:]
    if segment in node.fixed:
        yield from _ends(node.fixed[segment], rest, values)
    for texts, child in node.variable.items():
        found = _between(segment, texts)
        if found is not None:
            yield from _ends(child, rest, (*values, *found))


def _between(segment: str, texts: tuple[str, ...]) -> tuple[str, ...] | None:
    """What stands between texts in a segment, never nothing; what could lie further is left last.

    >>> _between("jobs(a(b))", ("", "(", ")"))
    ('jobs', 'a(b)')
    """
    first, *middle, last = texts
    if not (segment.startswith(first) and segment.endswith(last)):
        return None
    rest = segment[len(first) : len(segment) - len(last)]
    found = []
    for text in middle:
        value, hit, rest = rest.partition(text)
        if not hit or not value:
            return None
        found.append(value)
    return (*found, rest) if rest else None


def _methods(nodes: Iterator[_Node]) -> tuple[str, ...]:
    methods = {method for node in nodes for method in node.operations}
    if "GET" in methods:
        methods.add("HEAD")
    return tuple(sorted(methods | {"OPTIONS"})) if methods else ()
