"""System jobs as the ancestor's grid shows them: its columns, views and commands; and lanes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, urlsplit

from relevo.dashboard.lists import DURATIONS, Column, Section, list_page
from relevo.dashboard.page import Action, Page, message_of
from relevo.errors import CallerError

if TYPE_CHECKING:
    from relevo.dashboard.page import Visit

VIEWS: Final = {
    "all": "",
    "ready": "statecode eq 0",
    "suspended": "statecode eq 1",
    "locked": "statecode eq 2",
    "completed": "statecode eq 3",
    "failed": "statuscode eq 31",
    "waiting": "iswaitingforevent eq true",
    "recurring": "recurrencepattern ne null",
}
"""Views by name, with the filter of each."""
COLUMNS: Final = (
    "name", "operationtype", "statecode", "statuscode", "messagename", "_ownerid_value",
    "_createdby_value", "_modifiedby_value", "primaryentitytype", "_regardingobjectid_value",
    "createdon", "modifiedon", "startedon", "completedon", "postponeuntil", "executiontimespan",
    "retrycount", "depth", "sequence", "dependencytoken", "iswaitingforevent", "errorcode",
    "friendlymessage", "recurrencepattern", "recurrencestarttime", "workflowstagename",
    "asyncoperationid",
)  # fmt: skip
SHOWN: Final = (
    "name", "operationtype", "statuscode", "_ownerid_value", "createdon", "startedon",
    "completedon", "postponeuntil", "retrycount", "dependencytoken", "friendlymessage",
)  # fmt: skip
"""The columns that are shown unless others are chosen."""
TIMES: Final = frozenset(
    {"createdon", "modifiedon", "startedon", "completedon", "postponeuntil", "recurrencestarttime"}
)
NUMBERS: Final = frozenset({"executiontimespan", "retrycount", "depth", "sequence"})
STATES: Final = {
    0: "waiting_for_resources", 10: "waiting", 20: "in_progress", 21: "pausing", 22: "canceling",
    30: "succeeded", 31: "failed", 32: "canceled",
}  # fmt: skip
"""Colours of badges by `statuscode`."""
COMMANDS: Final = ("jobs.delete", "jobs.cancel", "jobs.resume", "jobs.postpone", "jobs.pause")
ROWS: Final = 50
_LABEL: Final = "OData.Community.Display.V1.FormattedValue"
_PREFER: Final = f'odata.maxpagesize={ROWS}, odata.include-annotations="{_LABEL}"'

LANES: Final = Section(
    name="lanes", operation="lanes.list", paged=False, key=("name",),
    columns=(
        Column("name", link="/jobs?lane={name}"), Column("ready", "number"),
        Column("running", "number"), Column("suspended", "number"),
        Column("oldest_seconds", "seconds"), Column("handlers"), Column("events"),
        Column("priority", "flag"), Column("owner_cap", "number"), Column("shared_tokens", "flag"),
    ),
    empty="relevo up",
)  # fmt: skip
WAITING: Final = Section(
    name="lane_waits", operation="jobs.views.waiting", paged=False, key=("lane", "age"),
    columns=(
        Column("lane"), Column("age"), Column("jobs", "number"), Column("blocked", "number"),
        Column("oldest", "time"),
    ),
)  # fmt: skip
CHAINS: Final = Section(
    name="lane_chains", operation="jobs.views.chains", paged=False, key=("head_id",),
    columns=(
        Column("token", link="/jobs?token={token}"), Column("jobs", "number"),
        Column("head_name", link="/jobs/{head_id}"), Column("head_status", "status"),
        Column("head_host"), Column("oldest", "time"),
    ),
)  # fmt: skip


async def system_jobs(visit: Visit) -> dict[str, Any]:
    """Return a page of the view, with columns by the names of the ancestor's table."""
    view = visit.one("view") if visit.one("view") in VIEWS else "all"
    chosen = [each for each in visit.many("column") if each in COLUMNS] or list(SHOWN)
    conditions = [f"({each})" for each in (VIEWS[view], visit.one("filter")) if each]
    wanted = {
        "$select": ",".join(dict.fromkeys(["asyncoperationid", "statuscode", *chosen])),
        "$filter": " and ".join(conditions),
        "$orderby": "asyncoperationid desc",  # the newest first: ids grow with time, by an index
        "$skiptoken": visit.one("after"),
    }
    problem, rows, after = "", [], ""
    try:
        reply = await visit.run(
            "dataverse.rows.list", version="v9.2", name="asyncoperations", prefer=_PREFER, **wanted
        )
        rows, after = reply.body["value"], _after(reply.body)
    except CallerError as error:
        problem = message_of(error)
    return {
        "view": view,
        "views": VIEWS,
        "filter": visit.one("filter"),
        "columns": chosen,
        "all_columns": COLUMNS,
        "rows": rows,
        "after": after,
        "problem": problem,
        "states": STATES,
        "times": TIMES,
        "numbers": NUMBERS,
        "label": f"@{_LABEL}",
        "commands": COMMANDS,
        "durations": DURATIONS,
    }


def _after(page: dict[str, Any]) -> str:
    """Return what leads to the next page; empty on the last one."""
    query = parse_qs(urlsplit(page.get("@odata.nextLink", "")).query)
    return str(query.get("$skiptoken", [""])[0])


PAGES: Final = (
    Page(
        name="system_jobs", path="/system-jobs", load=system_jobs, area="system_jobs",
        operation="dataverse.rows.list", group="work",
    ),
    list_page("lanes", "/lanes", LANES, WAITING, CHAINS, group="work"),
)  # fmt: skip
ACTIONS: Final[tuple[Action, ...]] = ()
"""Its commands are those of jobs."""
