"""What work is for, which decides which connections of the pool it may take.

The use is set in the few places where a kind of work begins: a supervised loop, a group, a handler,
a request. It is read where a connection is taken. Everything in between passes it on unseen, since
it is a context variable that tasks and threads inherit.
"""

from __future__ import annotations

import contextvars
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator

Kind = Literal[
    "host", "groups", "handlers", "requests", "queries", "program", "inside", "nested"
]  # fmt: skip
"""host       Relevo's own loops: claims, feed reads, the matcher, housekeeping
groups     statements that carry grouped calls
handlers   handlers of users, and the transactions they open
requests   HTTP callers; each key has a share
queries    queries that users write: OData, FetchXML
program    everything else
inside     statements of a caller that holds a connection already
nested     transactions of a caller that holds a connection already"""


class Use(Struct, frozen=True):
    """What a connection is taken for."""

    kind: Kind
    key: str = ""
    """Whose request it is; each key has its own share."""


class Hold:
    """That a caller holds a connection, which a further one must not wait for."""

    __slots__ = ("of", "outer", "over")

    def __init__(self, of: object, outer: Hold | None) -> None:
        self.of = of
        """The pool that the connection belongs to."""
        self.outer = outer
        self.over = False


PROGRAM: Final = Use("program")
INSIDE: Final = Use("inside")
NESTED: Final = Use("nested")
_current: contextvars.ContextVar[Use] = contextvars.ContextVar("relevo_use", default=PROGRAM)
_holding: contextvars.ContextVar[Hold | None] = contextvars.ContextVar(
    "relevo_holding", default=None
)
current = _current.get
"""Return the use of the work that asks."""


@contextmanager
def used_for(kind: Kind, key: str = "") -> Iterator[None]:
    """Do what follows for a use."""
    before = _current.set(Use(kind, key))
    try:
        yield
    finally:
        _current.reset(before)


def begin(kind: Kind, key: str = "") -> None:
    """Make the rest of this task work for a use, whoever started the task, and hold nothing."""
    _current.set(Use(kind, key))
    _holding.set(None)


def holding() -> Hold | None:
    """Return the innermost connection that this work was given and may still hold."""
    return _holding.get()


def is_holding(pool: object) -> bool:
    """Whether this work holds a connection of a pool.

    A task that was started within a transaction and outlives it does not.
    """
    held = _holding.get()
    while held is not None and (held.over or held.of is not pool):
        held = held.outer
    return held is not None


def hold(pool: object) -> Hold:
    """Note that this work holds a connection of a pool, until `let_go`."""
    held = Hold(pool, _holding.get())
    _holding.set(held)
    return held


def let_go(held: Hold) -> None:
    """Hold a connection no longer; a block may end in another task than it began in."""
    held.over = True
    if _holding.get() is held:
        _holding.set(held.outer)


@contextmanager
def held_as(held: Hold | None) -> Iterator[None]:
    """Note in this thread what a task for it was given; a block may be collected elsewhere."""
    before = _holding.get()
    _holding.set(held)
    try:
        yield
    finally:
        if _holding.get() is held:
            _holding.set(before)
