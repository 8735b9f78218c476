"""Commands on all jobs that match, jobs that repeat another one, and attempts that failed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from relevo.errors import InvalidValue
from relevo.jobs import matching
from relevo.jobs.errors import JobFailed, JobMissing
from relevo.jobs.model import JobAttempt, Lane
from tests.jobs.office import Worker

if TYPE_CHECKING:
    import relevo
    from tests.jobs.office import Office

pytestmark = pytest.mark.anyio
LATER = datetime(2100, 1, 1, tzinfo=UTC)


async def test_a_command_reaches_all_that_match_and_no_others(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matching, "CHUNK_ROWS", 3)
    monkeypatch.setattr("relevo.jobs.service.CHUNK_ROWS", 3)
    wanted = await office.jobs.submit_many("work", [{}] * 7)
    chained = [await office.jobs.submit("work", token="t") for _ in range(2)]
    other = await office.jobs.submit("other")
    query, seen = office.jobs.query().where(handler="work"), list[int]()
    done = await office.jobs.command_all(
        query, "postpone", until=LATER, progress=lambda so_far: seen.append(so_far.done)
    )
    assert (done.matched, done.done, done.refused) == (9, 9, 0)
    assert (seen, done.handlers) == ([3, 6, 9], {"work": 9})
    for command in ("resume", "cancel"):
        done = await office.jobs.command_all(query, command)
        assert done.done == 9, command
    refused = await office.jobs.command_all(query, "pause")
    assert (refused.done, refused.refused, len(refused.refusals)) == (0, 9, 9)
    assert "does not allow" in refused.refusals[wanted[0].id]
    await office.jobs.command_all(office.jobs.query().where(token="t"), "delete")
    done = await office.jobs.command_all(query.where(status="canceled"), "retry")
    assert done.done == 7
    assert {await office.status(job) for job in wanted} == {0}
    assert {await office.status(job) for job in chained} == {None}
    assert await office.status(other) == 0
    with pytest.raises(InvalidValue, match="not a command"):
        await office.jobs.command_all(query, "explode")
    with pytest.raises(InvalidValue, match="until"):
        await office.jobs.command_all(query, "cancel", until=LATER)


async def test_commands_of_one_statement_are_told_apart(office: Office) -> None:
    """A transaction with commands of several kinds and users on live and completed jobs."""
    lane = Lane(name="loud", events="all")
    office.app.jobs.configure(lane)
    await office.host({"work": lambda ctx: None}, lane="default")
    ended = await office.jobs.submit("work")
    await ended.wait(60)
    waiting = await office.jobs.submit("never")
    done = await office.jobs.command_all(office.jobs.query(), "delete")
    assert done.done == 2
    assert await office.events(ended) == ["succeeded", "deleted"]
    assert await office.events(waiting) == ["deleted"]


async def test_a_repetition_names_its_origin(office: Office) -> None:
    @office.app.job("mail")
    async def mail(to: str) -> str:
        return to

    async with office.app.host():
        first = await mail.using(name="May", token="t").submit(to="ana")
        assert await first.wait(60) == "ana"
        same = await first.run_again()
        other = await same.run_again({"to": "eve"}, name="June", token="")
        assert (await same.wait(60), await other.wait(60)) == ("ana", "eve")
        job = await same.get()
        assert (job.origin, job.name, job.token, job.batch) == (first.id, "May", "t", None)
        job = await other.get()
        assert (job.origin, job.name, job.token) == (same.id, "June", None)
        found = await office.jobs.query().where(origin=first.id)
        assert [each.id for each in found] == [same.id]
        with pytest.raises(InvalidValue, match="to"):
            await first.run_again({"whom": "eve"})
    await first.delete()
    with pytest.raises(JobMissing):
        await first.run_again()


async def test_attempts_that_fail_are_kept_and_successes_leave_none(office: Office) -> None:
    @office.app.job("flaky", retries=3, backoff=0.01)
    async def flaky(ctx: relevo.JobContext, fails: int) -> int:
        if ctx.attempt <= fails:
            raise ValueError(f"attempt {ctx.attempt} {'x' * 9_000} was in vain")
        return ctx.attempt

    async with office.app.host():
        good, late, bad = [await flaky.submit(fails=fails) for fails in (0, 2, 9)]
        assert (await good.wait(60), await late.wait(60)) == (1, 3)
        with pytest.raises(JobFailed):
            await bad.wait(60)
        assert (await good.get()).attempts == ()
        assert (await office.row(good))["attempts"] is None
        attempts = (await late.get()).attempts
        assert [each.attempt for each in attempts] == [1, 2]
        assert {(each.outcome, each.host) for each in attempts} == {("failed", "a")} or all(
            each.host for each in attempts
        )
        for each in attempts:
            assert each.message is not None
            assert each.message.rstrip().endswith("was in vain")
            assert len(each.message) <= 4_000
            assert each.started_at is not None
            assert each.started_at <= each.ended_at
        assert [each.attempt for each in (await bad.get()).attempts] == [1, 2, 3, 4]
        (listed,) = (await office.jobs.query().where(id=bad.id).page(1)).jobs
        assert len(listed.attempts) == 4
        (brief,) = (await office.jobs.query().where(id=bad.id).page(1, payload=False)).jobs
        assert brief.attempts == ()


async def test_the_last_twenty_attempts_are_kept_with_those_that_lost_their_host(
    office: Office,
) -> None:
    job = await office.jobs.submit("work")
    async with office.database.transaction() as connection:
        worker = await Worker(connection).join()
        for _ in range(25):
            (claim,) = await worker.work(1)
            await worker.work(settle=[(claim, "retry")], delays=[0.0])
        (claim,) = await worker.work(1)
        await worker.end()
        await connection.fetchval("select relevo.recover_jobs(10, 3)")
    attempts: tuple[JobAttempt, ...] = (await job.get()).attempts
    numbers: list[Any] = [each.attempt for each in attempts]
    assert numbers == list(range(7, 27))
    assert [each.outcome for each in attempts] == ["failed"] * 19 + ["lost"]
    assert attempts[-1].started_at is None
