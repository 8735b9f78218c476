"""The event log of all parts: the latest events that match, live."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec

from relevo.dashboard.page import Action, Page, message_of
from relevo.errors import CallerError

if TYPE_CHECKING:
    from relevo.dashboard.page import Visit

SPANS: Final = {"minutes": 600, "hour": 3_600, "day": 86_400}
"""How far back the page looks, in seconds."""
STEPS: Final = (10, 60, 600, 3_600, 86_400)
"""How far back it looks first: the log is read forwards, and the latest events are wanted."""
ROWS: Final = 100
READ_MAX: Final = 1_000
PAGES_MAX: Final = 3
"""A look takes so many pages of `READ_MAX` events."""


async def events(visit: Visit) -> dict[str, Any]:
    """Return the latest events of the span, the newest first."""
    span = visit.one("span") if visit.one("span") in SPANS else "hour"
    wanted = {"types": visit.one("type").split(), "filter": visit.one("filter")}
    problem = ""
    rows: list[dict[str, Any]] = []
    more = False
    now = await visit.services.app.now()
    for seconds in steps(SPANS[span]):
        try:
            rows, more = await _since(visit, now - timedelta(seconds=seconds), wanted)
        except CallerError as error:
            problem = message_of(error)
            break
        if len(rows) >= ROWS or more:
            break
    return {
        "span": span,
        "spans": SPANS,
        "type": visit.one("type"),
        "filter": visit.one("filter"),
        "rows": rows[-ROWS:][::-1],
        "more": more,
        "problem": problem,
        "link_to": link_to,
    }


def steps(span: int) -> list[int]:
    """Return how far back to look, one time after the other, until there are enough events.

    >>> steps(600), steps(3_600)
    ([10, 60, 600], [10, 60, 600, 3600])
    """
    return [seconds for seconds in STEPS if seconds <= span]


def link_to(subject: str) -> str:
    """Return the page of a subject, if there is one.

    >>> link_to("job/7f3a"), link_to("queue/mail")
    ('/jobs/7f3a', '')
    """
    kind, _, key = subject.partition("/")
    return f"/jobs/{key}" if kind == "job" and key else ""


async def _since(
    visit: Visit, begin: datetime, wanted: dict[str, Any]
) -> tuple[list[dict[str, Any]], bool]:
    """Return the events since an instant, and whether there are more than were read."""
    start = begin.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    place = {"start": start}
    rows: list[dict[str, Any]] = []
    for _ in range(PAGES_MAX):
        page = await visit.run("events.read", limit=READ_MAX, **place, **wanted)
        rows += map(_plain, page.items)
        place = {"continuation": page.continuation}
        if page.caught_up or not page.items:
            return rows, False
    return rows, True


def _plain(event: Any) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(event))
    found["time"] = datetime.fromisoformat(found["time"])
    return found


PAGES: Final = (
    Page(
        name="events", path="/events", load=events, area="events", operation="events.read",
        group="operate",
    ),
)  # fmt: skip
ACTIONS: Final[tuple[Action, ...]] = ()
