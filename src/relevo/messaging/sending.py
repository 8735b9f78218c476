"""Sends: messages are evaluated here and stored in groups, or left as arrivals in a transaction."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from relevo import limits
from relevo.errors import InternalError, QuotaExceeded
from relevo.kernel import cpu, faults
from relevo.kernel.postgres import catalog, foreign
from relevo.kernel.postgres.grouping import Group
from relevo.kernel.telemetry import tracing
from relevo.messaging.core import content, times, tokens
from relevo.messaging.core.acceptance import Outgoing, accepted
from relevo.messaging.core.entities import EntityProperties
from relevo.messaging.core.heads import encoded_head
from relevo.messaging.model import Message, Receipt
from relevo.messaging.transactions import naming_refusals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from relevo.kernel.postgres import Database, Wakeups
    from relevo.messaging.core.acceptance import Acceptance
    from relevo.messaging.core.classes import Inflation
    from relevo.messaging.definitions import Definition, Definitions

SQL = catalog.load(__package__)
TOPIC: Final = "queue:{}"
"""Wakes receivers and consumers of an entity, by its number."""
ARRIVED: Final = "messages:arrived"
"""Wakes the hosts that accept arrivals."""
ATTEMPTS: Final = 10
"""How often a send is evaluated anew because definitions changed meanwhile."""
OFF_LOOP: Final = 2_000
"""From so many filters on, counted once per message, evaluation goes to a thread."""

IN_TRANSACTION: Final = foreign.Function(
    "relevo.arrive_messages",
    (
        "text[]", "text[]::bytea[]", "int2[]", "text[]", "int2[]", "text[]", "text[]",
        "text[]", "float8[]", "timestamptz[]", "text[]",
    ),
    otherwise="; with another driver, run `select relevo.send_message(entity, body, …)`",
)  # fmt: skip


class Send(Struct, frozen=True):
    """Messages that one caller sends to one entity: all are stored, or none."""

    path: str
    messages: tuple[Outgoing, ...]


class Sending:
    """Evaluates messages and stores them."""

    def __init__(self, database: Database, wakeups: Wakeups, definitions: Definitions) -> None:
        self._database = database
        self._wakeups = wakeups
        self._definitions = definitions
        self._group: Group[Send, list[Receipt]] = Group(
            "send message", self._store, metrics=database.metrics,
            calls_max=limits.GROUP_CALLS_MAX,
        )  # fmt: skip

    async def send(self, path: str, messages: Sequence[Outgoing]) -> list[Receipt]:
        """Store messages and return their receipts; concurrent calls share statements."""
        if not messages:
            return []
        return await self._group.call(Send(path, tuple(messages)))

    async def send_in(
        self, tx: Any, schema: str, path: str, messages: Sequence[Outgoing]
    ) -> list[Receipt]:
        """Leave messages as arrivals in a caller's transaction; nothing is locked."""
        if messages:
            with naming_refusals():
                await IN_TRANSACTION.call(tx, arrival_columns(path, messages), schema)
        return [Receipt(one.message_id) for one in messages]

    async def store(self, calls: Sequence[tuple[str, Outgoing]]) -> list[Receipt]:
        """Evaluate and store messages for entities, in one statement and one commit."""
        for _ in range(ATTEMPTS):
            known = {path: await self._definitions.of(path) for path in {path for path, _ in calls}}
            given = [(known[path], one) for path, one in calls]
            plan = await evaluated(given)
            await faults.point("before_accept")
            rows = await self._database.write(SQL.accept, *plan.columns())
            [row] = rows
            if row["outcome"] == "stale":
                self._definitions.forget(*known)
                continue
            refuse_full(row, given)
            onward = (ARRIVED,) if any(one.forwards for one in known.values()) else ()
            self._wakeups.send(*(TOPIC.format(id_) for id_ in set(plan.places)), *onward)
            return receipts(row, calls)
        raise InternalError("the definitions of the entities change too often to send; try again")

    async def _store(self, sends: Sequence[Send]) -> list[list[Receipt] | Exception]:
        calls = [(send.path, one) for send in sends for one in send.messages]
        found = iter(await self.store(calls))
        return [[next(found) for _ in send.messages] for send in sends]

    async def close(self) -> None:
        """Finish accepted sends."""
        await self._group.close()


