"""Random lives of messages, step by step and while the policy of their queue changes, against the
table of states (M1 to M5, M16, M19, M29)."""

from __future__ import annotations

from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import Struct

from relevo.messaging.core import ordering, times
from relevo.messaging.core.classes import CLASSES
from relevo.messaging.model import Aging, Deadline, Fifo, PriorityClass, Strict, Weighted
from relevo.messaging.states import (
    ACTIVE,
    DEAD,
    DEFERRED,
    GONE,
    LOCKED,
    NOT_IN_DEAD_LETTERS,
    RELOCKED,
    SCHEDULED,
    next_state,
    refusal,
)
from tests.conftest import EXAMPLES
from tests.messaging.storage.rows import STATES, Runner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime
    from uuid import UUID

    from relevo.messaging.model import Ordering
    from relevo.testing.databases import TestDatabases

STEP = 1_000.0
"""Seconds by which time moves: more than any wait of the model, and than the test takes."""
DELIVERIES = 3
HELD = (LOCKED, RELOCKED)
EVENTS = ("complete", "abandon", "delay", "defer", "dead_letter", "release", "suspend")


POLICIES: tuple[tuple[Ordering, bool], ...] = (
    (Fifo(), False), (Strict(), False), (Strict(), True), (Aging(), False),
    (Aging(floor_share=0), False), (Deadline(), False), (Weighted(), False), (Weighted(), True),
)  # fmt: skip
"""With fairness or without."""
NAMES = tuple(one.name for one in CLASSES)
TENANTS = (None, "acme", "zeta")


def seldom(random: Random) -> bool:
    return random.random() < 0.15


def index(random: Random) -> int:
    return random.randrange(100)


def some(random: Random) -> int:
    return random.randint(1, 3)


def either(random: Random) -> bool:
    return random.random() < 0.5


GIVEN: dict[str, dict[str, Callable[[Random], Any]]] = {
    "send": {
        "count": some, "ttl": either, "later": seldom,
        "of": lambda random: random.choice(NAMES), "level": lambda random: random.randrange(3),
        "tenant": lambda random: random.choice(TENANTS),
    },
    "cancel": {"index": index},
    "claim": {"wanted": some, "by_host": either, "delete": seldom, "letters": seldom},
    "receive_deferred": {"index": index},
    "settle": {
        "index": index, "event": lambda random: random.choice(EVENTS), "wrong": seldom,
        "other": seldom,
    },
    "redrive": {"index": index}, "lose_host": {}, "pass_time": {}, "recover": {}, "make_due": {},
    "expire": {}, "fold": {},
    "switch": {"policy": lambda random: random.choice(POLICIES)},
}  # fmt: skip
OFTEN = {"send": 4, "claim": 8, "settle": 9, "receive_deferred": 4}
STEPS = [kind for kind in GIVEN for _ in range(OFTEN.get(kind, 1))]


class Model(Struct):
    """What a message ought to be; times are steps of the clock."""

    number: int
    state: str
    expires: int | None
    of: PriorityClass
    priority: int
    tenant: str | None
    buried: bool = False
    """Whether it is in the dead-letter queue."""
    count: int = 0
    preempts: int = 0
    visible: int | None = None
    token: int | None = None
    host: bool = False
    locked_at: int = 0


