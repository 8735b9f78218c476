"""Reading jobs: the samples of the seed, options, pages, groups, and who sees what."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from uuid import uuid4

import pytest
from msgspec import Struct

from relevo.jobs import states
from relevo.workflows import Stage, Wait
from tests.dataverse.http.conftest import code

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from tests.dataverse.http.conftest import Dataverse

pytestmark = pytest.mark.anyio


class Account(Struct):
    id: str
    name: str


WEB_API_SAMPLE = """asyncoperations?
$select=
asyncoperationid,
completedon,
createdon,
data,
dependencytoken,
depth,
errorcode,
executiontimespan,
friendlymessage,
iswaitingforevent,
message,
messagename,
modifiedon,
name,
operationtype,
_ownerid_value,
postponeuntil,
primaryentitytype,
recurrencepattern,
recurrencestarttime,
_regardingobjectid_value,
retrycount,
sequence,
startedon,
statecode,
utcconversiontimezonecode,
workflowstagename
&$expand=
createdby($select=fullname),
modifiedby($select=fullname),
owningbusinessunit($select=name),
owningextensionid($select=name),
owningteam($select=name),
owninguser($select=fullname)
"""
FETCHXML_SAMPLE = """<fetch>
  <entity name="asyncoperation" >
    <attribute name="asyncoperationid" />
    <attribute name="completedon" />
    <attribute name="createdby" />
    <attribute name="createdon" />
    <attribute name="data" />
    <attribute name="dependencytoken" />
    <attribute name="depth" />
    <attribute name="errorcode" />
    <attribute name="executiontimespan" />
    <attribute name="friendlymessage" />
    <attribute name="iswaitingforevent" />
    <attribute name="message" />
    <attribute name="messagename" />
    <attribute name="modifiedby" />
    <attribute name="modifiedon" />
    <attribute name="name" />
    <attribute name="operationtype" />
    <attribute name="ownerid" />
    <attribute name="owningbusinessunit" />
    <attribute name="owningextensionid" />
    <attribute name="owningteam" />
    <attribute name="owninguser" />
    <attribute name="postponeuntil" />
    <attribute name="primaryentitytype" />
    <attribute name="recurrencepattern" />
    <attribute name="recurrencestarttime" />
    <attribute name="regardingobjectid" />
    <attribute name="retrycount" />
    <attribute name="sequence" />
    <attribute name="startedon" />
    <attribute name="statecode" />
    <attribute name="utcconversiontimezonecode" />
    <attribute name="workflowstagename" />
  </entity>
