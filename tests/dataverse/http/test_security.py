"""Who sees and does what: rights, how far they reach, payloads, and errors before a handler."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest
from msgspec import Struct

from relevo.dataverse.bulk import RowQuery
from relevo.dataverse.http.surface import render
from relevo.dataverse.users.model import ORGANIZATION
from relevo.errors import DatabaseUnavailable, NotFound, OutcomeUnknown
from relevo.http.application import RequestBounds
from relevo.jobs import Fail
from tests.dataverse.http.conftest import Dataverse, code

if TYPE_CHECKING:
    from tests.http.conftest import Opens

pytestmark = pytest.mark.anyio


async def test_without_a_key_there_is_nothing_to_see(dataverse: Dataverse) -> None:
    for path in ("", "/asyncoperations", "/$metadata"):
        reply = await dataverse.site.ask("GET", f"/api/data/v9.2{path}")
        assert (reply.status, code(reply)) == (401, "0x80040216")
        assert reply.headers["WWW-Authenticate"] == "Bearer"
    reply = await dataverse.site.ask("GET", "/api/backgroundoperation/x")
    assert (reply.status, code(reply)) == (401, "0x80040216")


async def test_signatures_are_not_taken_here(dataverse: Dataverse) -> None:
    headers = {"Authorization": "HMAC-SHA256 SignedHeaders=host&Signature=x"}
    reply = await dataverse.site.ask("GET", "/api/data/v9.2/asyncoperations", headers=headers)
    assert (reply.status, code(reply)) == (401, "0x80040216")


async def test_the_reader_sees_all_jobs_and_changes_none(dataverse: Dataverse) -> None:
    job = await dataverse.submit(data={"secret": 1})
    reader = Dataverse(dataverse.site, "reader")
    assert len(await reader.rows("asyncoperations")) == 1
    for method, path in (
        ("PATCH", f"asyncoperations({job})"),
        ("DELETE", f"asyncoperations({job})"),
        ("POST", "asyncoperations/Microsoft.Dynamics.CRM.UpdateMultiple"),
        ("POST", "Report"),
    ):
        reply = await reader.ask(method, path, json={"Targets": []})
        assert (reply.status, code(reply)) == (403, "0x80040220")


async def test_payloads_are_null_and_cannot_be_probed(dataverse: Dataverse) -> None:
    # A28
    job = await dataverse.submit(data={"secret": 1})
    reader = Dataverse(dataverse.site, "reader")
    row = await reader.row(job)
    assert [row[name] for name in ("data", "relevo_state", "relevo_result", "workflowstate")] == [
        None
    ] * 4
    for query in (
        "$filter=contains(data,'secret')",
        "$orderby=data",
        "$apply=groupby((data))",
    ):
        reply = await reader.ask("GET", f"asyncoperations?{query}")
        assert (reply.status, code(reply)) == (403, "0x80040220")
    assert (await dataverse.row(job))["data"] == '{"secret":1}'


async def test_traces_and_queries_are_payload(dataverse: Dataverse) -> None:
    # A28, A33
    app = dataverse.site.services.app
    app.serve_bulk()

    @app.job("work")
    async def work(ctx: object) -> None:
        raise Fail(None, "told to people")

    async with app.host():
        job = await dataverse.submit()
        await app.jobs.end_of(job, 30)
        bulk = await app.bulk.delete(
            [RowQuery(table="asyncoperation", where=(("name", "=", "x"),))]
        )
        await bulk.wait(timeout=30)
    reader = Dataverse(dataverse.site, "reader")
    seen = "?$select=message,friendlymessage,errorcode"
    row = await reader.row(job, seen)
    assert (row["message"], row["friendlymessage"]) == (None, "told to people")
    assert "Traceback" in (await dataverse.row(job, seen))["message"]
    sets = "bulkdeleteoperations?$select=orderedquerysetxml"
    assert [one["orderedquerysetxml"] for one in await reader.rows(sets)] == [None]
    assert "name" in (await dataverse.rows(sets))[0]["orderedquerysetxml"]
    for query in (
        "asyncoperations?$filter=contains(message,'Traceback')",
        "asyncoperations?$orderby=message",
        "bulkdeleteoperations?$filter=contains(orderedquerysetxml,'x')",
        "bulkdeleteoperations?$filter=asyncoperationid/message ne null",
    ):
        reply = await reader.ask("GET", query)
        assert (reply.status, code(reply)) == (403, "0x80040220"), query


async def test_rows_beyond_the_reach_are_missing(dataverse: Dataverse) -> None:
    # A27
    users = dataverse.site.services.app.users
    north = await users.create_unit("north")
    ana = await users.create_user("Ana", unit=north)
    ben = await users.create_user("Ben", unit=north)
    eve = await users.create_user("Eve")
    crew = await users.create_team("crew", members=[ana])
    rights = ("job.read", "job.write", "job.delete", "job.payload.read")
    jobs = {
        name: await dataverse.submit(name=name, owner=owner)
        for name, owner in (("ana", ana), ("ben", ben), ("eve", eve), ("crew", crew))
    }
    seen = {"own": {"ana", "crew"}, "unit": {"ana", "crew", "ben"}, "all": set(jobs)}
    for reach, names in seen.items():
        caller = await dataverse.key_with(*(f"{one}:{reach}" for one in rights), user=ana)
        found = await caller.rows("asyncoperations?$count=true")
        assert {row["name"] for row in found} == names, reach
        assert (await caller.ask("GET", "asyncoperations/$count")).body == b"%d" % len(names)
        apply = "asyncoperations?$apply=aggregate($count as c)"
        assert (await caller.rows(apply))[0]["c"] == len(names)
        for name, job in jobs.items():
            within = name in names
            got = await caller.ask("GET", f"asyncoperations({job})")
            assert got.status == (200 if within else 404)
            row = {"postponeuntil": "2091-01-01T00:00:00Z"}
            changed = await caller.ask("PATCH", f"asyncoperations({job})", json=row)
            assert changed.status == (204 if within else 404), (reach, name)
            if not within:
                deleted = await caller.ask("DELETE", f"asyncoperations({job})")
                monitor = await dataverse.site.ask(
                    "GET", f"/api/backgroundoperation/{job}", key=caller.key
                )
                for reply in (got, changed, deleted, monitor):
                    assert (reply.status, code(reply)) == (404, "0x80040217")


async def test_a_job_beyond_the_reach_is_not_named_by_those_that_wait_for_it(
    dataverse: Dataverse,
) -> None:
    # A27
    app = dataverse.site.services.app
    ana, eve = [await app.users.create_user(name) for name in ("Ana", "Eve")]
    await app.database.write(
        "update relevo.job_lane set shared_tokens = true where name = 'default' returning 1"
    )
    head = await dataverse.submit(token="t", owner=eve)
    mine = await dataverse.submit(token="t", owner=ana)
    own = await dataverse.key_with("job.read:own", user=ana)
    every = await dataverse.key_with("job.read:all", user=ana)
    for caller, named in ((own, None), (every, str(head))):
        row = await caller.row(mine, "?$select=relevo_blockedby,relevo_isblocked")
        assert (row["relevo_blockedby"], row["relevo_isblocked"]) == (named, True)
        (row,) = await caller.rows("asyncoperations?$filter=_ownerid_value eq " + str(ana))
        assert row["relevo_blockedby"] == named
        seen = await dataverse.site.ask("GET", f"/v1/jobs/{mine}", key=caller.key)
        assert (seen.json["blocked_by"], seen.json["blocked"]) == (named, True)
        listed = (await dataverse.site.ask("GET", "/v1/jobs", key=caller.key)).json["items"]
        assert [one["blocked_by"] for one in listed if one["id"] == str(mine)] == [named]


async def test_a_narrow_right_opens_no_other_surface(dataverse: Dataverse) -> None:
    # A27
    await dataverse.submit()
    caller = await dataverse.key_with("job.read:own")
    assert (await dataverse.site.ask("GET", "/v1/jobs", key=caller.key)).json["items"] == []
    reply = await dataverse.site.ask("GET", "/v1/hosts", key=caller.key)
    assert reply.status == 403


async def test_a_key_becomes_the_owner_of_what_it_starts(dataverse: Dataverse) -> None:
    app = dataverse.site.services.app

    @app.job("Report")
    async def report(ctx: object) -> None: ...

    async with app.host():
        pass
    caller = await dataverse.key_with("job.submit:own", "job.read:own")
    reply = await caller.ask("POST", "Report", json={}, headers={"Prefer": "respond-async"})
    assert reply.status == 202
    (row,) = await caller.rows("asyncoperations?$expand=owninguser($select=fullname)")
    assert row["_ownerid_value"] == row["_createdby_value"]
    assert row["owninguser"]["fullname"] == "job.submit:own-job.read:own"
    assert row["_owningbusinessunit_value"] == str(ORGANIZATION)


async def test_a_disabled_user_is_kept_out(dataverse: Dataverse) -> None:
    users = dataverse.site.services.app.users
    user = await users.create_user("Ana")
    caller = await dataverse.key_with("reader", user=user)
    assert await caller.rows("asyncoperations") == []
    await users.disable(user)
    reply = await caller.ask("GET", "asyncoperations")
    assert (reply.status, code(reply)) == (403, "0x80040220")


async def test_bounds_are_told_in_the_manner_of_the_surface(open_site: Opens) -> None:
    async with open_site(bounds=RequestBounds(in_flight=0)) as site:
        reply = await Dataverse(site).ask("GET", "asyncoperations")
        assert (reply.status, code(reply)) == (503, "0x8004A001")
        assert reply.headers["Retry-After"] == "1"
    async with open_site(bounds=RequestBounds(requests_per_second=0.001, burst=1)) as site:
        await Dataverse(site).ask("GET", "asyncoperations")
        reply = await Dataverse(site).ask("GET", "asyncoperations")
        assert (reply.status, code(reply)) == (429, "0x80072322")
        assert int(reply.headers["Retry-After"]) > 1
        body = io.BytesIO(bytes(16 * 1024 * 1024 + 1))
        reply = await Dataverse(site).ask("POST", "Report", data=body)
        assert (reply.status, code(reply)) == (413, "0x80040203")


async def test_faults_tell_neither_traces_nor_files(
    dataverse: Dataverse, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A33
    async def broken(*_: object) -> None:
        raise ValueError("select secret from table at /etc/passwd line 7")

    monkeypatch.setattr(type(dataverse.site.services.app.users), "admitted", broken)
    reply = await dataverse.ask("GET", "asyncoperations")
    assert (reply.status, code(reply)) == (500, "0x80040216")
    assert b"passwd" not in reply.body
    assert b"Traceback" not in reply.body


def test_503_always_says_when_to_come_again() -> None:
    # 10.4
    for error in (OutcomeUnknown("cut off"), DatabaseUnavailable("away")):
        answer = render(error, "1")
        assert (answer.status, dict(answer.headers)[b"retry-after"]) == (503, b"1")
    assert b"retry-after" not in dict(render(NotFound("x"), "1").headers)


class Account(Struct):
    """A record with something that only who may read items sees."""

    id: str
    name: str
    secret: str = "hidden"


async def test_records_of_tables_are_for_who_may_read_items(dataverse: Dataverse) -> None:
    # 9: jobs:read shows jobs, and no way leads from them to what users put in.
    app = dataverse.site.services.app
    app.table("account", model=Account, schema_name="Account")
    key = await app.service.create("account", {"name": "Ana", "secret": "hidden"})
    job = await dataverse.submit(options={"regarding_type": "account", "regarding_id": key})
    link = (
        "<fetch><entity name='asyncoperation'><attribute name='name'/><link-entity name='account'"
        " from='accountid' to='regardingobjectid'><attribute name='secret'/></link-entity>"
        "</entity></fetch>"
    )
    paths = (
        "accounts", f"accounts('{key}')", "accounts/$count",
        f"accounts('{key}')/Account_AsyncOperations",
        f"asyncoperations({job})/regardingobjectid_account",
        f"asyncoperations({job})?$expand=regardingobjectid_account",
        "asyncoperations?$filter=regardingobjectid_account/secret eq 'hidden'",
        "asyncoperations?$orderby=regardingobjectid_account/secret",
        f"asyncoperations?fetchXml={link}",
        "EntityDefinitions(LogicalName='account')",
        "EntityDefinitions(LogicalName='account')/Attributes",
        "EntityDefinitions(LogicalName='account')/Attributes(LogicalName='secret')",
    )  # fmt: skip
    for caller in (
        *(Dataverse(dataverse.site, role) for role in ("reader", "viewer", "operator")),
        await dataverse.key_with("job.read:own"),
    ):
        for path in paths:
            reply = await caller.ask("GET", path)
            assert reply.status in (400, 404), (caller.key, path)
            assert b"hidden" not in reply.body
        for path in ("", "$metadata", "EntityDefinitions"):
            assert b"ccount" not in (await caller.ask("GET", path)).body
    headers = {"Prefer": 'odata.include-annotations="*"'}
    reader = Dataverse(dataverse.site, "reader")
    shown = await reader.ask("GET", f"asyncoperations({job})", headers=headers)
    assert shown.json["_regardingobjectid_value"] == key  # as /v1/jobs shows it
    assert b"Ana" not in shown.body
    both = await dataverse.key_with("reader", "consumer")
    for caller in (dataverse, both):
        for path in paths:
            assert (await caller.ask("GET", path)).status == 200, path
        assert b"accounts" in (await caller.ask("GET", "")).body


async def test_duplicates_are_looked_for_by_who_may_read_items(dataverse: Dataverse) -> None:
    app = dataverse.site.services.app
    app.table("account", model=Account)
    asked = {"JobName": "twins", "Query": {"EntityName": "account"}}
    for roles, status, number in (
        (("bulk.run:all", "job.read:all"), 403, "0x80040220"),
        (("bulk.run:all", "consumer"), 400, "0x80040203"),  # there is no rule yet
    ):
        caller = await dataverse.key_with(*roles)
        reply = await caller.ask("POST", "BulkDetectDuplicates", json=asked)
        assert (reply.status, code(reply)) == (status, number)
