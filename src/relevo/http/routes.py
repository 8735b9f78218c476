"""Finds the operation, or the page of the dashboard, that a path leads to."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final, Generic, Protocol, TypeVar

from msgspec import Struct, field

from relevo.errors import MethodNotAllowed, NotFound


class Route(Protocol):
    """What requests are routed to: an operation, or a page of the dashboard."""

    @property
    def name(self) -> str:
        """Its name, for errors."""

    @property
    def method(self) -> str:
        """The method of its requests."""

    @property
    def path(self) -> str:
        """Its path, with variable parts in braces."""

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the variable parts, in order."""


R = TypeVar("R", bound=Route)


class Match(Struct, Generic[R], frozen=True):
    """A route, which is as a rule an operation, and the path's variable parts, decoded."""

    operation: R
    parameters: dict[str, str]


_PARAMETER: Final = re.compile(r"\{[^}]*\}")


class _Node(Struct, Generic[R]):
    fixed: dict[str, _Node[R]] = field(default_factory=dict)
    variable: dict[tuple[str, ...], _Node[R]] = field(default_factory=dict)
    """By the texts between the variable parts of a segment: `("", ":cancel")` for `{id}:cancel`,
    `("", "(", ")")` for `{name}({id})`; those with most text first."""
    operations: dict[str, R] = field(default_factory=dict)


class Routes(Generic[R]):
    """Finds the operation of a request.

    A path may match several patterns, for an id may look like a word or end in `:verb`. The more
    literal one wins, but only if it has the method: `POST /jobs/x:cancel` cancels job `x`, while
    `GET /jobs/x:cancel` reads the job of that name.
    """

    def __init__(self, operations: Iterable[R]) -> None:
        self._root: _Node[R] = _Node()
        for operation in operations:
            self._add(operation)

    def find(self, method: str, segments: tuple[str, ...]) -> Match[R]:
        """Return the operation and its parameters, or raise `NotFound` or `MethodNotAllowed`."""
        found = list(_ends(self._root, segments, ()))
        wanted = "GET" if method == "HEAD" else method
        for node, values in found:
            operation = node.operations.get(wanted)
            if operation is not None:
                return Match(operation, dict(zip(operation.parameters, values, strict=True)))
        if not found:
            raise NotFound("there is no resource at this path; /openapi.json lists all paths")
        allowed = " or ".join(_methods(node for node, _ in found))
        raise MethodNotAllowed(f"{method} is not allowed on this path; use {allowed}")

    def allowed(self, segments: tuple[str, ...]) -> tuple[str, ...]:
        """Return the methods of a path; none if there is nothing."""
        return _methods(node for node, _ in _ends(self._root, segments, ()))

    def _add(self, operation: R) -> None:
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
    node: _Node[R], segments: tuple[str, ...], values: tuple[str, ...]
) -> Iterator[tuple[_Node[R], tuple[str, ...]]]:
    """Yield the nodes that match a path, the more literal ones first."""
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
    """Return the values between texts in a segment, each at least one character.

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


def _methods(nodes: Iterator[_Node[R]]) -> tuple[str, ...]:
    methods = {method for node in nodes for method in node.operations}
    if "GET" in methods:
        methods.add("HEAD")
    return tuple(sorted(methods | {"OPTIONS"})) if methods else ()
