"""Receiving and settling by hand: claims of receivers, and what they do with their locks."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar, Unpack
from uuid import UUID

from msgspec import Struct

from relevo import limits
from relevo.errors import (
    Conflict,
    EntityDisabled,
    InvalidValue,
    MessageLockLost,
    NotFound,
    Overloaded,
)
from relevo.kernel import checking, faults
from relevo.kernel.postgres import catalog, foreign
from relevo.kernel.postgres.binding import transaction_in
from relevo.kernel.postgres.grouping import Group
from relevo.messaging.core import content, tokens
from relevo.messaging.naming import KnownNames
from relevo.messaging.running.claims import Delivery
from relevo.messaging.running.context import Received, SettleOptions, completing
from relevo.messaging.sending import TOPIC
from relevo.messaging.transactions import naming_refusals

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence
    from contextlib import AbstractAsyncContextManager

    from relevo.kernel.postgres import Database, Transaction, Wakeups
    from relevo.messaging.core.names import Path
    from relevo.messaging.model import ReceiveMode

T = TypeVar("T")

SQL = catalog.load(__package__)
LOOK_SECONDS: Final = 0.25
"""How often a waiting receiver looks by itself: sends in callers' transactions wake nobody."""
SUB_QUEUES: Final = {None: 0, "dead_letters": 1, "transfer_dead_letters": 2}
REFUSALS: Final = {
    "missing": (NotFound, "there is no queue or subscription {!r}; create it first"),
    "disabled": (EntityDisabled, "{!r} gives no messages now; set its status to 'active'"),
    "sessions": (
        Conflict,
        "{!r} requires sessions; receive with accept_session() or accept_next()",
    ),
}


class Settlement(Struct, frozen=True, kw_only=True):
    """What the holder of a lock does with its message; `event` is one of the transition table."""

    token: UUID
    event: str
    delay: float | None = None
    until: datetime | None = None
    reason: str | None = None
    description: str | None = None
    checkpoint: bytes | None = None


def settlement(
    token: UUID | str,
    event: str,
    delay: float | timedelta | None = None,
    until: datetime | None = None,
    reason: str | None = None,
    description: str | None = None,
    checkpoint: bytes | None = None,
) -> Settlement:
    """Return a settlement that can be stored, or refuse it by name."""
    if delay is not None and until is not None:
        raise InvalidValue("abandon takes delay= or until=, not both", pointer="delay")
    if delay is not None:
        delay = checking.seconds(delay)
        if not 0 <= delay <= limits.MESSAGE_SECONDS_MAX:
            raise InvalidValue(
                f"delay is {delay:g} seconds; it must be from 0 to {limits.MESSAGE_SECONDS_MAX:g}",
                pointer="delay",
            )
    content.check_dead_letter(reason, description)
    tokens.parts_of(token)
    if checkpoint is not None:
        checkpoint = content.check_saved(
            "checkpoint", checkpoint, limits.MESSAGE_CHECKPOINT_BYTES_MAX
        )
    return Settlement(
        token=UUID(str(token)), event=event, delay=delay,
        until=None if until is None else checking.aware(until, "until"),
        reason=reason, description=description, checkpoint=checkpoint,
    )  # fmt: skip