class Lives:
    """Senders, receivers, a host and the clock, one step at a time."""

    def __init__(self, runner: Runner, keeps_expired: bool) -> None:
        self.do, self.rows, self.keeps_expired = runner.do, runner.rows, keeps_expired
        self.models: list[Model] = []
        self.time = 0
        self.do(self.rows.clear())
        self.entity = self.do(
            self.rows.entity(
                max_delivery_count=DELIVERIES, dead_letter_expired=self.keeps_expired,
                lock_seconds=STEP / 2,
            )
        )  # fmt: skip
        self.host: UUID = self.do(self.rows.host())

    def move(self, model: Model, event: str) -> None:
        model.state = next_state(model.state, event, in_dead_letters=model.buried)
        if model.state == DEAD:
            model.state, model.buried, model.expires, model.visible = ACTIVE, True, None, None
        if model.state not in HELD:
            model.token, model.host = None, False

    def fail(self, model: Model, event: Any, *, delayed: bool = False) -> None:
        """A delivery failed; `times.failed_delivery` says what that makes of the message."""
        found = times.failed_delivery(
            event, now=times.instant(self.time), delivery_count=model.count, visible_at=None,
            expires=None if model.expires is None else times.instant(model.expires),
            deferred=model.state == RELOCKED,
            rules=times.DeliveryRules(
                max_delivery_count=DELIVERIES, dead_letter_on_expiration=self.keeps_expired,
                in_dead_letters=model.buried,
            ),
        )  # fmt: skip
        model.count = found.delivery_count
        if found.event.startswith("expire"):  # it is as if it came back and then expired
            self.move(model, event)
        self.move(model, found.event)
        if delayed and model.state == ACTIVE and found.event == "abandon":
            model.visible = self.time + 1

    def live(self) -> list[Model]:
        return [one for one in self.models if one.state != GONE]

    def chosen(self, index: int, *states: str) -> Model | None:
        """A message, one in these states if there is any."""
        fitting = [one for one in self.models if one.state in states] or self.models
        return fitting[index % len(fitting)] if fitting else None

    # What senders do.

    def send(
        self, count: int, ttl: bool, later: bool, of: str, level: int, tenant: str | None
    ) -> None:
        kind = CLASSES[NAMES.index(of)]
        priority = kind.priorities[0] + level
        due = self.do(self.rows.now()) + timedelta(seconds=STEP / 2) if later else None
        lives = STEP / 2 if ttl else None
        numbers = self.do(
            self.rows.send(
                self.entity, count, due=due, ttl=lives, of=of, priority=priority, key=tenant
            )
        )
        for number in numbers:
            model = Model(
                number, SCHEDULED if later else ACTIVE, self.time + 1 if ttl else None, kind,
                priority, tenant,
            )  # fmt: skip
            model.visible = self.time + 1 if later else None
            self.models.append(model)

    def cancel(self, index: int) -> None:
        model = self.chosen(index, SCHEDULED)
        if model is None:
            return
        sql = "select relevo.cancel_scheduled($1, $2)"
        found = self.do(self.rows.db.fetchval(sql, self.entity.id, [model.number]))
        assert (found == []) == (refusal("cancel", model.state) is not None)
        if found:
            self.move(model, "cancel")

    # What receivers and hosts do.

    def claim(self, wanted: int, by_host: bool, delete: bool, letters: bool) -> None:
        host = self.host if by_host else None
        sql = "select sequence, enqueued_at from relevo.message"
        arrived = {row["sequence"]: row["enqueued_at"] for row in self.do(self.rows.db.fetch(sql))}
        found = self.do(
            self.rows.claim(self.entity, wanted, host=host, delete=delete, sub_queue=int(letters))
        )
        claimable = [
            one for one in self.live()
            if one.state == ACTIVE and one.visible is None and one.buried == letters
            and (one.expires is None or one.expires > self.time)
        ]  # fmt: skip
        by_number = {one.number: one for one in claimable}
        assert len(found) == min(wanted, len(claimable))
        taken = [by_number[row["sequence"]] for row in found]
        self.check_order(taken, claimable, arrived)
        for row, model in zip(found, taken, strict=True):
            assert row["class"] == NAMES.index(model.of.name)  # M32
            assert row["delivery_count"] == model.count
            self.move(model, "take" if delete else "lock")
            if not delete:
                model.token, model.host, model.locked_at = row["token"], by_host, self.time

    def check_order(
        self, taken: list[Model], claimable: list[Model], arrived: dict[int, datetime]
    ) -> None:
        """Of all that compete by rank alone, the first were taken, in their order."""
        policy, fair = self.entity.ordering, self.entity.fair
        shared = fair or isinstance(policy, Weighted)
        floor = isinstance(policy, Aging) and policy.floor_share

        def group(one: Model) -> Any:
            """Weights, tenants and the floor share decide between groups."""
            of = one.of.name if shared else one.of.express if floor else None
            return of, one.tenant if fair else None

        def place(one: Model) -> Any:
            if shared:
                return one.number
            at = round(arrived[one.number].timestamp() * ordering.MICROS)
            rank = ordering.rank(policy, one.of, priority=one.priority, arrived=at)
            return ordering.tier(policy, one.of), rank, one.number

        for key in {group(one) for one in claimable}:
            those = [one.number for one in taken if group(one) == key]
            first = sorted((one for one in claimable if group(one) == key), key=place)
            assert those == [one.number for one in first[: len(those)]]  # M6, M7, M8, M13

    def receive_deferred(self, index: int) -> None:
        model = self.chosen(index, DEFERRED)
        if model is None:
            return
        found = self.do(self.rows.deferred(self.entity, model.number, sub_queue=int(model.buried)))
        assert (found == []) == (refusal("receive_deferred", model.state) is not None)
        for row in found:
            self.move(model, "receive_deferred")
            model.token, model.host, model.locked_at = row["token"], False, self.time

    def settle(self, index: int, event: str, wrong: bool, other: bool) -> None:
        model = self.chosen(index, *(() if other else HELD))
        if model is None:
            return
        right = not wrong
        delay = STEP / 2 if event == "delay" else None
        event = "abandon" if event == "delay" else event
        token = (model.token or 0) if right else 1_000_000
        given = {"sequence": model.number, "token": token}
        good = self.do(self.rows.settle(event, given, delay=delay, checkpoint=b"x"))
        holds = right and (model.host or model.locked_at == self.time)
        if refusal(event, model.state, holds=holds) is not None:
            assert good == []  # M3
            return
        if model.buried and event in NOT_IN_DEAD_LETTERS:
            assert good == [-model.number]
            return
        assert good == [model.number]
        if event == "abandon":
            delayed = delay is not None and model.state == LOCKED
            if model.buried and delayed:
                model.visible = self.time + 1
            self.fail(model, event, delayed=delayed and not model.buried)
        else:
            model.preempts += event == "suspend"
            self.move(model, event)

    def lose_host(self) -> None:
        self.do(self.rows.end_host(self.host))
        self.host = self.do(self.rows.host())
        self.recover()

    # What time does.

    def pass_time(self) -> None:
        self.do(self.rows.advance(STEP))
        self.time += 1

    def recover(self) -> None:
        while self.do(self.rows.db.fetchval("select relevo.recover_messages()")):
            pass
        ended = self.do(
            self.rows.db.fetch("select incarnation from relevo.host where ended_at is not null")
        )
        for model in self.live():
            over = bool(ended) if model.host else model.locked_at < self.time
            if model.state in HELD and over:
                self.fail(model, "lose_lock")
        self.do(self.rows.db.execute("delete from relevo.host where ended_at is not null"))

    def make_due(self) -> None:
        self.do(self.rows.db.fetchval("select relevo.make_messages_due()"))
        due = [one for one in self.live() if one.visible is not None and one.visible <= self.time]
        scheduled = sorted(
            (one for one in due if one.state == SCHEDULED),
            key=lambda one: (one.visible, one.number),
        )
        for model in due:
            model.visible = None
        sql = "select sequence from relevo.message order by sequence desc limit $1"
        new = self.do(self.rows.db.fetch(sql, len(scheduled)))
        for model, row in zip(scheduled, reversed(new), strict=True):
            self.move(model, "due")
            assert row["sequence"] > model.number
            model.number = row["sequence"]
            model.expires = None if model.expires is None else self.time + 1

    def expire(self) -> None:
        self.do(self.rows.db.fetchval("select relevo.expire_messages()"))
        for model in self.live():
            old = model.expires is not None and model.expires <= self.time
            if model.state == ACTIVE and old:
                model.visible = None
                self.move(model, "expire_to_dead_letters" if self.keeps_expired else "expire")

    def redrive(self, index: int) -> None:
        buried = [one for one in self.models if one.buried] or self.models
        if not buried:
            return
        model = buried[index % len(buried)]
        sql = "select relevo.redrive_messages($1, 1::smallint, $2)"
        found = self.do(self.rows.db.fetchval(sql, self.entity.id, [model.number]))
        free = model.buried and model.state in (ACTIVE, DEFERRED)
        assert len(found) == free  # M31
        if found:
            (model.number,) = found
            model.state, model.buried, model.visible, model.count = ACTIVE, False, None, 0

    def switch(self, policy: tuple[Ordering, bool]) -> None:
        order, fair = policy
        self.entity = self.do(self.rows.switch(self.entity, order, fair=fair))

    def fold(self) -> None:
        self.do(self.rows.db.execute("select relevo.fold_message_counts()"))

    # What must hold at every moment.

    def check(self) -> None:
        found = self.do(self.rows.db.fetch("select * from relevo.message"))

        stored = {
            row["sequence"]: (
                STATES[row["state"]], row["sub_queue"] == 1, row["delivery_count"],
                row["preempt_count"], row["token"], row["visible_at"] is not None,
            )
            for row in found
        }  # fmt: skip
        assert stored == {
            one.number: (
                one.state, one.buried, one.count, one.preempts, one.token, one.visible is not None,
            )
            for one in self.live()
        }  # fmt: skip
        kept, real = self.do(self.rows.counts())
        assert kept == real  # M29


@pytest.fixture(scope="module")
def runner(relevo_databases: TestDatabases) -> Iterator[Runner]:
    url = relevo_databases.create()
    runner = Runner(url)
    yield runner
    runner.close()
    relevo_databases.drop(url)


@pytest.mark.parametrize("keeps_expired", [False, True])
def test_lives_of_messages_are_those_of_the_table(runner: Runner, keeps_expired: bool) -> None:
    """Steps are drawn by numbers: a failure names its steps, and comes again with its seed."""
    for seed in range(EXAMPLES // 3):
        random, lives, done = Random(seed), Lives(runner, keeps_expired), []
        for _ in range(60):
            kind = random.choice(STEPS)
            done.append((kind, {name: draw(random) for name, draw in GIVEN[kind].items()}))
            try:
                getattr(lives, kind)(**done[-1][1])
                lives.check()
            except AssertionError as error:
                error.add_note(f"seed {seed}, {done}")
                raise
