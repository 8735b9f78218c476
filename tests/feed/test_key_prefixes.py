"""The changes of a tenant: reading by the first parts of a hierarchical partition key."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from relevo.errors import InvalidValue
from relevo.feed import FeedRange
from relevo.store.keys import epk

if TYPE_CHECKING:
    from relevo import App
    from relevo.feed import FeedContainer

pytestmark = pytest.mark.anyio
TENANTS = ("ada", "bob", "cyd")


@pytest.fixture
async def events(app: App) -> FeedContainer[Any]:
    made = app.container(
        "events", ["/tenant", "/user", "/session"], ranges=4, versions=timedelta(days=1)
    )
    items = [
        {"id": f"{tenant}-{user}-{session}", "tenant": tenant, "user": user, "session": session}
        for tenant in TENANTS for user in range(4) for session in ("s", "t")
    ]  # fmt: skip
    assert not (await made.bulk(items)).failures
    return made


async def ids(events: FeedContainer[Any], **options: Any) -> list[str]:
    return sorted([
        change.id async for page in events.read_changes(max_items=3, **options)
        for change in page.changes
    ])  # fmt: skip


@pytest.mark.parametrize("mode", ["latest", "all_versions"])
async def test_each_level_of_a_key_reads_what_is_below_it(
    events: FeedContainer[Any], mode: Any
) -> None:
    for tenant in TENANTS:
        wanted = [f"{tenant}-{user}-{one}" for user in range(4) for one in "st"]
        assert await ids(events, partition_key=tenant, mode=mode) == wanted
        assert await ids(events, partition_key=[tenant], mode=mode) == wanted
        assert await ids(events, feed_range=FeedRange.of_key([tenant]), mode=mode) == wanted
    assert await ids(events, partition_key=["bob", 2], mode=mode) == ["bob-2-s", "bob-2-t"]
    assert await ids(events, partition_key=["bob", 2, "t"], mode=mode) == ["bob-2-t"]
    assert await ids(events, partition_key=["bob", 2, "u"], mode=mode) == []
    assert await ids(events, partition_key=["nobody"], mode=mode) == []


async def test_a_tenant_is_read_on_over_a_split_of_its_keys(events: FeedContainer[Any]) -> None:
    pages = events.read_changes(partition_key=["bob"], max_items=3)
    first = await anext(pages)
    seen = [change.id for change in first.changes]
    at = epk(("bob", 2))
    (part,) = [one for one in (await events.ranges()).open if at in one.interval]
    await events.split(part.id, at=at)  # in the middle of the tenant
    await events.upsert({"id": "new", "tenant": "bob", "user": 3, "session": "s"})
    await events.upsert({"id": "other", "tenant": "cyd", "user": 3, "session": "s"})
    after = [
        change.id
        async for page in events.read_changes(
            partition_key=["bob"], continuation=first.continuation
        )
        for change in page.changes
    ]
    assert sorted(seen + after) == sorted(
        ["new", *(f"bob-{user}-{one}" for user in range(4) for one in "st")]
    )


async def test_a_key_with_too_many_parts_is_refused(events: FeedContainer[Any]) -> None:
    for wrong in ([], ["bob", 1, "s", "more"]):
        with pytest.raises(InvalidValue, match="has 1 to 3 parts"):
            await ids(events, partition_key=wrong)
    with pytest.raises(InvalidValue, match="has 3 parts"):
        await events.read("bob-1-s", ["bob"])
