"""Whatever is done to a router in whatever order, what must hold holds after every step."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from relevo.errors import Conflict, InvalidValue, NotFound
from relevo.kernel.machine import END
from relevo.router.core import classification, exceptions, job_patches, jobs, offers, workers
from relevo.router.core.classification import Classified, Unclassifiable
from relevo.router.core.states import JOB
from relevo.router.events import ErrorData
from relevo.router.matching.situation import Decision
from relevo.router.model import CloseJobOptions
from tests.conftest import examples
from tests.router import scenes
from tests.router.scenes import CHANNELS, Scene, check_loads, check_numbers

EDGES = {(one.from_, one.to) for one in JOB.transitions} | {
    # Not yet assigned, so "everything" may be edited (12.3), the matching mode too.
    (status, to)
    for status in ("pendingClassification", "classificationFailed")
    for to in ("queued", "waitingForActivation", "pendingSchedule")
}
JOBS, WORKERS = ["j1", "j2", "j3"], ["w1", "w2"]
SELECTORS = [[], [{"key": "skill", "labelOperator": "equal", "value": 1,
                   "expiresAfterSeconds": 40, "expedite": True}]]  # fmt: skip
RULES = [
    scenes.rule("long", {"kind": "manualReclassify", "priority": 9}, length=1),
    scenes.rule("late", {"kind": "manualReclassify", "queueId": "other"}, waits=50),
    scenes.rule("later", {"kind": "reclassify", "classificationPolicyId": "c"}, waits=30),
    scenes.rule("latest", {"kind": "cancel"}, waits=90),
]
a_job, a_worker = st.sampled_from(JOBS), st.sampled_from(WORKERS)
a_queue = st.sampled_from(["q", "other"])


class Router(RuleBasedStateMachine):
    """A world under random commands; a fake matcher offers wherever `may_issue` lets it."""

    @initialize(most=st.integers(1, 2))
    def begin(self, most: int) -> None:
        self.scene = Scene(scenes.resources(rules=RULES, most=most))
        self.world, self.most = self.scene.world, most
        self.accepted: dict[UUID, str] = {}
        self.declined: list[tuple[str, str, int, int, Any]] = []
        self.fired: set[tuple[str, str, str]] = set()
        self.statuses: dict[str, str] = {}
        self.capacities: dict[str, int] = {}

    def attempt(self, call: Any) -> Any:
        """Do something that may be refused; a refusal changes nothing (J14)."""
        before = self.scene.frozen()
        try:
            return call()
        except (Conflict, InvalidValue, NotFound):
            refused = True
        assert refused
        assert self.scene.frozen() == before
        return None

    @rule(
        job=a_job, queue=a_queue, channel=st.sampled_from(["chat", "voice"]),
        mode=st.sampled_from(["queueAndMatch", "suspend", "scheduleAndSuspend"]),
        policy=st.sampled_from([None, "c"]), selectors=st.sampled_from(SELECTORS),
        part=st.sets(st.sampled_from(
            ["queueId", "channelId", "matchingMode", "classificationPolicyId", "priority",
             "labels", "requestedWorkerSelectors", "tags"])),
        number=st.integers(0, 2),
    )  # fmt: skip
    def patch_job(
        self, job: str, queue: str, channel: str, mode: str, policy: str | None, selectors: Any,
        part: set[str], number: int,
    ) -> None:  # fmt: skip
        at = self.world.now + timedelta(seconds=20 * number)
        change = {
            "queueId": queue, "channelId": channel, "priority": number, "labels": {"n": number},
            "matchingMode": {"kind": mode, "scheduleAt": at.isoformat()},
            "classificationPolicyId": policy, "requestedWorkerSelectors": selectors,
            "tags": {"n": number},
        }  # fmt: skip
        if job in self.world.jobs:
            change = {name: value for name, value in change.items() if name in part}
        self.attempt(lambda: job_patches.patch(self.world, job, change))

    @rule(
        worker=a_worker, available=st.booleans(), skill=st.integers(0, 1),
        capacity=st.sampled_from([40, 100]), queues=st.sampled_from([["q"], ["q", "other"]]),
        part=st.sets(st.sampled_from(
            ["availableForOffers", "labels", "capacity", "queues", "channels"])),
    )  # fmt: skip
    def patch_worker(
        self, worker: str, available: bool, skill: int, capacity: int, queues: Any, part: set[str]
    ) -> None:
        change = {
            "availableForOffers": available, "labels": {"skill": skill}, "capacity": capacity,
            "queues": queues, "channels": CHANNELS[: 1 + skill], "maxConcurrentOffers": 2,
        }  # fmt: skip
        if worker in self.world.workers:
            change = {name: value for name, value in change.items() if name in part}
        self.attempt(lambda: workers.patch(self.world, worker, change))

    @rule(worker=a_worker)
    def delete_worker(self, worker: str) -> None:
        self.attempt(lambda: workers.delete(self.world, worker))

    @rule(job=a_job, worker=a_worker, ttl=st.sampled_from([None, 15.0]))
    def offer(self, job: str, worker: str, ttl: float | None) -> None:
        found, who = self.world.jobs.get(job), self.world.workers.get(worker)
        channel = who.channel(found.channel_id) if found and who else None
        if found is None or who is None or channel is None or found.queue_id not in who.queues:
            return
        # What a matcher knows from its reading; the conditions under locks are `may_issue`'s.
        if any(self._bars(one, found, who) for one in self.declined):
            return
        decision = Decision(
            job=job, worker=worker, queue=found.queue_id or "", channel=found.channel_id,
            cost=channel.capacity_cost_per_job, job_version=found.version,
            worker_version=who.version,
        )  # fmt: skip
        if offers.may_issue(self.world, decision, 1):
            offers.issue(self.world, found, who, decision.cost, ttl)
            assert who.used <= who.capacity  # J1
            assert who.by_channel.get("chat", 0) <= 3

    def _bars(self, one: Any, job: Any, worker: Any) -> bool:
        who, what, job_round, registration, retry_at = one
        return (
            (who, what) == (worker.id, job.id)
            and (job_round, registration) == (job.round, worker.registration)
            and (retry_at is None or retry_at > self.world.now)
        )

    @rule(data=st.data(), retry=st.sampled_from([None, -5, 25]), accept=st.booleans())
    def answer(self, data: st.DataObject, retry: int | None, accept: bool) -> None:
        if not self.world.offers:
            return
        ids = sorted(self.world.offers, key=lambda one: str(self.world.offers[one].offered_at))
        offer = self.world.offers[data.draw(st.sampled_from(ids))]
        if accept:
            told = len(self.world.events)
            done = self.attempt(lambda: offers.accept(self.world, offer.worker_id, offer.id))
            if done and offer.id in self.accepted:
                assert self.accepted[offer.id] == done.assignment_id  # J3
                assert len(self.world.events) == told  # J13
            elif done:
                self.accepted[offer.id] = done.assignment_id
            return
        at = None if retry is None else self.world.now + timedelta(seconds=retry)
        was_open = offer.state == "open"
        self.attempt(lambda: offers.decline(self.world, offer.worker_id, offer.id, at))
        if was_open and offer.state == "declined":
            self.declined.append(
                (offer.worker_id, offer.job_id, offer.job_round, offer.registration, offer.retry_at)
            )

    @rule(job=a_job, act=st.sampled_from(["complete", "close", "close later", "unassign", "rest"]))
    def act(self, job: str, act: str) -> None:
        found = self.world.jobs.get(job)
        held = self.world.assignments(found) if found else []
        which = held[-1].assignment_id if held else UUID(int=0)
        assert which is not None
        later = CloseJobOptions(close_at=self.world.now + timedelta(seconds=30))
        calls: dict[str, Any] = {
            "complete": lambda: jobs.complete(self.world, job, which, "n"),
            "close": lambda: jobs.close(self.world, job, which, CloseJobOptions()),
            "close later": lambda: jobs.close(self.world, job, which, later),
            "unassign": lambda: jobs.unassign(self.world, job, which, suspend=False),
            "rest": lambda: jobs.unassign(self.world, job, which, suspend=True),
        }
        self.attempt(calls[act])

    @rule(job=a_job, act=st.sampled_from(["cancel", "reclassify", "delete"]))
    def end(self, job: str, act: str) -> None:
        calls: dict[str, Any] = {
            "cancel": lambda: jobs.cancel(self.world, job, "n", None),
            "reclassify": lambda: jobs.reclassify(self.world, job),
            "delete": lambda: jobs.delete(self.world, job),
        }
        self.attempt(calls[act])

    @precondition(lambda self: any(x.status == "pendingClassification" for x in self.pending()))
    @rule(well=st.booleans(), queue=st.sampled_from(["q", "other"]), old=st.booleans())
    def classify(self, well: bool, queue: str, old: bool) -> None:
        for job in self.pending():
            if job.status != "pendingClassification":
                continue
            version, policy = job.version - old, self.world.resources.classification_policies["c"]
            outcome: Any = Unclassifiable(
                job_version=version, policy_version=1, trail=(),
                errors=(ErrorData(code="x", message="y"),),
            )  # fmt: skip
            if well:
                outcome = Classified(
                    job_version=version, policy_version=1, queue_id=queue, queue_by="fallback",
                    attached=(), priority=1, trail=(),
                )  # fmt: skip
            done = classification.classified(self.world, job.id, job.round, policy, outcome)
            assert done is not old  # J17

    def pending(self) -> list[Any]:
        return list(getattr(self, "world", Scene().world).jobs.values())

    @rule(seconds=st.sampled_from([1, 10, 20, 60]))
    def later(self, seconds: int) -> None:
        self.scene.later(seconds)
        for offer in list(self.world.offers.values()):
            offers.expire(self.world, offer.id)
        for worker in WORKERS:
            workers.take_for_absent(self.world, worker)
        for job in list(self.world.jobs.values()):
            if job.due_at is not None and job.due_at <= self.world.now:
                self.scene.look(job.id)
        left = [job.due_at for job in self.world.jobs.values() if job.due_at is not None]
        assert all(at > self.world.now for at in left)  # J11: each fires once

    @rule(ahead=st.integers(0, 2))
    def enter(self, ahead: int) -> None:
        for job in list(self.world.jobs.values()):
            exceptions.enter(self.world, job.id, ahead)

    @invariant()
    def holds(self) -> None:
        if not hasattr(self, "world"):
            return
        check_loads(self.world)
        check_numbers(self.world)  # J12
        for job in self.world.jobs.values():
            opened = self.world.open_offers(job)
            assert not opened or job.status == "queued"  # J4
            assert len(opened) <= self.most
            held = [one for one in self.world.assignments(job) if one.ended_at is None]
            assert len(held) == (job.status in ("assigned", "completed"))  # J3
            assert len(job.fired) == len(set(job.fired))
            assert (job.ended_at is not None) == (job.status in ("closed", "cancelled"))
        self._check_edges()
        self._check_firings()
        for worker in self.world.workers.values():
            opened = self.world.open_offers_to(worker)
            assert worker.available or not opened
            assert all(one.queue_id in worker.queues for one in opened)

    def _check_edges(self) -> None:
        now = {job.id: job.status for job in self.world.jobs.values()}
        for job_id, before in self.statuses.items():
            after = now.get(job_id, END)
            assert before == after or _reaches(before, after), (before, after)  # J5
        self.statuses = now

    def _check_firings(self) -> None:
        lives: dict[str, int] = {}
        fired: set[tuple[str, int, str, str]] = set()
        for event in self.world.events:
            data: Any = event.data
            if event.type.endswith("job.received"):
                lives[data.job_id] = lives.get(data.job_id, 0) + 1
            if event.type.endswith("job.exception_triggered"):
                once = (data.job_id, lives[data.job_id], data.queue_id, data.rule_key)
                assert once not in fired  # J18
                fired.add(once)


def _reaches(before: str, after: str, steps: int = 2) -> bool:
    """Whether some changes that one step makes at once are edges each."""
    if (before, after) in EDGES:
        return True
    return steps > 1 and any(
        _reaches(to, after, steps - 1) for from_, to in EDGES if from_ == before
    )


def test_whatever_is_done_what_must_hold_holds() -> None:  # J1, J3, J4, J5, J10, J12, J13, J18
    run_state_machine_as_test(
        Router, settings=settings(max_examples=examples(200), stateful_step_count=40)
    )
