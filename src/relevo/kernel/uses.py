"""Uses of database connections, their shares of a pool, and whose turn it is. Pure.

**Use.** It is set where a kind of work begins: a supervised loop, a group, a handler, a request. It
is read where a connection is taken. In between it travels in a context variable, which tasks and
threads inherit.

**Shares.** Some connections are kept for a use, or for several that never wait for each other; the
rest float and go to the first that asks. A use that nothing has asked for yet keeps nothing. Uses
that may hold a connection for long (handlers, requests, the program) never get those kept for
others, so a caller that holds a connection and needs a second one always gets it:

- its statements have `inside`, its transactions `nested`, its grouped writes `groups`
- none of these shares with a use that waits for it

A pool of two has one connection beside the holder's, which the three share; with three or more, a
transaction within a transaction can also run statements.

**Turns.** A turn is the right to one connection. It is given at once when the shares allow it, and
otherwise in the order of asking; among requests, keys take turns. Queries of users come last: each
may take seconds, and a pool of three has one connection for them and everything else that waits.
"""

from __future__ import annotations

import contextvars
import itertools
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Literal, get_args

from msgspec import Struct

if TYPE_CHECKING:
    import asyncio
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
    """The purpose of taking a connection."""

    kind: Kind
    key: str = ""
    """Whose request it is; each key has its own share."""


class HeldConnection:
    """That a caller holds a connection, which a further one must not wait for."""

    __slots__ = ("of", "outer", "over")

    def __init__(self, of: object, outer: HeldConnection | None) -> None:
        self.of = of
        """The pool that the connection belongs to."""
        self.outer = outer
        self.over = False


class TakenCount:
    """How often some work has taken a connection: for a statement, or for a transaction."""

    __slots__ = ("number",)

    def __init__(self) -> None:
        self.number = 0


