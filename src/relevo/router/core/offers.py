"""Offers: issue, accept, decline, expire, revoke; and the capacity that they take. Pure."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Literal
from uuid import UUID, uuid4

from msgspec import Struct

from relevo.errors import InvalidState, NotFound, OfferGone
from relevo.router import events
from relevo.router.core.world import OPEN, OfferRow
from relevo.router.wire import announcements

if TYPE_CHECKING:
    from datetime import datetime

    from relevo.router.core.world import JobRow, WorkerRow, World
    from relevo.router.matching.situation import Decision

Reason = Literal[
    "acceptedByOther",
    "jobCancelled",
    "jobMoved",
    "jobSuspended",
    "jobReclassified",
    "selectorsChanged",
    "workerDeregistered",
    "workerDeleted",
    "workerUpdated",
]


class Accepted(Struct, frozen=True, rename="camel"):
    """The assignment that a worker gets for accepting."""

    assignment_id: str
    job_id: str
    worker_id: str


def take(world: World, worker: WorkerRow, offer: OfferRow) -> None:
    """An offer takes its worker's capacity."""
    worker.used += offer.cost
    worker.offers += 1
    worker.by_channel[offer.channel_id] = worker.by_channel.get(offer.channel_id, 0) + 1
    world.act_on_worker(worker)


def give_back(world: World, offer: OfferRow, state: str, *, idle: bool = False) -> WorkerRow | None:
    """An offer or assignment ends and returns its worker's capacity."""
    was_open = offer.state == OPEN
    offer.state, offer.ended_at = state, world.now
    world.changed_offers.add(offer.id)
    worker = world.workers.get(offer.worker_id)
    if worker is None:
        return None
    worker.used -= offer.cost
    if was_open:
        worker.offers -= 1
    else:
        worker.holding -= 1
    left = worker.by_channel.get(offer.channel_id, 0) - 1
    if left > 0:
        worker.by_channel[offer.channel_id] = left
    else:
        worker.by_channel.pop(offer.channel_id, None)
    if idle:
        worker.idle_since = world.now
    world.act_on_worker(worker)
    return worker


def issue(
    world: World, job: JobRow, worker: WorkerRow, cost: int, ttl: float | None,
    score: float | None = None,
) -> OfferRow:  # fmt: skip
    """Offer a job to a worker; whether it may be is `may_issue`'s to say."""
    assert job.queue_id is not None
    offer = OfferRow(
        id=uuid4(), job_id=job.id, worker_id=worker.id, queue_id=job.queue_id,
        channel_id=job.channel_id, cost=cost, state=OPEN, offered_at=world.now,
        expires_at=None if ttl is None else world.now + timedelta(seconds=ttl),
        job_round=job.round, registration=worker.registration, score=score,
    )  # fmt: skip
    world.add_offer(offer)
    world.new_offers.add(offer.id)
    take(world, worker, offer)
    data = events.OfferIssued(
        **announcements.offer(offer, job), **announcements.both(job, worker),
        offered_on=offer.offered_at, expires_on=offer.expires_at,
    )  # fmt: skip
    world.tell_of_worker(worker, "offer.issued", data)
    return offer


def may_issue(world: World, decision: Decision, revision: int) -> bool:
    """Whether a decision still holds: by conditions, not by equality of tags.

    What documents, policies and queues say has not changed since: `revision` is that of the
    policies it was made by. What moves with every offer is looked at.
    """
    job, worker = world.jobs.get(decision.job), world.workers.get(decision.worker)
    if job is None or worker is None or world.resources.revision != revision:
        return False
    if job.status != "queued" or not worker.available:
        return False
    if (job.version, worker.version) != (decision.job_version, decision.worker_version):
        return False
    channel = worker.channel(job.channel_id)
    policy = world.resources.distribution(decision.queue)
    if channel is None or policy is None or job.queue_id != decision.queue:
        return False
    most, opened = channel.max_number_of_jobs, world.open_offers(job)
    return (
        worker.used + decision.cost <= worker.capacity
        and (most is None or worker.by_channel.get(job.channel_id, 0) < most)
        and (worker.max_offers is None or worker.offers < worker.max_offers)
        and len(opened) < policy.mode.offers_max
        and all(one.worker_id != worker.id for one in opened)
    )


