"""Bulk mail and activity propagation: once for each recipient, whatever happens."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from relevo.dataverse.bulk import RowQuery
from relevo.errors import InvalidValue
from relevo.jobs.errors import JobFailed
from relevo.testing.cluster import Cluster
from tests.jobs.office import QUICK

if TYPE_CHECKING:
    from pathlib import Path

    from relevo import App
    from relevo.dataverse.bulk.mail import Mail
    from tests.dataverse.bulk.conftest import Warehouse

pytestmark = pytest.mark.anyio
PEOPLE = RowQuery(container="people")


async def people(app: App, *emails: str | None) -> None:
    container = app.container("people", "/id")
    made = [
        {"id": f"{n:05}", "name": f"P{n}", **({} if email is None else {"email": email})}
        for n, email in enumerate(emails)
    ]
    assert not (await container.bulk(made)).failures


async def test_each_recipient_gets_one_mail_with_its_own_words(
    app: App, warehouse: Warehouse
) -> None:
    sent: list[Mail] = []

    @app.bulk.transport("post")
    async def post(mail: Mail) -> None:
        sent.append(mail)

    await people(app, "ana@x.org", "BOB@x.org", "bob@x.org", None)
    async with app.host():
        job = await app.bulk.mail(
            "post", PEOPLE, subject="Hello $name", body="$name, $unknown ${id}", per_second=500.0
        )
        assert await job.wait(60) == {"success": 3, "failure": 1}
        (failure,) = await app.bulk.failures(job.id)
    assert [(one.to, one.subject) for one in sent] == [
        ("ana@x.org", "Hello P0"), ("BOB@x.org", "Hello P1"),
    ]  # fmt: skip
    assert sent[0].body == "P0, $unknown 00000"
    assert "is not a mail address" in failure.message
    assert (await job.get()).operation_type == 2


async def test_a_transport_may_be_any_kind_of_function(app: App, warehouse: Warehouse) -> None:
    sent: list[str] = []

    async def post(mail: Mail) -> None:
        await asyncio.sleep(0)
        sent.append(mail.to)

    app.bulk.transport("plain")(lambda mail: sent.append(mail.to))
    app.bulk.transport("wrapped")(lambda mail: post(mail))
    await people(app, "ana@x.org")
    async with app.host():
        for name in ("plain", "wrapped"):
            job = await app.bulk.mail(name, PEOPLE, subject="s", body="b")
            assert await job.wait(60) == {"success": 1, "failure": 0}
    assert sent == ["ana@x.org"] * 2
    with pytest.raises(InvalidValue, match=r"called with \(mail\)"):
        app.bulk.transport("strange")(lambda: None)  # type: ignore[arg-type,misc]


async def test_a_mail_that_the_transport_refused_is_a_failure_and_not_sent_again(
    app: App, warehouse: Warehouse
) -> None:
    tried: list[str] = []

    @app.bulk.transport("post")
    async def post(mail: Mail) -> None:
        tried.append(mail.to)
        raise ConnectionError("the line was cut")

    await people(app, "ana@x.org")
    async with app.host():
        job = await app.bulk.mail("post", PEOPLE, subject="s", body="b")
        assert await job.wait(60) == {"success": 0, "failure": 1}
    assert tried == ["ana@x.org"]


async def test_a_host_without_the_transport_says_so(app: App, warehouse: Warehouse) -> None:
    async with app.host():
        job = await app.bulk.mail("post", PEOPLE, subject="s", body="b")
        with pytest.raises(JobFailed, match="no transport 'post'"):
            await job.wait(60)


async def test_after_a_crash_nobody_gets_a_second_mail(
    app: App, warehouse: Warehouse, relevo_url: str, tmp_path: Path
) -> None:
    await people(app, *(f"{n}@x.org" for n in range(500)))
    async with Cluster(
        relevo_url, "tests.dataverse.bulk.programs:posting", tmp_path, settings=QUICK
    ) as cluster:
        a = await cluster.start("a")
        job = await app.bulk.mail("post", PEOPLE, subject="s", body="b")
        await cluster.until(lambda: len(a.records("mail")) >= 250, "half of the mails")
        a.kill()
        await cluster.start("b")
        found = await job.wait(90)
        sent = [one["to"] for one in cluster.records("mail")]
    # A20, A30: at most one each, and the counts are all rows; the one in flight is not known.
    assert len(sent) == len(set(sent))
    assert found["success"] + found["failure"] == 500
    assert found["failure"] <= 1


@pytest.mark.parametrize(("quick", "kind"), [(False, 6), (True, 11)])
async def test_each_member_gets_one_activity(
    app: App, warehouse: Warehouse, quick: bool, kind: int
) -> None:
    calls = app.container("calls", "/id")
    await calls.describe()

    @app.bulk.sink("calls")
    async def write(tx: Any, member: dict[str, Any], activity: dict[str, Any]) -> None:
        await tx.execute(
            "select relevo.put_item('calls', jsonb_build_object('id', $1::text, 's', $2::text))",
            member["id"], activity["subject"],
        )  # fmt: skip

    await people(app, "a@x.org", "A@x.org", "b@x.org", None, "", "")
    for n in (6, 7):
        await app.container("people", "/id").create({"id": f"0000{n}", "email": None})
    async with app.host():
        job = await app.bulk.propagate(
            "calls", PEOPLE, {"subject": "spring"}, quick=quick, unique="email"
        )
        assert await job.wait(60) == {"success": 8, "failure": 0}
        assert (await job.get()).operation_type == kind
    served = [item.id async for item in calls.query()]
    assert served == [f"0000{n}" for n in (0, 2, 3, 4, 5, 6, 7)]