PROGRAM: Final = Use("program")
INSIDE: Final = Use("inside")
NESTED: Final = Use("nested")
_current: contextvars.ContextVar[Use] = contextvars.ContextVar("relevo_use", default=PROGRAM)
_holding: contextvars.ContextVar[HeldConnection | None] = contextvars.ContextVar(
    "relevo_holding", default=None
)
_counting: contextvars.ContextVar[TakenCount | None] = contextvars.ContextVar(
    "relevo_counting", default=None
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


@contextmanager
def counted() -> Iterator[TakenCount]:
    """Count how often what follows takes a connection, in this task and those it starts."""
    count = TakenCount()
    before = _counting.set(count)
    try:
        yield count
    finally:
        _counting.reset(before)


def count_taken() -> None:
    """Note that a connection is taken."""
    count = _counting.get()
    if count is not None:
        count.number += 1


def begin(kind: Kind, key: str = "") -> None:
    """Make the rest of this task work for a use, without the connections of its creator."""
    _current.set(Use(kind, key))
    _holding.set(None)


def holding() -> HeldConnection | None:
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


def hold(pool: object) -> HeldConnection:
    """Note that this work holds a connection of a pool, until `let_go`."""
    held = HeldConnection(pool, _holding.get())
    _holding.set(held)
    return held


def let_go(held: HeldConnection) -> None:
    """Hold a connection no longer; a block may end in another task than it began in."""
    held.over = True
    if _holding.get() is held:
        _holding.set(held.outer)


@contextmanager
def held_as(held: HeldConnection | None) -> Iterator[None]:
    """Note in this thread what a task for it was given; a block may be collected elsewhere."""
    before = _holding.get()
    _holding.set(held)
    try:
        yield
    finally:
        if _holding.get() is held:
            _holding.set(before)


_KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
_LINES: Final[tuple[tuple[tuple[Kind, ...], ...], ...]] = (
    (),
    (("inside", "nested", "groups"),),
    (("inside", "groups"), ("host", "nested")),
    (("inside",), ("groups",), ("host", "nested")),
    (("inside",), ("groups",), ("host",), ("nested",)),
    (("inside",), ("groups",), ("host",), ("nested",), ("program",)),
    (("inside",), ("groups",), ("host",), ("nested",), ("program",), ("requests",)),
    (("inside",), ("groups",), ("host",), ("nested",), ("program",), ("requests",), ("handlers",)),
)
"""Which uses share what is kept, by how many connections are kept in all."""
_ALWAYS: Final = frozenset({"inside", "nested", "groups"})
"""Uses that holders of connections wait for: kept from the start, since later is too late."""
_KEPT_SHARE: Final = 0.4
"""Of a large pool; a small one keeps up to half, so that each of these uses has a connection."""
_QUERIES_SHARE: Final = 0.2
_KEY_SHARE: Final = 0.5


class Line(Struct, frozen=True):
    """Connections that are kept for some uses."""

    kinds: tuple[Kind, ...]
    kept: int
    always: bool
    """Whether they are kept from the start."""


class Shares(Struct, frozen=True):
    """The connections that each use of a pool may take."""

    size: int
    lines: tuple[Line, ...]
    most: dict[Kind, int]
    """How many connections a use may have at a time."""
    key_most: dict[Kind, int]
    """How many of those one key may have."""


def shares(size: int) -> Shares:
    """Divide a pool of so many connections.

    >>> shares(10).most["handlers"], shares(10).most["queries"], shares(10).key_most["requests"]
    (4, 2, 2)
    """
    longest = len(_LINES) - 1
    kept = max(min(size - 1, 2), min(size // 2, longest), int(size * _KEPT_SHARE))
    lines = tuple(
        Line(
            kinds,
            kept // len(split) + (number < kept % len(split)),
            always=not _ALWAYS.isdisjoint(kinds),
        )
        for split in [_LINES[min(kept, longest)]]
        for number, kinds in enumerate(split)
    )
    floating = size - kept
    most: dict[Kind, int] = dict.fromkeys(_KINDS, size)
    for kind in ("handlers", "requests", "inside"):
        own = sum(line.kept for line in lines if line.kinds == (kind,))
        most[kind] = own + max(1, floating - 1)
    most["queries"] = max(1, int(size * _QUERIES_SHARE))
    keyed: tuple[Kind, ...] = ("requests", "queries")
    key_most = {kind: max(1, int(most[kind] * _KEY_SHARE)) for kind in keyed}
    return Shares(size, lines, most, key_most)


class _Kept:
    """Connections that are kept for a few uses."""

    __slots__ = ("active", "kept", "taken")

    def __init__(self, kept: int, *, active: bool) -> None:
        self.kept = kept
        self.active = active
        self.taken = 0


class _Share:
    """The turns of a use, and its waiting callers."""

    __slots__ = ("by_key", "key_most", "line", "most", "taken", "waiting")

    def __init__(self, line: _Kept | None, most: int, key_most: int) -> None:
        self.line = line
        self.most = most
        self.key_most = key_most
        self.taken = 0
        self.by_key: dict[str, int] = {}
        self.waiting: dict[str, dict[asyncio.Future[None], int]] = {}
        """Waiting callers with their places in line, by key; the next key comes first."""


class Turns:
    """Gives out as many turns as there are connections; used from one event loop."""

    def __init__(self, shares: Shares) -> None:
        self.shares = shares
        lines = [_Kept(line.kept, active=line.always) for line in shares.lines]
        line_of = {
            kind: lines[number] for number, line in enumerate(shares.lines) for kind in line.kinds
        }
        self._of: dict[Kind, _Share] = {
            kind: _Share(line_of.get(kind), most, shares.key_most.get(kind, most))
            for kind, most in shares.most.items()
        }
        self._taken = 0
        self._floating = 0
        self._floating_max = shares.size - sum(line.kept for line in lines if line.active)
        self._places = itertools.count()
        self.waiting = 0

    def taken(self, kind: Kind) -> int:
        """How many turns a use has."""
        return self._of[kind].taken

    def enter(self, use: Use) -> bool:
        """Take a turn, if one is free and no other caller waits for the same."""
        share = self._of[use.kind]
        if share.line is not None and not share.line.active:
            share.line.active = True
            self._floating_max -= share.line.kept
        if share.waiting and use.key in share.waiting:
            return False
        if not self._admits(share, use.key):
            return False
        self._count(share, use.key)
        return True

    def join(self, use: Use, turn: asyncio.Future[None]) -> None:
        """Wait for a turn: it is taken when the future is done; `forget` one that is given up."""
        self._of[use.kind].waiting.setdefault(use.key, {})[turn] = next(self._places)
        self.waiting += 1

    def forget(self, use: Use, turn: asyncio.Future[None]) -> None:
        """Wait no longer; a turn that was given meanwhile goes to the next."""
        if turn.done() and not turn.cancelled():
            self.leave(use)
        else:
            self._remove(self._of[use.kind], use.key, turn)

    def leave(self, use: Use) -> None:
        """Give a turn back."""
        share = self._of[use.kind]
        share.taken -= 1
        self._taken -= 1
        line = share.line
        if line is None or line.taken > line.kept:
            self._floating -= 1
        if line is not None:
            line.taken -= 1
        if use.key:
            share.by_key[use.key] -= 1
            if not share.by_key[use.key]:
                del share.by_key[use.key]
        if self.waiting:
            self._give()

    def fail(self, error: Exception) -> None:
        """End all waits with an error."""
        for share in self._of.values():
            for turns in share.waiting.values():
                for turn in turns:
                    if not turn.done():
                        turn.set_exception(error)
            share.waiting.clear()
        self.waiting = 0

    def _admits(self, share: _Share, key: str) -> bool:
        if self._taken >= self.shares.size or share.taken >= share.most:
            return False
        if key and share.by_key.get(key, 0) >= share.key_most:
            return False
        line = share.line
        return (line is not None and line.taken < line.kept) or self._floating < self._floating_max

    def _count(self, share: _Share, key: str) -> None:
        share.taken += 1
        self._taken += 1
        line = share.line
        if line is not None:
            line.taken += 1
        if line is None or line.taken > line.kept:
            self._floating += 1
        if key:
            share.by_key[key] = share.by_key.get(key, 0) + 1

    def _give(self) -> None:
        """Give free turns, the longest waiting caller first, and queries last."""
        while (chosen := self._next()) is not None:
            share, key, turn = chosen
            self._remove(share, key, turn)
            if key in share.waiting:
                share.waiting[key] = share.waiting.pop(key)  # behind the other keys
            if not turn.done():  # else its caller was canceled, and is about to forget it
                self._count(share, key)
                turn.set_result(None)

    def _next(self) -> tuple[_Share, str, asyncio.Future[None]] | None:
        best: tuple[_Share, str, asyncio.Future[None]] | None = None
        last, earliest = best, -1
        for kind, share in self._of.items():
            if not share.waiting:
                continue
            key = self._next_key(share)
            if not self._admits(share, key):
                continue
            turn, place = next(iter(share.waiting[key].items()))
            if kind == "queries":
                last = share, key, turn
            elif best is None or place < earliest:
                best, earliest = (share, key, turn), place
        return best or last

    def _next_key(self, share: _Share) -> str:
        """The key with the fewest turns, of these the one that got none for longest."""
        return min(share.waiting, key=lambda key: share.by_key.get(key, 0))

    def _remove(self, share: _Share, key: str, turn: asyncio.Future[None]) -> None:
        turns = share.waiting.get(key, {})
        if turns.pop(turn, None) is not None:
            self.waiting -= 1
            if not turns:
                del share.waiting[key]
