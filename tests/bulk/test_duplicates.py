"""Duplicate detection: rules, codes, pairs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from relevo.bulk import MatchField
from relevo.bulk.duplicates import match_code
from relevo.errors import InvalidRecurrence
from relevo.jobs.errors import JobFailed

if TYPE_CHECKING:
    from relevo import App
    from tests.bulk.conftest import Warehouse

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
