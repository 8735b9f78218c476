"""A mail at the end of a bulk delete: one for each recipient and run, whatever happens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from relevo.dataverse.bulk import deletion
from relevo.errors import InvalidValue
from relevo.jobs.errors import JobFailed
from relevo.pipeline.model import PRE_OPERATION, SYNC

if TYPE_CHECKING:
    from relevo import App
    from relevo.dataverse.bulk.mail import Mail
    from tests.dataverse.bulk.conftest import Warehouse

pytestmark = pytest.mark.anyio
TWO = ["ana@x.org", "BOB@x.org", "bob@x.org"]


def posting(app: App) -> list[Mail]:
    sent: list[Mail] = []

    @app.bulk.transport("post")
    async def post(mail: Mail) -> None:
        sent.append(mail)

    return sent


async def test_each_recipient_gets_one_mail_at_the_end(app: App, warehouse: Warehouse) -> None:
    sent = posting(app)
    await warehouse.fill(5)
    async with app.host():
        job = await app.bulk.delete(warehouse.query(), name="Orders", notify=TWO)
        assert await job.wait(60) == {"success": 5, "failure": 0}
    assert [(one.to, one.subject) for one in sent] == [
        ("ana@x.org", "Orders: 5 rows were deleted"), ("BOB@x.org", "Orders: 5 rows were deleted"),
    ]  # fmt: skip
    assert sent[0].key == f"{job.id}/ana@x.org"
    assert sent[0].row == {"success": 5, "failure": 0}
    assert str(job.id) in sent[0].body


async def test_a_run_that_is_begun_anew_after_its_mails_sends_none_again(
    app: App, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A30: what a crash behind the mails would leave.
    sent = posting(app)
    ordinary, runs = deletion.BulkDeleteJob.run, 0

    async def run(self: Any) -> Any:
        nonlocal runs
        runs += 1
        return await ordinary(self)

    monkeypatch.setattr(deletion.BulkDeleteJob, "run", run)
    failing = iter([ConnectionError("the line was cut")])
    told = app.jobs.registry.handlers["relevo.dataverse.bulk.delete"]

    async def twice(ctx: Any) -> Any:
        result = await told.function(ctx)
        if error := next(failing, None):
            raise error
        return result

    handlers = app.jobs.registry.handlers
    handlers[told.name] = type(told)(
        name=told.name, function=twice, lane=told.lane, raw=True, operation_type=13
    )
    await warehouse.fill(3)
    async with app.host():
        job = await app.bulk.delete(warehouse.query(), notify=TWO[:1])
        await warehouse.until(job, lambda one: one.retries == 1)
        await job.resume()
        assert await job.wait(60) == {"success": 3, "failure": 0}
    assert (runs, [one.to for one in sent]) == (2, ["ana@x.org"])


async def test_people_are_told_of_a_failure(app: App, warehouse: Warehouse) -> None:
    sent = posting(app)
    app.table("order", warehouse.orders)

    @app.step("Delete", "order", stage=PRE_OPERATION, mode=SYNC)
    async def keep(ctx: Any) -> None:
        raise InvalidValue("all stay")

    await warehouse.fill(3)
    async with app.host():
        job = await app.bulk.delete(warehouse.query(), max_failures=0, notify=TWO[:1])
        with pytest.raises(JobFailed):
            await job.wait(60)
    (mail,) = sent
    assert "failed, 3 rows failed" in mail.subject


async def test_a_mail_that_cannot_be_sent_does_not_fail_the_job(
    app: App, warehouse: Warehouse
) -> None:
    @app.bulk.transport("post")
    async def post(mail: Mail) -> None:
        raise ConnectionError("the line was cut")

    await warehouse.fill(3)
    async with app.host():
        job = await app.bulk.delete(warehouse.query(), notify=TWO[:1])
        assert await job.wait(60) == {"success": 3, "failure": 0}
        assert "no notification was sent: ana@x.org" in str((await job.get()).friendly)


async def test_without_a_transport_or_an_address_it_is_refused(
    app: App, warehouse: Warehouse
) -> None:
    with pytest.raises(InvalidValue, match="has no transport"):
        await app.bulk.delete(warehouse.query(), notify=TWO)
    posting(app)
    with pytest.raises(InvalidValue, match="is not a mail address"):
        await app.bulk.delete(warehouse.query(), notify=["ana"])


@pytest.mark.parametrize("control", ["\x00", "\t", "\n", "\r\n", "\x1f", "\x7f"])
async def test_nothing_adds_a_line_to_the_header_of_a_mail(
    app: App, warehouse: Warehouse, control: str
) -> None:
    sent = posting(app)
    with pytest.raises(InvalidValue, match="is not a mail address"):
        await app.bulk.delete(warehouse.query(), notify=[f"ana@x.org{control}Bcc: eve@x.org"])
    if control == "\x00":
        return  # no job is called that
    await warehouse.fill(2)
    async with app.host():
        name = f"Orders{control}Bcc: eve@x.org"
        await (await app.bulk.delete(warehouse.query(), name=name, notify=TWO[:1])).wait(60)
    (mail,) = sent
    shown = " " * len(control)
    assert mail.subject == f"Orders{shown}Bcc: eve@x.org: 2 rows were deleted"
