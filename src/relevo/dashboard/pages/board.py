"""The wall board of the job router, and its policies, shown whole and edited."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from relevo.dashboard.page import Action, Page, message_of
from relevo.errors import CallerError, NotFound

if TYPE_CHECKING:
    from collections.abc import Sequence

    from relevo.dashboard.page import Visit
    from relevo.router.overview import QueueService, QueueStanding

WORKERS: Final = 60
OFFERS: Final = 20
TARGETS: Final = (10, 20, 60, 300)
"""Seconds within which a job is to be taken, to choose from."""
STATES: Final = ("active", "draining", "inactive")
KINDS: Final = ("distribution", "classification", "exception", "queue")
_FIRST: Final[dict[str, dict[str, Any]]] = {
    "distribution": {"offerExpiresAfterSeconds": 60, "mode": {"kind": "longestIdle"}},
    "classification": {"fallbackQueueId": "", "prioritizationRule": {"kind": "static", "value": 1}},
    "exception": {"exceptionRules": []},
    "queue": {"name": "", "distributionPolicyId": ""},
}
"""What the editor starts with for a policy that is not there yet."""


class QueueLine:
    """A queue of the board: how it stands, and how quickly its jobs were taken."""

    def __init__(self, standing: QueueStanding, service: QueueService | None) -> None:
        self.id = standing.queue_id
        self.standing = standing
        self.service = service
        self.level = service.within / service.assigned if service and service.assigned else None


async def board(visit: Visit) -> dict[str, Any]:
    """Return queues with their service, skills, workers with load, and the latest offers."""
    target = int(visit.one("target")) if visit.one("target") in map(str, TARGETS) else 20
    queues = (await visit.run("router.queues.overview", limit=200)).items
    service = await visit.run("router.board.read", target_seconds=target)
    by_queue = {each.queue_id: each for each in service.service}
    lines = [QueueLine(queue, by_queue.get(queue.queue_id)) for queue in queues]
    state = visit.one("state") if visit.one("state") in STATES else ""
    workers, offers = [], []
    if visit.may("router.workers.list"):
        found = await visit.run("router.workers.list", maxpagesize=WORKERS, state=state)
        workers = found.items
        offers = (await visit.run("router.offers.open", limit=OFFERS)).items
    return {
        "lines": lines,
        "totals": totals(lines),
        "skills": service.skills,
        "workers": workers,
        "offers": offers,
        "target": target,
        "targets": TARGETS,
        "state": state,
        "states": STATES,
    }


def totals(lines: Sequence[QueueLine]) -> dict[str, Any]:
    """Return the figures above the board: sums, the longest wait, and the service of all queues."""
    standings = [line.standing for line in lines]
    service = [line.service for line in lines if line.service is not None]
    assigned = sum(each.assigned for each in service)
    return {
        "waiting": sum(each.waiting for each in standings),
        "longest": max((each.longest_wait_seconds or 0.0 for each in standings), default=0.0),
        "offers": sum(each.offers for each in standings),
        "assigned": sum(each.assigned for each in standings),
        "level": sum(each.within for each in service) / assigned if assigned else None,
    }


async def policies(visit: Visit) -> dict[str, Any]:
    """Return the first policies of each kind, and the queues."""
    found: dict[str, list[Any]] = {}
    for kind in KINDS:
        page = await visit.run(f"router.{_noun(kind)}.list", maxpagesize=100)
        found[kind] = [plain(each) for each in page.items]
    return {"policies": found, "kinds": KINDS}


async def policy(visit: Visit) -> dict[str, Any]:
    """Return one policy as its document, to be edited; an empty one if it is not there yet."""
    kind = visit.one("kind") if visit.one("kind") in KINDS else KINDS[0]
    key = visit.one("id").strip()
    if not key:
        raise NotFound("say which policy: ?kind=distribution&id=first")
    document: dict[str, Any] = _FIRST[kind]
    etag = problem = ""
    try:
        found = await visit.run(f"router.{_noun(kind)}.get", id=key)
        document, etag = plain(found.body), found.etag
    except NotFound:
        pass
    except CallerError as error:
        problem = message_of(error)
    return {
        "title": key,
        "kind": kind,
        "id": key,
        "document": {n: v for n, v in document.items() if n not in ("id", "etag")},
        "etag": etag,
        "problem": problem,
        "operation": f"router.{_noun(kind)}.patch",
        "delete": f"router.{_noun(kind)}.delete",
    }


def plain(document: Any) -> dict[str, Any]:
    """Return a document of the wire as plain values."""
    found: dict[str, Any] = msgspec.to_builtins(document)
    return found


def _noun(kind: str) -> str:
    return "queues" if kind == "queue" else f"{kind}_policies"


PAGES: Final = (
    Page(
        name="router", path="/router", load=board, area="router", template="router/board.html",
        operation="router.queues.overview", group="work",
    ),
    Page(
        name="router_policies", path="/router/policies", load=policies, area="router",
        template="router/policies.html", operation="router.queues.list", group="work",
    ),
    Page(
        name="router_policy", path="/router/policy", load=policy, area="router",
        template="router/policy.html", operation="router.queues.get", under="router_policies",
        live=False,
    ),
)  # fmt: skip
_BACK: Final = "/router/policies"
ACTIONS: Final = tuple(
    action
    for kind in KINDS
    for action in (
        Action(operation=f"router.{_noun(kind)}.patch"),
        Action(operation=f"router.{_noun(kind)}.delete", confirm=True, danger=True, then=_BACK),
    )
)
