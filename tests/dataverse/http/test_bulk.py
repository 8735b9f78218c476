"""Bulk operations that are started over the Dataverse surface."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from msgspec import Struct

from relevo.dataverse.bulk import MatchField
from tests.dataverse.http.conftest import code

if TYPE_CHECKING:
    from relevo.dataverse.bulk.mail import Mail
    from tests.dataverse.http.conftest import Dataverse

pytestmark = pytest.mark.anyio


class Contact(Struct):
    id: str
    email: str


def query(entity: str, *conditions: tuple[str, str, list[Any]]) -> dict[str, Any]:
    return {
        "@odata.type": "Microsoft.Dynamics.CRM.QueryExpression",
        "EntityName": entity,
        "ColumnSet": {"AllColumns": False, "Columns": []},
        "Criteria": {
            "FilterOperator": "And",
            "Conditions": [
                {"AttributeName": name, "Operator": operator, "Values": values}
                for name, operator, values in conditions
            ],
        },
    }


def deletion(*queries: dict[str, Any], **options: Any) -> dict[str, Any]:
    return {
        "JobName": "tidy", "QuerySet": list(queries), "SendEmailNotification": False,
        "ToRecipients": [], "CCRecipients": [], "RecurrencePattern": "", **options,
    }  # fmt: skip


async def test_completed_jobs_are_deleted_by_a_job(dataverse: Dataverse) -> None:
    app = dataverse.site.services.app
    app.serve_bulk()
    ids = [await dataverse.submit(name=f"old {n}") for n in range(4)]
    await dataverse.force(30, *ids[:2])
    await dataverse.force(31, ids[2])
    async with app.host():
        body = deletion(query("asyncoperation", ("statuscode", "Equal", [30])))
        reply = await dataverse.ask("POST", "BulkDelete", json=body)
        assert reply.status == 200, reply.body
        job = app.jobs.handle(reply.json["JobId"])
        assert await job.wait(timeout=30) == {"success": 2, "failure": 0}
    names = {row["name"] for row in await dataverse.rows("asyncoperations?$select=name")}
    assert names == {"old 2", "old 3", "tidy", "tidy: query 1"}
    (row,) = await dataverse.rows(
        "bulkdeleteoperations?$expand=asyncoperationid($select=operationtype)"
    )
    assert (row["successcount"], row["failurecount"], row["statuscode"]) == (2, 0, 30)
    assert row["asyncoperationid"]["operationtype"] == 13


async def test_a_recurring_deletion_waits_for_its_time(dataverse: Dataverse) -> None:
    app = dataverse.site.services.app
    app.serve_bulk()
    async with app.host():  # which declares what kind of job it is
        pass
    body = deletion(
        query("asyncoperation", ("statecode", "In", [{"Value": "3", "Type": "System.Int32"}])),
        RecurrencePattern="FREQ=DAILY;", StartDateTime="2091-01-31T02:00:00Z",
    )  # fmt: skip
    reply = await dataverse.ask("POST", "BulkDelete", json=body)
    assert reply.status == 200, reply.body
    row = await dataverse.row(reply.json["JobId"])
    assert (row["statuscode"], row["postponeuntil"]) == (10, "2091-01-31T02:00:00Z")
    assert row["recurrencepattern"] == "FREQ=DAILY;"
    hourly = {**body, "RecurrencePattern": "FREQ=HOURLY;"}
    reply = await dataverse.ask("POST", "BulkDelete", json=hourly)
    assert (reply.status, code(reply)) == (400, "0x8004D2A0")


@pytest.mark.parametrize(
    ("asked", "status", "number"),
    [
        (query("nothing"), 400, "0x80041102"),
        (query("asyncoperation", ("nothing", "Equal", [1])), 400, "0x80041103"),
        (query("asyncoperation", ("name", "Under", ["x"])), 400, "0x80041106"),
        (query("asyncoperation", ("name", "LastXDays", ["3"])), 400, "0x80041106"),
        (query("asyncoperation", ("name", "Equal", [])), 400, "0x80040203"),
        (query("asyncoperation", ("name", "Equal", [None])), 400, "0x80040203"),
        ({**query("asyncoperation"), "TopCount": 3}, 400, "0x80041106"),
        ({**query("asyncoperation"), "LinkEntities": [{}]}, 400, "0x80041106"),
        ({**query("asyncoperation"), "Criteria": {"FilterOperator": "Xor"}}, 400, "0x80040203"),
        (query("asyncoperation", ("statecode", "Equal", ["x"])), 400, "0x80040203"),
        (query("systemuser"), 403, "0x80040220"),
    ],
)
async def test_what_cannot_be_deleted_is_refused(
    dataverse: Dataverse, asked: dict[str, Any], status: int, number: str
) -> None:
    reply = await dataverse.ask("POST", "BulkDelete", json=deletion(asked))
    assert (reply.status, code(reply)) == (status, number)


@pytest.mark.parametrize(
    "told",
    [
        {"RecurrencePattern": None}, {"StartDateTime": None}, {"SendEmailNotification": None},
        {"ToRecipients": None}, {"CCRecipients": None},
        {"QuerySet": [{"EntityName": "asyncoperation", "Criteria": None, "TopCount": None}]},
        {"QuerySet": [{"EntityName": "asyncoperation", "LinkEntities": None}]},
        {"QuerySet": [{"EntityName": "asyncoperation", "Criteria": {
            "FilterOperator": None, "Conditions": None, "Filters": None,
            "AnyAllFilterLinkEntity": None}}]},
        {"QuerySet": [{"EntityName": "asyncoperation", "Criteria": {"Conditions": [
            {"AttributeName": "name", "Operator": "Null", "Values": None, "EntityName": None,
             "CompareColumns": None}]}}]},
    ],
)  # fmt: skip
async def test_null_is_the_same_as_nothing(dataverse: Dataverse, told: dict[str, Any]) -> None:
    body = {**deletion(query("asyncoperation")), **told}
    reply = await dataverse.ask("POST", "BulkDelete", json=body)
    assert reply.status == 200, reply.body


def group(operator: str, *parts: Any) -> dict[str, Any]:
    """A FilterExpression of conditions, which are tuples, and of others."""
    return {
        "FilterOperator": operator,
        "Conditions": [
            {"AttributeName": one[0], "Operator": one[1], "Values": list(one[2:])}
            for one in parts if isinstance(one, tuple)
        ],
        "Filters": [one for one in parts if isinstance(one, dict)],
    }  # fmt: skip


async def test_nested_filters_delete_exactly_the_rows_that_they_find(dataverse: Dataverse) -> None:
    app = dataverse.site.services.app
    app.table("contact", model=Contact)
    app.serve_bulk()
    for n in range(6):
        await app.service.create("contact", {"id": str(n), "email": f"{'ab'[n % 2]}{n}@x.org"})
    criteria = group(
        "Or",
        ("contactid", "In", "0", "9"),
        group("And", ("email", "BeginsWith", "B"), ("email", "NotLike", "%3@%")),
        group("And", ("email", "Equal", "a4@x.org"), group("Or", ("email", "Null"))),
    )
    async with app.host():
        body = deletion({**query("contact"), "Criteria": criteria})
        reply = await dataverse.ask("POST", "BulkDelete", json=body)
        assert reply.status == 200, reply.body
        job = app.jobs.handle(reply.json["JobId"])
        assert await job.wait(timeout=30) == {"success": 3, "failure": 0}
    left = await dataverse.rows("contacts?$select=email")
    assert {row["email"] for row in left} == {"a2@x.org", "b3@x.org", "a4@x.org"}


async def test_records_of_a_table_are_deleted_only_by_who_may_write_items(
    dataverse: Dataverse,
) -> None:
    app = dataverse.site.services.app
    app.table("contact", model=Contact)
    app.serve_bulk()
    without = await dataverse.key_with("bulk.run:all", "job.delete:all", "job.read:all")
    reply = await without.ask("POST", "BulkDelete", json=deletion(query("contact")))
    assert (reply.status, code(reply)) == (403, "0x80040220")
    assert await app.jobs.query().where(type=13).count() == 0
    assert (
        await dataverse.ask("POST", "BulkDelete", json=deletion(query("contact")))
    ).status == 200


async def test_a_condition_on_what_the_caller_may_not_read_is_refused(dataverse: Dataverse) -> None:
    # A28
    caller = await dataverse.key_with("bulk.run:all", "job.delete:all", "job.read:all")
    body = deletion(query("asyncoperation", ("data", "Like", ["%secret%"])))
    reply = await caller.ask("POST", "BulkDelete", json=body)
    assert (reply.status, code(reply)) == (403, "0x80040220")
    assert (await dataverse.ask("POST", "BulkDelete", json=body)).status == 200


async def test_a_mail_tells_of_the_end(dataverse: Dataverse) -> None:
    app = dataverse.site.services.app
    body = deletion(
        query("asyncoperation", ("name", "Equal", ["x"])), SendEmailNotification=True,
        ToRecipients=[{"@odata.type": "Microsoft.Dynamics.CRM.activityparty",
                       "addressused": "ana@x.org"}],
        CCRecipients=[{"addressused": "bob@x.org"}],
    )  # fmt: skip
    reply = await dataverse.ask("POST", "BulkDelete", json=body)
    assert (reply.status, code(reply)) == (400, "0x80040203")  # no transport
    sent: list[str] = []

    @app.bulk.transport("post")
    async def post(mail: Mail) -> None:
        sent.append(mail.to)

    for nobody in ([], [{"partyid_systemuser@odata.bind": "/systemusers(1)"}]):
        reply = await dataverse.ask("POST", "BulkDelete", json={**body, "ToRecipients": nobody,
                                                                "CCRecipients": []})  # fmt: skip
        assert (reply.status, code(reply)) == (400, "0x80040203")
    async with app.host():
        reply = await dataverse.ask("POST", "BulkDelete", json=body)
        assert reply.status == 200, reply.body
        await app.jobs.handle(reply.json["JobId"]).wait(timeout=30)
    assert sent == ["ana@x.org", "bob@x.org"]


async def test_only_own_jobs_are_deleted_if_the_right_reaches_no_further(
    dataverse: Dataverse,
) -> None:
    # A27
    app = dataverse.site.services.app
    app.serve_bulk()
    user = await app.users.create_user("Ana")
    ids = [await dataverse.submit(owner=owner) for owner in (user, None)]
    await dataverse.force(30, *ids)
    body = deletion(query("asyncoperation", ("statecode", "Equal", [3])))
    without = await dataverse.key_with("bulk.run:all")
    reply = await without.ask("POST", "BulkDelete", json=body)
    assert (reply.status, code(reply)) == (403, "0x80040220")
    caller = await dataverse.key_with("bulk.run:own", "job.delete:own", user=user)
    async with app.host():
        reply = await caller.ask("POST", "BulkDelete", json=body)
        await app.jobs.handle(reply.json["JobId"]).wait(timeout=30)
    left = {row["asyncoperationid"] for row in await dataverse.rows("asyncoperations")}
    assert str(ids[0]) not in left
    assert str(ids[1]) in left


async def test_duplicates_are_looked_for_by_the_rule_of_the_table(dataverse: Dataverse) -> None:
    app = dataverse.site.services.app
    app.table("contact", model=Contact)
    asked = {"JobName": "twins", "Query": query("contact"), "SendEmailNotification": False,
             "TemplateId": "00000000-0000-0000-0000-000000000000", "RecurrencePattern": "",
             "ToRecipients": [], "CCRecipients": []}  # fmt: skip
    for n in range(3):
        await app.service.create("contact", {"email": "ana@x" if n else "ben@x"})
    reply = await dataverse.ask("POST", "BulkDetectDuplicates", json=asked)
    assert (reply.status, code(reply)) == (400, "0x80040203")
    app.serve_bulk()
    async with app.host():
        rule = await app.bulk.publish_rule("by mail", "contact", [MatchField(path="email")])
        await rule.wait(timeout=30)
        reply = await dataverse.ask("POST", "BulkDetectDuplicates", json=asked)
        assert reply.status == 200, reply.body
        job = app.jobs.handle(reply.json["JobId"])
        await job.wait(timeout=30)
    assert (await dataverse.row(job.id))["operationtype"] == 8
    assert len(await app.bulk.duplicates(job.id)) == 2
