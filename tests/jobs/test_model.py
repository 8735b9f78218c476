"""Random lives of jobs, step by step, against a model of what they ought to be (A2 to A7, A15)."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import UUID

import asyncpg
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)
from msgspec import Struct

from relevo import App
from relevo.jobs.core import codes
from relevo.jobs.errors import JobMissing, JobRefused
from relevo.testing.clock import Clock
from tests.conftest import EXAMPLES
from tests.jobs.conftest import EMPTY
from tests.jobs.office import PARCELS, ROWS, Worker, told
from tests.jobs.test_commands import STATUSES, TABLE

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from relevo.kernel.postgres.database import Database

STEP = 1_000.0
"""Seconds by which time moves: more than any wait of the model, and than the test takes."""
CRASHES_MAX = 3
SETTLED = {
    # Of a job In Progress, Pausing, Canceling.
    "done": (30, 30, 32), "fail": (31, 31, 31), "retry": (10, 10, 31), "suspend": (10, 10, 31),
    "yield": (0, 10, 32), "return": (0, 10, 32), "defer": (10, 10, 32),
}  # fmt: skip
LOST = {20: 0, 21: 10, 22: 32}
OWNER = UUID(int=7)


class Model(Struct):
    """What a job ought to be; `due` is the step of time that makes it ready, if time does."""

    id: UUID
    number: int
    chain: tuple[str, UUID | None] | None
    """Token and owner, as long as it is in their chain."""
    status: int = 0
    due: int | None = None
    attempt: int = 0
    retries: int = 0
    crashes: int = 0
    alone: bool = False
    worker: int | None = None
    deleted: bool = False


class Life(RuleBasedStateMachine):
    """Clients, two hosts and the clock, one step at a time."""

    url: ClassVar[str]
    parcels_from: ClassVar[int]
    jobs = Bundle("jobs")

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.stack = AsyncExitStack()
        self.models: dict[UUID, Model] = {}
        self.submitted = 0
        self.time = 0
        self.workers: list[Worker] = []

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(work)

    @initialize()
    def open(self) -> None:
        self.do(self._open())

    async def _open(self) -> None:
        self.connection = await asyncpg.connect(self.url)
        self.stack.push_async_callback(self.connection.close)
        await self.connection.execute(EMPTY)
        await self.connection.execute(PARCELS.format(self.parcels_from))
        self.app = await self.stack.enter_async_context(App(settings=told(self.url)))
        self.database: Database = self.app.database
        self.workers = [await self._worker(n) for n in range(2)]

    async def _worker(self, number: int) -> Worker:
        """A host; each of the two serves the handler in a lane of its own."""
        worker = await Worker(self.connection).join()
        worker.lanes = {"work": ("default", "bulk")[number]}
        return worker

    def teardown(self) -> None:
        self.do(self.connection.execute(PARCELS.format(100)))
        self.do(self.stack.aclose())
        self.runner.close()

    def live(self) -> list[Model]:
        return [one for one in self.models.values() if one.status < 30]

    def heads(self) -> set[int]:
        """The oldest of each chain that is not completed; tombstones count (A31)."""
        first: dict[Any, int] = {}
        for one in self.live():
            if one.chain is not None:
                first[one.chain] = min(first.get(one.chain, one.number), one.number)
        return set(first.values())

    def end(self, model: Model, status: int) -> None:
        """Move a job that no host holds any more; what was deleted is gone."""
        model.status, model.worker = status, None
        if model.deleted:
            del self.models[model.id]

    # What clients do.

    @rule(
        target=jobs, token=st.sampled_from([None, None, "a", "b"]), deferred=st.booleans(),
        owner=st.sampled_from([None, OWNER]),
    )  # fmt: skip
    def submit(self, token: str | None, deferred: bool, owner: UUID | None) -> UUID:
        model = self.do(self._submit(token, deferred, owner))
        self.models[model.id] = model
        return model.id  # type: ignore[no-any-return]

    async def _submit(self, token: str | None, deferred: bool, owner: UUID | None) -> Model:
        start = await self.app.now() + timedelta(seconds=STEP / 2) if deferred else None
        job = await self.app.jobs.submit("work", token=token, start=start, owner=owner)
        self.submitted += 1
        status, due = (10, self.time + 1) if deferred else (0, None)
        chain = None if token is None else (token, owner)
        return Model(job.id, self.submitted, chain, status, due)

    @rule(target=jobs, count=st.integers(2, 4))
    def submit_many(self, count: int) -> Any:
        """They wait in one parcel, or each is a row."""
        made = self.do(self.app.jobs.submit_many("work", [{}] * count))
        for job in made:
            self.submitted += 1
            self.models[job.id] = Model(job.id, self.submitted, None, 0, None)
        return multiple(*(job.id for job in made))

    @rule(id_=jobs, command=st.sampled_from(sorted(TABLE)))
    def command(self, id_: UUID, command: str) -> None:
        model = self.models.get(id_)
        answer = self.do(self._command(id_, command))
        if model is None or model.deleted:
            assert answer == "missing"
            return
        expected = TABLE[command][STATUSES.index(model.status)]
        assert answer == expected, (model, command)
        if isinstance(expected, str):
            return
        if command == "delete" and expected == -1:
            del self.models[id_]
        elif command == "delete":
            model.deleted = True
        else:
            if command == "postpone":
                model.due = self.time + 1
            elif command in ("pause", "resume") and model.status != expected:
                model.due = None
            model.status = expected

    async def _command(self, id_: UUID, command: str) -> int | str:
        until = None
        if command == "postpone":
            until = await self.app.now() + timedelta(seconds=STEP / 2)
        try:
            return await self.app.jobs.command(id_, command, until=until)
        except JobMissing:
            return "missing"
        except JobRefused as error:
            return codes.shown(error.error_code)

    @rule(id_=jobs)
    def unblock(self, id_: UUID) -> None:
        model = self.models.get(id_)
        answer = self.do(self._unblock(id_))
        if model is None or model.deleted or model.status >= 30:
            assert answer == "missing"
            return
        before = [
            one for one in self.live()
            if one.chain is not None and one.chain == model.chain and one.number < model.number
        ]  # fmt: skip
        head = min(before, key=lambda one: one.number, default=None)
        if head is None or head.status >= 20:
            assert answer == "refused"
            return
        assert answer == head.id
        head.chain = None

    async def _unblock(self, id_: UUID) -> UUID | str:
        try:
            return await self.app.jobs.unblock(id_)
        except JobMissing:
            return "missing"
        except JobRefused:
            return "refused"

    # What hosts do.

    @rule(worker=st.integers(0, 1), room=st.integers(1, 3))
    def claim(self, worker: int, room: int) -> None:
        self.tick()
        heads = self.heads()
        eligible = [
            one for one in self.live()
            if one.status == 0 and not one.alone and (one.chain is None or one.number in heads)
        ]  # fmt: skip
        expected = sorted(eligible, key=lambda one: one.number)[:room]  # A8
        claimed = self.do(self.workers[worker].work(room))
        if any(one.crashes for one in expected):  # then few are claimed
            assert claimed
        else:  # a parcel that does not fit may wait if half the room is used
            assert 2 * len(claimed) >= len(expected)
        expected = expected[: len(claimed)]
        assert [row["id"] for row in claimed] == [one.id for one in expected]  # A6, A7, A9
        for row, one in zip(claimed, expected, strict=True):
            one.status, one.worker, one.attempt = 20, worker, one.attempt + 1
            assert row["attempt"] == one.attempt

    @rule(worker=st.integers(0, 1), vacant=st.booleans())
    def claim_alone(self, worker: int, vacant: bool) -> None:
        heads = self.heads()
        lone = [
            one for one in self.live()
            if one.status == 0 and one.alone and (one.chain is None or one.number in heads)
        ]  # fmt: skip
        row = self.do(self.workers[worker].take_lone(vacant=vacant))
        if row is None:  # the head of a chain may not be let through yet
            assert all(one.chain is not None for one in lone)
            return
        model = self.models[row["id"]]
        assert model in lone
        model.status, model.worker, model.attempt = 20, worker, model.attempt + 1
        model.alone = vacant
        assert (row["attempt"], row["alone"]) == (model.attempt, vacant)

    @rule(id_=jobs, event=st.sampled_from(sorted(SETTLED)))
    def settle(self, id_: UUID, event: str) -> None:
        model = self.models.get(id_)
        if model is None or model.worker is None:
            return
        worker = self.workers[model.worker]
        row = worker.held[id_]
        self.do(worker.work(0, settle=[(row, event)], delays=[STEP / 2]))
        assert worker.stale == []
        before = model.status
        if event in ("retry", "defer") and SETTLED[event][before - 20] == 10:
            model.retries += event == "retry"
            model.due = self.time + 1
        elif event == "suspend":
            model.due = None
        model.alone = model.alone and event == "return"
        self.end(model, SETTLED[event][before - 20])
        self.tick()

    @rule(id_=jobs, event=st.sampled_from(sorted(SETTLED)))
    def settle_by_the_wrong_host(self, id_: UUID, event: str) -> None:  # A5
        model = self.models.get(id_)
        if model is None or model.worker is None:
            return
        row = self.workers[model.worker].held[id_]
        other = self.workers[1 - model.worker]
        self.do(other.work(0, settle=[(row, event)], delays=[0.0]))
        assert other.stale == [id_]
        self.tick()

    @rule(worker=st.integers(0, 1))
    def lose(self, worker: int) -> None:  # S14 to S16
        self.do(self._lose(worker))
        for model in list(self.models.values()):
            if model.worker != worker:
                continue
            before = model.status
            if before == 20:
                model.crashes += 1
            most = CRASHES_MAX if model.alone else 10 * CRASHES_MAX
            out = before == 20 and model.crashes >= most
            self.end(model, 31 if out else LOST[before])
            model.alone = model.alone or model.crashes >= 2

    async def _lose(self, worker: int) -> None:
        await self.workers[worker].end()
        recover = "select relevo.recover_jobs(100, $1)"
        while await self.connection.fetchval(recover, CRASHES_MAX) < 0:
            pass  # parcels were unpacked
        self.workers[worker] = await self._worker(worker)

    @rule()
    def pass_time(self) -> None:  # S3
        self.do(Clock(self.database).advance(STEP))
        self.time += 1

    def tick(self) -> None:
        """Every call of a host makes ready what is due."""
        for model in self.live():
            if model.status == 10 and model.due is not None and model.due <= self.time:
                model.status = 0

    # What must hold at every moment.

    @invariant()
    def rows_are_as_the_model(self) -> None:
        if self.workers:
            self.do(self._compare())

    async def _compare(self) -> None:
        rows = await self.connection.fetch(f"select * from {ROWS} j where handler = 'work'")
        found = {
            row["id"]: (
                row["status"],
                row["attempt"],
                row["retries"],
                row["crashes"],
                row["deleted"],
                row["status"] < 30 and row["alone"],
            )
            for row in rows
        }
        assert found == {
            one.id: (
                one.status,
                one.attempt,
                one.retries,
                one.crashes,
                one.deleted,
                one.status < 30 and one.alone,
            )
            for one in self.models.values()
        }
        locked = [row["chain"] for row in rows if 20 <= row["status"] < 30 and row["chain"]]
        assert len(locked) == len(set(locked))  # A6
        started = [row for row in rows if row["status"] in (20, 21, 22, 30, 31)]
        assert all(row["retries"] < row["attempt"] for row in started)  # A15
        assert all((row["host"] is not None) == (20 <= row["status"] < 30) for row in rows)


@pytest.mark.parametrize("parcels_from", [100, 1])
def test_lives_of_jobs_are_those_of_the_model(shared_url: str, parcels_from: int) -> None:
    """Whether claims are rows or parcels."""
    Life.url, Life.parcels_from = shared_url, parcels_from
    run_state_machine_as_test(
        Life,
        settings=settings(
            max_examples=EXAMPLES // 2, stateful_step_count=40, deadline=None,
            phases=[Phase.explicit, Phase.reuse, Phase.generate], print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )  # fmt: skip
