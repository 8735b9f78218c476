"""The context of a change handler."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from msgspec import Struct

from relevo.errors import Conflict, InvalidValue, OutcomeUnknown
from relevo.kernel import callables
from relevo.kernel.postgres.handler_transactions import HandlerTransactions, lent
from relevo.kernel.running.verdicts import RetryLater

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
    from contextlib import AbstractAsyncContextManager

    from relevo.feed.model import Change
    from relevo.kernel.leases import Fence
    from relevo.kernel.postgres import Transaction
    from relevo.kernel.postgres.handler_transactions import HandlerTransaction
    from relevo.store.ranges import Interval


class HeldLease(Protocol):
    """The lease of a context."""

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


class Diagnostics(Struct, frozen=True, kw_only=True):
    """Times and counts of a call, to investigate delays."""

    read_seconds: float = 0.0
    """How long reading the changes took."""
    wait_seconds: float = 0.0
    """How long they waited, once read, for the call."""
    rows: int = 0
    range_ids: tuple[int, ...] = ()
    attempts: int = 1


class ChangeContext:
    """One call of a handler: its lease and attempt, and how to confirm its changes."""

    def __init__(
        self,
        lease: HeldLease,
        interval: Interval,
        attempt: int,
        *,
        confirm: Callable[[Change[Any] | None], Awaitable[bool]],
        open_transaction: Callable[[], Any],
        confirm_in: Callable[[Transaction], Awaitable[None]],
        committed: Callable[[], None],
        undone: Callable[[bool], None] = lambda _: None,
        headers: Callable[[], Mapping[str, Any]] | None = None,
        diagnostics: Diagnostics | None = None,
        redrive: bool = False,
    ) -> None:
        self._lease = lease
        self._confirm = confirm
        self._open_transaction = open_transaction
        self._confirm_in = confirm_in
        self._committed = committed
        self._undone = undone
        self._headers = headers
        self._canceled = False
        self._transactions = HandlerTransactions()
        self.feed_range = interval
        self.attempt = attempt
        """1 for the first delivery of this batch, counted over all hosts."""
        self.diagnostics = diagnostics or Diagnostics(attempts=attempt)
        """Times and numbers of this call."""
        self.redrive = redrive
        """Whether this is a dead letter that an operator sends again."""
        self.confirmed = False
        """Whether all of this call's changes are confirmed."""
        self.in_doubt = False
        """Whether it is unknown if a transaction of this call was committed."""

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
        """Proof of ownership for `relevo.kernel.leases.require`."""
        return self._lease.fence

    @property
    def handoff_requested(self) -> bool:
        """Whether another host waits for this lease; finishing early shortens its wait."""
        return self._lease.stopping.is_set()

    @property
    def canceled(self) -> bool:
        """Whether the lease was lost or the time is up: stop, nothing will count."""
        return self._canceled or not self._lease.may_act

    def cancel(self) -> None:
        """Tell a handler that looks at `canceled` to end."""
        self._canceled = True

    @property
    def headers(self) -> Mapping[str, Any]:
        """The reference's headers: `continuation`, `lsn`, `item_count`, `request_charge`.

        The continuation is a pull token behind this call's changes, for `read_changes`.
        """
        if self._headers is None:
            return {"item_count": 1, "request_charge": 0}
        return self._headers()

    def retry_later(self, seconds: float) -> NoReturn:
        """End this call; the same changes come again after `seconds`. This is not a failure.

        It raises `relevo.RetryLater`, so nothing behind it in the handler is run. Changes that were
        confirmed stay so.
        """
        raise RetryLater(seconds)

    async def confirm(self, change: Change[Any] | None = None) -> None:
        """Confirm the batch, or everything up to the group of one change of it."""
        if self._transactions.is_open:
            raise Conflict(
                "inside of ctx.transaction() the checkpoint is committed with the effects; leave"
                " its block instead of calling ctx.confirm()"
            )
        self.confirmed = await self._confirm(change) or self.confirmed

    def transaction(self) -> AbstractAsyncContextManager[Transaction]:
        """Commit effects together with the checkpoint: exactly once in this database.

        The checkpoint is the last statement and carries the fence; if the lease was lost, all of it
        is rolled back and `LeaseLost` is raised. A call has one transaction at a time, which its
        block alone begins and ends; one that is left open is rolled back, and the call has failed.
        """
        return self._transactions.block(self._begin())

    async def end_call(self, *, for_good: bool = True) -> None:
        """Roll back a transaction that the handler left open; raises `HandlerError` then.

        Unless it is `for_good`, the handler may confirm later.
        """
        await self._transactions.end(for_good=for_good)

    @asynccontextmanager
    async def _begin(self) -> AsyncIterator[HandlerTransaction]:
        if self.confirmed:
            raise Conflict("this batch is confirmed already")
        if self.in_doubt:
            raise OutcomeUnknown(
                "whether a transaction of this call was committed is unknown; end the call,"
                " and Relevo delivers the unconfirmed changes again"
            )
        confirming = False
        try:
            async with self._open_transaction() as connection:
                async with lent(connection) as tx:
                    yield tx
                confirming = True
                await self._confirm_in(connection)
        except BaseException as error:
            self.in_doubt = confirming and isinstance(
                error, OutcomeUnknown | asyncio.CancelledError
            )
            self._undone(self.in_doubt)
            raise
        self._committed()
        self.confirmed = True


def wants_context(handler: Callable[..., Any], what: str = "the handler") -> bool:
    """Whether a handler takes (ctx, changes) instead of (changes).

    Raises `InvalidValue` for a handler with other parameters, or one that would do nothing.
    """
    callables.check(handler, what)
    needed = [
        p
        for p in callables.parameters(handler, what)
        if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    if len(needed) not in (1, 2) or any(p.kind is p.KEYWORD_ONLY for p in needed):
        raise InvalidValue(
            f"{what} takes (changes) or (ctx, changes), not ({', '.join(map(str, needed))})"
        )
    callables.check_parameters(needed[1:], what)
    return len(needed) == 2