def refuse_full(row: Any, given: Sequence[tuple[Definition, Outgoing]]) -> None:
    """Raise `QuotaExceeded` if the statement says that an entity has no room."""
    if row["outcome"] == "sent":
        return
    path = next(_paths(given, row["sequences"][0]), "the entity")
    if row["outcome"] == "full of keys":
        raise QuotaExceeded(
            f"{path!r} has {limits.MESSAGE_FAIRNESS_KEYS_MAX} fairness keys in use, and the message"
            " has another; send with fewer keys, or wait: a key is forgotten five minutes after its"
            " last message"
        )
    raise QuotaExceeded(
        f"{path!r} holds as many bytes as max_size_bytes allows; receive messages, purge old ones,"
        " or raise the property"
    )


def _paths(given: Sequence[tuple[Definition, Outgoing]], number: int) -> Iterator[str]:
    """The path of the entity with a number, among those sent to and their subscriptions."""
    for definition, _ in given:
        for one in (definition, *definition.subscriptions.values()):
            if one.id == number:
                yield one.path


def receipts(row: Any, calls: Sequence[tuple[str, Outgoing]]) -> list[Receipt]:
    """Return the receipts of messages from the row of the statement."""
    found = [
        Receipt(one.message_id, sequence)
        for sequence, (_, one) in zip(row["sequences"], calls, strict=True)
    ]
    for nth in row["doubles"] or ():
        found[nth - 1] = Receipt(found[nth - 1].message_id, None, duplicate=True)
    return found


async def evaluated(given: Sequence[tuple[Definition, Outgoing]]) -> Acceptance:
    """Evaluate filters and classifiers; many of them in a thread, off the loop."""
    if sum(definition.cost for definition, _ in given) > OFF_LOOP:
        return await cpu.off_loop(accepted, given)
    return accepted(given)


@contextmanager
def traced_send(
    path: str, messages: Iterable[Message]
) -> Iterator[tuple[list[Message], Callable[[list[Receipt]], list[Receipt]]]]:
    """Give the messages as they are to be sent, and what hears of their receipts.

    If tracing is on, they carry the trace parent of a span around the block.
    """
    given = list(messages)
    with tracing.sending("send", path, len(given)) as span:

        def sent(receipts: list[Receipt]) -> list[Receipt]:
            if span is not None and len(receipts) == 1:
                span.set_attribute("messaging.message.id", receipts[0].message_id)
            return receipts

        yield _in_trace(given, tracing.parent()) if span is not None else given, sent


def _in_trace(messages: list[Any], parent: str | None) -> list[Message]:
    """Return messages with a trace parent, unless they have one; bad ones are refused later."""
    if parent is None:
        return messages
    added = {tracing.TRACEPARENT: parent}
    return [
        msgspec.structs.replace(one, properties={**added, **one.properties})
        if isinstance(one, Message) and isinstance(one.properties, Mapping)
        else one
        for one in messages
    ]


def outgoing_batch(
    messages: Sequence[Message],
    properties: EntityProperties | None = None,
    max_class: str | None = None,
    inflation: Inflation = "downgrade",
) -> list[Outgoing]:
    """Check messages and give each an id; one that is bad refuses them all, by its place.

    Without `properties` those that every entity has by default count.
    """
    found = EntityProperties() if properties is None else properties
    bodies = content.check_batch(
        messages, requires_session=found.requires_session, max_bytes=found.max_message_bytes
    )
    new_ids = tokens.new_message_ids(len(messages))
    return [
        Outgoing(
            message=message, body=body, message_id=message.message_id or new_id,
            max_class=max_class, inflation=inflation,
        )
        for message, body, new_id in zip(messages, bodies, new_ids, strict=True)
    ]  # fmt: skip


def arrival_columns(path: str, messages: Sequence[Outgoing]) -> list[list[Any]]:
    """Return the arrays of `relevo.arrive_messages`, each value in a form that text casts to."""
    return [
        [path] * len(messages),
        ["\\x" + one.body.data.hex() for one in messages],
        [content.BODY_KINDS.index(one.body.kind) for one in messages],
        [one.message_id for one in messages],
        [one.message.priority for one in messages],
        [one.message.priority_class for one in messages],
        [one.message.fairness_key or None for one in messages],
        [one.message.session_id for one in messages],
        [times.checked_ttl(one.message.ttl) for one in messages],
        [one.message.at for one in messages],
        [encoded_head(one.message) for one in messages],
    ]
