"""What one query may cost: bytes of a page, links, time, temporary space, and connections."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlsplit

import pytest

from relevo import limits
from tests.dataverse.http.conftest import Dataverse, code

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from uuid import UUID

    from tests.http.conftest import Opens

pytestmark = pytest.mark.anyio

KIB_64 = 64 * 1024
SELF_JOIN = """<fetch count="50"><entity name="asyncoperation"><attribute name="name"/>
  <order attribute="name"/>
  <link-entity name="asyncoperation" from="{own}" to="{other}" alias="o">
    <attribute name="name"/><order attribute="createdon" descending="true"/>
  </link-entity></entity></fetch>"""
COUSINS = """<fetch count="50"><entity name="asyncoperation"><attribute name="name"/>
  <attribute name="asyncoperationid"/>
  <link-entity name="systemuser" from="systemuserid" to="createdby" alias="u">
    <link-entity name="asyncoperation" from="createdby" to="systemuserid" alias="o">
      <attribute name="name"/><attribute name="asyncoperationid"/><attribute name="createdon"/>
      <order attribute="createdon" descending="true"/><order attribute="name"/>
    </link-entity></link-entity></entity></fetch>"""


async def fetched(dataverse: Dataverse, document: str) -> Any:
    target = f"{dataverse.base}/asyncoperations?fetchXml={quote(document, safe='')}"
    return await dataverse.site.ask("GET", target, key=dataverse.key)


async def store(dataverse: Dataverse, rows: int, size: int = 0) -> list[UUID]:
    """Jobs whose data has some size, and compresses well: nothing tells it but its length."""
    jobs = dataverse.site.services.app.jobs
    return [
        (await jobs.submit("work", {"text": "x" * size}, name=f"job {n:03}")).id
        for n in range(rows)
    ]


async def store_many(dataverse: Dataverse, rows: int, handler: str = "work") -> None:
    jobs = dataverse.site.services.app.jobs
    await jobs.submit_many(handler, [{"n": n} for n in range(rows)])


async def pages(dataverse: Dataverse, path: str) -> AsyncIterator[Any]:
    """Walk the links of a query to their end."""
    while path:
        reply = await dataverse.ask("GET", path)
        assert reply.status == 200, reply.body
        yield reply
        link = urlsplit(reply.json.get("@odata.nextLink", ""))
        path = f"{link.path.rpartition('/')[2]}?{unquote(link.query)}" if link.query else ""


async def test_a_page_ends_at_its_bytes_and_links_to_the_next(dataverse: Dataverse) -> None:
    ids = await store(dataverse, 12, 1024 * 1024)
    found = [one async for one in pages(dataverse, "asyncoperations?$orderby=createdon")]
    assert all(len(one.body) <= limits.PAGE_BYTES_MAX + 1024 for one in found)
    rows = [row["asyncoperationid"] for one in found for row in one.json["value"]]
    assert rows == [str(one) for one in ids]
    assert len(found) == 4  # three rows of a megabyte each fit


async def test_a_row_larger_than_a_page_comes_alone(open_site: Opens) -> None:
    async with open_site(page_bytes=2_048) as site:
        dataverse = Dataverse(site)
        ids = await store(dataverse, 3, 10_000)
        found = [one async for one in pages(dataverse, "asyncoperations?$orderby=createdon")]
        assert [[row["asyncoperationid"] for row in one.json["value"]] for one in found] == [
            [str(one)] for one in ids
        ]


async def test_pages_that_end_at_their_bytes_keep_top_and_count(open_site: Opens) -> None:
    async with open_site(page_bytes=4_096) as site:
        dataverse = Dataverse(site)
        ids = await store(dataverse, 9, 1_000)
        path = "asyncoperations?$select=name,data&$orderby=createdon&$top=7&$count=true"
        found = [one async for one in pages(dataverse, path)]
        assert {one.json["@odata.count"] for one in found} == {9}
        rows = [row["asyncoperationid"] for one in found for row in one.json["value"]]
        assert rows == [str(one) for one in ids[:7]]
        assert len(found) > 1


async def test_pages_of_a_document_end_at_their_bytes_too(open_site: Opens) -> None:
    async with open_site(page_bytes=4_096) as site:
        dataverse = Dataverse(site)
        ids = await store(dataverse, 8, 1_000)
        document = (
            '<fetch {}><entity name="asyncoperation"><attribute name="data"/>'
            '<order attribute="createdon"/></entity></fetch>'
        )
        paging, rows, count = "", [], 0
        while True:
            reply = await fetched(dataverse, document.format(paging))
            assert reply.status == 200, reply.body
            assert len(reply.body) < 3 * 4_096
            rows += [row["asyncoperationid"] for row in reply.json["value"]]
            count += 1
            cookie = reply.json.get("@Microsoft.Dynamics.CRM.fetchxmlpagingcookie")
            if cookie is None:
                break
            inner = unquote(unquote(cookie.split('pagingcookie="')[1].split('"')[0]))
            escaped = inner.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
            paging = f'page="{count + 1}" paging-cookie="{escaped}"'
        assert rows == [str(one) for one in ids]
        assert count > 1


async def test_rows_inside_a_row_are_not_cut_in_silence(open_site: Opens) -> None:
    async with open_site(page_bytes=4_096) as site:
        dataverse = Dataverse(site)
        app = site.services.app
        user = await app.users.create_user("Ana")
        for n in range(8):
            await app.jobs.submit(
                "work",
                {"text": "x" * 1_000},
                name=f"job {n}",
                options={"regarding_type": "systemuser", "regarding_id": str(user)},
            )
        path = f"systemusers({user})?$expand=SystemUser_AsyncOperations"
        reply = await dataverse.ask("GET", path)
        assert (reply.status, code(reply)) == (400, "0x80040203")
        assert "SystemUser_AsyncOperations" in reply.json["error"]["message"]
        reply = await dataverse.ask("GET", f"{path}($select=name)")
        assert [len(reply.json["SystemUser_AsyncOperations"]), reply.status] == [8, 200]


@pytest.mark.parametrize("own", ["statuscode", "handler", "createdon", "ownerid", "depth"])
async def test_links_follow_keys_only(dataverse: Dataverse, own: str) -> None:
    own = {"handler": "relevo_handler"}.get(own, own)
    reply = await fetched(dataverse, SELF_JOIN.format(own=own, other=own))
    assert (reply.status, code(reply)) == (400, "0x80040203")
    assert "asyncoperationid" in reply.json["error"]["message"]


async def test_links_follow_lookups_ids_and_relationships(dataverse: Dataverse) -> None:
    await store(dataverse, 2)
    reply = await fetched(dataverse, COUSINS)
    assert reply.status == 200, reply.body
    assert len(reply.json["value"]) == 4
    for own, other in (
        ("asyncoperationid", "relevo_seriesid"),
        ("relevo_seriesid", "asyncoperationid"),
    ):
        reply = await fetched(dataverse, SELF_JOIN.format(own=own, other=other))
        assert reply.status == 200, reply.body


async def test_a_query_that_takes_too_long_is_refused_and_says_so(open_site: Opens) -> None:
    async with open_site(query_seconds=0.3) as site:
        dataverse = Dataverse(site)
        await store_many(dataverse, 3_000)
        reply = await fetched(dataverse, COUSINS)  # nine million pairs, sorted
        assert (reply.status, code(reply)) == (400, "0x80040203")
        assert "narrow it" in reply.json["error"]["message"]


async def test_a_query_has_a_limit_on_temporary_space(dataverse: Dataverse) -> None:
    await store_many(dataverse, 1_000, handler="work" * 60)
    database = dataverse.site.services.app.database
    if not await database.fetchval("select has_parameter_privilege('temp_file_limit', 'set')"):
        pytest.skip("the role of the tests may not set temp_file_limit")
    database.user_queries.seconds = 600.0  # the space is what ends it
    # A million different pairs of half a kilobyte each, all of which are sorted.
    reply = await fetched(dataverse, COUSINS.replace("<fetch", '<fetch distinct="true"'))
    assert (reply.status, code(reply)) == (400, "0x80040203")
    assert "temporary space" in reply.json["error"]["message"]


async def test_queries_leave_connections_to_everybody_else(open_site: Opens) -> None:
    async with open_site(query_seconds=1.0, pool_size=6) as site:
        dataverse = Dataverse(site)
        await store_many(dataverse, 3_000)
        queries = [asyncio.ensure_future(fetched(dataverse, COUSINS)) for _ in range(5)]
        try:
            while not await _running(dataverse):
                await asyncio.sleep(0.01)
            # One of six connections is theirs: others are had at once.
            assert await _running(dataverse) == 1
            await asyncio.wait_for(dataverse.submit(), timeout=2.0)
            replies = await asyncio.gather(*queries)
        finally:
            for one in queries:
                one.cancel()
        assert {one.status for one in replies} <= {200, 400, 503}  # as quick as the machine is
        assert all(one.headers.get("Retry-After") for one in replies if one.status == 503)


async def _running(dataverse: Dataverse) -> int:
    found: int = await dataverse.site.services.app.database.fetchval(
        "select count(*) from pg_stat_activity where datname = current_database()"
        " and state = 'active' and query like '%bytes_before%' and pid <> pg_backend_pid()"
    )
    return found
