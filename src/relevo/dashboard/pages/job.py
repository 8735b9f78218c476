"""One job: its path, why it waits, its attempts and data, and its neighbours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from relevo.dashboard.page import Action, Page
from relevo.dashboard.redaction import redacted
from relevo.dashboard.state_diagrams import HALF_HEIGHT, HALF_WIDTH, state_diagram
from relevo.jobs.states import COMPLETED, WORDS

if TYPE_CHECKING:
    from relevo.dashboard.page import Visit
    from relevo.jobs.http.models import JobView

ENDED: Final = tuple(WORDS[code] for code in COMPLETED)
NEIGHBOURS: Final = 20
POSTPONES: Final = (600, 3_600, 86_400, 7 * 86_400)
"""Seconds for which a job can be postponed with two clicks."""


async def job(visit: Visit) -> dict[str, Any]:
    """Return a job, its explanation and payload, and the jobs of its token and series."""
    key = visit.parameters["id"]
    found: JobView = (await visit.run("jobs.get", id=key)).body
    reason = None
    if found.status not in ENDED:
        reason = await visit.run("jobs.explain", id=key)
    payload = await visit.run("jobs.payload", id=key) if visit.may("jobs.payload") else None
    revealed = visit.one("reveal") == "1"
    chain = await _neighbours(visit, token=found.token) if found.token else []
    series = await _neighbours(visit, series=str(found.series)) if found.series else []
    return {
        "title": found.name,
        "job": found,
        "ended": found.status in ENDED,
        "diagram": state_diagram(found),
        "box": (HALF_WIDTH, HALF_HEIGHT),
        "explanation": reason,
        "payload": payload,
        "data": _shown(payload, "data", revealed=revealed),
        "result": _shown(payload, "result", revealed=revealed),
        "saved": _shown(payload, "state", revealed=revealed),
        "revealed": revealed,
        "chain": chain,
        "series": series,
        "postpones": POSTPONES,
    }


async def again(visit: Visit) -> dict[str, Any]:
    """Return the form that submits a job like another one, with other data."""
    key = visit.parameters["id"]
    found: JobView = (await visit.run("jobs.get", id=key)).body
    payload = await visit.run("jobs.payload", id=key)
    return {"job": found, "data": {} if payload.data is None else payload.data}


async def _neighbours(visit: Visit, **fields: str) -> list[JobView]:
    page = await visit.run("jobs.list", limit=NEIGHBOURS, **fields)
    items: list[JobView] = page.items
    return items


def _shown(payload: Any, name: str, *, revealed: bool) -> Any:
    value = None if payload is None else getattr(payload, name)
    return value if revealed else redacted(value)


PAGES: Final = (
    Page(name="job", path="/jobs/{id}", load=job, area="jobs", operation="jobs.get", under="jobs"),
    Page(
        name="again", path="/jobs/{id}/again", load=again, area="jobs", operation="jobs.run_again",
        under="jobs", live=False,
    ),
)  # fmt: skip
ACTIONS: Final = (
    Action(operation="jobs.unblock", confirm=True),
    Action(operation="jobs.run_again", then="/jobs/{id}"),
)
