"""Many jobs at a time: submitted together, settled and claimed by statements of their own."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from relevo.errors import InvalidValue
from relevo.jobs.model import Lane
from relevo.jobs.submitting.submission import new_ids
from relevo.kernel.postgres import catalog
from tests.jobs.office import until

if TYPE_CHECKING:
    from tests.jobs.office import Office

pytestmark = pytest.mark.anyio

SQL = catalog.load("relevo.jobs")
MANY = 3_000


def test_keys_ascend_within_a_call_and_after_it() -> None:  # 4.4
    made = [*new_ids(1_000), *new_ids(1), *new_ids(1_000)]
    assert made == sorted(set(made))
    assert {one.version for one in made} == {7}
    assert {one.variant for one in made} == {uuid4().variant}
    assert all(isinstance(one, UUID) for one in made)


async def test_jobs_that_are_submitted_together_share_their_options(office: Office) -> None:  # 4.2
    owner = uuid4()
    plain = await office.jobs.submit_many("work", [{"n": 1}, {"n": 2}], name="pair", priority=7)
    chained = await office.jobs.submit_many("work", [{}, {}], token="t", owner=owner, lane="bulk")
    rows = [await one.get() for one in (*plain, *chained)]
    assert [(row.name, row.priority, row.lane) for row in rows] == [
        ("pair", 7, "default"), ("pair", 7, "default"), ("work", 4, "bulk"), ("work", 4, "bulk")
    ]  # fmt: skip
    assert [row.owner for row in rows] == [None, None, owner, owner]
    assert [row.sequence for row in rows] == sorted(row.sequence for row in rows)
    stored = await office.database.fetch("select token, data from relevo.job order by sequence")
    assert [tuple(row) for row in stored] == [
        (None, '{"n":1}'), (None, '{"n":2}'), ("t", "{}"), ("t", "{}")
    ]  # fmt: skip


async def test_jobs_that_are_submitted_together_are_refused_together(office: Office) -> None:
    with pytest.raises(InvalidValue, match="no option 'id'"):
        await office.jobs.submit_many("work", [{}, {}], id=uuid4())  # type: ignore[call-arg]
    with pytest.raises(InvalidValue, match="JSON"):
        await office.jobs.submit_many("work", [{}, {"n": object()}])
    with pytest.raises(InvalidValue, match="lane"):
        await office.jobs.submit_many("work", [{}, {}], lane="nowhere")
    assert await office.database.fetchval("select count(*) from relevo.jobs") == 0


@pytest.mark.parametrize("lost", [False, True])
async def test_many_quick_jobs_run_once_each(
    office: Office, monkeypatch: pytest.MonkeyPatch, lost: bool
) -> None:  # 6.1
    """Also if an answer is lost while two statements are under way."""
    seen, under_way, together = Counter[int](), list[bool](), 0

    async def work(ctx: Any, n: int) -> None:
        seen[n] += 1

    app = office.new_app()
    app.job("work")(work)

    async def watched(sql: str, *arguments: Any, **options: Any) -> Any:
        nonlocal together
        if sql not in (SQL.work, SQL.claim):
            return await write(sql, *arguments, **options)
        under_way.append(True)
        first = len(under_way) == 2 and not together
        together += len(under_way) == 2
        try:
            rows = await write(sql, *arguments, **options)
        finally:
            under_way.pop()
        if lost and first:
            raise asyncpg.ConnectionDoesNotExistError("the answer was lost")
        return rows

    async with app:
        write = app.database.write
        monkeypatch.setattr(app.database, "write", watched)
        jobs = await office.jobs.submit_many("work", [{"n": n} for n in range(MANY)])
        async with app.host():
            await until(lambda: len(seen) == MANY, "all have run", 30)
            await jobs[-1].wait(10)
    assert set(seen.values()) == {1}
    assert together
    ends = await office.database.fetch("select status, count(*) from relevo.jobs group by status")
    assert [tuple(row) for row in ends] == [(30, MANY)]


async def test_what_is_deleted_and_what_is_kept_are_settled_together(office: Office) -> None:  # 8.4
    async def work(ctx: Any) -> None: ...

    app = office.new_app()
    app.jobs.registry.configure(Lane(name="default", events="none"))
    app.job("brief", auto_delete=True)(work)
    app.job("kept")(work)
    async with app.host():
        for _ in range(5):
            brief = await office.jobs.submit_many("brief", [{}] * 4)
            kept = await office.jobs.submit_many("kept", [{}] * 4)
            for one in (*brief, *kept):
                await one.wait(10)
    rows = await office.database.fetch("select handler, status from relevo.jobs")
    assert Counter(map(tuple, rows)) == {("kept", 30): 20}
