"""Who may take a connection now, and who is next.

A turn is the right to one connection. It is given at once when the shares of the pool allow it, and
otherwise in the order in which it was asked for; among requests, keys take turns. Queries of users
come last: each may take seconds, and a pool of three has one connection for them and for all
others who may wait. Nothing here knows of connections.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from relevo.kernel.postgres.pool.shares import Shares
    from relevo.kernel.uses import Kind, Use


class _Kept:
    """Connections that are kept for a few uses."""

    __slots__ = ("active", "kept", "taken")

    def __init__(self, kept: int, *, active: bool) -> None:
        self.kept = kept
        self.active = active
        self.taken = 0


class _Share:
    """What one use has, and who waits for more of it."""

    __slots__ = ("by_key", "key_most", "line", "most", "taken", "waiting")

    def __init__(self, line: _Kept | None, most: int, key_most: int) -> None:
        self.line = line
        self.most = most
        self.key_most = key_most
        self.taken = 0
        self.by_key: dict[str, int] = {}
        self.waiting: dict[str, dict[asyncio.Future[None], int]] = {}
        """By key, the key that is next first: who waits, with their places in line."""


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
        """Take a turn, if there is one and nobody else waits for the same."""
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

    def join(self, use: Use) -> asyncio.Future[None]:
        """Wait for a turn: it is taken when the future is done; `forget` one that is given up."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._of[use.kind].waiting.setdefault(use.key, {})[turn] = next(self._places)
        self.waiting += 1
        return turn

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
        """Let nobody wait any longer."""
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
        """Give turns to whoever may have one, the longest waiting first, and queries last."""
        while (chosen := self._next()) is not None:
            share, key, turn = chosen
            self._remove(share, key, turn)
            if key in share.waiting:
                share.waiting[key] = share.waiting.pop(key)  # behind the other keys
            if not turn.done():  # else its caller was cancelled, and is about to forget it
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