class Receiving:
    """Claims and settles for receivers of this process."""

    def __init__(self, database: Database, wakeups: Wakeups) -> None:
        self._database = database
        self._wakeups = wakeups
        self._names = KnownNames(database)
        self.waiting: Counter[str] = Counter()
        """Receivers that wait now, by the key of their source."""
        self._settlements: Group[Settlement, None] = Group(
            "settle message", self.settle_all, key=lambda given: given.token.bytes[:8],
            metrics=database.metrics,
        )  # fmt: skip

    async def received(self, rows: Sequence[Any], *, locked: bool = True) -> list[Received]:
        """Return claimed rows as messages."""
        names = await self._names.of(rows)
        settling: Any = self if locked else UNLOCKED
        return [Received(Delivery.of(row), settling, names[row["entity_id"]]) for row in rows]

    async def receive(
        self,
        sources: Sequence[Path],
        max_messages: int,
        *,
        wait: float | None,
        mode: ReceiveMode,
    ) -> list[Any]:
        """Return 1 to `max_messages` claimed rows as soon as there is one; none after `wait`."""
        if not sources:
            raise InvalidValue("sources is empty; name at least one queue or subscription")
        if not 1 <= max_messages <= limits.MESSAGE_RECEIVED_MAX:
            raise InvalidValue(
                f"max_messages is {max_messages}; it must be from 1 to"
                f" {limits.MESSAGE_RECEIVED_MAX}",
                pointer="max_messages",
            )
        rows = await self._claim(sources, max_messages, mode)
        if rows or not wait:
            return rows
        deadline = asyncio.get_running_loop().time() + wait
        keys = [_entity_key(one) for one in sources]
        entities = await self._database.fetch(SQL.places, keys)
        topics = [TOPIC.format(row["id"]) for row in entities]
        with self._waits(keys), self._wakeups.signal(*topics) as woken:
            while True:
                rows = await self._claim(sources, max_messages, mode)
                left = deadline - asyncio.get_running_loop().time()
                if rows or left <= 0:
                    return rows
                await woken.wait(min(left, LOOK_SECONDS))

    @contextmanager
    def _waits(self, keys: Sequence[str]) -> Iterator[None]:
        """Count a receiver as waiting; too many at one source are refused."""
        for key in keys:
            if self.waiting[key] >= limits.MESSAGE_RECEIVERS_MAX:
                raise Overloaded(
                    f"{self.waiting[key]} receivers wait at {key!r} already; receive several"
                    " messages at once, or use consumers"
                )
        self.waiting.update(keys)
        try:
            yield
        finally:
            self.waiting -= Counter(keys)  # which forgets those that nobody waits at

    async def _claim(
        self, sources: Sequence[Path], max_messages: int, mode: ReceiveMode
    ) -> list[Any]:
        """Claim once. If the caller is canceled meanwhile, what it would have got is released."""
        claim = self._database.write(
            SQL.receive, [_entity_key(one) for one in sources],
            [SUB_QUEUES[one.sub_queue] for one in sources], max_messages, tokens.new_number(),
            mode == "receive_and_delete",
        )  # fmt: skip
        rows = await taken(claim, self.release)
        await faults.point("after_message_claim")
        if rows and rows[0]["kind"] in REFUSALS:
            error, text = REFUSALS[rows[0]["kind"]]
            raise error(text.format(rows[0]["message_id"]))
        return rows

    async def release(self, rows: Sequence[Any]) -> None:
        """Give claimed messages back that nobody has got."""
        claimed = [
            settlement(tokens.token_of(row["sequence"], row["token"]), "release")
            for row in rows
            if row["kind"] == "claimed"
        ]
        if claimed:
            await self.settle_all(claimed)

    async def settle(
        self, token: UUID, event: str, *, tx: Any = None, **options: Unpack[SettleOptions]
    ) -> None:
        """Settle a message by its lock; raises `MessageLockLost` if that is not held any more."""
        given = settlement(token, event, **options)
        if tx is None:
            await self._settlements.call(given)
            return
        tx = transaction_in(foreign.checked(tx), self._database.schema)
        [error] = await self._settle_with(tx, [given], remember=False)
        if error is not None:
            raise error

    async def save(self, message: Received, checkpoint: bytes) -> None:
        """Store a checkpoint of a held message."""
        delivery = message.delivery
        rows = await self._database.write(
            SQL.save_messages, [delivery.sequence], [delivery.token], [checkpoint], idempotent=True
        )
        if not rows:
            message.lost.set()
            raise _lock_lost(message.lock_token, "save")

    async def lock_seconds(self, message: Received) -> float | None:
        """Return for how long the lock of a message lasts, if it is not renewed."""
        delivery = message.delivery
        row = await self._database.fetchrow(SQL.lock_seconds, delivery.sequence, delivery.token)
        if row is None:
            raise _lock_lost(message.lock_token, "renew")
        seconds: float | None = row["seconds"]
        return seconds

    def transaction(self, message: Received) -> Any:
        """Give a transaction whose commit completes the message."""
        return completing(self._database, message, self)

    async def settle_all(self, given: Sequence[Settlement]) -> list[Exception | None]:
        """Carry out settlements in one statement; returns the error of each that was refused."""
        return await self._settle_with(self._database, given, remember=True)

    async def _settle_with(
        self, at: Any, given: Sequence[Settlement], *, remember: bool
    ) -> list[Exception | None]:
        """Write settlements with a database or a transaction."""
        parts = [tokens.parts_of(one.token) for one in given]
        options: list[list[Any]] = [
            [getattr(one, name) for one in given]
            for name in ("until", "delay", "reason", "description", "checkpoint")
        ]
        unsaid = [None] * len(given)
        arguments = (
            [sequence for sequence, _ in parts], [number for _, number in parts],
            [one.event for one in given],
            *([] if column == unsaid else column for column in options), remember,
        )  # fmt: skip
        await faults.point("before_message_settle")
        # Told apart by the tokens: a statement that is repeated finds its settlements done.
        if at is self._database:
            rows = await self._database.write(SQL.settle, *arguments, idempotent=remember)
        else:
            with naming_refusals():
                rows = await at.fetch(SQL.settle_in_transaction, *arguments[:-1])
        good = set(rows[0][0])
        return [
            None if sequence in good else _refusal(one, is_dead=-sequence in good)
            for one, (sequence, _) in zip(given, parts, strict=True)
        ]

    async def close(self) -> None:
        """Finish accepted settlements."""
        await self._settlements.close()


