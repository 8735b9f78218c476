"""Random lives of messages, step by step, while rules and policies change, against the table of
states (M1 to M5, M16, M19, M21, M22, M29, M31, M32)."""

from __future__ import annotations

import itertools
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from relevo.messaging import Aging, Deadline, Fifo, Message, Strict, Weighted
from relevo.messaging.core import ordering
from relevo.messaging.core.classes import CLASSES
from relevo.messaging.states import (
    ACTIVE,
    DEFERRED,
    GONE,
    LOCKED,
    NOT_IN_DEAD_LETTERS,
    SCHEDULED,
    refusal,
)
from tests.conftest import EXAMPLES
from tests.messaging.storage.life_model import DELIVERIES, HELD, RULES, Model, Site, copies
from tests.messaging.storage.rows import STATES, EntityRow

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime
    from uuid import UUID

    from relevo.messaging.model import Ordering, PriorityClass
    from relevo.testing.databases import TestDatabases

STEP = 1_000.0
"""Seconds by which time moves: more than any wait of the model, and than the test takes."""
EVENTS = ("complete", "abandon", "delay", "defer", "dead_letter", "release", "suspend")
POLICIES: tuple[tuple[Ordering, bool], ...] = (
    (Fifo(), False), (Strict(), False), (Strict(), True), (Aging(), False),
    (Aging(floor_share=0), False), (Deadline(), False), (Weighted(), False), (Weighted(), True),
)  # fmt: skip
"""With fairness or without."""
NAMES = tuple(one.name for one in CLASSES)
NUMBERS = itertools.count(1)
INDEX = st.integers(0, 30)
SELDOM = st.sampled_from([False] * 6 + [True])
PLACE = st.integers(0, 1)
"""The queue, or the subscription."""


