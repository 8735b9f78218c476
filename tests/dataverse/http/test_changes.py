"""Commands by PATCH and DELETE: states, versions, protected columns, many at once."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest

from relevo.errors import InvalidValue
from relevo.jobs.core import codes
from relevo.kernel.running.verdicts import Fail, RetryLater, Suspend
from tests.dataverse.http.conftest import code

if TYPE_CHECKING:
    from uuid import UUID

    from tests.dataverse.http.conftest import Dataverse

pytestmark = pytest.mark.anyio

FAR = "2091-01-31T10:00:00Z"


async def change(dataverse: Dataverse, job: UUID, row: dict[str, Any], **headers: str) -> Any:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    return await dataverse.ask("PATCH", f"asyncoperations({job})", json=row, headers=sent)


async def pair(dataverse: Dataverse, job: UUID) -> tuple[int, int]:
    row = await dataverse.row(job, "?$select=statecode,statuscode")
    return row["statecode"], row["statuscode"]


async def test_a_job_is_postponed_resumed_and_canceled(dataverse: Dataverse) -> None:
    job = await dataverse.submit()
    reply = await change(dataverse, job, {"postponeuntil": FAR}, If_Match="*")
    assert (reply.status, reply.body) == (204, b"")
    assert reply.headers["OData-EntityId"].endswith(f"/api/data/v9.2/asyncoperations({job})")
    assert await pair(dataverse, job) == (1, 10)
    assert (await change(dataverse, job, {"statecode": 0})).status == 204
    assert await pair(dataverse, job) == (0, 0)
    assert (await change(dataverse, job, {"statecode": 3, "statuscode": 32})).status == 204
    assert await pair(dataverse, job) == (3, 32)


async def test_a_running_job_is_paused_in_two_steps(dataverse: Dataverse) -> None:
    # A10
    job = await dataverse.submit()
    await dataverse.force(20, job)
    assert (await change(dataverse, job, {"statecode": 1, "statuscode": 10})).status == 204
    assert await pair(dataverse, job) == (2, 21)


@pytest.mark.parametrize(
    ("status", "row", "number"),
    [
        (0, {"statecode": 1}, "0x80044167"),
        (0, {"statecode": 0}, "0x80044166"),
        (30, {"statecode": 3}, "0x80044165"),
        (30, {"postponeuntil": FAR}, "0x80044162"),
        (0, {"statecode": 3, "statuscode": 30}, "0x80040203"),
        (0, {"statuscode": 32}, "0x80040203"),
        (0, {"postponeuntil": "2091-01-31T10:00:00"}, "0x80040203"),
        (0, {"StateCode": 3}, "0x80041103"),
        (0, {"recurrencepattern": "FREQ=DAILY"}, "0x80044168"),
    ],
)
async def test_what_a_state_does_not_allow_is_refused(
    dataverse: Dataverse, status: int, row: dict[str, Any], number: str
) -> None:
    job = await dataverse.submit()
    await dataverse.force(status, job)
    before = await dataverse.row(job)
    reply = await change(dataverse, job, row)
    assert (reply.status, code(reply)) == (400, number)
    assert await dataverse.row(job) == before


async def test_a_protected_column_is_refused_and_nothing_changes(dataverse: Dataverse) -> None:
    # A13
    job = await dataverse.submit(name="before")
    for row in ({"name": "after"}, {"ownerid@odata.bind": "/systemusers(x)"}):
        reply = await change(dataverse, job, {"statecode": 3, **row})
        assert (reply.status, code(reply)) == (403, "0x80048405")
        assert next(iter(row)).partition("@")[0] in reply.json["error"]["message"]
    assert await pair(dataverse, job) == (0, 0)


@pytest.mark.parametrize("status", [0, 30])
async def test_an_empty_change_changes_nothing(dataverse: Dataverse, status: int) -> None:
    job = await dataverse.submit()
    await dataverse.force(status, job)
    before = await dataverse.row(job)
    assert (await change(dataverse, job, {})).status == 204
    assert await dataverse.row(job) == before


async def test_the_recurrence_of_what_is_over_cannot_change(dataverse: Dataverse) -> None:
    job = await dataverse.submit(recurrence="FREQ=DAILY;")
    assert (await change(dataverse, job, {"recurrencepattern": "FREQ=WEEKLY;"})).status == 204
    assert (await dataverse.row(job))["recurrencepattern"] == "FREQ=WEEKLY;"
    assert (await change(dataverse, job, {"statecode": 3})).status == 204
    reply = await change(dataverse, job, {"recurrencepattern": "FREQ=DAILY;"})
    assert (reply.status, code(reply)) == (400, "0x80044162")
    assert (await dataverse.row(job))["recurrencepattern"] == "FREQ=WEEKLY;"


async def test_a_version_that_is_not_the_newest_is_refused(dataverse: Dataverse) -> None:
    job = await dataverse.submit()
    first = (await dataverse.row(job))["@odata.etag"]
    assert (await change(dataverse, job, {"postponeuntil": FAR}, If_Match=first)).status == 204
    for tag in (first, "nonsense"):
        reply = await change(dataverse, job, {"statecode": 3}, If_Match=tag)
        assert (reply.status, code(reply)) == (412, "0x80060882")
        reply = await dataverse.ask("DELETE", f"asyncoperations({job})", headers={"If-Match": tag})
        assert (reply.status, code(reply)) == (412, "0x80060882")


async def test_the_row_comes_back_if_that_is_preferred(dataverse: Dataverse) -> None:
    job = await dataverse.submit()
    reply = await dataverse.ask(
        "PATCH", f"asyncoperations({job})?$select=statuscode", json={"statecode": 3},
        headers={"Prefer": "return=representation"},
    )  # fmt: skip
    assert reply.status == 200
    assert reply.headers["Preference-Applied"] == "return=representation"
    assert reply.json["statuscode"] == 32


async def test_a_change_whose_answer_is_asked_for_wrongly_is_not_made(dataverse: Dataverse) -> None:
    # A13
    job = await dataverse.submit()
    headers = {"Prefer": "return=representation"}
    for query in ("$select=nonsense", "$expand=nonsense", "$select=("):
        path = f"asyncoperations({job})?{query}"
        reply = await dataverse.ask("PATCH", path, json={"statecode": 3}, headers=headers)
        assert reply.status == 400, query
        assert await pair(dataverse, job) == (0, 0)


async def test_a_change_of_what_the_caller_does_not_see_is_made_and_not_shown(
    dataverse: Dataverse,
) -> None:
    # A13, A27
    job = await dataverse.submit()
    caller = await dataverse.key_with("job.write:all", "job.read:own")
    reply = await change(caller, job, {"statecode": 3}, Prefer="return=representation")
    assert (reply.status, reply.body) == (204, b"")
    assert await pair(dataverse, job) == (3, 32)


async def test_a_deleted_job_is_gone(dataverse: Dataverse) -> None:
    for status in (0, 20, 31):
        job = await dataverse.submit()
        await dataverse.force(status, job)
        reply = await dataverse.ask("DELETE", f"asyncoperations({job})", headers={"If-Match": "*"})
        assert reply.status == 204
        gone = await dataverse.ask("GET", f"asyncoperations({job})")
        assert (gone.status, code(gone)) == (404, "0x80040217")
        again = await dataverse.ask("DELETE", f"asyncoperations({job})")
        assert (again.status, code(again)) == (404, "0x80040217")


async def test_platform_jobs_refuse_even_administrators(dataverse: Dataverse) -> None:
    # A12
    job = await dataverse.submit(system=True)
    for row, number in (({"statecode": 3}, "0x80044F00"), ({"statecode": 0}, "0x80044F01")):
        reply = await change(dataverse, job, row)
        assert (reply.status, code(reply)) == (403, number)
    assert (await change(dataverse, job, {"postponeuntil": FAR})).status == 204
    reply = await dataverse.ask("DELETE", f"asyncoperations({job})")
    assert (reply.status, code(reply)) == (403, "0x80044F02")


async def many(dataverse: Dataverse, *targets: dict[str, Any]) -> Any:
    path = "asyncoperations/Microsoft.Dynamics.CRM.UpdateMultiple"
    return await dataverse.ask("POST", path, json={"Targets": list(targets)})


async def test_many_jobs_change_together_or_not_at_all(dataverse: Dataverse) -> None:
    # A13
    ids = [await dataverse.submit() for _ in range(3)]
    targets = [
        {"@odata.type": "Microsoft.Dynamics.CRM.asyncoperation", "asyncoperationid": str(job)}
        for job in ids
    ]
    reply = await many(dataverse, *({**one, "postponeuntil": FAR} for one in targets))
    assert (reply.status, reply.body) == (204, b"")
    assert {await pair(dataverse, job) for job in ids} == {(1, 10)}
    await change(dataverse, ids[2], {"statecode": 3})
    reply = await many(dataverse, *({**one, "statecode": 3} for one in targets))
    assert (reply.status, code(reply)) == (400, "0x80044165")
    assert [await pair(dataverse, job) for job in ids] == [(1, 10), (1, 10), (3, 32)]
    reply = await many(dataverse, targets[0], targets[0])
    assert (reply.status, code(reply)) == (400, "0x80040203")


async def test_jobs_are_not_created_and_collections_not_changed(dataverse: Dataverse) -> None:
    for method in ("POST", "PATCH", "DELETE"):
        reply = await dataverse.ask(method, "asyncoperations", json={"name": "x"})
        assert (reply.status, code(reply)) == (405, "0x80040203")
    user = (await dataverse.rows("systemusers?$top=1"))[0]["systemuserid"]
    reply = await dataverse.ask("PATCH", f"systemusers({user})", json={"fullname": "x"})
    assert (reply.status, code(reply)) == (405, "0x80040203")


async def test_a_message_runs_in_the_background_and_says_how_it_goes(dataverse: Dataverse) -> None:
    app = dataverse.site.services.app

    @app.job("Report")
    async def report(ctx: Any, month: int) -> dict[str, int]:
        return {"Pages": month * 2}

    headers = {"Prefer": "respond-async"}
    async with app.host():
        reply = await dataverse.ask("POST", "Report", json={"month": 4}, headers=headers)
        assert (reply.status, reply.body) == (202, b"")
        target = reply.headers["Location"].removeprefix(dataverse.site.address.url)
        job = target.rpartition("/")[2]
        await app.jobs.handle(job).wait(timeout=30)
        reply = await dataverse.site.ask("GET", target, key="admin")
        assert reply.json == {
            "Pages": 8, "backgroundOperationStateCode": 3, "backgroundOperationStatusCode": 30,
        }  # fmt: skip
        reader = await dataverse.site.ask("GET", target, key="reader")
        assert "Pages" not in reader.json
    row = await dataverse.row(job)
    assert (row["messagename"], row["operationtype"]) == ("Report", 54)
    later = await dataverse.submit("Report", {"month": 1})
    target = f"/api/backgroundoperation/{later}"
    reply = await dataverse.site.ask("DELETE", target, key="admin")
    assert reply.json["backgroundOperationStatusCode"] == 32
    missing = await dataverse.ask("POST", "Nothing", json={}, headers=headers)
    assert (missing.status, code(missing)) == (404, "0x80040217")


async def test_a_failure_without_words_is_told_by_its_code(dataverse: Dataverse) -> None:
    app = dataverse.site.services.app
    raised = {"a": ValueError("in /secret/file.py"), "b": Fail(None, ""), "c": Fail(None, "told")}

    @app.job("Report", retries=0)
    async def report(ctx: Any, how: str) -> None:
        raise raised[how]

    async with app.host():
        told = []
        for how in raised:
            job = await dataverse.submit("Report", {"how": how})
            await app.jobs.end_of(job, 30)
            reply = await dataverse.site.ask("GET", f"/api/backgroundoperation/{job}", key="reader")
            told.append(reply.json["backgroundOperationErrorMessage"])
    refused, failed = codes.TEXTS[codes.HANDLER_REFUSED], codes.TEXTS[codes.HANDLER_FAILED]
    assert told == [failed, refused, "told"]


async def test_a_custom_message_is_carried_out(dataverse: Dataverse) -> None:
    app = dataverse.site.services.app

    @app.message("Double")
    async def double(ctx: Any) -> dict[str, Any]:
        return {"Value": ctx.input["Value"] * 2}

    reply = await dataverse.ask("POST", "Double", json={"Value": 21})
    assert reply.status == 200, reply.body
    assert reply.json["Value"] == 42


async def test_a_custom_message_is_carried_out_in_the_background(dataverse: Dataverse) -> None:
    # 8.3, type 54
    app = dataverse.site.services.app
    seen: list[Any] = []

    @app.message("Double")
    async def double(ctx: Any) -> dict[str, Any]:
        seen.append(ctx.user)
        return {"Value": ctx.input["Value"] * 2}

    caller = await dataverse.key_with("job.submit:own", "job.read:own", "job.payload.read:own")
    headers = {"Prefer": "respond-async"}
    reply = await caller.ask("POST", "Double", json={"Value": 21}, headers=headers)
    assert (reply.status, reply.body) == (202, b"")
    target = reply.headers["Location"].removeprefix(dataverse.site.address.url)
    async with app.host():
        await app.jobs.handle(target.rpartition("/")[2]).wait(timeout=30)
    reply = await dataverse.site.ask("GET", target, key=caller.key)
    assert (reply.json["Value"], reply.json["backgroundOperationStatusCode"]) == (42, 30)
    (row,) = await caller.rows("asyncoperations")
    told = [row[one] for one in ("name", "messagename", "operationtype", "_ownerid_value")]
    assert told == ["Double", "Double", 54, str(seen[0])]
    for name in ("message:Double", "message:Nothing"):
        reply = await caller.ask("POST", name, json={}, headers=headers)
        assert (reply.status, code(reply)) == (403, "0x80040220")


@pytest.mark.parametrize("mode", ["body", "step"])
async def test_what_a_step_decides_is_told_as_it_says_it(dataverse: Dataverse, mode: str) -> None:
    # 5.1, 6.3, 10.4
    app = dataverse.site.services.app
    raised: list[Exception] = []

    async def decide(ctx: Any) -> None:
        raise raised[0]

    async def nothing(ctx: Any) -> None: ...

    app.message("Decide")(decide if mode == "body" else nothing)
    if mode == "step":
        app.step("Decide", stage=20)(decide)
    for error, status, number, text in (
        (Fail(0x80048888, "no such customer"), 400, "0x80048888", "no such customer"),
        (Fail(None, "no such customer"), 400, "0x80040265", "no such customer"),
        (Suspend("the mailbox is full"), 400, "0x80040265", "the mailbox is full"),
        (RetryLater(7.5, text="come back"), 503, "0x8004A001", "come back"),
        (RetryLater(), 503, "0x8004A001", "try again later"),
    ):
        raised[:] = [error]
        reply = await dataverse.ask("POST", "Decide", json={})
        assert (reply.status, code(reply)) == (status, number)
        assert text in reply.json["error"]["message"]
        wait = {7.5: "8", None: "1"}[error.delay] if isinstance(error, RetryLater) else None
        assert reply.headers.get("Retry-After") == wait
    raised[:] = [ValueError("in /secret/file.py")]
    reply = await dataverse.ask("POST", "Decide", json={})
    assert (reply.status, code(reply)) == (500, "0x80040216")
    assert b"secret" not in reply.body


async def test_batches_are_said_not_to_be_served(dataverse: Dataverse) -> None:
    reply = await dataverse.ask("POST", "$batch", json={})
    assert (reply.status, code(reply)) == (501, "0x80040216")
    # The usual form of a batch is no JSON.
    reply = await dataverse.ask(
        "POST",
        "$batch",
        data=b"--b\r\n\r\n--b--",
        headers={"Content-Type": "multipart/mixed; boundary=b"},
    )
    assert (reply.status, code(reply)) == (501, "0x80040216")


async def test_the_last_year_is_the_same_for_every_way_to_postpone(dataverse: Dataverse) -> None:
    job, jobs = await dataverse.submit(), dataverse.site.services.app.jobs
    late = "9999-01-01T00:00:00Z"
    reply = await dataverse.ask("PATCH", f"asyncoperations({job})", json={"postponeuntil": late})
    assert (reply.status, code(reply)) == (400, "0x80040203")
    assert "9998" in reply.json["error"]["message"]
    for targets in ([{"asyncoperationid": str(job), "postponeuntil": late}],):
        path = "asyncoperations/Microsoft.Dynamics.CRM.UpdateMultiple"
        reply = await dataverse.ask("POST", path, json={"Targets": targets})
        assert reply.status == 400, reply.body
    reply = await dataverse.site.ask(
        "POST", f"/v1/jobs/{job}:postpone", key="admin", json={"until": late}
    )
    assert reply.status == 400, reply.body
    with pytest.raises(InvalidValue, match="9998"):
        await jobs.command(job, "postpone", until=datetime.fromisoformat(late))
    assert (await dataverse.row(job))["postponeuntil"] is None
    last = "9998-12-31T23:59:59Z"
    reply = await dataverse.ask("PATCH", f"asyncoperations({job})", json={"postponeuntil": last})
    assert reply.status == 204, reply.body
    assert (await dataverse.row(job))["postponeuntil"] == last
