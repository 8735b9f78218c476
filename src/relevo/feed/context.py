"""What a handler of changes is told, and what it may ask for."""

from __future__ import annotations

import inspect
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol

from relevo.errors import Conflict

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator, Awaitable, Callable

    from relevo.feed.model import Change
    from relevo.leases import Fence
    from relevo.postgres import Transaction
    from relevo.store.ranges import Interval


class Held(Protocol):
    """What a context needs to know of the lease that it speaks for."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def epoch(self) -> int:
        """Its epoch."""

    @property
    def may_act(self) -> bool:
        """Whether results count."""

    fence: Fence
    stopping: asyncio.Event


class Context:
    """One call of a handler: which lease, which attempt, and how to confirm what was done."""

    def __init__(
        self,
        lease: Held,
        interval: Interval,
        attempt: int,
        *,
        confirm: Callable[[Change[Any] | None], Awaitable[bool]],
        open_transaction: Callable[[], Any],
        confirm_in: Callable[[Transaction], Awaitable[None]],
        committed: Callable[[], None],
        redrive: bool = False,
    ) -> None:
        self._lease = lease
        self._confirm = confirm
        self._open_transaction = open_transaction
        self._confirm_in = confirm_in
        self._committed = committed
        self._cancelled = False
        self.feed_range = interval
        self.attempt = attempt
        """1 for the first delivery of this batch, counted over all hosts."""
        self.redrive = redrive
        """Whether this is a dead letter that an operator sends again."""
        self.confirmed = False
        """Whether all of this call's changes are confirmed."""

    @property
    def lease_token(self) -> str:
        """Name of the lease: the interval it covers."""
        return self._lease.name

    @property
    def epoch(self) -> int:
        """Grows with every change of owner; orders owners for systems outside."""
        return self._lease.epoch

    @property
    def fence(self) -> Fence:
        """Proof of ownership for `relevo.leases.require`."""
        return self._lease.fence

    @property
    def handoff_requested(self) -> bool:
        """Whether another host waits for this lease; finishing early shortens its wait."""
        return self._lease.stopping.is_set()

    @property
    def cancelled(self) -> bool:
        """Whether the lease was lost or the time is up: stop, nothing will count."""
        return self._cancelled or not self._lease.may_act

    def cancel(self) -> None:
        """Tell a handler that looks at `cancelled` to end."""
        self._cancelled = True

    async def checkpoint(self, change: Change[Any] | None = None) -> None:
        """Confirm the batch, or everything up to the group of one change of it."""
        self.confirmed = await self._confirm(change) or self.confirmed

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        """Commit effects together with the checkpoint: exactly once in this database.

        The checkpoint is the last statement and carries the fence; if the lease was lost, all of it
        is rolled back and `LeaseLost` is raised.
        """
        if self.confirmed:
            raise Conflict("this batch is confirmed already")
        async with self._open_transaction() as tx:
            yield tx
            await self._confirm_in(tx)
        self._committed()
        self.confirmed = True


def wants_context(handler: Callable[..., Any]) -> bool:
    """Whether a handler takes (ctx, changes) instead of (changes); refuse other signatures."""
    parameters = [
        p
        for p in inspect.signature(handler).parameters.values()
        if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    if len(parameters) not in (1, 2):
        raise TypeError(
            f"a handler takes (changes) or (ctx, changes), not {len(parameters)} values"
        )
    return len(parameters) == 2
