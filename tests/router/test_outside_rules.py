"""Classification and scoring by rules that are answered elsewhere, with a real host on loopback."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from aiohttp import web

from relevo import App, settings
from relevo.testing.clock import Clock
from tests.kernel.outbound.outside import Status, outside
from tests.router.floor import Floor

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.kernel.outbound.outside import Outside

pytestmark = pytest.mark.anyio
HOOK = "/hook"


@asynccontextmanager
async def router(url: str, **told: Any) -> AsyncIterator[tuple[Floor, Outside]]:
    known = settings.load(
        {"database_url": url, "outbound_allow": ("127.0.0.1",), **told}, environ={}
    )
    async with outside() as host, App(settings=known) as app, app.host(name="h"):
        floor = Floor(app, Clock(app.database))
        await floor.open()
        yield floor, host


async def policy(floor: Floor, host: Outside, **more: Any) -> None:
    rule = {"kind": "webhook", "webhookUri": host.url(HOOK)}
    change = {"fallbackQueueId": "q", "prioritizationRule": rule, **more}
    await floor.router.policies.patch("classificationPolicies", "cp", change)


class Slow:
    """A host that answers when it is told to."""

    def __init__(self, host: Outside) -> None:
        self.asked = asyncio.Event()
        self.go_on = asyncio.Event()
        host.at(HOOK, self._answer)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        found = msgspec.json.decode(await request.read())["job"]
        self.asked.set()
        await self.go_on.wait()
        return web.json_response(found.get("n", 0))


async def test_a_job_is_classified_by_what_a_host_answers(relevo_url: str) -> None:
    async with router(relevo_url) as (floor, host):
        host.answers(HOOK, 42)
        await policy(floor, host)
        made = await floor.job(queue=None, classification_policy="cp")
        assert made.status == "pendingClassification"
        await floor.becomes("queued")
        job = await floor.router.get_job("j")
        assert (job.priority, job.queue_id) == (42, "q")
        assert await floor.told("job/j") == ["job.received", "job.classified", "job.queued"]


async def test_a_rule_that_fails_fails_the_classification_until_it_is_repeated(
    relevo_url: str,
) -> None:
    async with router(relevo_url) as (floor, host):
        host.answers(HOOK, Status(404), 7)
        await policy(floor, host)
        await floor.job(queue=None, classification_policy="cp")
        await floor.becomes("classificationFailed")
        assert (await floor.told("job/j"))[-1] == "job.classification_failed"
        await floor.router.update_job("j", tags={"seen": True})
        assert await floor.status() == "classificationFailed"
        await floor.router.reclassify_job("j")
        await floor.becomes("queued")


async def test_an_address_that_is_not_allowed_is_not_called(relevo_url: str) -> None:  # J23
    async with router(relevo_url, outbound_allow=()) as (floor, host):
        host.answers(HOOK, 7)
        await policy(floor, host)
        await floor.job(queue=None, classification_policy="cp")
        await floor.becomes("classificationFailed")
        assert host.asked == []


async def test_a_result_for_outdated_labels_is_never_written(relevo_url: str) -> None:  # J17
    async with router(relevo_url) as (floor, host):
        slow = Slow(host)
        await policy(floor, host)
        await floor.job(queue=None, classification_policy="cp", labels={"n": 1})
        await slow.asked.wait()
        done = await floor.router.update_job("j", labels={"n": 2})
        assert done.status == "pendingClassification"
        slow.go_on.set()
        await floor.becomes("queued")
        assert (await floor.router.get_job("j")).priority == 2
        assert (await floor.told("job/j")).count("job.classified") == 1


async def test_a_result_of_an_outdated_policy_is_never_written(relevo_url: str) -> None:  # J17
    async with router(relevo_url) as (floor, host):
        slow = Slow(host)
        await policy(floor, host)
        await floor.job(queue=None, classification_policy="cp", labels={"n": 1})
        await slow.asked.wait()
        static = {"kind": "static", "value": 77}
        change = {"prioritizationRule": static}
        await floor.router.policies.patch("classificationPolicies", "cp", change)
        slow.go_on.set()
        await floor.becomes("queued")
        assert (await floor.router.get_job("j")).priority == 77


async def test_a_slow_rule_holds_up_no_other_job(relevo_url: str) -> None:  # J8
    async with router(relevo_url) as (floor, host):
        slow = Slow(host)
        await policy(floor, host)
        await floor.job("slow", queue=None, classification_policy="cp", labels={"n": 9})
        await slow.asked.wait()
        await floor.job("quick")
        await floor.worker()
        await floor.offered("w", "quick")
        assert await floor.status("slow") == "pendingClassification"
        await floor.router.cancel_job("slow")
        slow.go_on.set()
        await floor.settled()
        assert await floor.status("slow") == "cancelled"


async def test_scores_come_from_a_host_and_are_asked_again_after_a_failure(
    relevo_url: str,
) -> None:
    async with router(relevo_url) as (floor, host):
        answers = [Status(500), Status(500)]

        async def rate(request: web.Request) -> web.StreamResponse:
            found = msgspec.json.decode(await request.read())
            if answers:
                return web.Response(status=answers.pop().status)
            return web.json_response(found["worker"]["skill"])

        host.at(HOOK, rate)
        rule = {"kind": "function", "functionUri": host.url(HOOK)}
        await floor.open(mode={"kind": "bestWorker", "scoringRule": rule})
        await floor.worker("a", labels={"skill": 1})
        await floor.worker("b", labels={"skill": 5})
        await floor.job()
        await floor.until(lambda: _asked(host, 2), "the rule has failed")
        assert not await floor.offers("b")
        await floor.clock.advance(2)
        await floor.offered("b")


async def _asked(host: Outside, times: int) -> bool:
    return len(host.asked) >= times


async def test_many_jobs_are_classified_together(relevo_url: str) -> None:
    async with router(relevo_url) as (floor, _):
        change = {
            "fallbackQueueId": "q",
            "prioritizationRule": {"kind": "expression", "expression": "job.n * 2"},
            "workerSelectorAttachments": [
                {"kind": "passThrough", "key": "skill", "labelOperator": "equal"}
            ],
        }
        await floor.router.policies.patch("classificationPolicies", "cp", change)
        many = range(30)
        await asyncio.gather(*(
            floor.job(f"j{n}", queue=None, classification_policy="cp", labels={"n": n, "skill": n})
            for n in many
        ))  # fmt: skip
        for n in many:
            await floor.becomes("queued", f"j{n}")
            job = await floor.router.get_job(f"j{n}")
            assert (job.priority, job.attached_worker_selectors[0].value) == (2 * n, n)
        await floor.check()
