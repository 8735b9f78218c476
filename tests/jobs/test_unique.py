"""Unique jobs: the second submit of a key answers with the first job, whoever makes it, and how."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

import relevo
from relevo import Unique
from relevo.errors import InvalidValue, Unavailable
from relevo.jobs.core.uniqueness import stored, unique_of
from relevo.jobs.submitting import unique_submits
from relevo.jobs.timers import Timers
from tests.jobs.office import Worker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from relevo.jobs.service import JobHandle
    from relevo.testing import Clock
    from tests.jobs.office import Office

pytestmark = pytest.mark.anyio
WINDOW = Unique(key="k", window=60)


@pytest.fixture
async def worker(office: Office) -> AsyncIterator[Worker]:
    connection = await asyncpg.connect(office.url)
    yield await Worker(connection).join()
    await connection.close()


def firsts(jobs: list[JobHandle[Any]]) -> list[tuple[int, bool]]:
    """For each handle the number of the first with its id, and whether it says that it existed."""
    ids = [job.id for job in jobs]
    return [(ids.index(job.id), job.existed) for job in jobs]


async def test_equal_jobs_are_one_until_the_first_has_ended(office: Office, worker: Worker) -> None:
    submit = office.jobs.submit
    first = await submit("work", {"a": 1, "b": [2.5, "é"]}, unique=True)
    again = await submit("work", {"b": [2.5, "é"], "a": 1}, unique=True)
    other = await submit("work", {"a": 2, "b": [2.5, "é"]}, unique=True)
    plain = await submit("work", {"a": 1, "b": [2.5, "é"]})
    elsewhere = await submit("other", {"a": 1, "b": [2.5, "é"]}, unique=True)
    assert firsts([first, again, other, plain, elsewhere]) == [
        (0, False), (0, True), (2, False), (3, False), (4, False),
    ]  # fmt: skip
    taken = await worker.work(9, ["work", "other"])
    assert (await submit("work", {"a": 1, "b": [2.5, "é"]}, unique=True)).id == first.id
    await worker.work(settle=[(row, "done") for row in taken])
    assert (await submit("work", {"a": 1, "b": [2.5, "é"]}, unique=True)).id != first.id


async def test_a_window_counts_ended_jobs_but_those_that_failed(
    office: Office, worker: Worker, clock: Clock
) -> None:
    first = await office.jobs.submit("work", unique=WINDOW)
    (row,) = await worker.work(1)
    await worker.work(settle=[(row, "done")])
    assert (await office.jobs.submit("work", unique=WINDOW)).id == first.id
    await clock.advance(61)
    second = await office.jobs.submit("work", unique=WINDOW)
    assert second.id != first.id
    await second.cancel()
    ended = Unique(key="k", window=60, states=("canceled",))
    assert (await office.jobs.submit("work", unique=ended)).id == second.id
    assert (await office.jobs.submit("work", unique=WINDOW)).id != second.id


async def test_the_handler_says_what_is_equal(office: Office) -> None:
    @office.app.job("mail", unique=("to",))
    async def mail(to: str, text: str = "") -> None: ...

    @office.app.job("call", unique=lambda to: to.lower())
    async def call(to: str, text: str = "") -> None: ...

    for definition in (mail, call):
        jobs = [
            await definition.submit("ana"),
            await definition.submit("ana", text="again"),
            await definition.submit("eva"),
            await definition.using(unique=False).submit("ana"),
        ]
        assert firsts(jobs) == [(0, False), (0, True), (2, False), (3, False)]
    assert (await call.submit("ANA")).existed
    bulk = await office.jobs.submit_many("mail", [{"to": one} for one in ("ana", "li", "li", "jo")])
    assert [job.existed for job in bulk] == [True, False, True, False]
    assert bulk[1].id == bulk[2].id
    with pytest.raises(InvalidValue, match="unique by 'to', which its data does not have"):
        await office.jobs.submit("post", {"for": 1}, unique=("to",))


async def test_many_submitters_at_once_make_one_job(office: Office) -> None:
    apps = [office.app, office.new_app("b")]
    async with apps[1]:
        calls = [apps[n % 2].jobs.submit("work", {"n": n % 3}, unique=True) for n in range(60)]
        found = await asyncio.gather(*calls)
    assert len({job.id for job in found}) == 3
    assert sum(not job.existed for job in found) == 3
    assert await office.database.fetchval("select count(*) from relevo.job") == 3


async def test_an_open_transaction_delays_only_its_key(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with office.database.transaction() as tx:
        mine = await office.jobs.submit("work", tx=tx, unique="a")
        same = await office.jobs.submit("work", tx=tx, unique="a")
        waiting = asyncio.ensure_future(office.jobs.submit("work", unique="a"))
        assert not (await office.jobs.submit("work", unique="b")).existed
        assert not waiting.done()
    assert firsts([mine, same, await waiting]) == [(0, False), (0, True), (0, True)]
    monkeypatch.setattr(unique_submits, "ALONE_WAIT", "200ms")
    connection = await asyncpg.connect(office.url)
    transaction = connection.transaction()
    await transaction.start()
    lost = await office.jobs.submit("work", tx=connection, unique="c")
    with pytest.raises(Unavailable, match="same key and did not end within"):
        await office.jobs.submit("work", unique="c")
    await transaction.rollback()
    await connection.close()
    found = await office.jobs.submit("work", unique="c")
    assert (found.existed, found.id == lost.id) == (False, False)


async def test_sql_submits_unique_jobs_too(office: Office) -> None:
    sql = "select relevo.submit_job('work', '{\"a\": 1}', options => $1::text::jsonb)"
    first = await office.database.fetchval(sql, '{"unique": true}')
    assert await office.database.fetchval(sql, '{"unique": {"window": 60}}') == first
    assert (await office.jobs.submit("work", {"a": 1}, unique=True)).id == first
    assert await office.database.fetchval(sql, '{"unique": {"key": "x"}}') != first
    for wrong in ('{"unique": {"states": ["done"]}}', '{"unique": {"states": ["failed"]}}'):
        with pytest.raises(asyncpg.PostgresError, match="unique job"):
            await office.database.fetchval(sql, wrong)


async def test_keys_that_count_no_more_are_removed(office: Office, clock: Clock) -> None:
    jobs = [
        await office.jobs.submit("work", unique=one) for one in ("a", Unique(key="b", window=60))
    ]
    for job in jobs:
        await job.cancel()
    await office.jobs.submit("work", unique="c")
    timers = Timers(
        office.database, office.app.jobs.connection.opened[1], crashes_max=3, retention={}
    )
    assert await timers.forget_unique_keys() == 1
    await clock.advance(61)
    assert await timers.forget_unique_keys() == 1
    assert await office.database.fetchval("select count(*) from relevo.job_unique") == 1


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("", "give True, a key of 1 to 256"),
        ((), "a tuple of names"),
        (3, "a tuple of names"),
        (Unique(window=0), "above 0"),
        (Unique(states=("failed",)), "ended jobs count only within a window"),
        (Unique(window=5, states=()), "give some of waiting"),
    ],
)
async def test_what_makes_no_sense_is_refused(given: Any, says: str) -> None:
    with pytest.raises(InvalidValue, match=says):
        unique_of("a job", given)


async def test_a_series_is_not_unique_as_well(office: Office) -> None:
    with pytest.raises(InvalidValue, match="leave unique out"):
        await office.jobs.submit("work", unique=True, recurrence="FREQ=DAILY")
    assert stored(Unique(key="k", window=timedelta(minutes=1), states=("failed",)), None) == {
        "key": "k", "window": 60.0, "states": ["failed"],
    }  # fmt: skip
    assert relevo.Unique is Unique
