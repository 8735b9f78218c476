"""The ledger of messages: the statement that settles and claims for consumers, and its answer."""

from __future__ import annotations

import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from relevo.errors import MessageLockLost
from relevo.kernel import faults
from relevo.kernel.postgres import catalog, clock
from relevo.kernel.postgres.grouping import Group
from relevo.kernel.running.calls import Limits
from relevo.kernel.running.ledger import Answer
from relevo.kernel.running.threads import Threads
from relevo.kernel.running.verdicts import Interruption
from relevo.kernel.telemetry.logs import get_logger
from relevo.kernel.telemetry.metrics import Durations
from relevo.messaging.core.hours import Hours
from relevo.messaging.core.reserving import Reservation, Slots, limits_text
from relevo.messaging.naming import KnownNames
from relevo.messaging.registry import ConsumersDefinition
from relevo.messaging.running.calls import ConsumerCall, Workplace
from relevo.messaging.running.claims import (
    Delivery,
    LockKey,
    MessageClaim,
    MessageSettlement,
    arguments,
    claims_of,
)
from relevo.messaging.running.context import Preempted
from relevo.messaging.running.execution import MessageRun, call

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from uuid import UUID

    from relevo.kernel.postgres import Database, Wakeups
    from relevo.kernel.running.lanes import HostLane
    from relevo.kernel.running.rounds import Rounds
    from relevo.kernel.telemetry.metrics import Metrics
    from relevo.messaging.receiving import Receiving
    from relevo.messaging.running.context import EntityNames

SQL = catalog.load("relevo.messaging")
log = get_logger(__name__)
HOST_TOPIC: Final = "consumers:{}"
"""Wakes a host that has a handler to ask for room."""
ASK_SECONDS: Final = 0.1
"""How often a host whose slots are all in use looks for messages that need one of them."""
CLOCK_SECONDS: Final = 1.0
"""How often a host with opening hours asks for the time of the database."""
KEPT_THREADS: Final = 64


class MessageLost(Interruption, MessageLockLost):
    """Raised into a handler whose messages are not this host's any more; let it propagate."""


class ServedConsumers(Struct, frozen=True, kw_only=True):
    """Consumers as a host serves them."""

    id: int
    definition: ConsumersDefinition
    sources: tuple[int, ...]
    """The numbers of their entities."""
    reserved: tuple[Reservation, ...] = ()
    hours: Hours | None = None
    has_sessions: bool = False
    """Whether a source does: then each slot has a session, and handles its messages in order."""

    @property
    def is_limited(self) -> bool:
        """Whether it depends on class or tenant which message may have a slot."""
        return bool(self.reserved) or self.definition.is_limited


class _MessageDurations(dict[tuple[str, int, int], tuple[Durations, Durations]]):
    """What counts waits and holds, by consumers, entity and class; looked up once for many."""

    def __init__(self, metrics: Metrics, names: Mapping[int, EntityNames]) -> None:
        super().__init__()
        self._times = metrics.message_times
        self._names = names

    def __missing__(self, key: tuple[str, int, int]) -> tuple[Durations, Durations]:
        consumers, entity, number = key
        found = self[key] = self._times.of(consumers, self._names[entity].classes[number])
        return found


