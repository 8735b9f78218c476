"""A received message: what it carries, and how its holder settles it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol, TypedDict, Unpack

import msgspec
from msgspec import Struct

from relevo import limits
from relevo.errors import Conflict, MessageLockLost
from relevo.kernel.postgres.handler_transactions import lent
from relevo.kernel.running.verdicts import Interruption
from relevo.messaging.core import content
from relevo.messaging.core.heads import Head, decoded_head
from relevo.messaging.running.renewal import renewing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager
    from datetime import datetime, timedelta
    from uuid import UUID

    from relevo.kernel.postgres import Database, Transaction
    from relevo.kernel.postgres.handler_transactions import HandlerTransaction
    from relevo.messaging.model import Value
    from relevo.messaging.running.claims import Delivery

BYTES: Final = 0
TEXT: Final = 1


class Preempted(Interruption):
    """Raised by `msg.save` when a message of a higher class needs the slot: let it propagate.

    The message is suspended: it goes back to its place, and its next delivery has the checkpoint.
    """


class SettleOptions(TypedDict, total=False):
    """What a settlement says beside its event; see `Received`."""

    delay: float | timedelta | None
    until: datetime | None
    reason: str | None
    description: str | None
    checkpoint: bytes | None


class Settling(Protocol):
    """Carries out the settlements of received messages, for a host or for a receiver."""

    async def settle(
        self, token: UUID, event: str, *, tx: Any = None, **options: Unpack[SettleOptions]
    ) -> None:
        """Settle a message; raises `MessageLockLost` if the lock is not held any more."""

    async def save(self, message: Received, checkpoint: bytes) -> None:
        """Store a checkpoint; raises `Preempted` if the handler is to suspend."""

    async def lock_seconds(self, message: Received) -> float | None:
        """Return how long the lock lasts; None while a host lives that holds it."""

    def transaction(self, message: Received) -> AbstractAsyncContextManager[Transaction]:
        """Give a transaction whose commit completes the message."""


class EntityNames(Struct, frozen=True):
    """What an entity and its classes are called."""

    path: str = ""
    classes: Mapping[int, str] = {}


NO_NAMES: Final = EntityNames()


class Received:
    """A message, held under a lock until it is settled.

    >>> async def draw(msg: Received) -> None:
    ...     start = int(msg.checkpoint or b"0")
    ...     for frame in range(start, 1000):
    ...         await draw_one(msg.body, frame)
    ...         await msg.save(str(frame).encode())  # leaves here if it is preempted
    """

    # Defaults are on the class, because most messages change none of them.
    is_settled = False
    """Whether its holder has settled it."""
    in_doubt = False
    """Whether a transaction that may not have committed yet settled it."""
    preempt_deadline: datetime | None = None
    """When a handler that was asked to suspend has had its time, by this host's clock."""
    preempt_requested = False
    """Whether a message of a higher class needs the slot."""
    _body: Any = None
    _head: Head | None = None
    _lost: asyncio.Event | None = None
    _preempted: asyncio.Event | None = None

    def __init__(
        self, delivery: Delivery, settling: Settling, names: EntityNames = NO_NAMES
    ) -> None:
        self._delivery = delivery
        self._settling = settling
        self._names = names
        self.checkpoint = delivery.checkpoint
        """What the last `save` or `suspend` stored; None at first."""

    def __repr__(self) -> str:
        """Say which message it is, not what it holds."""
        return f"<Received {self.sequence_number} from {self.source!r}>"

    @property
    def delivery(self) -> Delivery:
        """The row as it was claimed."""
        return self._delivery

    @property
    def names(self) -> EntityNames:
        """What its entity and classes are called."""
        return self._names

    @property
    def body(self) -> Any:
        """The body as it was sent: bytes, text, or the value of a JSON text."""
        if self._body is None:
            data, kind = self._delivery.body, self._delivery.body_kind
            if kind == BYTES:
                return data
            self._body = data.decode() if kind == TEXT else msgspec.json.decode(data)
        return self._body

    @property
    def _fields(self) -> Head:
        if self._head is None:
            self._head = decoded_head(self._delivery.head)
        return self._head

    @property
    def properties(self) -> Mapping[str, Value]:
        """The application properties that the sender set."""
        return self._fields.properties

    @property
    def message_id(self) -> str:
        """The id that the sender gave, or a UUID."""
        return self._delivery.message_id

    @property
    def session_id(self) -> str | None:
        """The session that it belongs to."""
        return self._fields.session_id

    @property
    def reply_to_session_id(self) -> str | None:
        """The session in which an answer is awaited."""
        return self._fields.reply_to_session_id

    @property
    def partition_key(self) -> str | None:
        """As the sender set it; Relevo does not use it."""
        return self._fields.partition_key

    @property
    def correlation_id(self) -> str | None:
        """What it belongs to, as the sender set it."""
        return self._fields.correlation_id

    @property
    def subject(self) -> str | None:
        """What it is about, as the sender set it."""
        return self._fields.subject

    @property
    def to(self) -> str | None:
        """Whom it is for, as the sender set it."""
        return self._fields.to

    @property
    def reply_to(self) -> str | None:
        """Where an answer goes, as the sender set it."""
        return self._fields.reply_to

    @property
    def content_type(self) -> str | None:
        """The media type of the body, as the sender set it."""
        return self._fields.content_type

    @property
    def envelope(self) -> bytes | None:
        """What a wire protocol carries beyond these fields, as it came."""
        return self._fields.envelope

    @property
    def source(self) -> str:
        """The path of the queue or subscription that it comes from."""
        return self._names.path

    @property
    def sequence_number(self) -> int:
        """Its number, unique and never used again."""
        return self._delivery.sequence

    @property
    def enqueued_sequence_number(self) -> int:
        """Its number at the first entity of a chain of forwards."""
        return self._delivery.enqueued_sequence or self._delivery.sequence

    @property
    def enqueued_at(self) -> datetime:
        """When it arrived."""
        return self._delivery.enqueued_at

    @property
    def expires_at(self) -> datetime | None:
        """When its time to live ends."""
        return self._delivery.expires_at

    @property
    def locked_until(self) -> datetime | None:
        """When its lock expires; None while a host holds it, whose life decides."""
        return self._delivery.locked_until

    @property
    def delivery_count(self) -> int:
        """Failed deliveries so far: 0 at the first."""
        return self._delivery.delivery_count

    @property
    def preempt_count(self) -> int:
        """How often it was suspended."""
        return self._delivery.preempt_count

    @property
    def priority(self) -> int:
        """0 to 9, 9 is the most urgent."""
        return self._delivery.priority

    @property
    def priority_class(self) -> str:
        """The class that it got when it was accepted."""
        return self._names.classes.get(self._delivery.class_number, "")

    @property
    def fairness_key(self) -> str:
        """The tenant that it counts for."""
        return self._delivery.fairness_key or ""

    @property
    def lock_token(self) -> UUID:
        """The key to its lock: whoever has it may settle the message, from anywhere."""
        return self._delivery.lock_token

    @property
    def dead(self) -> Mapping[str, str]:
        """Why a message in a dead-letter queue is there: `reason`, `description`, `source`."""
        text = self._delivery.dead
        return {} if text is None else msgspec.json.decode(text)

    @property
    def dead_letter_reason(self) -> str | None:
        """Why it is in a dead-letter queue."""
        return self.dead.get("reason")

    @property
    def dead_letter_description(self) -> str | None:
        """More about that."""
        return self.dead.get("description")

    @property
    def dead_letter_source(self) -> str | None:
        """The entity in which it was dead-lettered."""
        return self.dead.get("source")

    async def complete(self, *, tx: Any = None) -> None:
        """Finish the message: it is gone. With `tx`, if and when that commits."""
        await self._settle("complete", tx=tx)

    async def abandon(
        self,
        *,
        delay: float | timedelta | None = None,
        until: datetime | None = None,
        tx: Any = None,
    ) -> None:
        """Give the message back; the delivery counts as failed.

        It is invisible for `delay` seconds, or until an instant, else as long as the back-off of
        its entity says.
        """
        await self._settle("abandon", delay=delay, until=until, tx=tx)

    async def defer(self, *, tx: Any = None) -> None:
        """Put the message aside: only `receive_deferred` with its number delivers it again."""
        await self._settle("defer", tx=tx)

    async def dead_letter(
        self, reason: str | None = None, description: str | None = None, *, tx: Any = None
    ) -> None:
        """Move the message to the dead-letter queue."""
        await self._settle("dead_letter", reason=reason, description=description, tx=tx)

    async def release(self, *, tx: Any = None) -> None:
        """Give the message back at once, as if it had not been delivered."""
        await self._settle("release", tx=tx)

    async def suspend(self, checkpoint: bytes | None = None) -> None:
        """Give the message back with a checkpoint, which its next delivery has.

        The delivery does not count as failed. Return from the handler next, to free its slot.
        """
        await self._settle("suspend", checkpoint=checkpoint)

    async def renew(self) -> None:
        """Begin the lock of a receiver anew; a host's lock needs no renewal."""
        await self._settling.settle(self.lock_token, "renew")

    def renewing(self) -> AbstractAsyncContextManager[None]:
        """Renew the lock while a block runs; if that fails, `lost` is set and nothing is raised."""
        return renewing(self, self._settling)

    async def save(self, checkpoint: bytes) -> None:
        """Store a checkpoint and go on; raises `Preempted` if the handler is to suspend."""
        data = content.check_saved("checkpoint", checkpoint, limits.MESSAGE_CHECKPOINT_BYTES_MAX)
        self.checkpoint = data
        await self._settling.save(self, data)

    def transaction(self) -> AbstractAsyncContextManager[Transaction]:
        """Give a transaction whose commit completes the message: effects and completion, or none.

        If the message is not held any more, `MessageLockLost` is raised and nothing is committed.
        """
        return self._settling.transaction(self)

    @property
    def lost(self) -> asyncio.Event:
        """Is set when the message is not held any more."""
        if self._lost is None:
            self._lost = asyncio.Event()
        return self._lost

    async def preempted(self) -> None:
        """Wait until the handler is asked to suspend."""
        if self._preempted is None:
            self._preempted = asyncio.Event()
        if not self.preempt_requested:
            await self._preempted.wait()

    def ask_to_suspend(self, deadline: datetime) -> None:
        """Tell the handler that its slot is needed until then."""
        self.preempt_requested, self.preempt_deadline = True, deadline
        if self._preempted is not None:
            self._preempted.set()

    async def _settle(
        self, event: str, *, tx: Any = None, **options: Unpack[SettleOptions]
    ) -> None:
        try:
            await self._settling.settle(self.lock_token, event, tx=tx, **options)
        except MessageLockLost:
            self.lost.set()
            raise
        if tx is None:
            self.is_settled = True
        else:
            self.in_doubt = True


@asynccontextmanager
async def completing(
    database: Database, message: Received, settling: Settling
) -> AsyncIterator[HandlerTransaction]:
    """Give a transaction to its holder; its commit completes the message."""
    if message.is_settled:
        raise Conflict(f"message {message.sequence_number} is settled already")
    async with database.transaction() as connection:
        async with lent(connection) as tx:
            yield tx
        await settling.settle(message.lock_token, "complete", tx=connection)
    message.is_settled = True