class Life(RuleBasedStateMachine):
    """Senders, receivers, a host, an operator and the clock, one step at a time."""

    site: ClassVar[Site]
    keeps_expired: ClassVar[bool]

    @initialize()
    def open(self) -> None:
        self.do, self.rows = self.site.do, self.site.rows
        self.models: list[Model] = []
        self.time = 0
        self.wanted_rules = {"even", "marked"}
        self.do(self._open())

    async def _open(self) -> None:
        await self.rows.clear()
        app, name = self.site.app, f"life-{next(NUMBERS)}"
        options: Any = {
            "max_delivery_count": DELIVERIES, "dead_letter_on_expiration": self.keeps_expired,
            "lock_duration": STEP / 2, "ordering": Fifo(),
        }  # fmt: skip
        self.queue, self.topic = app.queue(name, **options), app.topic(f"{name}-all")
        self.subscription = self.topic.subscription(
            "s", rules={one: RULES[one] for one in self.wanted_rules}, **options
        )
        self.entities = []
        for handle in (self.queue, self.subscription):
            await handle.ensure()
            sql = "select id from relevo.message_entity where path = $1"
            id_ = await self.rows.db.fetchval(sql, str(handle.path))
            self.entities.append(EntityRow(id_, name, Fifo(), CLASSES, fair=False))
        self.host: UUID = await self.rows.host()

    def live(self) -> list[Model]:
        return [one for one in self.models if one.state != GONE]

    def chosen(self, index: int, *states: str) -> Model | None:
        """A message, one in these states if there is any."""
        fitting = [one for one in self.models if one.state in states] or self.models
        return fitting[index % len(fitting)] if fitting else None

    # What senders and operators do.

    @rule(
        place=PLACE, count=st.integers(1, 3), n=st.integers(0, 3), ttl=st.booleans(),
        later=SELDOM, of=st.sampled_from(CLASSES), level=st.integers(0, 2),
        tenant=st.sampled_from(["", "acme", "zeta"]),
    )  # fmt: skip
    def send(
        self, place: int, count: int, n: int, ttl: bool, later: bool, of: PriorityClass, level: int,
        tenant: str,
    ) -> None:  # fmt: skip
        later = later and place == 0  # what a topic schedules is routed when it is due
        priority = of.priorities[0] + level
        known = {one.number for one in self.models}
        self.do(self._send(place, count, n, ttl, later, priority, tenant))
        sql = "select sequence, sub_queue, class from relevo.message order by sequence"
        rows = [row for row in self.do(self.rows.db.fetch(sql)) if row["sequence"] not in known]
        plain, failed = copies(self.wanted_rules, n) if place else (1, 0)
        buried = [bool(row["sub_queue"]) for row in rows]
        assert (buried.count(False), buried.count(True)) == (count * plain, count * failed)  # M21
        for row in rows:
            assert NAMES[row["class"] - 1] == of.name
            state, dead = SCHEDULED if later else ACTIVE, bool(row["sub_queue"])
            expires = self.time + 1 if ttl and not dead else None
            model = Model(place, row["sequence"], state, expires, of, priority, tenant, dead)
            model.visible = self.time + 1 if later else None
            self.models.append(model)

    async def _send(
        self, place: int, count: int, n: int, ttl: bool, later: bool, priority: int, tenant: str
    ) -> None:
        message = Message(
            body=b"body", priority=priority, properties={"n": n}, fairness_key=tenant,
            ttl=STEP / 2 if ttl else None,
            at=await self.rows.now() + timedelta(seconds=STEP / 2) if later else None,
        )  # fmt: skip
        await (self.topic if place else self.queue).send_many([message] * count)

    @rule(index=INDEX)
    def cancel(self, index: int) -> None:
        model = self.chosen(index, SCHEDULED)
        if model is None:
            return
        sql = "select relevo.cancel_scheduled($1, $2)"
        entity = self.entities[model.place]
        found = self.do(self.rows.db.fetchval(sql, entity.id, [model.number]))
        assert (found == []) == (refusal("cancel", model.state) is not None)
        if found:
            model.move("cancel")

    @rule(name=st.sampled_from(sorted(RULES)))
    def change_rules(self, name: str) -> None:
        """Remove a rule, or set it; messages that wait stay where they are."""
        if name in self.wanted_rules:
            self.do(self.subscription.remove_rule(name))
        else:
            self.do(self.subscription.set_rule(name, RULES[name]))
        self.wanted_rules ^= {name}

    @rule(place=PLACE, policy=st.sampled_from(POLICIES))
    def change_policy(self, place: int, policy: tuple[Ordering, bool]) -> None:
        order, fair = policy
        handle = self.subscription if place else self.queue
        self.do(handle.update(ordering=order, fair=fair))
        entity = self.entities[place]
        self.entities[place] = EntityRow(entity.id, entity.name, order, CLASSES, fair)

    # What receivers and hosts do.

    @rule(
        place=PLACE, wanted=st.integers(1, 3), by_host=st.booleans(), delete=SELDOM, letters=SELDOM
    )
    def claim(self, place: int, wanted: int, by_host: bool, delete: bool, letters: bool) -> None:
        host = self.host if by_host else None
        sql = "select sequence, enqueued_at from relevo.message"
        arrived = {row["sequence"]: row["enqueued_at"] for row in self.do(self.rows.db.fetch(sql))}
        claimable = [
            one for one in self.live()
            if one.place == place and one.state == ACTIVE and one.visible is None
            and one.buried == letters and (one.expires is None or one.expires > self.time)
        ]  # fmt: skip
        found = self.do(
            self.rows.claim(
                self.entities[place], wanted, host=host, delete=delete, sub_queue=int(letters)
            )
        )
        by_number = {one.number: one for one in claimable}
        assert len(found) == min(wanted, len(claimable))
        taken = [by_number[row["sequence"]] for row in found]
        self.check_order(taken, claimable, arrived, letters=letters)
        for row, model in zip(found, taken, strict=True):
            assert NAMES[row["class"] - 1] == model.of.name  # M32
            assert row["delivery_count"] == model.count
            model.move("take" if delete else "lock")
            if not delete:
                model.hold(row["token"], self.time, host=by_host)

    def check_order(
        self, taken: list[Model], claimable: list[Model], arrived: dict[int, datetime], *,
        letters: bool,
    ) -> None:  # fmt: skip
        """Of all that compete by rank alone, the first were taken, in their order."""
        if not claimable:
            return
        entity = self.entities[claimable[0].place]
        policy, fair = entity.ordering, entity.fair
        shared = fair or isinstance(policy, Weighted)
        floor = isinstance(policy, Aging) and policy.floor_share

        def group(one: Model) -> Any:
            """Weights, tenants and the floor share decide between groups."""
            of = one.of.name if shared else one.of.express if floor else None
            return None if letters else (of, one.tenant if fair else None)

        def place(one: Model) -> Any:
            if shared or letters:
                return one.number
            at = round(arrived[one.number].timestamp() * ordering.MICROS)
            rank = ordering.rank(policy, one.of, priority=one.priority, arrived=at)
            return ordering.tier(policy, one.of), rank, one.number

        for key in {group(one) for one in claimable}:
            those = [one.number for one in taken if group(one) == key]
            first = sorted((one for one in claimable if group(one) == key), key=place)
            assert those == [one.number for one in first[: len(those)]]  # M6, M7, M8, M13

    @rule(index=INDEX)
    def receive_deferred(self, index: int) -> None:
        model = self.chosen(index, DEFERRED)
        if model is None:
            return
        found = self.do(
            self.rows.deferred(
                self.entities[model.place], model.number, sub_queue=int(model.buried)
            )
        )
        assert (found == []) == (refusal("receive_deferred", model.state) is not None)
        for row in found:
            model.move("receive_deferred")
            model.hold(row["token"], self.time)

    @rule(index=INDEX, event=st.sampled_from(EVENTS), wrong=SELDOM, other=SELDOM)
    def settle(self, index: int, event: str, wrong: bool, other: bool) -> None:
        model = self.chosen(index, *(() if other else HELD))
        if model is None:
            return
        delay = STEP / 2 if event == "delay" else None
        event = "abandon" if event == "delay" else event
        token = 1_000_000 if wrong else model.token or 0
        given = {"sequence": model.number, "token": token}
        good = self.do(self.rows.settle(event, given, delay=delay, checkpoint=b"x"))
        holds = not wrong and (model.host or model.locked_at == self.time)
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
            model.move(event)

    def fail(self, model: Model, event: str, *, delayed: bool = False) -> None:
        model.fail(event, self.time, keeps_expired=self.keeps_expired, delayed=delayed)

    @rule()
    def lose_host(self) -> None:
        self.do(self.rows.end_host(self.host))
        self.host = self.do(self.rows.host())
        self.recover()

    # What time does.

    @rule()
    def pass_time(self) -> None:
        self.do(self.rows.advance(STEP))
        self.time += 1

    @rule()
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

    @rule()
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
            model.move("due")
            assert row["sequence"] > model.number
            model.number = row["sequence"]
            model.expires = None if model.expires is None else self.time + 1

    @rule()
    def expire(self) -> None:
        self.do(self.rows.db.fetchval("select relevo.expire_messages()"))
        for model in self.live():
            old = model.expires is not None and model.expires <= self.time
            if model.state == ACTIVE and old:
                model.visible = None
                model.move("expire_to_dead_letters" if self.keeps_expired else "expire")

    @rule(index=INDEX)
    def redrive(self, index: int) -> None:
        buried = [one for one in self.models if one.buried] or self.models
        if not buried:
            return
        model = buried[index % len(buried)]
        sql = "select relevo.redrive_messages($1, 1::smallint, $2)"
        found = self.do(self.rows.db.fetchval(sql, self.entities[model.place].id, [model.number]))
        free = model.buried and model.state in (ACTIVE, DEFERRED)
        assert len(found) == free  # M31
        if found:
            (model.number,) = found
            model.state, model.buried, model.visible, model.count = ACTIVE, False, None, 0

    @rule()
    def fold(self) -> None:
        self.do(self.rows.db.execute("select relevo.fold_message_counts()"))

    # What must hold at every moment.

    @invariant()
    def check(self) -> None:
        stored = {
            row["sequence"]: (
                STATES[row["state"]], row["sub_queue"] == 1, row["delivery_count"],
                row["preempt_count"], row["token"], row["visible_at"] is not None,
            )
            for row in self.do(self.rows.db.fetch("select * from relevo.message"))
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
def site(relevo_databases: TestDatabases) -> Iterator[Site]:
    url = relevo_databases.create()
    site = Site(url)
    yield site
    site.close()
    relevo_databases.drop(url)


@pytest.mark.parametrize("keeps_expired", [False, True])
def test_lives_of_messages_are_those_of_the_table(site: Site, keeps_expired: bool) -> None:
    Life.site, Life.keeps_expired = site, keeps_expired
    run_state_machine_as_test(
        Life,
        settings=settings(
            max_examples=EXAMPLES // 4, stateful_step_count=60, deadline=None,
            print_blob=True, suppress_health_check=list(HealthCheck),
        ),
    )  # fmt: skip
