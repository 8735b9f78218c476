"""Why jobs wait, on a real database: the explanation agrees with what the next claim does."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

import asyncpg
import pytest

from relevo.jobs.errors import JobMissing
from relevo.kernel.postgres import clock
from tests.jobs.office import Stage, Worker, until

if TYPE_CHECKING:
    from relevo.jobs import JobExplanation
    from tests.jobs.office import Office

pytestmark = pytest.mark.anyio
ROOM = 4


async def test_an_explanation_follows_a_job_from_its_submit_to_its_end(
    office: Office, stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    job = await office.jobs.submit("recipt")
    again = await office.jobs.submit("recipt")
    found = await job.explain()
    assert (found.reason, found.status) == ("never_registered", "waiting_for_resources")
    assert job.warning == again.warning == "no host has ever registered the handler 'recipt'"
    assert [line.split(" ", 1)[0] for line in caplog.messages] == ["jobs.handler_never_registered"]

    async def receipt() -> None:
        await stage.pass_by()

    await office.host({"receipt": receipt, "recipes": receipt}, name="till")
    found = await job.explain()
    assert (found.reason, found.similar) == ("never_registered", ("receipt", "recipes"))
    (gone,) = await office.jobs.explanations.unserved()
    assert (gone.name, gone.served_at, gone.similar) == ("recipt", None, found.similar)
    served = await office.jobs.submit("receipt", token="t")
    assert served.warning is None
    await stage.entered.wait()
    found = await served.explain()
    assert (found.reason, found.host) == ("running", "till")
    behind = await office.jobs.submit("receipt", token="t")
    found = await behind.explain()
    assert (found.reason, found.blocked_by) == ("behind_token", served.id)
    assert f"job {served.id} of the same token (receipt): it runs on till since" in found.says
    start = await clock.now(office.database) + timedelta(hours=1)
    late = await office.jobs.submit("receipt", start=start)
    found = await late.explain()
    assert (found.reason, found.until, found.notes) == ("start_time", start, ())
    stage.go.set()
    await served.wait(60)
    assert (await served.explain()).reason == "ended"
    with pytest.raises(JobMissing):
        await office.jobs.explain(uuid4())


async def test_a_handler_is_unserved_as_soon_as_its_host_has_ended(office: Office) -> None:
    async def work() -> None: ...

    app = office.new_app("short")
    app.job("work")(work)
    async with app.host():

        async def served() -> bool:
            return bool(await office.database.fetchval("select count(*) from relevo.job_server"))

        await until(served, "the host has said what it serves")
    found = await (await office.jobs.submit("work")).explain()
    assert (found.reason, "no host is running" in found.says) == ("not_served", True)


@pytest.mark.parametrize("seed", range(6))
async def test_what_is_explained_as_next_is_what_a_claim_takes(office: Office, seed: int) -> None:
    draw = random.Random(seed)
    connection = await asyncpg.connect(office.url)
    try:
        worker = await Worker(connection).join()
        await connection.execute(
            "insert into relevo.job_server (host, lane, handlers, slots) values ($1, $2, $3, $4)",
            worker.host, "default", ["work", "other"], ROOM,
        )  # fmt: skip
        await connection.execute("update relevo.job_lane set owner_cap = 1 where name = 'default'")
        owners = [uuid4(), uuid4()]
        start = await clock.now(office.database) + timedelta(hours=1)
        jobs = []
        for _ in range(14):
            kind = draw.randrange(5)
            jobs.append(await office.jobs.submit(
                draw.choice(["work", "other", "work", "nobody"]),
                token=draw.choice("ab") if kind == 1 else None,
                owner=draw.choice(owners) if kind == 2 else None,
                start=start if kind == 3 else None,
            ))  # fmt: skip
        if draw.random() < 0.5:  # they wait in a parcel between the others
            jobs += await office.jobs.submit_many("work", [{}] * 120)
            jobs.append(await office.jobs.submit("other"))
        for _ in range(3):
            await connection.execute("select relevo.open_noted_job_gates()")
            said = {job.id: await job.explain() for job in jobs[:16] + jobs[-1:]}
            taken: set[UUID] = {row["id"] for row in await worker.work(ROOM, ("work", "other"))}
            assert taken & said.keys() == _next(said), said
            held = list(worker.held.values())
            await worker.work(settle=[(row, "done") for row in held])
    finally:
        await connection.close()


def _next(said: dict[UUID, JobExplanation]) -> set[UUID]:
    able = {"in_order", "no_slot", "budget"}
    return {
        id_ for id_, one in said.items()
        if one.reason in able and one.place is not None and one.place <= ROOM
    }  # fmt: skip
