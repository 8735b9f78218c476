"""What `explain` says of each waiting message agrees with what the next claim of a host does."""

from __future__ import annotations

import asyncio
import itertools
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Struct

from relevo import App
from relevo.kernel.running.lanes import HostLane
from relevo.kernel.running.rounds import Rounds
from relevo.messaging import Aging, Deadline, Fifo, Message, Strict, Weighted
from relevo.messaging.operating import consumers
from relevo.messaging.registry import defined
from relevo.messaging.running.claims import MessageSettlement
from relevo.messaging.running.host import declared
from relevo.messaging.running.ledger import MessageLedger
from tests.conftest import examples
from tests.jobs.office import told

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

    from relevo.messaging.core.explaining import MessageExplanation
    from relevo.messaging.running.claims import MessageClaim
    from relevo.messaging.running.execution import MessageRun
    from relevo.testing.databases import TestDatabases

OPEN, CLOSED = "00:00-24:00 UTC", "12:00-12:01 UTC"
LIVES_SECONDS = 600.0
PASSED_SECONDS = 1_000.0
"""By how much time moves in some examples: what lives for a while is expired then."""
NUMBERS = itertools.count(1)


class Sent(Struct, frozen=True):
    """A message, and what becomes of it before consumers may take it."""

    priority: int
    key: str
    """Its tenant, or its session."""
    lives: bool
    fate: str = "stays"


class Shop(Struct, frozen=True, kw_only=True):
    """A queue, its consumers, and what happens to both."""

    ordering: Any
    fair: bool
    has_sessions: bool
    slots: int
    limits: dict[str, Any]
    first: list[Sent]
    finishes: bool
    """Whether one of the messages that were claimed first is finished during a pause."""
    second: list[Sent]
    time_passes: bool
    hours: str | None
    paused: bool
    status: str


FATES = st.sampled_from(["stays"] * 6 + ["deferred", "delayed", "scheduled", "held"])
SENT = st.builds(Sent, st.integers(0, 9), st.sampled_from("abc"), st.booleans(), FATES)
LIMITS = st.fixed_dictionaries(
    {},
    optional={
        "reserved": st.just({"high": 1}),
        "max_per_class": st.sampled_from([{"normal": 1}, {"low": 1, "high": 1, "normal": 2}]),
        "max_per_fairness_key": st.just(1),
    },
)
SELDOM = st.sampled_from([False] * 7 + [True])
POLICIES = st.sampled_from(
    [
        (Fifo(), False), (Strict(), False), (Strict(), True), (Aging(floor_share=0.5), False),
        (Deadline(), False), (Weighted(), False), (Weighted(), True),
    ]
)  # fmt: skip


@st.composite
def shops(draw: Any) -> Shop:
    has_sessions = draw(st.booleans())
    ordering, fair = draw(POLICIES)
    return Shop(
        ordering=ordering, fair=fair, has_sessions=has_sessions, slots=draw(st.integers(1, 4)),
        limits={} if has_sessions else draw(LIMITS),
        first=draw(st.lists(SENT, min_size=1, max_size=4)),
        finishes=draw(st.booleans()), second=draw(st.lists(SENT, min_size=1, max_size=6)),
        time_passes=draw(SELDOM), hours=draw(st.sampled_from([None, None, OPEN, CLOSED])),
        paused=draw(SELDOM),
        status=draw(st.sampled_from(["active"] * 5 + ["send_disabled", "receive_disabled"])),
    )  # fmt: skip


