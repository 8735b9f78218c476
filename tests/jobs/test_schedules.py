"""Schedules that handlers declare: stored once, changed, removed, paused, resumed, run now."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from relevo import App
from relevo.errors import Conflict, InvalidRecurrence, InvalidValue, NotFound
from relevo.jobs import Recurrence, states
from relevo.testing.cluster import Cluster
from tests.jobs.office import QUICK, until

if TYPE_CHECKING:
    from pathlib import Path

    from relevo.testing.clock import Clock
    from tests.jobs.office import Office

pytestmark = pytest.mark.anyio
HOUR = timedelta(hours=1)
ROWS = "select * from relevo.job where series is not null and attempt = 0 order by created_at"


async def report(ctx: Any = None) -> str:
    return "made"


async def start(office: Office, name: str = "report", **schedule: Any) -> App:
    """Start a host with a handler, and end it again: what it declares stays."""
    app = office.new_app()
    app.job(name, **schedule)(report)
    async with app.host():
        return app


async def rows(office: Office) -> list[Any]:
    """The runs that have not started."""
    return list(await office.database.fetch(ROWS))


async def test_a_declaration_is_stored_once_changed_and_removed(office: Office) -> None:
    schedules = office.jobs.schedules
    for _ in range(2):
        await start(office, cron="0 3 * * *", timezone="Europe/Madrid", missed="skip")
    (row,) = await rows(office)
    found = await schedules.get("report")
    assert (found.rule, found.missed, found.state, found.served) == (
        "0 3 * * *", "skip", "active", True,
    )  # fmt: skip
    assert found.describe() == "Every day at 03:00 (Europe/Madrid)"
    assert found.describe("es") == "Cada día a las 03:00 (Europe/Madrid)"
    assert found.next_run == row["postpone_until"] == row["nominal"]
    runs = await schedules.next_runs("report", 3)
    assert (len(runs), runs[0]) == (3, found.next_run)

    # Its waiting run follows the handler into another lane.
    await start(office, cron="0 3 * * *", timezone="Europe/Madrid", missed="skip", lane="bulk")
    assert [row["lane"] for row in await rows(office)] == ["bulk"]

    # A host that does not have the handler leaves it alone.
    await start(office, "other", every=HOUR)
    assert [one.name for one in await schedules.list()] == ["other", "report"]

    await start(office, recurrence=Recurrence(pattern="FREQ=DAILY;BYHOUR=4;BYMINUTE=30"))
    changed = await schedules.get("report")
    assert (changed.rule, changed.series) == ("FREQ=DAILY;BYHOUR=4;BYMINUTE=30", found.series)
    assert changed.next_run is not None
    assert f"{changed.next_run:%H:%M}" == "04:30"
    assert len(await rows(office)) == 2

    await start(office)  # the handler is there, and no longer declares a schedule
    with pytest.raises(NotFound, match="handlers declare them"):
        await schedules.get("report")
    assert [row["handler"] for row in await rows(office)] == ["other"]
    ended = "select count(*) from relevo.event where type = 'relevo.series.ended'"
    assert await office.database.fetchval(ended) == 1
    await schedules.delete("other")
    assert await rows(office) == []


@pytest.mark.parametrize("hosts", [5, pytest.param(20, marks=pytest.mark.soak)])
async def test_hosts_that_start_at_once_make_one_series(
    office: Office, tmp_path: Path, hosts: int
) -> None:
    async with Cluster(
        office.url, "tests.jobs.programs:scheduled", tmp_path, settings=QUICK
    ) as cluster:  # fmt: skip
        await asyncio.gather(*(cluster.start(f"host-{n}") for n in range(hosts)))
        await cluster.until(lambda: len(cluster.records("declared")) == hosts, "all declarations")
    assert len(await rows(office)) == 1


async def test_runs_follow_the_rule_while_hosts_come_and_go(office: Office, clock: Clock) -> None:
    schedules = office.jobs.schedules
    app = office.new_app()
    app.job("report", every=HOUR)(report)
    await office.serve(app)
    first = (await schedules.get("report")).next_run
    assert first is not None
    assert (first.minute, first.second) == (0, 0)  # counted from midnight, not from the start
    for n in range(1, 3):
        await clock.advance(HOUR)
        await until(partial(_succeeded, office, n), f"run {n}")
    found = await schedules.get("report")
    assert found.last_run is not None
    assert found.last_run.status == "succeeded"
    assert found.next_run == first + 2 * HOUR
    assert await office.jobs.query().where(series=found.series).count() == 3


async def _succeeded(office: Office, n: int) -> bool:
    return await office.jobs.query().where(status=states.SUCCEEDED).count() == n


async def test_it_is_paused_resumed_and_run_now(office: Office, clock: Clock) -> None:
    schedules = office.jobs.schedules
    await start(office, cron="0 * * * *")
    series = (await schedules.get("report")).series
    await schedules.pause("report")
    paused = await schedules.get("report")
    assert (paused.state, paused.next_run, await rows(office)) == ("paused", None, [])
    assert await schedules.next_runs("report") == []

    await start(office, cron="30 * * * *")  # a new rule does not end the pause
    assert (await schedules.get("report")).state == "paused"
    await clock.advance(5 * HOUR)
    await schedules.resume("report")  # and what lies in the pause is not caught up with
    resumed, now = await schedules.get("report"), await clock.now()
    assert (resumed.state, resumed.series) == ("active", series)
    assert resumed.next_run is not None
    assert now < resumed.next_run <= now + HOUR
    assert resumed.next_run.minute == 30

    later = now + 3 * HOUR
    await schedules.pause("report", until=later)
    paused = await schedules.get("report")
    assert (paused.state, paused.paused_until) == ("paused", later)
    assert paused.next_run is not None
    assert later < paused.next_run <= later + HOUR
    await clock.advance(4 * HOUR)
    assert (await schedules.get("report")).state == "active"
    with pytest.raises(InvalidValue, match="which is past"):
        await schedules.pause("report", until=now)

    job = await schedules.run("report")  # beside the series, whose next run stays
    assert (await office.row(job))["chain"] == f"s{series}"
    assert len(await rows(office)) == 1
    with pytest.raises(NotFound, match="there is no schedule 'nothing'"):
        await schedules.run("nothing")


async def test_a_due_run_outlives_a_change_and_no_pause(office: Office, clock: Clock) -> None:
    schedules = office.jobs.schedules
    await start(office, every=HOUR)
    await clock.advance(HOUR)
    app = office.new_app()
    app.job("another", lane="bulk")(report)
    await office.serve(app)  # its leader makes the run ready; nobody runs it
    await until(lambda: _ready(office), "the run to be due")
    await start_without_running(office, cron="0 3 * * *")
    due = await office.database.fetch("select status, series from relevo.job order by status")
    assert [(row["status"], row["series"] is None) for row in due] == [(0, True), (10, False)]
    await schedules.pause("report")
    assert len(await office.database.fetch("select from relevo.job")) == 1


async def _ready(office: Office) -> bool:
    return bool(
        await office.database.fetchval("select exists (select from relevo.job where status = 0)")
    )


async def start_without_running(office: Office, **schedule: Any) -> None:
    """Declare as a host does, without claiming anything."""
    app = office.new_app()
    app.job("report", **schedule)(report)
    async with app:
        await app.jobs.schedules.declare(app.jobs.registry.handlers)


async def test_a_schedule_that_has_ended_stays_ended(office: Office) -> None:
    schedules = office.jobs.schedules
    over = Recurrence(pattern="FREQ=DAILY;UNTIL=20200101")
    for _ in range(2):
        await start(office, recurrence=over)
    assert (await schedules.get("report")).state == "ended"
    assert await schedules.next_runs("report") == []
    with pytest.raises(Conflict, match="has no further instant"):
        await schedules.resume("report")
    await start(office, every=90)
    job = (await rows(office))[0]["id"]
    await office.jobs.handle(job).cancel(series=True)  # by an operator: the code does not undo it
    await start(office, every=90)
    assert (await schedules.get("report")).state == "ended"
    await schedules.resume("report")
    assert (await schedules.get("report")).state == "active"


async def test_a_submitted_series_may_have_a_cron_line(office: Office) -> None:
    job = await office.jobs.submit("work", recurrence="15 6 * * *", timezone="Europe/Madrid")
    at = (await job.get()).postpone_until
    assert at is not None
    assert (at.minute, at.second, at.hour in (4, 5)) == (15, 0, True)
    with pytest.raises(InvalidRecurrence, match="iCalendar rule such as FREQ=DAILY, not by a cron"):
        await office.jobs.submit("work", recurrence="@daily", options={"operation_type": 13})


def tell(number: int) -> None: ...


@pytest.mark.parametrize(
    ("schedule", "refusal"),
    [
        ({"every": HOUR, "cron": "0 3 * * *"}, "has every and cron; give one of them"),
        ({"timezone": "Europe/Madrid"}, "has timezone without a schedule; give every="),
        ({"every": HOUR, "timezone": "Europe/Madrid"}, "which no clock changes"),
        ({"every": "1h"}, "has every='1h'; give seconds or a timedelta"),
        ({"every": 0.5}, "handler 'report': an interval is whole seconds"),
        ({"cron": "0 3 * *"}, "handler 'report': a cron line has 5 fields"),
        ({"cron": "0 0 30 2 *"}, "the rule '0 0 30 2 \\*' has no instant"),
        ({"cron": "FREQ=DAILY"}, "an iCalendar rule; write recurrence="),
        ({"cron": "0 3 * * *", "missed": "never"}, "missed='never'; give one of coalesce, skip"),
        ({"cron": "0 3 * * *", "timezone": "Madrid"}, "there is no time zone 'Madrid'"),
    ],
)  # fmt: skip
def test_a_wrong_declaration_fails_where_it_is_written(
    schedule: dict[str, Any], refusal: str
) -> None:
    with pytest.raises((InvalidValue, InvalidRecurrence), match=refusal):
        App().job("report", **schedule)(report)


def test_a_scheduled_handler_needs_no_arguments() -> None:
    with pytest.raises(InvalidValue, match="needs number, but its schedule gives no arguments"):
        App().job("tell", cron="@daily")(tell)
    App().job("tell", recurrence=f"FREQ=DAILY;UNTIL={datetime.now(UTC):%Y%m%d}")(lambda: None)
