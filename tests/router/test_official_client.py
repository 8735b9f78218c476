"""The official client of jobs, workers and offers, both flavours of it, against a running host."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from azure.communication.jobrouter import models as m
from azure.core import MatchConditions
from azure.core.exceptions import (
    HttpResponseError,
    ResourceExistsError,
    ResourceModifiedError,
    ResourceNotFoundError,
)

from tests.router.official import FLAVOURS, Scene, scene

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.anyio

ANA = "8:acs:a1b2_c3d4"
LABELS = {"key1": "QueueKey", "key2": 10, "key3": True, "key4": False, "key5": 10.1}
VOICE = m.RouterChannel(channel_id="voice", capacity_cost_per_job=1)
YEAR_1 = datetime(1, 1, 1, tzinfo=UTC)
NOBODY = "00000000-0000-4000-8000-000000000000"


@pytest.fixture(params=list(FLAVOURS))
async def stage(
    request: pytest.FixtureRequest, relevo_url: str, tmp_path: Path
) -> AsyncIterator[Scene]:
    """A host with a queue whose offers do not expire."""
    async with scene(request.param, relevo_url, tmp_path) as found:
        await found.admin.upsert_distribution_policy("d", m.DistributionPolicy())
        await found.admin.upsert_queue("q", m.RouterQueue(distribution_policy_id="d"))
        yield found


async def register(stage: Scene, worker_id: str = ANA, **options: Any) -> Any:
    told: dict[str, Any] = {"queues": ["q"], "channels": [VOICE], "capacity": 1} | options
    return await stage.router.upsert_worker(worker_id, available_for_offers=True, **told)


async def submit(stage: Scene, job_id: str = "j", **options: Any) -> Any:
    told: dict[str, Any] = {"channel_id": "voice", "queue_id": "q"} | options
    return await stage.router.upsert_job(job_id, m.RouterJob(**told))


async def test_a_worker_is_made_changed_listed_and_deleted(stage: Scene) -> None:
    router = stage.router
    wanted = m.RouterWorker(
        capacity=100,
        queues=["q", "q", "unknown"],
        labels=LABELS,
        tags={"Name": "Ana"},
        channels=[
            m.RouterChannel(channel_id="chat", capacity_cost_per_job=33, max_number_of_jobs=2)
        ],
        available_for_offers=False,
    )
    made = await router.upsert_worker(ANA, wanted)
    assert (made.id, made.state, made.capacity, made.load_ratio) == (ANA, "inactive", 100, 0)
    assert made.labels == {**LABELS, "Id": ANA}
    assert (made.queues, made.tags) == (["q", "unknown"], {"Name": "Ana"})
    assert (made.offers, made.assigned_jobs, made.available_for_offers) == ([], [], False)
    assert made.channels[0].max_number_of_jobs == 2
    assert made.etag == (await router.get_worker(ANA)).etag
    active = await router.upsert_worker(ANA, available_for_offers=True)
    assert (active.state, active.capacity) == ("active", 100)
    cleared = await router.upsert_worker(ANA, {"tags": None, "labels": {"key1": None}})
    assert cleared.tags == {}
    assert "key1" not in cleared.labels
    assert await router.ids("list_workers") == [ANA]
    assert await router.delete_worker(ANA) is None
    assert await router.delete_worker(ANA) is None
    error = await router.refused("get_worker", ANA)
    assert (error.reason, error.error.code) == ("Not Found", "NotFound")
    assert isinstance(error, ResourceNotFoundError)


async def test_a_job_from_creation_to_deletion(stage: Scene) -> None:
    router = stage.router
    made = await submit(stage, labels=LABELS, tags={"t": 1}, channel_reference="ref", priority=7)
    assert (made.id, made.status, made.priority, made.labels) == ("j", "created", 7, LABELS)
    assert (made.notes, made.assignments, made.requested_worker_selectors) == ([], {}, [])
    assert made.matching_mode.kind == "queueAndMatch"
    waiting = await router.get_job("j")
    assert (waiting.status, waiting.channel_reference) == ("queued", "ref")
    assert waiting.enqueued_at is not None
    await register(stage)
    offer = await stage.offer(ANA)
    shown = await router.get_worker(ANA)
    assert [one.offer_id for one in shown.offers] == [str(offer.offer_id)]
    assert (shown.offers[0].job_id, shown.offers[0].capacity_cost, shown.load_ratio) == ("j", 1, 1)
    taken = await router.accept_job_offer(ANA, str(offer.offer_id))
    assert (taken.job_id, taken.worker_id) == ("j", ANA)
    again = await router.accept_job_offer(ANA, str(offer.offer_id))  # J13
    assert again.assignment_id == taken.assignment_id
    held = await router.get_worker(ANA)
    assert [one.assignment_id for one in held.assigned_jobs] == [taken.assignment_id]
    assert held.offers == []
    assert (await router.get_job("j")).status == "assigned"
    for _ in range(2):
        told = {"note": "well done"}
        assert await router.complete_job("j", taken.assignment_id, told) is None
    assert (await router.get_job("j")).status == "completed"
    for _ in range(2):
        assert await router.close_job("j", taken.assignment_id, {"dispositionCode": "Sold"}) is None
    closed = await router.get_job("j")
    assert (closed.status, closed.disposition_code) == ("closed", "Sold")
    assert [one.message for one in closed.notes] == ["well done"]  # J13
    entry = closed.assignments[taken.assignment_id]
    assert entry.worker_id == ANA
    assert entry.assigned_at <= entry.completed_at <= entry.closed_at
    assert (await router.get_worker(ANA)).load_ratio == 0
    assert await router.delete_job("j") is None
    assert isinstance(await router.refused("get_job", "j"), ResourceNotFoundError)
    assert await router.delete_job("j") is None


async def test_actions_without_options(stage: Scene) -> None:
    await register(stage, capacity=2)
    await submit(stage)
    job, assignment = await stage.assignment(ANA)
    await stage.router.complete_job(job, assignment)
    await stage.router.close_job(job, assignment)
    assert (await stage.router.get_job("j")).disposition_code == "Closed"
    await submit(stage, "k")
    offer = await stage.offer(ANA)
    await stage.router.decline_job_offer(ANA, str(offer.offer_id))
    await stage.router.decline_job_offer(ANA, str(offer.offer_id))  # J13
    await stage.router.cancel_job("k")
    await stage.router.cancel_job("k")  # J13
    assert (await stage.router.get_job("k")).disposition_code == "Cancelled"


async def test_cancelling_right_after_creation(stage: Scene) -> None:
    await submit(stage)
    told = {"note": "wrong number", "dispositionCode": "Mistake"}
    await stage.router.cancel_job("j", told)
    await stage.router.cancel_job("j", told)
    job = await stage.router.get_job("j")
    assert (job.status, job.disposition_code) == ("cancelled", "Mistake")
    assert [one.message for one in job.notes] == ["wrong number"]


async def test_unassigning_three_times_and_no_more(stage: Scene) -> None:
    await register(stage)
    await submit(stage)
    for count in (1, 2, 3):
        job, assignment = await stage.assignment(ANA)
        told = await stage.router.unassign_job(job, assignment)
        assert (told.job_id, told.unassignment_count) == ("j", count)
    job, assignment = await stage.assignment(ANA)
    error = await stage.router.refused("unassign_job", job, assignment)
    assert error.error.code == "UnassignLimitReached"
    assert isinstance(error, ResourceExistsError)
    assert len((await stage.router.get_job("j")).assignments) == 4


async def test_unassigning_into_suspension_and_back(stage: Scene) -> None:
    await register(stage)
    await submit(stage)
    job, assignment = await stage.assignment(ANA)
    await stage.router.unassign_job(job, assignment, m.UnassignJobOptions(suspend_matching=True))
    resting = await stage.router.get_job("j")
    assert (resting.status, resting.matching_mode.kind) == ("waitingForActivation", "suspend")
    active = await stage.router.upsert_job("j", matching_mode=m.QueueAndMatchMode())
    assert active.status == "queued"
    assert (await stage.offer(ANA)).job_id == "j"


async def test_scheduling_and_activation(stage: Scene) -> None:
    at = datetime(2100, 1, 1, tzinfo=UTC)
    mode = m.ScheduleAndSuspendMode(schedule_at=at)
    made = await submit(stage, matching_mode=mode)
    assert made.status == "pendingSchedule"
    shown = await stage.router.get_job("j")
    assert (shown.status, shown.scheduled_at, shown.matching_mode) == ("scheduled", at, mode)
    active = await stage.router.upsert_job("j", {"matchingMode": {"kind": "queueAndMatch"}})
    assert (active.status, active.scheduled_at) == ("queued", at)


async def test_year_1_is_a_date(stage: Scene) -> None:
    mode = m.ScheduleAndSuspendMode(schedule_at=YEAR_1)
    notes = [m.RouterJobNote(message="before all", added_at=YEAR_1)]
    await submit(stage, matching_mode=mode, notes=notes)
    await stage.happens("job.waiting_for_activation", jobId="j")
    job = await stage.router.get_job("j")
    assert (job.status, job.scheduled_at.year) == ("waitingForActivation", 1)
    assert job.notes[0].added_at == YEAR_1
    await register(stage)
    await stage.router.upsert_job("j", matching_mode=m.QueueAndMatchMode())
    offer = await stage.offer(ANA)
    told = m.DeclineJobOfferOptions(retry_offer_at=YEAR_1)
    await stage.router.decline_job_offer(ANA, str(offer.offer_id), told)
    job_id, assignment = await stage.assignment(ANA)
    await stage.router.complete_job(job_id, assignment)
    await stage.router.close_job(job_id, assignment, m.CloseJobOptions(close_at=YEAR_1))
    assert (await stage.router.get_job("j")).status == "closed"


async def test_closing_later(stage: Scene) -> None:
    await register(stage)
    await submit(stage)
    job, assignment = await stage.assignment(ANA)
    await stage.router.complete_job(job, assignment, m.CompleteJobOptions(note="done"))
    later = datetime.now(UTC) + timedelta(hours=1)
    told = m.CloseJobOptions(close_at=later, disposition_code="Later")
    await stage.router.close_job(job, assignment, told)
    assert (await stage.router.get_job("j")).status == "completed"
    await stage.router.close_job(job, assignment)
    assert (await stage.router.get_job("j")).status == "closed"


async def test_classification(stage: Scene) -> None:
    policy = m.ClassificationPolicy(
        fallback_queue_id="q",
        prioritization_rule=m.StaticRouterRule(value=9),
        worker_selector_attachments=[
            m.StaticWorkerSelectorAttachment(
                worker_selector=m.RouterWorkerSelector(key="a", label_operator="equal", value=1)
            )
        ],
    )
    await stage.admin.upsert_classification_policy("c", policy)
    made = await submit(stage, queue_id=None, classification_policy_id="c")
    assert made.status == "pendingClassification"
    await stage.happens("job.queued", jobId="j")
    job = await stage.router.get_job("j")
    assert (job.status, job.queue_id, job.priority) == ("queued", "q", 9)
    assert job.attached_worker_selectors[0].key == "a"
    assert job.attached_worker_selectors[0].status == "active"
    changed = await stage.router.upsert_job("j", labels={"x": 1})
    assert changed.status == "pendingClassification"
    await stage.router.reclassify_job("j")
    await submit(stage, "direct")
    wrong = await stage.router.refused("reclassify_job", "direct")
    assert wrong.status_code == 400
    same = await stage.router.upsert_job("direct", labels={"x": 1})
    assert same.status == "queued"


async def test_where_a_job_stands(stage: Scene) -> None:
    await submit(stage, "a")
    await submit(stage, "b", priority=5)
    place = await stage.router.get_queue_position("a")
    assert (place.job_id, place.position, place.queue_id, place.queue_length) == ("a", 2, "q", 2)
    assert place.estimated_wait_time_minutes >= 1
    told = await stage.router.get_queue_statistics("q")
    assert (told.queue_id, told.length) == ("q", 2)
    assert told.estimated_wait_time_minutes.keys() == {"1", "5"}
    assert told.longest_job_wait_time_minutes >= 0
    await stage.router.cancel_job("a")
    await stage.router.cancel_job("b")
    empty = await stage.router.get_queue_statistics("q")
    assert (empty.length, empty.estimated_wait_time_minutes) == (0, None)
    assert (await stage.router.refused("get_queue_position", "a")).status_code == 409
    assert isinstance(
        await stage.router.refused("get_queue_statistics", "no"), ResourceNotFoundError
    )


async def test_conditions_end_in_the_exceptions_of_the_client(stage: Scene) -> None:
    # J15
    router = stage.router
    for name, change in (
        ("upsert_job", {"channelId": "voice", "queueId": "q"}),
        ("upsert_worker", {"capacity": 5}),
    ):
        missing = await router.refused(name, "x", change, match_condition=MatchConditions.IfPresent)
        assert isinstance(missing, ResourceNotFoundError)
        made = await getattr(router, name)(
            "x", change, match_condition=MatchConditions.IfMissing
        )  # fmt: skip
        there = await router.refused(name, "x", change, match_condition=MatchConditions.IfMissing)
        assert isinstance(there, ResourceExistsError)
        unchanged = MatchConditions.IfNotModified
        read = await getattr(router, name.replace("upsert", "get"))("x")
        changed = await getattr(router, name)(
            "x", {"tags": {"a": 1}}, etag=read.etag, match_condition=unchanged
        )
        assert changed.etag not in (made.etag, read.etag)
        stale = await router.refused(name, "x", change, etag=read.etag, match_condition=unchanged)
        assert isinstance(stale, ResourceModifiedError)
        hour = timedelta(hours=1)
        old = await router.refused(name, "x", change, if_unmodified_since=datetime.now(UTC) - hour)
        assert old.status_code == 412
        again = await getattr(router, name)(
            "x", {"tags": {"a": 1}}, if_unmodified_since=datetime.now(UTC) + hour
        )
        assert again.etag == changed.etag


async def test_a_job_sent_back_whole_stays_as_it_is(stage: Scene) -> None:
    # J15
    selectors = [
        m.RouterWorkerSelector(
            key="a", label_operator="greaterThan", value=1, expires_after_seconds=600, expedite=True
        )
    ]
    notes = [m.RouterJobNote(message="hello")]
    await submit(stage, labels=LABELS, requested_worker_selectors=selectors, notes=notes)
    read = await stage.router.get_job("j")
    assert read.requested_worker_selectors[0].expires_at is not None
    back = await stage.router.upsert_job("j", read)
    assert back.etag == read.etag
    assert len(back.notes) == 1


async def test_ids_are_whatever_the_caller_likes(stage: Scene) -> None:
    for name in ("8:acs:a_b", "x:cancel", "a/b", "ä ö?#%", "..x"):
        await submit(stage, name)
        assert (await stage.router.get_job(name)).id == name
        await stage.router.cancel_job(name)
        assert (await stage.router.get_job(name)).status == "cancelled"
        await stage.router.delete_job(name)
        await stage.router.upsert_worker(name, capacity=2)
        assert (await stage.router.get_worker(name)).labels["Id"] == name
        await stage.router.delete_worker(name)


async def test_jobs_in_pages_and_by_filter(stage: Scene) -> None:
    # J16
    await stage.admin.upsert_queue("other", m.RouterQueue(distribution_policy_id="d"))
    await stage.admin.upsert_classification_policy(
        "c", m.ClassificationPolicy(fallback_queue_id="q")
    )
    at = datetime(2099, 6, 1, 12, 0, 0, 500000, tzinfo=UTC)
    for number in range(4):
        await submit(stage, f"j{number}")
    await submit(stage, "moved", queue_id="other", channel_id="chat")
    await submit(stage, "later", matching_mode=m.ScheduleAndSuspendMode(schedule_at=at))
    await submit(stage, "classified", classification_policy_id="c", matching_mode=m.SuspendMode())
    await stage.router.cancel_job("j0")
    listed = await stage.router.pages("list_jobs", results_per_page=3)
    assert [len(page) for page in listed] == [3, 3, 1]
    assert all(one.etag for page in listed for one in page)
    everyone = ["j0", "j1", "j2", "j3", "moved", "later", "classified"]
    for told, expected in (
        ({}, everyone),
        ({"status": "all"}, everyone),
        ({"status": m.RouterJobStatusSelector.ACTIVE}, everyone[1:]),
        ({"status": m.RouterJobStatusSelector.CANCELLED}, ["j0"]),
        ({"status": "queued", "queue_id": "q"}, ["j1", "j2", "j3"]),
        ({"queue_id": "other"}, ["moved"]),
        ({"queue_id": "nowhere"}, []),
        ({"channel_id": "chat"}, ["moved"]),
        ({"classification_policy_id": "c"}, ["classified"]),
        ({"scheduled_before": at}, ["later"]),
        ({"scheduled_after": at}, ["later"]),
        ({"scheduled_before": at - timedelta(seconds=1)}, []),
        ({"scheduled_before": YEAR_1}, []),
        ({"scheduled_after": YEAR_1}, ["later"]),
    ):
        assert await stage.router.ids("list_jobs", results_per_page=2, **told) == expected, told


async def test_workers_in_pages_and_by_filter(stage: Scene) -> None:
    # J16
    chat = m.RouterChannel(channel_id="chat", capacity_cost_per_job=10)
    await register(stage, "w0")
    await register(stage, "w1", channels=[VOICE, chat], capacity=5)
    await register(stage, "w2", queues=["other"], channels=[chat], capacity=5)
    await stage.router.upsert_worker("w3", queues=["q"])
    for told, expected in (
        ({}, ["w0", "w1", "w2", "w3"]),
        ({"state": m.RouterWorkerStateSelector.ACTIVE}, ["w0", "w1", "w2"]),
        ({"state": "inactive"}, ["w3"]),
        ({"state": "draining"}, []),
        ({"queue_id": "q"}, ["w0", "w1", "w3"]),
        ({"channel_id": "chat"}, ["w1", "w2"]),
        ({"has_capacity": True}, ["w0", "w1"]),
        ({"has_capacity": True, "channel_id": "chat"}, []),
        ({"has_capacity": False}, ["w0", "w1", "w2", "w3"]),
    ):
        assert await stage.router.ids("list_workers", results_per_page=2, **told) == expected, told


async def test_one_of_two_workers_wins(stage: Scene) -> None:
    # J3
    mode = m.RoundRobinMode(min_concurrent_offers=1, max_concurrent_offers=2)
    await stage.admin.upsert_distribution_policy("d", m.DistributionPolicy(mode=mode))
    await register(stage, "w0")
    await register(stage, "w1")
    await submit(stage)
    offers = [(one, str((await stage.offer(one)).offer_id)) for one in ("w0", "w1")]

    async def accept(worker_id: str, offer_id: str) -> Any:
        try:
            return await stage.router.accept_job_offer(worker_id, offer_id)
        except HttpResponseError as error:
            return error

    results = await asyncio.gather(*(accept(*one) for one in offers))
    lost = [one for one in results if isinstance(one, HttpResponseError)]
    assert len(lost) == 1
    assert isinstance(lost[0], ResourceExistsError)
    assert lost[0].error is not None
    assert lost[0].error.code == "OfferGone"


async def test_wrong_states_are_conflicts(stage: Scene) -> None:
    router = stage.router
    await register(stage)
    await submit(stage)
    offer = await stage.offer(ANA)
    unknown = await router.refused("accept_job_offer", ANA, NOBODY)
    assert isinstance(unknown, ResourceNotFoundError)
    elsewhere = await router.refused("decline_job_offer", "nobody", str(offer.offer_id))
    assert isinstance(elsewhere, ResourceNotFoundError)
    job, assignment = await stage.assignment(ANA)
    for name, arguments in (
        ("decline_job_offer", (ANA, str(offer.offer_id))),
        ("close_job", (job, assignment)),
        ("get_queue_position", (job,)),
        ("delete_job", (job,)),
        ("delete_worker", (ANA,)),
        ("upsert_job", (job, {"queueId": None, "classificationPolicyId": "c"})),
    ):
        error = await router.refused(name, *arguments)
        assert error.status_code in (400, 409), name
        if name != "upsert_job":
            assert isinstance(error, ResourceExistsError), name
    for name in ("complete_job", "close_job", "unassign_job"):
        assert isinstance(await router.refused(name, job, NOBODY), ResourceNotFoundError)
        assert isinstance(await router.refused(name, "no", assignment), ResourceNotFoundError)
        assert isinstance(await router.refused(name, job, "no-uuid"), ResourceNotFoundError)
    await router.complete_job(job, assignment)
    for name in ("unassign_job", "cancel_job"):
        arguments = (job, assignment) if name == "unassign_job" else (job,)
        assert isinstance(await router.refused(name, *arguments), ResourceExistsError), name
    drained = await router.upsert_worker(ANA, available_for_offers=False)
    assert drained.state == "draining"


async def test_what_is_wrong_whatever_the_state(stage: Scene) -> None:
    # J14
    for change, code in (
        ({"channelId": "voice", "queueId": "no"}, "ReferenceNotFound"),
        ({"channelId": "voice"}, "MissingField"),
        ({"queueId": "q"}, "MissingField"),
        ({"channelId": "voice", "queueId": "q", "priority": 101}, "InvalidValue"),
        ({"channelId": "voice", "queueId": "q", "labels": {"a": []}}, "InvalidValue"),
        ({"channelId": "voice", "queueId": "q", "matchingMode": {"kind": "x"}}, "InvalidValue"),
    ):
        error = await stage.router.refused("upsert_job", "j", change)
        assert (error.status_code, error.error.code) == (400, code), change
    assert isinstance(await stage.router.refused("get_job", "j"), ResourceNotFoundError)
    error = await stage.router.refused("upsert_worker", "w", {"capacity": 0})
    assert (error.status_code, error.error.target) == (400, "/capacity")