class MessageLedger:
    """The messages of one life of a host."""

    part = MessageRun.part
    canceled = MessageLost
    keeps_others_away = False
    due_sql = SQL.messages_due

    def __init__(
        self, database: Database, wakeups: Wakeups, receiving: Receiving, host: UUID,
        consumers: Mapping[str, ServedConsumers], lanes: Mapping[str, HostLane[MessageClaim]],
        in_process: Callable[[ConsumersDefinition, ConsumerCall], Awaitable[Any]],
        loop: asyncio.AbstractEventLoop,
    ) -> None:  # fmt: skip
        self._database = database
        self._wakeups = wakeups
        self._host = host
        self._consumers = consumers
        self._lanes = lanes
        self._in_process = in_process
        self._loop = loop
        self._hands: Rounds[MessageClaim, MessageSettlement] | None = None
        self._by_id = {one.id: one.definition for one in consumers.values()}
        self._limits = {
            name: Limits(time_limit=one.definition.time_limit) for name, one in consumers.items()
        }
        self._known = KnownNames(database)
        self._names: Mapping[int, EntityNames] = {}
        self._asked_at = 0.0
        self._time: tuple[datetime, float] | None = None
        """The time of the database, and when it was that by this host's clock."""
        self._threads = Threads(KEPT_THREADS)
        self._saves: Group[tuple[Delivery, bytes], bool | None] = Group(
            "save message", self._save_all, key=lambda given: given[0].sequence,
            metrics=database.metrics,
        )  # fmt: skip
        self._workplace = Workplace(
            database=database, receiving=receiving, save=self._saves.call, loop=loop,
            threads=self._threads,
        )  # fmt: skip

    async def prepare(self, hands: Rounds[MessageClaim, MessageSettlement]) -> None:
        """Open and close lanes by their hours; ask for room where there is none."""
        self._hands = hands
        timed = [one for one in self._consumers.values() if one.hours is not None]
        if timed:
            now = await self._database_time()
            for one in timed:
                assert one.hours is not None
                self._lanes[one.definition.name].is_open = one.hours.are_open(now)
        if time.monotonic() - self._asked_at >= ASK_SECONDS and not hands.stopping:
            for name, one in self._consumers.items():
                lane = self._lanes[name]
                if one.definition.preempt is not None and lane.is_open and not lane.free:
                    await self._ask_for_room(one)

    async def _database_time(self) -> datetime:
        now = time.monotonic()
        if self._time is None or now - self._time[1] >= CLOCK_SECONDS:
            self._time = (await clock.now(self._database), time.monotonic())
        return self._time[0] + timedelta(seconds=max(0.0, now - self._time[1]))

    async def _ask_for_room(self, served: ServedConsumers) -> None:
        """Have handlers suspend for waiting messages of a higher class, on any host."""
        self._asked_at = time.monotonic()
        rules = served.definition.preempt
        assert rules is not None
        rows = await self._database.write(
            SQL.ask_preemption, served.id, rules.gap, rules.min_run, rules.max_preemptions
        )
        self._wakeups.send(*(HOST_TOPIC.format(row["host"]) for row in rows))

    async def work(
        self, number: int, finished: Sequence[MessageSettlement], rooms: Mapping[str, int],
        *, vacant: bool,
    ) -> Sequence[Any]:  # fmt: skip
        """As `Ledger.work`."""
        del vacant
        served = [self._consumers[name] for name in rooms]
        sources = [(n, id_) for n, one in enumerate(served, 1) for id_ in one.sources]
        if finished:
            await faults.point("before_message_settle")
        rows = await self._database.write(
            SQL.serve if finished else SQL.serve_claims, self._host, number,
            [one.id for one in served],
            [rooms[one.definition.name] * one.definition.batch for one in served],
            [one.definition.across for one in served], [self._limits_of(one) for one in served],
            [of for of, _ in sources], [id_ for _, id_ in sources],
            *(arguments(finished) if finished else ()),
        )  # fmt: skip
        if any(row[0] == "claimed" for row in rows):
            await faults.point("after_message_claim")
        self._names = await self._known.of(rows)
        self._note_stale(rows, finished)
        return rows

    def due_arguments(self, rooms: Mapping[str, int], *, vacant: bool) -> Sequence[Any]:
        """As `Ledger.due_arguments`."""
        served = [self._consumers[name] for name in rooms]
        sources = [(one.id, id_) for one in served for id_ in one.sources]
        return self._host, [of for of, _ in sources], [id_ for _, id_ in sources], vacant

    @property
    def looks_often(self) -> bool:
        """As `Ledger.looks_often`: hours open and close, urgent messages may need room."""
        return any(
            one.hours is not None
            or (one.definition.preempt is not None and not self._lanes[name].free)
            for name, one in self._consumers.items()
        )

    async def waiting(self, lanes: Sequence[str]) -> set[str]:
        """As `Ledger.waiting`."""
        served = [self._consumers[name] for name in lanes]
        sources = [(one.id, id_) for one in served for id_ in one.sources]
        rows = await self._database.fetch(
            SQL.consumers_with_messages, self._host, [of for of, _ in sources],
            [id_ for _, id_ in sources],
        )  # fmt: skip
        return {self._by_id[row["id"]].name for row in rows}

    def _limits_of(self, served: ServedConsumers) -> str | None:
        """Return the slots of consumers that reserve or cap them, as the statement takes them."""
        if not served.is_limited:
            return None
        definition, names = served.definition, self._names
        classes: Counter[str] = Counter()
        keys: Counter[str] = Counter()
        for claim in self._hands.in_hand() if self._hands is not None else ():
            if claim.lane == definition.name:
                for one in claim.deliveries:
                    classes[names[one.entity_id].classes[one.class_number]] += 1
                    keys[one.fairness_key or ""] += 1
        return limits_text(
            Slots(
                free=self._lanes[definition.name].free, in_use=classes, keys_in_use=keys,
                reserved=served.reserved, max_per_class=definition.max_per_class,
                max_per_fairness_key=definition.max_per_fairness_key,
            )
        )  # fmt: skip

    def _note_stale(self, rows: Sequence[Any], finished: Sequence[MessageSettlement]) -> None:
        stale = {row["sequence"] for row in rows if row[0] == "stale"}
        if stale:
            stale -= {d.sequence for one in finished if one.in_doubt for d in one.deliveries}
        for sequence in stale:
            log.warning("messages.stale_settlement", message=sequence)

    def read(self, rows: Sequence[Any], rooms: Mapping[str, int]) -> Answer[MessageClaim]:
        """As `Ledger.read`."""
        del rooms
        deliveries: dict[int, list[Delivery]] = {}
        asked: dict[LockKey, bool] = {}
        for row in rows:
            match row[0]:
                case "claimed":
                    deliveries.setdefault(row["consumers"], []).append(Delivery.of(row))
                case "preempt":
                    asked[row["sequence"], row["token"]] = True
        return self._answer(deliveries, asked)

    def _answer(
        self, deliveries: Mapping[int, list[Delivery]], asked: Mapping[LockKey, bool]
    ) -> Answer[MessageClaim]:
        now = time.monotonic()
        claims, sizes = {}, {}
        for id_, many in deliveries.items():
            definition = self._by_id[id_]
            claims[definition.name] = claims_of(definition.name, many, definition.batch, now)
            sizes[definition.name] = sum([len(one.body) for one in many])
            self._time_waits(definition.name, many)
        return Answer(claims, sizes, asked)

    def _time_waits(self, consumers: str, deliveries: Sequence[Delivery]) -> None:
        now, durations = datetime.now(UTC), _MessageDurations(self._database.metrics, self._names)
        for one in deliveries:
            if one.delivery_count == 0 and one.preempt_count == 0:
                wait, _ = durations[consumers, one.entity_id, one.class_number]
                wait.add((now - one.enqueued_at).total_seconds())

    def settled(self, batch: Sequence[MessageSettlement]) -> None:
        """As `Ledger.settled`: nobody waits for the end of a message; its time is counted."""
        durations = _MessageDurations(self._database.metrics, self._names)
        for settlement in batch:
            lane, seconds = settlement.claim.lane, settlement.seconds
            for one in settlement.deliveries:
                _, hold = durations[lane, one.entity_id, one.class_number]
                hold.add(seconds)

    async def held(self, numbers: Sequence[int] | None) -> list[MessageClaim]:
        """As `Ledger.held`; each message is a claim by itself."""
        rows = await self._database.fetch(
            SQL.held_messages, self._host, None if numbers is None else list(numbers)
        )
        self._names = await self._known.of(rows)
        now = time.monotonic()
        found = []
        for row in rows:
            delivery = Delivery.of(row)
            definition = self._by_id.get(delivery.consumers or 0)
            lane = "" if definition is None else definition.name
            found += claims_of(lane, [delivery], 1, now)
        return found

    async def held_keys(self) -> list[tuple[LockKey, int]]:
        """As `Ledger.held_keys`."""
        rows = await self._database.fetch(SQL.held_tokens, self._host)
        return [((row["sequence"], row["token"]), row["claim"]) for row in rows]

    def adopted(self, claims: Sequence[MessageClaim]) -> Answer[MessageClaim]:
        """As `Ledger.adopted`."""
        deliveries: dict[int, list[Delivery]] = {}
        for claim in claims:
            for one in claim.deliveries:
                deliveries.setdefault(one.consumers or 0, []).append(one)
        return self._answer(deliveries, {})

    def returned(self, claim: MessageClaim) -> MessageSettlement:
        """As `Ledger.returned`: the delivery does not count."""
        return MessageSettlement(claim=claim, event="release", deliveries=claim.deliveries)

    def broken(self, claim: MessageClaim, text: str) -> MessageSettlement:
        """As `Ledger.broken`: the delivery has failed."""
        log.warning("messages.run_broken", consumers=claim.lane, error=text)
        return MessageSettlement(claim=claim, event="abandon", deliveries=claim.deliveries)

    def is_plain(self, settlement: MessageSettlement) -> bool:
        """As `Ledger.is_plain`."""
        return settlement.event == "done"

    def ended(self, settlement: MessageSettlement) -> Callable[[MessageClaim], bool] | None:
        """As `Ledger.ended`: a failure stops no other message."""
        return None

    def ask(self, run: MessageRun, what: bool) -> None:
        """Ask a handler to suspend; `kill` ends its process after the grace."""
        del what
        rules, message = run.handler.preempt, run.ctx.messages[0]
        if rules is None or message.preempt_requested:
            return
        message.ask_to_suspend(datetime.now(UTC) + timedelta(seconds=rules.grace))
        if rules.mode == "kill":
            run.end_within(rules.grace, Preempted("the handler was to make room, and did not"))
        else:
            ignored = self._database.metrics.messages_preempt_ignored
            run.call_after(rules.grace, ignored.labels(consumers=run.claim.lane).inc)

    def not_asked(self, runs: Mapping[Any, Any], asked: Mapping[Any, Any]) -> None:
        """As `Ledger.not_asked`: a request stands."""

    def goes_on(self, hands: Rounds[MessageClaim, MessageSettlement]) -> bool:
        """As `Ledger.goes_on`: nothing keeps others away."""
        del hands
        return False

    def begin(
        self, claim: MessageClaim, task: asyncio.Task[Any], now: float, over: asyncio.Event
    ) -> MessageRun:
        """As `Ledger.begin`."""
        definition = self._consumers[claim.lane].definition
        way = self._in_process if definition.kind == "process" else call
        ctx = ConsumerCall(claim, self._workplace, self._names, now)
        limits, in_thread = self._limits[claim.lane], definition.kind == "thread"
        return MessageRun(claim, ctx, definition, way, limits, task, over, in_thread=in_thread)

    async def _save_all(
        self, given: Sequence[tuple[Delivery, bytes]]
    ) -> list[bool | Exception | None]:
        """Store checkpoints of many handlers with one statement."""
        rows = await self._database.write(
            SQL.save_messages, [one.sequence for one, _ in given], [one.token for one, _ in given],
            [checkpoint for _, checkpoint in given], idempotent=True,
        )  # fmt: skip
        asked = {row["sequence"]: row["asked"] for row in rows}
        return [asked.get(one.sequence) for one, _ in given]

    async def close(self) -> None:
        """As `Ledger.close`."""
        self._threads.close()
        await self._saves.close()
