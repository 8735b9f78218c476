"""Jobs: the list with its query bar, facets and actions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from relevo.dashboard.page import Action, Page, message_of
from relevo.errors import CallerError

if TYPE_CHECKING:
    from relevo.dashboard.page import Visit

STATUSES: Final = (
    "waiting_for_resources", "waiting", "in_progress", "pausing", "canceling", "succeeded",
    "failed", "canceled",
)  # fmt: skip
EQUAL: Final = ("handler", "lane", "token", "series")
ROWS: Final = 50


async def jobs(visit: Visit) -> dict[str, Any]:
    """Return a page of jobs that match the query, and how many there are by status."""
    fields: dict[str, Any] = {name: visit.one(name) for name in EQUAL}
    statuses = [each for each in visit.many("status") if each in STATUSES]
    problem, items, following = "", [], None
    try:
        found = await visit.run(
            "jobs.list", status=statuses, filter=visit.one("filter"), order=visit.one("order"),
            cursor=visit.one("cursor"), limit=ROWS, **fields,
        )  # fmt: skip
        items, following = found.items, found.next
    except CallerError as error:
        problem = message_of(error)
    counts: dict[str, int] = {}
    if visit.may("jobs.views.counts"):
        for count in (await visit.run("jobs.views.counts", hours=24)).items:
            counts[count.status] = counts.get(count.status, 0) + count.jobs
    return {
        "jobs": items,
        "next": following,
        "problem": problem,
        "statuses": STATUSES,
        "chosen": statuses,
        "counts": counts,
        "equal": fields,
        "filter": visit.one("filter"),
    }


PAGES: Final = (
    Page(name="jobs", path="/jobs", load=jobs, area="jobs", operation="jobs.list", group="work"),
)
ACTIONS: Final = (
    Action(operation="jobs.retry"),
    Action(operation="jobs.pause"),
    Action(operation="jobs.resume"),
    Action(operation="jobs.cancel", confirm=True, danger=True),
    Action(operation="jobs.delete", confirm=True, danger=True),
)
