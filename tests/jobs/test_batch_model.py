"""Random lives of the jobs of batches: the counts, the end and the job at the end, by a model."""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import multiple, rule, run_state_machine_as_test
from msgspec import Struct

from relevo.jobs import states
from relevo.jobs.batches.handles import BatchHandle
from tests.conftest import EXAMPLES
from tests.jobs.test_model import Life, Model

LIVE = ("waiting", "running")


class BatchModel(Struct):
    """A batch and what is known of each of its jobs."""

    handle: BatchHandle
    members: dict[UUID, str] = {}
    closed: bool = False
    judged: bool = False
    """Whether the leader has found it ended, so that its own job was submitted."""


class BatchLife(Life):
    """Jobs in two batches at a time, beside others; the leader counts now and then."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[BatchModel] = []

    @rule(target=Life.jobs, count=st.integers(1, 3), token=st.sampled_from([None, "a"]))
    def submit_into_batch(self, count: int, token: str | None) -> Any:
        if not self.batches or self.batches[-1].closed:
            made = self.do(self.app.jobs.batch(then="report"))
            self.batches.append(BatchModel(made))
        batch = self.batches[-1]
        jobs = self.do(batch.handle.submit_many("work", [{}] * count, token=token))
        for job in jobs:
            self.submitted += 1
            chain = None if token is None else (token, None)
            self.models[job.id] = Model(job.id, self.submitted, chain)
            batch.members[job.id] = "waiting"
        return multiple(*(job.id for job in jobs))

    @rule()
    def close(self) -> None:
        if self.batches:
            self.do(self.batches[-1].handle.close())
            self.batches[-1].closed = True

    @rule(id_=Life.jobs)
    def run_again(self, id_: UUID) -> None:
        model = self.models.get(id_)
        if model is None or model.status not in (31, 32):
            return
        assert self.do(self._command(id_, "rerun")) == 0
        # It goes back behind those that wait.
        model.status, model.due, model.retries, model.crashes, model.alone = 0, None, 0, 0, False

    @rule()
    def count(self) -> None:
        self.do(self.app.jobs.batches.tend())
        for batch in self.batches:
            self.look(batch)
            over = batch.closed and not any(word in LIVE for word in batch.members.values())
            batch.judged = batch.judged or over

    def look(self, batch: BatchModel) -> None:
        """Bring the words of a batch up to date; a live job that is gone counts as canceled."""
        for id_, word in batch.members.items():
            model = self.models.get(id_)
            if model is None:
                now = "canceled" if word in LIVE else word
            elif model.status >= states.SUCCEEDED:
                now = states.status_word(model.status)
            else:
                now = "running" if model.status in states.LOCKED else "waiting"
            batch.members[id_] = now

    async def _compare(self) -> None:
        await super()._compare()
        for batch in self.batches:
            self.look(batch)
            found = await batch.handle.get()
            words = list(batch.members.values())
            for name in (*LIVE, "succeeded", "failed", "canceled"):
                assert getattr(found, name) == words.count(name), (name, batch)
            assert found.total == len(words)
            live = any(word in LIVE for word in words)
            assert found.done == (batch.closed and not live)
            assert (found.callback is not None) == batch.judged
        reports = "select count(*) from relevo.jobs where handler = 'report'"
        count = cast("int", await self.connection.fetchval(reports))
        assert count == sum(batch.judged for batch in self.batches)


def test_counts_of_batches_are_those_of_the_model(shared_url: str) -> None:
    BatchLife.url, BatchLife.parcels_from = shared_url, 1
    run_state_machine_as_test(
        BatchLife,
        settings=settings(
            max_examples=EXAMPLES // 2, stateful_step_count=40, deadline=None,
            phases=[Phase.explicit, Phase.reuse, Phase.generate], print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )  # fmt: skip
