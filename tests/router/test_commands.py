"""What calls do by themselves, on a real database, with nobody matching and with several hosts."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from relevo import App, settings
from relevo.errors import ConditionNotMet, Conflict, InUse, NotFound, OfferGone
from relevo.router.commands import Conditions
from relevo.router.listing import JobFilter, WorkerFilter

if TYPE_CHECKING:
    from tests.router.floor import Floor

pytestmark = pytest.mark.anyio


async def test_every_later_read_on_every_host_shows_what_was_answered(
    desk: Floor, relevo_url: str
) -> None:  # J6
    await desk.open()
    told = settings.load({"database_url": relevo_url}, environ={})
    async with App(settings=told) as other:
        for n in range(10):
            await desk.job(f"j{n}", labels={"n": n})
            assert (await other.router.get_job(f"j{n}")).labels == {"n": n}
            await other.router.cancel_job(f"j{n}", note="no")
            assert await desk.status(f"j{n}") == "cancelled"
        # A policy changed on one host counts on the other with its next call.
        await other.router.set_queue("later", distribution_policy="d")
        await desk.job("k", queue="later")
        await desk.router.cancel_job("k")
        await desk.router.policies.delete("queues", "later")
        with pytest.raises(Exception, match="no queue"):
            await other.router.create_job("c", queue="later")
    await desk.check()


async def test_what_is_stored_comes_back_as_it_was(desk: Floor) -> None:
    await desk.open()
    change = {
        "channelId": "c", "queueId": "q", "priority": -100, "channelReference": "ref ✓",
        "labels": {"int": 12345678901234567890, "half": 0.5, "yes": True, "text": "ü"},
        "tags": {"t": 1.0}, "notes": [{"message": "hello"}],
        "requestedWorkerSelectors": [
            {"key": "a", "labelOperator": "lessThan", "value": 1.5, "expiresAfterSeconds": 9.5}
        ],
    }  # fmt: skip
    done = await desk.router.put_job("8:acs:x/y", change)
    made = done.view
    assert done.created
    read = await desk.router.get_job("8:acs:x/y")
    assert read.status == "queued"
    assert made.status == "created"
    assert (read.labels, read.tags, read.etag) == (made.labels, made.tags, made.etag)
    assert read.notes == made.notes
    assert read.requested_worker_selectors == made.requested_worker_selectors
    again = await desk.router.put_job("8:acs:x/y", change)
    assert (again.created, again.view.status) == (False, "queued")


async def test_two_who_make_the_same_job_get_one(desk: Floor, relevo_url: str) -> None:
    await desk.open()
    told = settings.load({"database_url": relevo_url}, environ={})
    async with App(settings=told) as other:
        for turn in range(5):
            ids = [f"{turn}-{n}" for n in range(20)]
            urgent = {"channelId": "c", "queueId": "q", "priority": 2}
            tagged = {"channelId": "c", "queueId": "q", "tags": {"a": 1}}
            mine = [desk.router.put_job(one, urgent) for one in ids]
            theirs = [other.router.put_job(one, tagged) for one in reversed(ids)]
            both = await asyncio.gather(*mine, *theirs)
            assert sum(one.created for one in both) == len(ids)
            found = [await desk.router.get_job(one) for one in ids]
            assert {(one.priority, one.tags["a"]) for one in found} == {(2, 1)}
    await desk.check()


async def test_a_stale_condition_never_writes(desk: Floor) -> None:  # J15
    await desk.open()
    first = await desk.job(labels={"a": 1})
    await desk.router.update_job("j", tags={"b": 1})
    for condition in (Conditions(if_match=first.etag), Conditions(if_none_match="*")):
        with pytest.raises(ConditionNotMet):
            await desk.router.put_job("j", {"priority": 9}, condition)
    with pytest.raises(ConditionNotMet):
        await desk.router.put_worker("nobody", {}, Conditions(if_match="*"))
    now = await desk.router.get_job("j")
    assert now.priority == 1
    done = await desk.router.put_job("j", {"priority": 9}, Conditions(if_match=now.etag))
    assert done.view.etag != now.etag
    same = await desk.router.put_job("j", {"priority": 9})
    assert same.view.etag == done.view.etag


async def test_a_refused_call_changes_nothing_and_spoils_no_neighbour(desk: Floor) -> None:  # J14
    await desk.open()
    calls = [desk.job(f"j{n}", queue="q" if n % 3 else "nowhere") for n in range(30)]
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert [isinstance(one, Exception) for one in results] == [not n % 3 for n in range(30)]
    assert {one.id async for one in desk.router.jobs()} == {f"j{n}" for n in range(30) if n % 3}
    assert await desk.told("job/j0") == []
    await desk.check()


async def test_what_does_not_exist_is_not_found_and_deleted_all_the_same(desk: Floor) -> None:
    router = desk.router
    missing = "00000000-0000-0000-0000-000000000000"
    for call in (
        router.get_job("x"), router.get_worker("x"), router.cancel_job("x"),
        router.accept_offer("x", missing), router.accept_offer("x", "no uuid"),
        router.decline_offer("x", missing), router.complete_job("x", missing),
        router.position("x"),
    ):  # fmt: skip
        with pytest.raises(NotFound):
            await call
    await router.delete_job("x")
    await router.delete_worker("x")


async def test_a_queue_or_policy_in_use_stays(desk: Floor) -> None:
    await desk.open()
    await desk.router.policies.patch("classificationPolicies", "cp", {"fallbackQueueId": "q"})
    at = (await desk.clock.now()).replace(year=2100)
    await desk.job("s", classification_policy="cp", schedule_at=at)
    with pytest.raises(InUse):
        await desk.router.policies.delete("classificationPolicies", "cp")
    await desk.router.update_job("s", classification_policy_id=None)
    await desk.router.policies.delete("classificationPolicies", "cp")
    with pytest.raises(InUse):  # also of a job that is scheduled: so no schedule ever fails
        await desk.router.policies.delete("queues", "q")
    await desk.router.cancel_job("s")
    await desk.router.policies.delete("queues", "q")


async def test_a_later_close_can_be_replaced_by_one_now(floor: Floor) -> None:
    await floor.open()
    await floor.worker()
    await floor.job()
    assignment = await floor.accepted()
    await floor.router.complete_job("j", assignment)
    soon = (await floor.clock.now()).replace(year=2099)
    await floor.router.close_job("j", assignment, at=soon)
    assert await floor.status() == "completed"
    await floor.router.close_job("j", assignment)
    assert await floor.status() == "closed"
    await floor.router.close_job("j", assignment)  # J13
    await floor.check()
    assert (await floor.told("job/j")).count("job.closed") == 1


async def test_of_two_hosts_that_accept_one_wins(floor: Floor, relevo_url: str) -> None:  # J3
    await floor.open(mode={"kind": "longestIdle", "maxConcurrentOffers": 2})
    told = settings.load({"database_url": relevo_url}, environ={})
    async with App(settings=told) as other:
        await floor.worker("a", capacity=100)
        await floor.worker("b", capacity=100)
        for n in range(15):
            await floor.job(f"j{n}")
            mine = await floor.offered("a", f"j{n}")
            theirs = await floor.offered("b", f"j{n}")
            done = await asyncio.gather(
                floor.router.accept_offer("a", mine.offer_id),
                other.router.accept_offer("b", theirs.offer_id),
                return_exceptions=True,
            )
            lost = [one for one in done if isinstance(one, Exception)]
            assert len(lost) == 1
            assert isinstance(lost[0], OfferGone)
            assert await floor.status(f"j{n}") == "assigned"
    await floor.check()


async def test_calls_on_the_same_rows_by_many_never_block_each_other(
    floor: Floor, relevo_url: str
) -> None:
    """Cancelling, patching and deregistering while offers are being issued: all come through."""
    await floor.open(mode={"kind": "longestIdle", "maxConcurrentOffers": 3})
    told = settings.load({"database_url": relevo_url}, environ={})
    async with App(settings=told) as other:
        for n in range(6):
            await floor.worker(f"w{n}", capacity=50)

        async def churn(app: App, number: int) -> None:
            for n in range(12):
                job = f"{number}-{n}"
                await app.router.create_job("c", queue="q", job_id=job)
                await app.router.update_worker(f"w{n % 6}", labels={"n": n, "by": number})
                await app.router.cancel_job(job)

        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            for number in range(8):
                group.create_task(churn(other if number % 2 else floor.app, number))
    await floor.settled()
    await floor.check()
    assert {one.status async for one in floor.router.jobs()} == {"cancelled"}
    assert all([one.load_ratio == 0 async for one in floor.router.workers()])


async def test_lists_go_by_creation_and_miss_nobody(desk: Floor) -> None:  # J16
    await desk.open()
    for n in range(25):
        await desk.job(f"j{n}", channel="c" if n % 2 else "d")
        await desk.worker(f"w{n}")
    after: int | None = 0
    seen: list[str] = []
    while after is not None:
        page = await desk.router.list_jobs(JobFilter(status="active"), after, 4)
        seen += [one.id for one in page.items]
        after = page.after
        if len(seen) == 8:
            await desk.router.cancel_job("j3")
            await desk.router.delete_job("j3")
            await desk.job("new")
    assert seen == [*(f"j{n}" for n in range(25)), "new"]
    assert [one.id async for one in desk.router.jobs(channel_id="d", status="queued")] == [
        f"j{n}" for n in range(0, 25, 2)
    ]
    free = await desk.router.list_workers(WorkerFilter(state="active", has_capacity=True))
    assert len(free.items) == 25
    assert [one async for one in desk.router.workers(queue_id="nowhere")] == []


async def test_a_worker_that_is_there_again_begins_anew(desk: Floor) -> None:
    await desk.open()
    await desk.worker()
    first = await desk.router.get_worker("w")
    await desk.router.delete_worker("w")
    with pytest.raises(NotFound):
        await desk.router.get_worker("w")
    await desk.worker()
    assert (await desk.router.get_worker("w")).etag != first.etag


async def test_wrong_states_are_conflicts_on_the_database_too(desk: Floor) -> None:  # J21
    await desk.open()
    await desk.job()
    with pytest.raises(Conflict):
        await desk.router.delete_job("j")
    await desk.router.cancel_job("j")
    for call in (desk.router.position("j"), desk.router.update_job("j", priority=4)):
        with pytest.raises(Conflict):
            await call
    await desk.router.cancel_job("j")
    assert await desk.told("job/j") == ["job.received", "job.queued", "job.cancelled"]
