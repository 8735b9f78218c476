"""A lease that this host owns, as parts use it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Literal, Protocol

from relevo.errors import HostFenced, LeaseLost
from relevo.kernel.leases.hosts import instant
from relevo.kernel.leases.load import Meter
from relevo.kernel.leases.model import IDLE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from relevo.kernel.leases.hosts import Deadline
    from relevo.kernel.leases.model import Fence, Load, Position
    from relevo.kernel.postgres.wakeups import Signal

ReleaseReason = Literal[
    "handoff", "paused", "blocked", "shutdown", "split", "rewind", "hang", "handler_error", "lost",
    "expired",
]  # fmt: skip


class Lease:
    """Fenced ownership of one unit of work.

    A holder runs while it owns the lease and returns soon after `stopping` is set, having saved its
    position. Before each piece of work it calls `check()`; every write in the lease's name carries
    `fence`. When the lease is lost the holder's task is canceled.
    """

    def __init__(
        self,
        fence: Fence,
        position: Position,
        deadline: Deadline,
        *,
        clean: bool,
        save: Callable[[Lease, Position], Awaitable[None]],
        load: Load = IDLE,
    ) -> None:
        self.fence = fence
        self.position = position
        self.clean = clean
        """Whether the previous owner released it in order."""
        self.stopping = asyncio.Event()
        self.release_reason: ReleaseReason | None = None
        self.over = False
        """Lost, released or handed over: nothing may be done in its name any more."""
        self.meter = Meter(load, instant())
        """How busy it is, as reported by the code that runs its handlers."""
        self.stored_load = load
        self.failures = 0
        """Consecutive failed calls of a handler, counted by the code that runs them."""
        self.caught_up = False
        """Whether its reader has caught up."""
        self.dissolving = False
        """Others are about to take its place: when it is gone, it was not lost."""
        self._deadline = deadline
        self._save = save

    @property
    def unit(self) -> str:
        """Name of the unit this lease belongs to."""
        return self.fence.unit

    @property
    def name(self) -> str:
        """Name of the lease within its unit."""
        return self.fence.name

    @property
    def epoch(self) -> int:
        """The fencing number: grows with every change of ownership."""
        return self.fence.epoch

    @property
    def may_act(self) -> bool:
        """Whether work may start and results may leave, at this instant."""
        return not self.over and not self._deadline.passed

    def check(self) -> None:
        """Raise `LeaseLost` or `HostFenced` unless work in the lease's name may start now."""
        if self.over:
            raise LeaseLost(
                f"lease {self.name!r} of {self.unit!r} is no longer this host's at epoch"
                f" {self.epoch}; it was {self.release_reason or 'released'}"
            )
        if self._deadline.passed:
            raise HostFenced(
                "this host has not renewed in time and may not act until it has; the database"
                " is unreachable or the process was suspended"
            )

    async def save(self, position: Position) -> None:
        """Store the progress of the work; raises `LeaseLost` if another host owns the lease."""
        await self._save(self, position)
        self.position = position

    def ask_to_stop(self, reason: ReleaseReason) -> None:
        """Ask the holder to finish; the first reason is kept."""
        if not self.stopping.is_set():
            self.release_reason = reason
            self.stopping.set()

    async def until_stopping(self, woken: Signal, seconds: float) -> bool:
        """Sleep until a wake-up comes, then return True, or it must stop; False after `seconds`."""
        waits = [
            asyncio.ensure_future(woken.wait(seconds)),
            asyncio.ensure_future(self.stopping.wait()),
        ]
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            return any(one.result() for one in done)
        finally:
            for one in waits:
                one.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    def recall(self) -> bool:
        """Withdraw a hand-off request, unless the holder has to stop for another reason."""
        if self.release_reason != "handoff":
            return False
        self.release_reason = None
        self.stopping.clear()
        return True

    def __repr__(self) -> str:
        return f"Lease({self.unit}/{self.name} epoch {self.epoch})"


class Holder(Protocol):
    """The coroutine that a part runs for each lease it owns."""

    async def __call__(self, lease: Lease) -> None:
        """Work until `lease.stopping` is set, then return."""
