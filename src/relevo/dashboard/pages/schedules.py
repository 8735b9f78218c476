"""Recurring jobs: rules in plain words, next runs, what became of the last ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from relevo.dashboard.lists import DURATIONS, LANGUAGE, Column, Form, Input, Section, list_page
from relevo.dashboard.page import Action, Page

if TYPE_CHECKING:
    from collections.abc import Sequence

    from relevo.dashboard.page import Visit
    from relevo.jobs.http.models import JobView
    from relevo.jobs.http.schedules import ScheduleDetails

STRIP: Final = 40
"""Runs that the strip of the history shows."""
HEIGHTS: Final = 5
SCHEDULES: Final = Section(
    name="schedules", operation="schedules.list", given={"language": LANGUAGE}, thing=("name",),
    columns=(
        Column("name", link="/schedules/{name}"), Column("description"), Column("state", "status"),
        Column("next_run", "time"), Column("last_run.status", "status"),
        Column("last_run.started_at", "time"), Column("paused_until", "time"),
        Column("served", "flag"),
    ),
    actions=("schedules.run", "schedules.pause", "schedules.resume"),
    empty='@app.job("report", every="1h")\nasync def report(ctx): ...',
)  # fmt: skip
FORMS: Final = (
    Form("schedules.run", ("name",)),
    Form("schedules.pause", ("name",), (Input("in.until", "duration", required=False),)),
    Form("schedules.resume", ("name",)),
    Form("schedules.delete", ("name",)),
)


async def schedule(visit: Visit) -> dict[str, Any]:
    """Return a schedule with its next runs and the strip of its last ones."""
    name = visit.parameters["name"]
    found: ScheduleDetails = await visit.run(
        "schedules.get", name=name, language=visit.language.code
    )
    listed = await visit.run("jobs.list", handler=name, limit=STRIP)
    runs: list[JobView] = [job for job in listed.items if job.started_at or job.completed_at]
    return {
        "title": name,
        "schedule": found,
        "runs": runs,
        "strip": strip_of(runs),
        "forms": [(form, name) for form in FORMS],
        "durations": DURATIONS,
    }


def strip_of(runs: Sequence[JobView]) -> list[tuple[JobView, int]]:
    """Return runs, the oldest first, with how high each stands: by how long it ran."""
    longest = max((run.run_seconds for run in runs), default=0.0) or 1.0
    return [(run, 1 + round((HEIGHTS - 1) * run.run_seconds / longest)) for run in reversed(runs)]


PAGES: Final = (
    list_page("schedules", "/schedules", SCHEDULES, group="work"),
    Page(
        name="schedule", path="/schedules/{name}", load=schedule, area="schedules",
        operation="schedules.get", under="schedules",
    ),
)  # fmt: skip
ACTIONS: Final = (
    Action(operation="schedules.run", key="name", then="/jobs/{id}"),
    Action(operation="schedules.pause", key="name"),
    Action(operation="schedules.resume", key="name"),
    Action(operation="schedules.delete", key="name", confirm=True, danger=True),
)