class Unlocked:
    """Settles nothing: what was received and deleted is nobody's any more."""

    async def settle(self, token: UUID, event: str, **options: Any) -> None:
        """Refuse a settlement."""
        del token, options
        raise Conflict(
            f"the message was received and deleted, so {event!r} has nothing to change; receive"
            " with mode='peek_lock' to settle messages"
        )

    async def save(self, message: Received, checkpoint: bytes) -> None:
        """Refuse a checkpoint."""
        del checkpoint
        await self.settle(message.lock_token, "save")

    async def lock_seconds(self, message: Received) -> float | None:
        """There is no lock."""
        del message
        return None

    def transaction(self, message: Received) -> AbstractAsyncContextManager[Transaction]:
        """Refuse a transaction."""
        raise Conflict(f"message {message.sequence_number} was received and deleted")


UNLOCKED: Final = Unlocked()


async def taken(call: Awaitable[T], give_back: Callable[[T], Awaitable[None]]) -> T:
    """Return what a call takes; if the caller is canceled meanwhile, it is given back."""
    taking = asyncio.ensure_future(call)
    try:
        return await asyncio.shield(taking)
    except asyncio.CancelledError:
        (found,) = await asyncio.gather(taking, return_exceptions=True)
        if not isinstance(found, BaseException):
            await asyncio.gather(give_back(found), return_exceptions=True)
        raise


def _refusal(given: Settlement, *, is_dead: bool) -> Exception:
    if is_dead:
        return Conflict(
            "a message in a dead-letter queue cannot be dead-lettered again; complete it, or"
            " redrive it to its queue or subscription"
        )
    return _lock_lost(given.token, given.event)


def _lock_lost(token: UUID, event: str) -> MessageLockLost:
    return MessageLockLost(
        f"the lock {token} is not held any more, so {event!r} changed nothing: it has expired, or"
        " the message was settled; the message may be delivered again"
    )


def _entity_key(path: Path) -> str:
    """The key of the entity itself, without its sub-queue."""
    return type(path)(path.entity, path.subscription).key