</fetch>"""


async def test_the_web_api_sample_of_the_seed_runs_unchanged(dataverse: Dataverse) -> None:
    job = await dataverse.submit(data={"shard": 3}, token="index")
    dataverse.base = "/api/data/v9.0"
    reply = await dataverse.ask("GET", WEB_API_SAMPLE)
    assert reply.status == 200, reply.body
    (row,) = reply.json["value"]
    assert row["asyncoperationid"] == str(job)
    assert row["data"] == '{"shard":3}'
    assert row["createdby"]["fullname"] == "SYSTEM"
    assert row["owningbusinessunit"]["name"] == "organization"
    assert row["owningteam"] is row["owningextensionid"] is None
    assert reply.headers["OData-Version"] == "4.0"


async def test_the_fetchxml_sample_of_the_seed_runs_unchanged(dataverse: Dataverse) -> None:
    job = await dataverse.submit()
    target = f"{dataverse.base}/asyncoperations?fetchXml={quote(FETCHXML_SAMPLE, safe='')}"
    reply = await dataverse.site.ask("GET", target, key="admin")
    assert reply.status == 200, reply.body
    (row,) = reply.json["value"]
    assert row["asyncoperationid"] == str(job)
    assert row["_ownerid_value"] == row["_owninguser_value"]


async def test_diagnostic_groupings_by_state_status_and_type_run(dataverse: Dataverse) -> None:
    ready = [await dataverse.submit() for _ in range(3)]
    await dataverse.force(30, ready[0])
    await dataverse.force(31, ready[1])
    groups = "groupby((statecode,statuscode,operationtype),aggregate($count as c))"
    rows = await dataverse.rows(f"asyncoperations?$apply={groups}")
    found = {(row["statecode"], row["statuscode"], row["c"]) for row in rows}
    assert found == {(0, 0, 1), (3, 30, 1), (3, 31, 1)}


async def test_one_row_has_a_tag_a_context_and_annotations_if_wanted(dataverse: Dataverse) -> None:
    job = await dataverse.submit()
    reply = await dataverse.ask(
        "GET", f"asyncoperations({job})?$select=statuscode,_ownerid_value",
        headers={"Prefer": 'odata.include-annotations="*"'},
    )  # fmt: skip
    row = reply.json
    assert row["@odata.etag"] == reply.headers["ETag"] == 'W/"1"'
    assert row["@odata.context"].endswith(
        "$metadata#asyncoperations(statuscode,_ownerid_value)/$entity"
    )
    shown = "@OData.Community.Display.V1.FormattedValue"
    assert row[f"statuscode{shown}"] == "Waiting For Resources"
    assert row[f"_ownerid_value{shown}"] == "SYSTEM"
    assert row["_ownerid_value@Microsoft.Dynamics.CRM.lookuplogicalname"] == "systemuser"
    assert "include-annotations" in reply.headers["Preference-Applied"]


@pytest.mark.parametrize("key", ["({0})", "(asyncoperationid={0})", "('{0}')"])
async def test_a_row_is_found_by_every_form_of_its_key(dataverse: Dataverse, key: str) -> None:
    job = await dataverse.submit()
    reply = await dataverse.ask("GET", f"asyncoperations{key.format(job)}?$select=name")
    assert reply.json["asyncoperationid"] == str(job)


async def test_pages_lead_through_all_rows_once(dataverse: Dataverse) -> None:
    # A22
    ids = [await dataverse.submit(name=f"job {n}") for n in range(7)]
    await dataverse.force(30, *ids[:3])
    reply = await dataverse.ask(
        "GET", "asyncoperations?$select=name&$orderby=createdon&$count=true",
        headers={"Prefer": "odata.maxpagesize=3"},
    )  # fmt: skip
    assert reply.json["@odata.count"] == 7
    assert reply.headers["Preference-Applied"] == "odata.maxpagesize=3"
    seen = [row["name"] for row in reply.json["value"]]
    while link := reply.json.get("@odata.nextLink"):
        assert link.startswith(dataverse.site.address.url)
        target = link.removeprefix(dataverse.site.address.url)
        headers = {"Prefer": "odata.maxpagesize=3"}
        reply = await dataverse.site.ask("GET", target, key="admin", headers=headers)
        seen += [row["name"] for row in reply.json["value"]]
    assert seen == [f"job {n}" for n in range(7)]


async def test_a_position_of_another_query_or_caller_is_refused(dataverse: Dataverse) -> None:
    for _ in range(3):
        await dataverse.submit()
    headers = {"Prefer": "odata.maxpagesize=2"}
    reply = await dataverse.ask("GET", "asyncoperations?$select=name", headers=headers)
    target = reply.json["@odata.nextLink"].removeprefix(dataverse.site.address.url)
    for other, key in ((target, "reader"), (target.replace("name", "depth"), "admin")):
        refused = await dataverse.site.ask("GET", other, key=key)
        assert (refused.status, code(refused)) == (400, "0x80040203")


async def test_fetchxml_pages_go_on_with_cookies(dataverse: Dataverse) -> None:
    for _ in range(3):
        await dataverse.submit()
    text = (
        '<fetch count="2"><entity name="asyncoperation"><attribute name="name"/></entity></fetch>'
    )
    target = f"{dataverse.base}/asyncoperations?fetchXml={quote(text, safe='')}"
    reply = await dataverse.site.ask("GET", target, key="admin")
    assert len(reply.json["value"]) == 2
    assert reply.json["@Microsoft.Dynamics.CRM.morerecords"] is True
    assert 'pagenumber="2"' in reply.json["@Microsoft.Dynamics.CRM.fetchxmlpagingcookie"]


async def test_counts_are_texts_and_keep_to_filters(dataverse: Dataverse) -> None:
    ids = [await dataverse.submit() for _ in range(3)]
    await dataverse.force(32, ids[0])
    assert (await dataverse.ask("GET", "asyncoperations/$count")).body == b"3"
    reply = await dataverse.ask("GET", "asyncoperations/$count?$filter=statecode eq 3")
    assert (reply.body, reply.type) == (b"1", "text/plain")


@pytest.mark.parametrize(
    ("path", "status", "number"),
    [
        ("nothings", 404, "0x80040217"),
        ("asyncoperations(00000000-0000-0000-0000-00000000dead)", 404, "0x80040217"),
        ("asyncoperations(x)", 400, "0x80040203"),
        ("asyncoperations?$select=nothing", 400, "0x80041103"),
        ("asyncoperations?$filter=name eq", 400, "0x80040203"),
        ("asyncoperations?$top=5001", 400, "0x80040203"),
        ("asyncoperations?$top=1&$top=2", 400, "0x80040203"),
        ("asyncoperations?$unknown=1", 400, "0x80040203"),
        ("asyncoperations?$skip=1", 501, "0x80040203"),
        ("asyncoperations?sql=SELECT name FROM asyncoperation", 501, "0x80040203"),
        ("asyncoperations?fetchXml=<fetch", 400, "0x80040303"),
        ("asyncoperations/nothing/at/all/here", 404, "0x80040217"),
    ],
)
async def test_what_cannot_be_asked_is_refused_with_its_code(
    dataverse: Dataverse, path: str, status: int, number: str
) -> None:
    reply = await dataverse.ask("GET", path)
    assert (reply.status, code(reply)) == (status, number)


async def test_unknown_arguments_without_a_dollar_are_ignored(dataverse: Dataverse) -> None:
    assert await dataverse.rows("asyncoperations?api-version=9.2&$select=name") == []


async def test_long_addresses_are_taken_and_longer_ones_refused(dataverse: Dataverse) -> None:
    conditions = " or ".join(f"name eq '{'x' * 60}{n}'" for n in range(250))
    assert await dataverse.rows(f"asyncoperations?$filter={conditions}") == []
    reply = await dataverse.ask("GET", "asyncoperations?$filter=name eq '" + "x" * 33_000 + "'")
    assert (reply.status, code(reply)) == (414, "0x80040203")


async def test_rows_around_jobs_are_served(dataverse: Dataverse) -> None:
    for name in (
        "systemusers", "teams", "businessunits", "sdkmessageprocessingsteps", "workflows",
        "bulkdeleteoperations", "bulkdeletefailures",
    ):  # fmt: skip
        reply = await dataverse.ask("GET", f"{name}?$count=true")
        assert reply.status == 200, (name, reply.body)
    found = await dataverse.rows("systemusers?$filter=fullname eq 'system'")
    assert [row["fullname"] for row in found] == ["SYSTEM"]


async def test_jobs_and_what_they_regard_lead_to_each_other(dataverse: Dataverse) -> None:
    app = dataverse.site.services.app
    app.table("account", model=Account, schema_name="Account")
    key = await app.service.create("account", {"name": "Ana"})
    other = await app.service.create("account", {"name": "Ben"})
    regarding = {"regarding_type": "account", "regarding_id": key}
    job = await dataverse.submit(options=regarding)
    await dataverse.submit(options={"regarding_type": "team", "regarding_id": key})
    row = await dataverse.row(job, "?$select=name&$expand=regardingobjectid_account($select=name)")
    assert row["regardingobjectid_account"]["name"] == "Ana"
    found = await dataverse.rows(f"accounts('{key}')/Account_AsyncOperations?$select=name")
    assert [one["asyncoperationid"] for one in found] == [str(job)]
    counted = await dataverse.ask("GET", f"accounts('{key}')/Account_AsyncOperations/$count")
    assert counted.body == b"1"
    assert await dataverse.rows(f"accounts('{other}')/Account_AsyncOperations") == []
    back = await dataverse.ask("GET", f"asyncoperations({job})/regardingobjectid_account")
    assert back.json["name"] == "Ana"
    nothing = await dataverse.ask("GET", f"asyncoperations({job})/regardingobjectid_team")
    assert nothing.status == 204
    expanded = await dataverse.rows("accounts?$expand=Account_AsyncOperations($select=name)")
    assert sorted(len(one["Account_AsyncOperations"]) for one in expanded) == [0, 1]


async def test_a_chained_job_names_the_one_that_holds_it_up(dataverse: Dataverse) -> None:
    jobs = [await dataverse.submit(token="t") for _ in range(3)]
    # Submits that overlap: the second came first, though the first has the lower number.
    database = dataverse.site.services.app.database
    await database.write("update relevo.job set chained = true where id = $1", jobs[0])
    await database.write("update relevo.job set chained = false where id = $1", jobs[1])
    held = {row["asyncoperationid"]: row["relevo_blockedby"] for row in
            await dataverse.rows("asyncoperations?$select=relevo_blockedby")}  # fmt: skip
    assert held == {str(jobs[0]): str(jobs[1]), str(jobs[1]): None, str(jobs[2]): str(jobs[1])}
    await database.write("update relevo.job set chained = true where id = $1", jobs[1])
    found = await dataverse.rows("asyncoperations?$select=relevo_blockedby&$orderby=sequence")
    assert [row["relevo_blockedby"] for row in found] == [None, str(jobs[0]), str(jobs[0])]


async def test_large_data_has_a_key_of_its_own(dataverse: Dataverse) -> None:  # 2
    small = await dataverse.submit(data={"text": "x" * 60_000})
    large = await dataverse.submit(data={"text": "x" * 70_000})
    keys = {row["asyncoperationid"]: row["datablobid"] for row in
            await dataverse.rows("asyncoperations?$select=datablobid")}  # fmt: skip
    assert keys == {str(small): None, str(large): str(large)}


async def test_rows_are_found_by_their_keys_with_other_conditions(dataverse: Dataverse) -> None:
    first, second = [await dataverse.submit(name=name) for name in ("one", "two")]
    for condition, expected in (
        (f"asyncoperationid eq {first}", {first}),
        (f"{second} eq asyncoperationid and statuscode eq 0", {second}),
        (f"asyncoperationid eq {first} and name eq 'two'", set()),
        (f"asyncoperationid eq {first} or name eq 'two'", {first, second}),
        (f"asyncoperationid eq {first} and asyncoperationid eq {second}", set()),
        (f"not (asyncoperationid eq {first})", {second}),
        (f"Microsoft.Dynamics.CRM.In(PropertyName='asyncoperationid',"
         f"PropertyValues=['{first}','{second}'])", {first, second}),
    ):  # fmt: skip
        found = await dataverse.rows(f"asyncoperations?$select=name&$filter={condition}")
        assert {row["asyncoperationid"] for row in found} == set(map(str, expected)), condition


async def test_a_missing_start_of_a_navigation_is_missing(dataverse: Dataverse) -> None:
    reply = await dataverse.ask("GET", f"systemusers({uuid4()})/SystemUser_AsyncOperations")
    assert (reply.status, code(reply)) == (404, "0x80040217")


async def test_states_have_the_labels_of_their_table_in_spanish(dataverse: Dataverse) -> None:
    users = dataverse.site.services.app.users
    user = await users.create_user("Ana", language="es")
    spanish = await dataverse.key_with("admin", user=user)
    ids = {status: await dataverse.submit() for status in (0, 10, 20, 30, 31, 32)}
    for status, id_ in ids.items():
        await dataverse.force(status, id_)
    await dataverse.site.services.app.jobs.command(
        ids[10], "postpone", until=datetime(2099, 1, 1, tzinfo=UTC)
    )
    formatted = "OData.Community.Display.V1.FormattedValue"
    rows = await spanish.rows(
        "asyncoperations?$select=statecode,statuscode",
        headers={"Prefer": f'odata.include-annotations="{formatted}"'},
    )
    shown = {
        row["statuscode"]: (
            row[f"statecode@{formatted}"],
            row[f"statuscode@{formatted}"],
        )
        for row in rows
    }
    assert shown == {
        0: ("Preparada", "Esperando recursos"),
        10: ("Suspendida", "En espera"),
        20: ("Bloqueado", "En curso"),
        30: ("Finalizado", "Correcto"),
        31: ("Finalizado", "Error"),
        32: ("Finalizado", "Cancelado"),
    }


async def test_a_workflow_shows_its_definition_its_stage_and_its_state(
    dataverse: Dataverse,
) -> None:
    app = dataverse.site.services.app

    @app.workflow("order", version=2)
    async def order(ctx: Any, number: str) -> AsyncGenerator[Any, Any]:
        yield Stage("charge", lambda: {"paid": number})
        yield Wait(event="shipped", key=number)

    columns = "_workflowactivationid_value,workflowstagename,workflowstate,workflowisblocked"
    async with app.host():
        job = await order.submit(number="a1")
        plain = await app.jobs.submit("order")
        async with asyncio.timeout(30):
            while (await job.get()).status_code != states.WAITING:
                await asyncio.sleep(0.01)
        row = await dataverse.row(
            job.id, f"?$select={columns}&$expand=workflowactivationid($select=name)"
        )
        assert row["workflowactivationid"]["name"] == "order@2"
        assert row["workflowactivationid"]["workflowid"] == row["_workflowactivationid_value"]
        assert (row["workflowstagename"], row["workflowisblocked"]) == ("charge", True)
        assert '"paid":"a1"' in row["workflowstate"]
        found = await dataverse.rows(
            "asyncoperations?$select=name&$filter=workflowstagename eq 'charge'"
            f" and _workflowactivationid_value eq {row['_workflowactivationid_value']}"
        )
        assert [one["asyncoperationid"] for one in found] == [str(job.id)]
        await app.jobs.signal("shipped", "a1")
        await job.wait(30)
    row = await dataverse.row(job.id, f"?$select={columns}")
    assert (row["workflowstagename"], row["workflowisblocked"]) == ("charge", False)
    row = await dataverse.row(plain.id, f"?$select={columns}")
    assert {row[one] for one in columns.split(",")} == {None}
    # What users put into a workflow is seen by those who may see payloads only.
    viewer = await dataverse.key_with("viewer")
    row = await viewer.row(job.id, f"?$select={columns}")
    assert (row["workflowstagename"], row["workflowstate"]) == ("charge", None)


async def test_a_job_has_the_zone_of_who_created_it(dataverse: Dataverse) -> None:
    users = dataverse.site.services.app.users
    user = await users.create_user("Ana", zone="Europe/Madrid")
    nobody, ana = await dataverse.submit(), await dataverse.submit(owner=user)
    column = "utcconversiontimezonecode"
    assert (await dataverse.row(nobody))[column] == 92  # UTC
    assert (await dataverse.row(ana))[column] == 105
    spanish = await dataverse.key_with("admin", user=user)
    made = await spanish.site.ask(
        "POST", "/v1/jobs", key=spanish.key, json={"handler": "work", "data": {}}
    )
    assert (await dataverse.row(made.json["id"]))[column] == 105
    for status, job in ((30, nobody), (31, ana)):
        await dataverse.force(status, job)
    rows = await dataverse.rows(f"asyncoperations?$filter={column} eq 105 and statecode eq 3")
    assert [one["asyncoperationid"] for one in rows] == [str(ana)]
