"""A call of a handler of consumers: its messages, and what the handler does with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack

from relevo.errors import MessageLockLost
from relevo.kernel.postgres.handler_transactions import HandlerTransactions
from relevo.kernel.running.threads import entered, is_here, waited
from relevo.messaging.running.context import NO_NAMES, Preempted, Received, completing

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Coroutine, Mapping
    from contextlib import AbstractAsyncContextManager
    from uuid import UUID

    from relevo.kernel.postgres import Database, Transaction
    from relevo.kernel.running.threads import Threads
    from relevo.messaging.receiving import Receiving
    from relevo.messaging.running.claims import Delivery, MessageClaim
    from relevo.messaging.running.context import EntityNames, SettleOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Workplace:
    """Shared by all calls of a host."""

    database: Database
    receiving: Receiving
    """Settles what handlers settle themselves."""
    save: Callable[[tuple[Delivery, bytes]], Awaitable[bool | None]]
    """Stores a checkpoint; returns whether the handler is asked to suspend, None if it lost it."""
    loop: asyncio.AbstractEventLoop
    threads: Threads
    """Where plain functions run."""


class ConsumerCall:
    """One call of a handler, with one message or a batch of them."""

    # Defaults are on the class, because most calls change none of them.
    cut_for: BaseException | None = None
    """Why the host ends the call, such as a time limit."""
    _gone = False
    _transactions: HandlerTransactions | None = None

    def __init__(
        self,
        claim: MessageClaim,
        workplace: Workplace,
        names: Mapping[int, EntityNames],
        now: float,
    ) -> None:
        self._at = workplace
        self.beaten_at = now
        self.messages = [
            Received(one, self, names.get(one.entity_id, NO_NAMES)) for one in claim.deliveries
        ]

    @property
    def gone(self) -> bool:
        """Whether its messages are not this host's any more."""
        return self._gone

    @gone.setter
    def gone(self, gone: bool) -> None:
        self._gone = gone
        if gone:
            for message in self.messages:
                message.lost.set()

    @property
    def settled(self) -> bool:
        """Whether the handler has settled all its messages."""
        return self.messages[0].is_settled and all(one.is_settled for one in self.messages)

    @property
    def left(self) -> list[Received]:
        """The messages that the handler has not settled."""
        return [message for message in self.messages if not message.is_settled]

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """Where the call is at work."""
        return self._at.loop

    @property
    def threads(self) -> Threads:
        """Where plain functions run."""
        return self._at.threads

    @property
    def has_transactions(self) -> bool:
        """Whether the handler has begun any, which may be open."""
        return self._transactions is not None

    async def end_call(self) -> None:
        """Roll back a transaction that the handler left open; raises `HandlerError` then."""
        if self._transactions is not None:
            await self._transactions.end()

    async def settle(
        self, token: UUID, event: str, *, tx: Any = None, **options: Unpack[SettleOptions]
    ) -> None:
        """As `Settling.settle`."""
        self._check()
        await self._at.receiving.settle(token, event, tx=tx, **options)

    async def save(self, message: Received, checkpoint: bytes) -> None:
        """As `Settling.save`."""
        self._check()
        asked = await self._at.save((message.delivery, checkpoint))
        if asked is None:
            message.lost.set()
            raise MessageLockLost(
                f"message {message.sequence_number} is not held by this host any more; it may be"
                " delivered again"
            )
        if asked or message.preempt_requested:
            raise Preempted(f"message {message.sequence_number} is to make room")
        self._check()

    async def lock_seconds(self, message: Received) -> float | None:
        """As `Settling.lock_seconds`: as long as the host lives."""
        del message
        return None

    def transaction(self, message: Received) -> AbstractAsyncContextManager[Transaction]:
        """As `Settling.transaction`; one at a time, and none longer than the call."""
        self._check()
        if self._transactions is None:
            self._transactions = HandlerTransactions()
        return self._transactions.block(completing(self._at.database, message, self))

    def _check(self) -> None:
        if self.cut_for is not None:
            raise self.cut_for


class BlockingReceived:
    """A message as a plain function sees it, in a thread: the same names, without `await`.

    A coroutine that such a function returns runs in the event loop; there it is the message itself.
    """

    def __init__(self, message: Received, loop: asyncio.AbstractEventLoop) -> None:
        self._message = message
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        """Everything that does not wait is that of the message itself."""
        return getattr(self._message, name)

    def __repr__(self) -> str:
        """As the message."""
        return repr(self._message)

    def complete(self, **options: Any) -> Any:
        """As `Received.complete`."""
        return self._done(self._message.complete(**_inner(options)))

    def abandon(self, **options: Any) -> Any:
        """As `Received.abandon`."""
        return self._done(self._message.abandon(**_inner(options)))

    def defer(self, **options: Any) -> Any:
        """As `Received.defer`."""
        return self._done(self._message.defer(**_inner(options)))

    def dead_letter(self, *texts: str, **options: Any) -> Any:
        """As `Received.dead_letter`."""
        return self._done(self._message.dead_letter(*texts, **_inner(options)))

    def release(self, **options: Any) -> Any:
        """As `Received.release`."""
        return self._done(self._message.release(**_inner(options)))

    def suspend(self, checkpoint: bytes | None = None) -> Any:
        """As `Received.suspend`."""
        return self._done(self._message.suspend(checkpoint))

    def renew(self) -> Any:
        """As `Received.renew`."""
        return self._done(self._message.renew())

    def save(self, checkpoint: bytes) -> Any:
        """As `Received.save`."""
        return self._done(self._message.save(checkpoint))

    def preempted(self) -> Any:
        """As `Received.preempted`."""
        return self._done(self._message.preempted())

    def transaction(self) -> Any:
        """As `Received.transaction`, entered by a plain `with`."""
        manager = self._message.transaction()
        return manager if is_here(self._loop) else entered(manager, self._loop)

    def _done(self, work: Coroutine[Any, Any, None]) -> Any:
        return work if is_here(self._loop) else waited(work, self._loop)


def _inner(options: dict[str, Any]) -> dict[str, Any]:
    """Give the event loop the transaction itself that a thread has the blocking side of."""
    if "tx" in options:
        options["tx"] = getattr(options["tx"], "running", options["tx"])
    return options
