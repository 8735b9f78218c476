"""Actions on a worker, and their consequences for its offers. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from relevo.errors import InUse
from relevo.router import events, model
from relevo.router.core import offers
from relevo.router.core.world import WorkerRow
from relevo.router.wire import announcements, documents

if TYPE_CHECKING:
    from collections.abc import Mapping

    from relevo.router.core.offers import Reason
    from relevo.router.core.world import World
    from relevo.router.model import WorkerDocument

_ANNOUNCED: Final = {
    "available_for_offers": "AvailableForOffers",
    "capacity": "TotalCapacity",
    "queues": "QueueAssignments",
    "labels": "Labels",
    "tags": "Tags",
    "channels": "ChannelConfigurations",
    "max_concurrent_offers": "MaxConcurrentOffers",
}


class PatchedWorker(Struct, frozen=True):
    """A worker after a patch."""

    worker: WorkerRow
    created: bool


def patch(world: World, worker_id: str, change: Mapping[str, Any]) -> PatchedWorker:
    """Create a worker, or merge a change into it."""
    worker = world.workers.get(worker_id)
    current = None if worker is None else document(worker)
    wanted: WorkerDocument = model.checked(
        "workers", documents.merged("workers", current, change), now=world.now
    )
    for number, one in enumerate(wanted.channels):
        world.resources.check_channel(one.channel_id, f"/channels/{number}/channelId")
    if worker is None:
        return PatchedWorker(_create(world, worker_id, wanted), True)
    world.see(worker)
    before: WorkerDocument = model.checked("workers", current, now=world.now)
    changed = [
        name for name in wanted.__struct_fields__ if getattr(wanted, name) != getattr(before, name)
    ]
    if changed:
        _edit(world, worker, before, wanted, changed)
    return PatchedWorker(worker, False)


def document(worker: WorkerRow) -> dict[str, Any]:
    """Return the fields of a worker that callers may write, as on the wire."""
    return {
        "availableForOffers": worker.available, "capacity": worker.capacity,
        "maxConcurrentOffers": worker.max_offers, "queues": list(worker.queues),
        "channels": list(worker.channels), "labels": worker.labels, "tags": worker.tags,
    }  # fmt: skip


def _create(world: World, worker_id: str, wanted: WorkerDocument) -> WorkerRow:
    now = world.now
    worker = WorkerRow(
        id=worker_id, version=world.next_arrival(), created_at=now, modified_at=now,
        available=False, registration=world.next_arrival(), registered_at=None, seen_at=now,
        capacity=1, max_offers=None, queues=[], activity=0, events=0,
        used=0, offers=0, holding=0, idle_since=now, acted_at=now,
        channels=(), labels={}, tags={}, by_channel={},
    )  # fmt: skip
    _take_over(worker, wanted)
    world.workers[worker_id] = worker
    world.new_workers.add(worker_id)
    if wanted.available_for_offers:
        register(world, worker)
    else:
        world.touch_worker(worker)
    return worker


def _take_over(worker: WorkerRow, wanted: WorkerDocument) -> None:
    worker.capacity, worker.max_offers = wanted.capacity, wanted.max_concurrent_offers
    worker.queues = list(wanted.queues)
    worker.channels = wanted.channels
    worker.labels, worker.tags = wanted.labels, wanted.tags


def _edit(
    world: World, worker: WorkerRow, before: WorkerDocument, wanted: WorkerDocument,
    changed: list[str],
) -> None:  # fmt: skip
    was, now = before.available_for_offers, wanted.available_for_offers
    _take_over(worker, wanted)
    world.edit_worker(worker)
    if was and not now:
        deregister(world, worker)
        return
    _take_back_unfit(world, worker, everything="labels" in changed)
    if now and not was:
        register(world, worker)
        return
    data = events.WorkerUpdated(
        **announcements.worker(world.resources, worker),
        updated_worker_properties=tuple(_ANNOUNCED[one] for one in changed),
    )
    world.tell_of_worker(worker, "worker.updated", data)


def _take_back_unfit(world: World, worker: WorkerRow, *, everything: bool) -> None:
    """New labels void earlier matches; so does leaving a queue or dropping a channel."""
    for offer in world.open_offers_to(worker):
        fits = offer.queue_id in worker.queues and worker.channel(offer.channel_id) is not None
        if everything or not fits:
            offers.revoke(world, world.jobs[offer.job_id], offer, "workerUpdated")


def register(world: World, worker: WorkerRow) -> None:
    """Make a worker available; jobs that it declined may be offered again."""
    worker.available = True
    worker.registration += 1
    worker.registered_at = worker.idle_since = world.now
    world.worker_documents.add(worker.id)
    world.act_on_worker(worker)
    data = events.WorkerData(**announcements.worker(world.resources, worker))
    world.tell_of_worker(worker, "worker.registered", data)


def deregister(world: World, worker: WorkerRow, *, edited: bool = True) -> None:
    """Make a worker unavailable; its open offers go to others."""
    worker.available = False
    if not edited:
        world.edit_worker(worker)
    world.worker_documents.add(worker.id)
    _take_back(world, worker, "workerDeregistered")
    world.tell_of_worker(worker, "worker.deregistered", events.WorkerNamed(worker_id=worker.id))


def take_for_absent(world: World, worker_id: str) -> None:
    """Deregister a worker that has just let an offer expire."""
    worker = world.workers.get(worker_id)
    if worker is None or not worker.available:
        return
    if any(one.state == "expired" and one.ended_at == world.now for one in world.had(worker)):
        deregister(world, worker, edited=False)


def delete(world: World, worker_id: str) -> None:
    """Forget a worker; one that is not there stays so."""
    worker = world.workers.get(worker_id)
    if worker is None:
        return
    if worker.holding:
        raise InUse(
            f"worker {worker_id!r} has {worker.holding} assignments that are not closed; close or"
            " unassign them first"
        )
    _take_back(world, worker, "workerDeleted")
    data = events.WorkerData(**announcements.worker(world.resources, worker))
    world.tell_of_worker(worker, "worker.deleted", data)
    world.forget_worker(worker)


def _take_back(world: World, worker: WorkerRow, reason: Reason) -> None:
    for offer in world.open_offers_to(worker):
        offers.revoke(world, world.jobs[offer.job_id], offer, reason)
