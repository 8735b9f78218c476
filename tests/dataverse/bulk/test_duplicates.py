"""Duplicate detection: rules, codes, pairs."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from relevo.dataverse.bulk import MatchField
from relevo.dataverse.bulk.duplicates import match_code
from relevo.errors import InvalidRecurrence
from relevo.jobs.errors import JobFailed

if TYPE_CHECKING:
    from relevo import App
    from tests.dataverse.bulk.conftest import Warehouse

pytestmark = pytest.mark.anyio
EMAIL = (MatchField(path="email"),)


async def test_items_with_the_same_code_are_found(app: App, warehouse: Warehouse) -> None:
    people = app.container("people", "/id")
    emails = ["ana@x.org", " ANA@x.org", "bob@x.org", None, None]
    await people.bulk([{"id": f"p{n}", "email": email} for n, email in enumerate(emails)])
    async with app.host():
        published = await app.bulk.publish_rule("same mail", "people", EMAIL)
        assert await published.wait(60) == {"success": 5, "failure": 0}
        await people.upsert({"id": "p2", "email": "ana@x.org"})  # changed since
        await people.delete("p1", "p1")
        job = await app.bulk.detect_duplicates("same mail", [("id", "!=", "p4")])
        await job.wait(60)
        types = [(await one.get()).operation_type for one in (published, job)]
    assert types == [7, 8]
    assert await app.bulk.duplicates(job.id) == [("p0", "p2"), ("p2", "p0")]


async def test_items_with_long_partition_keys_are_found(app: App, warehouse: Warehouse) -> None:
    people = app.container("people", "/home")
    homes = ["".join(random.Random(n).choices("abcdefghijklmnop", k=2_048)) for n in range(2)]
    await people.bulk([{"id": "p", "home": home, "email": "ana@x.org"} for home in homes])
    async with app.host():
        await (await app.bulk.publish_rule("same mail", "people", EMAIL)).wait(60)
        job = await app.bulk.detect_duplicates("same mail")
        await job.wait(60)
    assert await app.bulk.duplicates(job.id) == [("p", "p"), ("p", "p")]


async def test_items_are_compared_as_they_are_when_it_is_looked(
    app: App, warehouse: Warehouse
) -> None:
    people = app.container("people", "/id")
    made = [{"id": f"a{n:03}", "email": f"{n}@x.org"} for n in range(450)]
    assert not (await people.bulk(made)).failures

    async def found(*where: tuple[str, str, str]) -> list[tuple[str, str]]:
        job = await app.bulk.detect_duplicates("same mail", where)
        assert await job.wait(60) == {"success": 1 if where else 450, "failure": 0}
        assert await app.bulk.counts(job.id) == (1 if where else 450, 0)
        return await app.bulk.duplicates(job.id)

    async with app.host():
        await (await app.bulk.publish_rule("same mail", "people", EMAIL)).wait(60)
        await people.upsert({"id": "a449", "email": "0@x.org"})
        assert await found() == [("a000", "a449"), ("a449", "a000")]
        await people.upsert({"id": "a449", "email": "449@x.org"})
        assert await found() == []
        await people.upsert({"id": "a449", "email": "7@x.org"})
        assert await found(("id", "=", "a007")) == [("a007", "a449")]


async def test_who_may_not_run_it_any_more_finds_nothing(app: App, warehouse: Warehouse) -> None:
    # 9: a job acts with the rights that its owner has when it runs
    ana = await app.users.create_user("Ana")
    await app.container("people", "/id").create({"id": "1", "email": "a@x.org"})
    async with app.host():
        await (await app.bulk.publish_rule("same mail", "people", EMAIL)).wait(60)
        job = await app.bulk.detect_duplicates("same mail", owner=ana, by_key=True)
        with pytest.raises(JobFailed, match=r"no longer has the right bulk\.run"):
            await job.wait(60)


async def test_a_rule_is_published_first_and_detection_recurs_daily_at_most(
    app: App, warehouse: Warehouse
) -> None:
    async with app.host():
        with pytest.raises(JobFailed, match="no rule 'none'"):
            await (await app.bulk.detect_duplicates("none")).wait(60)
        with pytest.raises(InvalidRecurrence):
            await app.bulk.detect_duplicates("none", recurrence="FREQ=HOURLY")


def test_codes_fold_and_cut_as_the_rule_says() -> None:
    item = {"name": "  Ana  María ", "address": {"zip": 28001}}
    loose = [MatchField(path="name", first=3), MatchField(path="/address/zip")]
    assert match_code(item, loose) == match_code(
        {"name": "ANA B", "address": {"zip": 28001}}, loose
    )
    strict = [MatchField(path="name", fold=False)]
    assert match_code(item, strict) != match_code({"name": "Ana María"}, strict)
    assert match_code({"name": ""}, strict) is None