class Counter:
    """A queue with consumers, and the rounds of a host whose handlers never end."""

    def __init__(self, app: App, shop: Shop) -> None:
        self.app, self.shop = app, shop
        self.name = f"shop-{next(NUMBERS)}"
        self.queue = app.queue(
            self.name, ordering=shop.ordering, fair=shop.fair, requires_session=shop.has_sessions
        )
        self.runs: dict[Any, MessageRun] = {}

    async def open(self) -> None:
        database, shop = self.app.database, self.shop
        await self.queue.ensure()
        life = uuid4()
        await database.write(
            "insert into relevo.host (incarnation, name, lease_until, started_at, version)"
            " values ($1, $1::uuid::text, 'infinity', relevo.now(), '1')",
            life,
        )
        definition = defined(
            self.name, [self.name], _handle, concurrency=shop.slots, prefetch=0, hours=shop.hours,
            **shop.limits,
        )  # fmt: skip
        served = await declared(database, life, definition)
        self.lane: HostLane[MessageClaim] = HostLane(self.name, shop.slots, [self.name], 0.0)
        lanes = {self.name: self.lane}
        messaging = self.app.messaging
        self.ledger = MessageLedger(
            database, self.app.wakeups, messaging.tools.receiving, life, {self.name: served},
            lanes, _in_process, asyncio.get_running_loop(),
        )  # fmt: skip
        self.rounds: Rounds[MessageClaim, MessageSettlement] = Rounds(
            self.ledger, lanes, self.runs, itertools.count(1), lambda: None
        )

    async def send(self, messages: list[Sent]) -> None:
        later = await self.app.now()
        for sent in messages:
            of_session = self.shop.has_sessions
            scheduled = sent.fate == "scheduled"
            await self.queue.send(
                Message(
                    body=b"x", priority=sent.priority, ttl=LIVES_SECONDS if sent.lives else None,
                    session_id=sent.key if of_session else None,
                    fairness_key="" if of_session else sent.key,
                    at=later.replace(year=later.year + 1) if scheduled else None,
                )
            )  # fmt: skip
            if not of_session and sent.fate in ("deferred", "delayed", "held"):
                for message in await self.queue.receive():
                    if sent.fate == "deferred":
                        await message.defer()
                    elif sent.fate == "delayed":
                        await message.abandon(delay=10 * PASSED_SECONDS)

    async def claim(self) -> list[int]:
        """Let the host claim; return what it got, which it handles from now on."""
        task = asyncio.current_task()
        assert task is not None
        await self.rounds.next()
        claimed = []
        while self.lane.waiting:
            claim = self.lane.waiting.popleft()
            run = self.ledger.begin(claim, task, time.monotonic(), asyncio.Event())
            self.runs[claim.id] = run
            self.lane.running += 1
            claimed += [one.sequence for one in claim.deliveries]
        return claimed

    async def finish_one(self) -> None:
        """Finish a message while the consumers are paused: what follows it is not claimed."""
        await consumers.pause(self.app.database, self.name)
        for id_ in list(self.runs)[:1]:
            claim = self.runs.pop(id_).claim
            self.lane.running -= 1
            self.rounds.finished.append(
                MessageSettlement(claim=claim, event="done", deliveries=claim.deliveries)
            )
        assert await self.claim() == []
        await consumers.resume(self.app.database, self.app.wakeups, self.name)

    async def explained(self) -> dict[int, MessageExplanation]:
        return {
            number: await self.queue.explain(number)
            for peeked in await self.queue.peek()
            if (number := peeked.sequence_number) is not None
        }


async def _handle(msg: Any) -> None:
    del msg


async def _in_process(*_: Any) -> Any:
    raise AssertionError("no handler runs here")


class Site:
    """An event loop and a client on a database of its own."""

    def __init__(self, url: str) -> None:
        self.runner = asyncio.Runner()
        self.stack = AsyncExitStack()
        self.app = self.do(self.stack.enter_async_context(App(settings=told(url))))

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(work)

    def close(self) -> None:
        self.do(self.stack.aclose())
        self.runner.close()


@pytest.fixture(scope="module")
def site(relevo_databases: TestDatabases) -> Iterator[Site]:
    url = relevo_databases.create()
    site = Site(url)
    yield site
    site.close()
    relevo_databases.drop(url)


@settings(max_examples=examples(300), deadline=None, suppress_health_check=list(HealthCheck))
@given(shop=shops())
def test_explanations_agree_with_the_next_claim(site: Site, shop: Shop) -> None:
    site.do(_agrees(Counter(site.app, shop)))


async def _agrees(counter: Counter) -> None:
    shop = counter.shop
    await counter.open()
    await counter.send(shop.first)
    await counter.claim()
    if shop.finishes:
        await counter.finish_one()
    await counter.send(shop.second)
    if shop.time_passes:
        passed = "update relevo.clock set shift = shift + make_interval(secs => $1)"
        await counter.app.database.write(passed, PASSED_SECONDS)
    if shop.paused:
        await consumers.pause(counter.app.database, counter.name)
    await counter.queue.update(status=shop.status)

    explained = await counter.explained()
    free = counter.lane.free
    claimed = await counter.claim()

    places = {one.place: number for number, one in explained.items() if one.reason == "in_order"}
    in_order = [places[place] for place in range(1, len(places) + 1)]
    if shop.limits:  # what takes a slot may keep others from one
        assert set(claimed) <= set(in_order)
        assert claimed[:1] == in_order[:1]
    else:
        assert claimed == in_order[:free]
    left = {number: one.reason for number, one in (await counter.explained()).items()}
    assert "in_order" not in left.values()
    assert all(left[number] == "locked" for number in claimed)
    for number, one in explained.items():
        if one.reason in ("scheduled", "deferred", "locked", "invisible", "expired", "paused"):
            assert left[number] == one.reason
    await counter.ledger.close()