def accept(world: World, worker_id: str, offer_id: UUID) -> Accepted:
    """Turn an offer into an assignment; the job's other offers are taken back."""
    offer = _offer(world, worker_id, offer_id)
    if offer.state in ("assigned", "completed", "closed"):
        return Accepted(str(offer.assignment_id), offer.job_id, worker_id)
    job = world.jobs.get(offer.job_id)
    if not _is_open(world, offer) or job is None or job.status != "queued":
        raise _gone(offer)
    worker = world.workers[worker_id]
    for other in world.open_offers(job):
        if other is not offer:
            revoke(world, job, other, "acceptedByOther")
    offer.state, offer.assignment_id, offer.assigned_at = "assigned", uuid4(), world.now
    world.changed_offers.add(offer.id)
    worker.offers -= 1
    worker.holding += 1
    world.act_on_worker(worker)
    world.see(worker)
    job.status, job.due_at = "assigned", None
    world.step(job)
    data = events.OfferAccepted(
        **announcements.offer(offer, job), **announcements.both(job, worker),
        assignment_id=str(offer.assignment_id),
    )  # fmt: skip
    world.tell_of_worker(worker, "offer.accepted", data)
    return Accepted(str(offer.assignment_id), job.id, worker_id)


def decline(world: World, worker_id: str, offer_id: UUID, retry_at: datetime | None) -> None:
    """Give an offer back; the job comes to this worker again at `retry_at`, or not at all."""
    offer = _offer(world, worker_id, offer_id)
    if offer.state == "declined":
        return
    if offer.assignment_id is not None:
        raise InvalidState(
            f"offer {offer_id} was accepted; complete or unassign its assignment"
            f" {offer.assignment_id} instead"
        )
    if not _is_open(world, offer):
        raise _gone(offer)
    offer.retry_at = None if retry_at is None else max(retry_at, world.now)
    worker = give_back(world, offer, "declined")
    assert worker is not None
    world.see(worker)
    job = world.jobs[offer.job_id]
    world.tell_of_worker(
        worker, "offer.declined", events.OfferData(**announcements.offer(offer, job))
    )


def expire(world: World, offer_id: UUID) -> WorkerRow | None:
    """End an offer whose time is up; return its worker, or None if there was nothing to end."""
    offer = world.offers.get(offer_id)
    if offer is None or offer.state != OPEN or offer.expires_at is None:
        return None
    if offer.expires_at > world.now:
        return None
    worker = give_back(world, offer, "expired")
    job = world.jobs[offer.job_id]
    if worker is not None:
        world.tell_of_worker(
            worker, "offer.expired", events.OfferData(**announcements.offer(offer, job))
        )
    return worker


def revoke(world: World, job: JobRow, offer: OfferRow, reason: Reason) -> None:
    """Take an open offer back."""
    offer.reason = reason
    worker = give_back(world, offer, "revoked")
    if worker is not None:
        data = events.OfferRevoked(**announcements.offer(offer, job), reason=reason)
        world.tell_of_worker(worker, "offer.revoked", data)


def revoke_all(world: World, job: JobRow, reason: Reason) -> None:
    """Take back every open offer of a job."""
    for offer in world.open_offers(job):
        revoke(world, job, offer, reason)


def _offer(world: World, worker_id: str, offer_id: UUID) -> OfferRow:
    offer = world.offers.get(offer_id)
    if offer is None or offer.worker_id != worker_id:
        raise NotFound(f"worker {worker_id!r} has never had an offer {offer_id}")
    return offer


def _is_open(world: World, offer: OfferRow) -> bool:
    """Whether an offer can still be answered: one whose time is up cannot, timer or no timer."""
    return offer.state == OPEN and (offer.expires_at is None or offer.expires_at > world.now)


def _gone(offer: OfferRow) -> OfferGone:
    what = "expired" if offer.state == OPEN else offer.state
    why = f" ({offer.reason})" if offer.reason else ""
    return OfferGone(f"offer {offer.id} is {what}{why}; wait for the next one")
