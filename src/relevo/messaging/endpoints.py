"""Where messages go and where they come from: what queues, topics and subscriptions share.

Handles are made without I/O; the entity is made when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

import msgspec

from relevo import limits
from relevo.errors import InvalidValue, MessageNotFound
from relevo.kernel import checking, cpu
from relevo.kernel.postgres import foreign
from relevo.messaging.batches import MessageBatch
from relevo.messaging.core import names
from relevo.messaging.core.names import Path
from relevo.messaging.entities import WantedEntity
from relevo.messaging.model import Message
from relevo.messaging.operating.describing import EntityDescription, described
from relevo.messaging.operating.managing import Managing
from relevo.messaging.operating.peeking import PeekedMessage, peeked
from relevo.messaging.receiving import SUB_QUEUES
from relevo.messaging.sending import outgoing_batch, traced_send

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime, timedelta

    from relevo.messaging.core.acceptance import Outgoing
    from relevo.messaging.core.classes import Inflation
    from relevo.messaging.core.explaining import MessageExplanation
    from relevo.messaging.entities import EntityRecord
    from relevo.messaging.model import (
        ConsumersOptions,
        CorrelationRule,
        EntityKind,
        Receipt,
        ReceiveMode,
        SqlRule,
        Value,
    )  # fmt: skip
    from relevo.messaging.operating.peeking import PeekOrder
    from relevo.messaging.running.context import Received
    from relevo.messaging.service import Messaging, RegisteringConsumers
    from relevo.messaging.sessions import Session, SessionInfo

OPTIONS = {"ttl": "default_message_ttl", "duplicate_window": "duplicate_detection_window"}
"""Short names of properties in calls."""
CHECKED_ON_LOOP = 200
"""Messages of a batch up to which checking them takes no thread."""


class Entity:
    """A queue, topic or subscription by its address."""

    kind: EntityKind

    def __init__(
        self,
        service: Messaging,
        path: Path,
        options: Mapping[str, Any],
        rules: Mapping[str, str | SqlRule | CorrelationRule] | None = None,
    ) -> None:
        self._service = service
        self.path = path
        self._address = str(path)
        self._options = properties_of(options)
        self._rules = rules
        self._made_on: object = None

    @property
    def name(self) -> str:
        """The name; of a subscription, the one that it has at its topic."""
        return self.path.subscription or self.path.entity

    async def ensure(self) -> None:
        """Make the entity if it does not exist; every call does so first, once per connection."""
        tools = self._service.tools
        if self._made_on is not tools:
            await tools.entities.ensure_together([self._wanted()])
            self._made_on = tools

    def _wanted(self) -> WantedEntity:
        return WantedEntity(str(self.path), self.kind, self._options, self._rules)

    async def describe(self) -> EntityDescription:
        """Return properties, and what is in it by class."""
        await self.ensure()
        return await described(self._service.database, await self._record())

    async def update(self, **properties: Any) -> EntityRecord:
        """Change properties; names are those of `app.queue` or `app.topic`."""
        await self.ensure()
        entities = self._service.tools.entities
        return await entities.update(str(self.path), properties_of(properties))

    async def drop(self) -> None:
        """Delete the entity with its messages; the handle makes it anew when it is used again."""
        await self._service.tools.entities.drop(str(self.path))
        self._service.tools.definitions.forget(str(self.path))
        self._made_on = None

    async def _record(self) -> EntityRecord:
        return await self._service.tools.entities.get(str(self.path))

    def _managing(self) -> Managing:
        service = self._service
        return Managing(service.database, service.wakeups, service.registry.budgets)


class Destination(Entity):
    """What takes messages: a queue or a topic."""

    def __init__(
        self,
        service: Messaging,
        name: str,
        options: Mapping[str, Any],
        *,
        max_class: str | None = None,
        inflation: Inflation = "downgrade",
    ) -> None:
        super().__init__(service, Path(names.check(name, "queue")), options)
        self._max_class = max_class
        self._inflation = inflation

    async def send(
        self,
        body: Any,
        *,
        priority: int | None = None,
        priority_class: str | None = None,
        properties: Mapping[str, Value] | None = None,
        session_id: str | None = None,
        fairness_key: str | None = None,
        ttl: float | timedelta | None = None,
        at: datetime | None = None,
        message_id: str | None = None,
        tx: Any = None,
    ) -> Receipt:
        """Send a message, or a body with these options; it is stored when this returns.

        With `tx`, a connection of yours in a transaction, it is there when that commits, and the
        receipt has no number.
        """
        options: dict[str, Any] = {
            "priority": priority, "priority_class": priority_class, "properties": properties,
            "session_id": session_id, "fairness_key": fairness_key, "ttl": ttl, "at": at,
            "message_id": message_id,
        }  # fmt: skip
        given = {name: value for name, value in options.items() if value is not None}
        if isinstance(body, Message):
            if given:
                raise InvalidValue(
                    f"send got a Message and also {', '.join(given)}; put them into the Message"
                )
            message = body
        else:
            message = Message(body=body, **given)
        return (await self.send_many([message], tx=tx))[0]

    async def send_many(self, messages: Iterable[Message], *, tx: Any = None) -> list[Receipt]:
        """Send messages in one transaction: all are stored, or none."""
        with traced_send(self._address, messages) as (given, sent):
            sending = self._service.tools.sending
            if tx is not None:
                checked = await self._checked(given, defined=self._made_on is not None)
                tx = foreign.in_schema(tx, self._service.schema)
                return sent(await sending.send_in(tx, self._service.schema, self._address, checked))
            await self.ensure()
            checked = await self._checked(given, defined=True)
            return sent(await sending.send(self._address, checked))

    async def create_batch(self) -> MessageBatch:
        """Return an empty batch, which takes messages up to what `send_many` stores at once."""
        await self.ensure()
        definition = await self._service.tools.definitions.of(self._address)
        return MessageBatch(definition.properties)

    async def schedule(self, message: Message | Any, at: datetime) -> int:
        """Send a message that becomes visible at an instant; returns the number to cancel it by."""
        if not isinstance(message, Message):
            message = Message(body=message)
        at = checking.aware(at, "at")
        receipt = await self.send(msgspec.structs.replace(message, at=at))
        if receipt.sequence_number is None:
            raise InvalidValue("at is past, and no subscription wanted the message", pointer="at")
        return receipt.sequence_number

    async def cancel_scheduled(self, *numbers: int) -> None:
        """Cancel scheduled messages; `MessageNotFound` names those that are not, or not any more.

        The others are canceled all the same.
        """
        canceled = await self._managing().cancel_scheduled((await self._record()).id, numbers)
        if missing := sorted(set(numbers) - set(canceled)):
            raise MessageNotFound(
                f"{', '.join(map(str, missing[:20]))} of {self._address!r} is not scheduled; it"
                " was sent, canceled, or never there"
            )

    async def _checked(self, messages: Sequence[Message], *, defined: bool) -> list[Outgoing]:
        """Check all messages of a batch before any is stored."""
        properties = None
        if defined:
            definition = await self._service.tools.definitions.of(self._address)
            properties = definition.properties
        given = (messages, properties, self._max_class, self._inflation)
        if len(messages) > CHECKED_ON_LOOP:
            return await cpu.off_loop(outgoing_batch, *given)
        return outgoing_batch(*given)


class Source(Entity):
    """What gives messages: a queue, a subscription, or a sub-queue of one."""

    async def receive(
        self,
        max_messages: int = 1,
        *,
        wait: float | None = None,
        mode: ReceiveMode = "peek_lock",
    ) -> list[Received]:
        """Return 1 to `max_messages` as soon as there is one; an empty list after `wait` seconds.

        Each is locked until it is settled, or `lock_duration` is over. With
        `mode="receive_and_delete"` they are gone at once: delivered at most once.
        """
        await self.ensure()
        return await received(self._service, [self.path], max_messages, wait, mode)

    async def receive_deferred(self, *numbers: int) -> list[Received]:
        """Lock deferred messages by their numbers; `MessageNotFound` names those that are not."""
        record = await self._record()
        rows = await self._managing().receive_deferred(
            record.id, SUB_QUEUES[self.path.sub_queue], numbers
        )
        found = await self._service.tools.receiving.received(rows)
        if missing := sorted(set(numbers) - {one.sequence_number for one in found}):
            for one in found:
                await one.release()
            raise MessageNotFound(
                f"{', '.join(map(str, missing[:20]))} of {str(self.path)!r} is not deferred;"
                " nothing was locked"
            )
        return found

    async def accept_session(self, session_id: str) -> Session:
        """Hold a session of an entity with `requires_session`; `SessionTaken` if another does."""
        await self.ensure()
        return await self._service.tools.sessions.accept(await self._record(), session_id)

    async def accept_next(self, wait: float | None = None) -> Session | None:
        """Hold the session whose first message is next; None if there is none within `wait`."""
        await self.ensure()
        return await self._service.tools.sessions.accept_next(await self._record(), wait)

    async def list_sessions(
        self, *, updated_since: datetime | None = None, after: str = "", limit: int = 100
    ) -> list[SessionInfo]:
        """Return sessions that have messages, a holder or a state, by their ids after `after`.

        With `updated_since`, only those whose holder or state changed since then.
        """
        await self.ensure()
        if updated_since is not None:
            checking.aware(updated_since, "updated_since")
        found = self._service.tools.sessions
        return await found.list(await self._record(), after=after, limit=limit, since=updated_since)

    async def peek(
        self, after: int = 0, limit: int = 100, order: PeekOrder = "arrival"
    ) -> list[PeekedMessage]:
        """Return messages in any state, without locking them, in the order of their arrival.

        `after` is a sequence number. `order="service"` shows the order that claims would use.
        """
        await self.ensure()
        return await peeked(
            self._service.database, await self._record(), SUB_QUEUES[self.path.sub_queue],
            after=after, limit=limit, order=order,
        )  # fmt: skip

    @property
    def dead_letters(self) -> SubQueue:
        """The dead-letter queue, as a source."""
        return SubQueue(self, Path(self.path.entity, self.path.subscription, "dead_letters"))

    @property
    def transfer_dead_letters(self) -> SubQueue:
        """The dead-letter queue of messages that could not be forwarded."""
        path = Path(self.path.entity, self.path.subscription, "transfer_dead_letters")
        return SubQueue(self, path)

    async def redrive(
        self,
        filter: str | None = None,  # noqa: A002 - the word of the API
        limit: int | None = None,
        *,
        rate: float | None = None,
        reset_count: bool = True,
    ) -> int:
        """Return dead-lettered messages to the queue or subscription; returns how many.

        `filter` is a SQL filter, `rate` messages a second. `transfer_dead_letters.redrive()` does
        the same for messages that could not be forwarded: they are forwarded anew, and those that
        still cannot be stay there and do not count.
        """
        return await self._managing().redrive(
            await self._record(), SUB_QUEUES[self.path.sub_queue or "dead_letters"],
            filter=filter, limit=limit, rate=rate, reset_count=reset_count,
        )  # fmt: skip

    async def purge(self, before: datetime | None = None) -> int:
        """Delete messages that nobody holds, all or those that arrived before; returns how many."""
        record = await self._record()
        sub_queue = SUB_QUEUES[self.path.sub_queue]
        return await self._managing().purge(record.id, sub_queue, before=before)

    async def delete_batch(self, max_messages: int, *, before: datetime | None = None) -> int:
        """Delete the oldest messages that nobody holds, in one transaction; returns how many.

        With `before`, only those that arrived before.
        """
        most = limits.MESSAGE_RECEIVED_MAX
        if not 1 <= max_messages <= most:
            raise InvalidValue(
                f"max_messages is {max_messages}; it must be from 1 to {most}",
                pointer="max_messages",
            )
        record = await self._record()
        sub_queue = SUB_QUEUES[self.path.sub_queue]
        return await self._managing().delete(record.id, sub_queue, max_messages, before=before)

    async def reprioritize(
        self,
        *numbers: int,
        filter: str | None = None,  # noqa: A002 - the word of the API
        priority: int | None = None,
        priority_class: str | None = None,
    ) -> int:
        """Give waiting messages another priority or class, by number or filter; returns how many.

        They keep their arrival. A message that is held changes when it returns.
        """
        return await self._managing().reprioritize(
            await self._record(), numbers, filter=filter, priority=priority,
            priority_class=priority_class,
        )  # fmt: skip

    async def explain(self, number: int) -> MessageExplanation:
        """Return why a message waits."""
        return await self._managing().explain(
            await self._record(), SUB_QUEUES[self.path.sub_queue], number
        )

    def on_messages(self, name: str, **options: Unpack[ConsumersOptions]) -> RegisteringConsumers:
        """Make a function the handler of consumers of this source; see `app.consumers`."""
        return self._service.register_consumers(name, sources=[self], **options)


class SubQueue(Source):
    """A dead-letter queue: received and settled like a queue, and redriven through its entity."""

    def __init__(self, of: Source, path: Path) -> None:
        super().__init__(of._service, path, {})
        self.kind = of.kind
        self._of = of

    async def ensure(self) -> None:
        """Make the entity that it belongs to."""
        await self._of.ensure()

    async def _record(self) -> EntityRecord:
        return await self._of._record()


async def received(
    service: Messaging,
    paths: Sequence[Path],
    max_messages: int,
    wait: float | None,
    mode: ReceiveMode,
) -> list[Received]:
    """Receive from sources; what was deleted with the receipt cannot be settled."""
    receiving = service.tools.receiving
    rows = await receiving.receive(paths, max_messages, wait=wait, mode=mode)
    return await receiving.received(rows, locked=mode == "peek_lock")


def properties_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return properties by their full names; a duplicate window turns the detection on."""
    found = {OPTIONS.get(name, name): value for name, value in options.items() if value is not None}
    if "duplicate_detection_window" in found:
        found.setdefault("requires_duplicate_detection", True)
    return found
