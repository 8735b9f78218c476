"""Jobs: the list with its query bar, facets, columns and export, and actions on all that match."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any, Final

import msgspec

from relevo import limits
from relevo.dashboard.page import Action, Page, message_of
from relevo.errors import CallerError
from relevo.http.answers import Answer
from relevo.jobs.querying.conditions import JOBS
from relevo.jobs.states import WORDS

if TYPE_CHECKING:
    from relevo.dashboard.page import Visit
    from relevo.jobs.http.models import JobView

STATUSES: Final = tuple(WORDS.values())
EQUAL: Final = ("handler", "lane", "token", "series")
COLUMNS: Final = (
    "status", "name", "handler", "lane", "token", "type_label", "priority", "attempt", "retries",
    "progress", "created_at", "started_at", "completed_at", "postpone_until", "run_seconds",
    "error_code", "host", "pattern", "id",
)  # fmt: skip
SHOWN: Final = (
    "status", "name", "handler", "lane", "attempt", "created_at", "completed_at", "run_seconds",
    "host",
)  # fmt: skip
"""The columns that are shown unless others are chosen."""
ROWS: Final = 50
EXPORTED_MAX: Final = 5_000
WORDS_OF_FILTERS: Final = (
    "contains(", "startswith(", "endswith(", "eq", "ne", "gt", "ge", "lt", "le", "and", "or", "not",
)  # fmt: skip


async def jobs(visit: Visit) -> dict[str, Any] | Answer:
    """Return a page of jobs that match the query, and how many there are by status."""
    if visit.one("export") in ("csv", "json"):
        return await _exported(visit, visit.one("export"))
    fields = _wanted(visit)
    problem, items, following = "", [], None
    try:
        found = await visit.run("jobs.list", limit=ROWS, cursor=visit.one("cursor"), **fields)
        items, following = found.items, found.next
    except CallerError as error:
        problem = message_of(error)
    chosen = [each for each in visit.many("column") if each in COLUMNS]
    return {
        "jobs": items,
        "next": following,
        "problem": problem,
        "statuses": STATUSES,
        "chosen": fields["status"],
        "counts": await _counts(visit),
        "equal": {name: visit.one(name) for name in EQUAL},
        "filter": visit.one("filter"),
        "columns": chosen or list(SHOWN),
        "all_columns": COLUMNS,
        "words": [
            *WORDS_OF_FILTERS,
            *(column.name for column in JOBS.columns if column.filterable),
        ],
        "narrowed": any(fields.values()),
    }


async def matching(visit: Visit) -> dict[str, Any]:
    """Return the preview of an action on all that match."""
    fields = _wanted(visit)
    counted = await visit.run("jobs.count", **{n: v for n, v in fields.items() if n != "order"})
    found = await visit.run("jobs.list", limit=10, **fields)
    names = [action.operation for action in ACTIONS if action.among]
    return {
        "count": counted.jobs,
        "more": counted.more,
        "jobs": found.items,
        "fields": fields,
        "query": visit.link(do=None).partition("?")[2],
        "operations": [name for name in names if visit.may(name)],
        "wanted": visit.one("do"),
    }


def _wanted(visit: Visit) -> dict[str, Any]:
    return {
        **{name: visit.one(name) for name in (*EQUAL, "filter", "order")},
        "status": [each for each in visit.many("status") if each in STATUSES],
    }


async def _counts(visit: Visit) -> dict[str, str]:
    """Return how many jobs have each status, as text; `~` stands before an estimate."""
    counts: dict[str, int] = {}
    estimated = set()
    if visit.may("jobs.views.counts"):
        for count in (await visit.run("jobs.views.counts", hours=24)).items:
            counts[count.status] = counts.get(count.status, 0) + count.jobs
            if count.estimated:
                estimated.add(count.status)
    return {
        status: f"{'~' if status in estimated else ''}{visit.language.number(jobs)}"
        for status, jobs in counts.items()
    }


async def _exported(visit: Visit, form: str) -> Answer:
    """Return the jobs of the view as a file, at most `EXPORTED_MAX`."""
    found: list[JobView] = []
    cursor: str | None = None
    while len(found) < EXPORTED_MAX:
        page = await visit.run(
            "jobs.list", limit=limits.PAGE_ROWS_MAX, cursor=cursor, **_wanted(visit)
        )
        found += page.items
        cursor = page.next
        if cursor is None:
            break
    chosen = [each for each in visit.many("column") if each in COLUMNS] or list(SHOWN)
    rows = [{name: getattr(job, name) for name in ("id", *chosen)} for job in found]
    kind = "application/json" if form == "json" else "text/csv; charset=utf-8"
    body = msgspec.json.encode(rows) if form == "json" else _csv(rows)
    name = f'attachment; filename="jobs.{form}"'.encode()
    return Answer(200, ((b"content-type", kind.encode()), (b"content-disposition", name)), body)


def _csv(rows: list[dict[str, Any]]) -> bytes:
    """Return rows as CSV; a text that a spreadsheet would run as a formula gets a quote before."""
    out = io.StringIO()
    if rows:
        writer = csv.DictWriter(out, list(rows[0]))
        writer.writeheader()
        writer.writerows(
            {name: _cell(value) for name, value in msgspec.to_builtins(row).items()} for row in rows
        )
    return out.getvalue().encode()


def _cell(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value[:1] in tuple("=+-@\t\r") else value


PAGES: Final = (
    Page(name="jobs", path="/jobs", load=jobs, area="jobs", operation="jobs.list", group="work"),
    Page(
        name="matching", path="/jobs/matching", load=matching, area="jobs",
        operation="jobs.cancel", under="jobs", live=False,
    ),
)  # fmt: skip
ACTIONS: Final = (
    Action(operation="jobs.retry", among="jobs.retry_all"),
    Action(operation="jobs.pause", among="jobs.pause_all"),
    Action(operation="jobs.resume", among="jobs.resume_all"),
    Action(operation="jobs.postpone", among="jobs.postpone_all"),
    Action(operation="jobs.cancel", among="jobs.cancel_all", confirm=True, danger=True),
    Action(operation="jobs.delete", among="jobs.delete_all", confirm=True, danger=True),
)
