"""Bulk deletes over HTTP: look, create, follow, and who may."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import pytest

from relevo.dataverse.bulk import RowQuery
from relevo.http.access.key_model import NewKey
from relevo.jobs.core import codes
from tests.http.table import code

if TYPE_CHECKING:
    from tests.http.conftest import Reply, Site

pytestmark = pytest.mark.anyio

BULK = "/v1/bulk-deletes"
PAID = {"container": "orders", "where": [{"path": "paid", "value": True}]}


async def fill(site: Site, amount: int = 30) -> None:
    orders = site.services.app.container("orders", "/city")
    made = [{"id": f"{n:03}", "city": "Vigo", "paid": n % 2 == 0} for n in range(amount)]
    assert not (await orders.bulk(made)).failures


async def look(site: Site, query: dict[str, Any], key: str = "admin") -> Reply:
    return await site.ask("POST", f"{BULK}:preview", key=key, json=query)


async def create(site: Site, *queries: dict[str, Any], key: str = "admin", **told: Any) -> Reply:
    return await site.ask("POST", BULK, key=key, json={"queries": list(queries), **told})


async def made(site: Site, *roles: str) -> str:
    name = f"key {len(site.secrets)}"
    site.secrets[name] = (await site.services.keys.create(NewKey(name=name, roles=roles))).secret
    return name


async def test_a_look_counts_the_rows_and_shows_the_first(site: Site) -> None:
    await fill(site)
    found = (await look(site, PAID)).json
    assert found["count"] == 15
    assert [one["id"] for one in found["sample"]] == [f"{2 * n:03}" for n in range(10)]
    assert found["sample"][0]["city"] == "Vigo"
    none = {"container": "orders", "where": [{"path": "paid", "op": "exists", "value": False}]}
    assert (await look(site, none)).json == {"count": 0, "sample": []}


async def test_what_was_looked_at_is_deleted_and_counted(site: Site) -> None:
    await fill(site)
    app = site.services.app
    app.serve_bulk()
    async with app.host():
        reply = await create(site, PAID, name="Paid orders", max_failures=3)
        assert reply.status == 201, reply.body
        key = reply.json["id"]
        ended = await site.ask("GET", f"/v1/jobs/{key}/end", key="viewer")
        assert ended.json["job"]["status"] == "succeeded", ended.body
    found = (await site.ask("GET", f"{BULK}/{key}", key="viewer")).json
    assert (found["name"], found["sources"], found["success"], found["failure"]) == (
        "Paid orders", ["orders"], 15, 0,
    )  # fmt: skip
    assert (await look(site, PAID)).json["count"] == 0
    assert (await look(site, {"container": "orders"})).json["count"] == 15


async def test_jobs_are_looked_at_as_they_would_be_deleted(site: Site) -> None:
    app = site.services.app
    live = await app.jobs.submit("mail")
    done = await app.jobs.submit("mail")
    await done.cancel()
    found = (await look(site, {"jobs": True})).json
    assert [one["id"] for one in found["sample"]] == [str(done.id)]  # A31
    named = {"jobs": True, "where": [{"path": "statecode", "op": "<", "value": 3}]}
    assert [one["id"] for one in (await look(site, named)).json["sample"]] == [str(live.id)]
    for since, count in (("2001-01-01T00:00:00+02:00", 1), ("2100-01-01T00:00:00Z", 0)):
        late = {"path": "createdon", "op": ">=", "value": since}
        assert (await look(site, {"jobs": True, "where": [late]})).json["count"] == count


async def test_a_filter_chooses_jobs_by_nested_conditions(site: Site) -> None:
    app = site.services.app
    app.serve_bulk()
    jobs = [await app.jobs.submit("mail", name=name) for name in ("a", "b", "c")]
    for one in jobs:
        await one.cancel()
    asked = {"jobs": True, "filter": "name eq 'A' or (statuscode eq 32 and name gt 'b')"}
    found = (await look(site, asked)).json
    assert [one["name"] for one in found["sample"]] == ["a", "c"]
    async with app.host():
        key = (await create(site, asked)).json["id"]
        ended = await site.ask("GET", f"/v1/jobs/{key}/end", key="viewer")
        assert ended.json["job"]["status"] == "succeeded", ended.body
    left = await app.jobs.query().where(handler="mail")
    assert [one.name for one in left] == ["b"]


async def test_pages_give_every_bulk_delete_once_and_no_other_job(site: Site) -> None:
    await fill(site, 1)
    await site.services.app.jobs.submit("mail")
    keys = [(await create(site, PAID)).json["id"] for _ in range(3)]
    first = (await site.ask("GET", f"{BULK}?limit=2", key="viewer")).json
    rest = (await site.ask("GET", f"{BULK}?limit=2&cursor={first['next']}", key="viewer")).json
    assert [one["id"] for one in first["items"] + rest["items"]] == keys[::-1]  # A22
    assert rest["next"] is None
    ended = await site.ask("GET", f"{BULK}?status=succeeded", key="viewer")
    assert ended.json["items"] == []


async def test_rows_that_failed_come_in_pages(site: Site) -> None:
    app = site.services.app
    job = await app.bulk.delete(RowQuery(table="asyncoperation"))
    for n in range(5):
        await app.database.write(
            "insert into relevo.bulk_failure (job, row_id, query_index, code, message)"
            " values ($1, $2, 0, $3, 'no')",
            job.id, f"row {n}", codes.PLATFORM_DELETE,
        )  # fmt: skip
    target, found = f"{BULK}/{job.id}/failures?limit=2", []
    page = (await site.ask("GET", target, key="viewer")).json
    while True:
        found += page["items"]
        if page["next"] is None:
            break
        page = (await site.ask("GET", f"{target}&cursor={page['next']}", key="viewer")).json
    assert [one["row_id"] for one in found] == [f"row {n}" for n in range(5)]
    assert {one["code"] for one in found} == {codes.shown(codes.PLATFORM_DELETE)}


async def test_what_is_no_bulk_delete_is_not_found(site: Site) -> None:
    other = await site.services.app.jobs.submit("mail")
    for key in (other.id, uuid.uuid4()):
        for target in (f"{BULK}/{key}", f"{BULK}/{key}/failures"):
            assert (await site.ask("GET", target, key="viewer")).status == 404


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ({}, 400),
        ({"container": "orders", "jobs": True}, 400),
        ({"container": "nowhere"}, 404),
        ({"container": "orders", "where": [{"path": "paid", "op": "<", "value": True}]}, 400),
        ({"container": "orders", "where": [{"path": "paid", "op": "like", "value": "x"}]}, 400),
        ({"jobs": True, "where": [{"path": "statuscod", "value": 31}]}, 400),
        ({"jobs": True, "filter": "statuscod eq 31"}, 400),
        ({"jobs": True, "filter": "statuscode eq 31 and"}, 400),
        ({"container": "orders", "filter": "paid eq true"}, 400),
        ({"jobs": True, "where": [{"path": "createdon", "op": "<", "value": "monday"}]}, 400),
    ],
)
async def test_what_cannot_be_meant_is_refused_before_a_job_is_made(
    site: Site, query: dict[str, Any], status: int
) -> None:
    await fill(site, 1)
    assert (await look(site, query)).status == status
    assert (await create(site, query)).status == status
    assert (await site.ask("GET", BULK, key="viewer")).json["items"] == []


async def test_a_series_recurs_daily_or_less_often(site: Site) -> None:
    await fill(site, 1)
    daily = {"pattern": "FREQ=DAILY", "start": "2100-01-01T03:00:00Z"}
    key = (await create(site, PAID, recurrence=daily)).json["id"]
    found = (await site.ask("GET", f"{BULK}/{key}", key="viewer")).json
    assert (found["pattern"], found["postpone_until"]) == ("FREQ=DAILY", "2100-01-01T03:00:00Z")
    assert (await create(site, PAID, recurrence={"pattern": "FREQ=HOURLY"})).status == 400


async def test_it_needs_the_right_to_run_and_those_for_the_rows(site: Site) -> None:
    await fill(site, 2)
    bare = await made(site, "bulk.run:all")
    writes = await made(site, "bulk.run:all", "producer")
    jobs = {"jobs": True}
    for key, query in (("operator", jobs), (bare, jobs), (bare, PAID)):
        for refused in (await look(site, query, key), await create(site, query, key=key)):
            assert (refused.status, code(refused)) == (403, "forbidden")
    assert (await look(site, PAID, writes)).status == 403  # it may not read items
    assert (await create(site, PAID, key=writes)).status == 201


async def test_a_right_for_own_jobs_finds_no_others(site: Site) -> None:
    rights = ("bulk.run:own", "job.read:own", "job.submit:own", "job.write:own", "job.delete:own")
    own = await made(site, *rights)
    foreign = await site.services.app.jobs.submit("mail")
    await foreign.cancel()
    reply = await site.ask("POST", "/v1/jobs", key=own, json={"handler": "mail"})
    mine = reply.json["id"]
    assert (await site.ask("POST", f"/v1/jobs/{mine}:cancel", key=own, json={})).status == 204
    found = (await look(site, {"jobs": True}, own)).json
    assert (found["count"], [one["id"] for one in found["sample"]]) == (1, [mine])  # A27
    theirs = (await create(site, {"jobs": True})).json["id"]
    ours = (await create(site, {"jobs": True}, key=own)).json["id"]
    listed = (await site.ask("GET", BULK, key=own)).json["items"]
    assert [one["id"] for one in listed] == [ours]
    assert (await site.ask("GET", f"{BULK}/{theirs}", key=own)).status == 404
