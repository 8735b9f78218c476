"""Steps of the matcher: each is a call that decides under the locks of its rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from relevo.router.commands import RouterCall
from relevo.router.core import classification, exceptions, jobs, offers, queueing, workers

if TYPE_CHECKING:
    from uuid import UUID

    from relevo.router.core.classification import Classified, Unclassifiable
    from relevo.router.core.world import World
    from relevo.router.matcher.readings import JobReading
    from relevo.router.matching.situation import Decision
    from relevo.router.wire.policies import ClassificationPolicy


def issue(decision: Decision, revision: int) -> RouterCall:
    """Issue an offer, if the decision still holds; True if it did."""

    def decide(world: World) -> bool:
        if not offers.may_issue(world, decision, revision):
            return False
        job, worker = world.jobs[decision.job], world.workers[decision.worker]
        offers.issue(world, job, worker, decision.cost, decision.offer_ttl, decision.score)
        if decision.pointer is not None:
            world.pointers[decision.queue] = decision.pointer
        return True

    return RouterCall(decide, workers=(decision.worker,), jobs=(decision.job,))


def classified(
    job: JobReading, policy: ClassificationPolicy | None, outcome: Classified | Unclassifiable
) -> RouterCall:
    """Write the result of a classification, if the job has not changed since."""

    def decide(world: World) -> bool:
        return classification.classified(world, job.id, job.round, policy, outcome)

    return RouterCall(decide, jobs=(job.id,))


def enter(job_id: str, ahead: int) -> RouterCall:
    """A job has come into a queue with a rule for its length: let that rule look."""
    return RouterCall(lambda world: exceptions.enter(world, job_id, ahead), jobs=(job_id,))


def expire(offer_id: UUID, worker_id: str) -> RouterCall:
    """End an offer whose time is up."""
    return RouterCall(
        lambda world: offers.expire(world, offer_id), offers=(offer_id,), whole=(worker_id,)
    )


def take_for_absent(worker_id: str) -> RouterCall:
    """Deregister a worker that let an offer expire, after all its due offers."""

    def decide(world: World) -> None:
        if world.resources.options.deregister_on_expiry:
            workers.take_for_absent(world, worker_id)

    return RouterCall(decide, whole=(worker_id,))


def look(job_id: str) -> RouterCall:
    """Carry out what is due for a job, and plan the next look."""

    def decide(world: World) -> None:
        jobs.look(world, job_id)
        exceptions.look(world, job_id)
        job = world.jobs.get(job_id)
        if job is not None:
            queueing.plan(world, job)
            world.job_states.add(job_id)

    return RouterCall(decide, jobs=(job_id,))
