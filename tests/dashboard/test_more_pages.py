"""Recurring jobs, events, settings and the grid of system jobs."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from relevo.router import WorkerSelector

if TYPE_CHECKING:
    from tests.dashboard.conftest import Desk

pytestmark = pytest.mark.anyio


async def test_a_schedule_shows_its_rule_next_runs_and_last_runs_and_is_paused(desk: Desk) -> None:
    async with desk.browser("admin") as browser:
        page = await browser.get("/schedules/report", **{"Accept-Language": "es"})
        assert "Cada día" in page.text
        page = await browser.get("/schedules/report")
        assert "Every day" in page.text
        assert page.text.count("data-exact") == 10
        sent: dict[str, Any] = {"csrf": page.csrf, "next": "/schedules/report"}
        ran = await browser.post("/act", **sent, do="schedules.run report")
        assert "Run now: 1 done." in ran.text
        assert "<h1>report</h1>" in ran.text
        job = re.search(r'name="next" value="/jobs/([0-9a-f-]{36})"', ran.text)
        assert job is not None
        await desk.app.jobs.end_of(UUID(job[1]), 20.0)
        page = await browser.get("/schedules/report")
        assert re.search(
            f'role="listitem" class="s-succeeded h[1-5]" href="/jobs/{job[1]}"', page.text
        )
        later = sent | {"in.until": "3600"}
        paused = await browser.post("/act", **later, do="schedules.pause report")
        assert "Paused" in paused.text
        found = await desk.app.jobs.schedules.get("report")
        assert found.state == "paused"
        assert found.paused_until is not None
        await browser.post("/act", **sent, do="schedules.resume report")
        assert (await desk.app.jobs.schedules.get("report")).state == "active"
        assert (await browser.get("/schedules/nothing")).status == 404


async def test_events_are_narrowed_by_type_and_condition(desk: Desk) -> None:
    job = await desk.ended("bad")
    async with desk.browser("viewer") as browser:
        page = await browser.get("/events?type=relevo.job.failed")
        assert f'href="/jobs/{job}"' in page.text
        assert "<script>alert" not in page.text
        other = await browser.get("/events?type=relevo.job.failed&filter=data.lane%20%3D%20'x'")
        assert job not in other.text
        wrong = await browser.get("/events?filter=data.lane%20%3D%20%3D")
        assert wrong.status == 200
        assert 'role="alert"' in wrong.text


async def test_the_grid_has_the_views_columns_and_commands_of_the_ancestor(desk: Desk) -> None:
    failed = await desk.ended("bad")
    sent = await desk.ended("mail")
    waiting = await desk.submitted("nobody", token="ana")
    async with desk.browser("operator") as browser:
        page = await browser.get("/system-jobs")
        for job in (failed, sent, waiting):
            assert job in page.text
        assert "Execute Async Request" in page.text
        failures = await browser.get("/system-jobs?view=failed")
        assert failed in failures.text
        assert sent not in failures.text
        narrowed = await browser.get(
            "/system-jobs?view=ready&filter=dependencytoken%20eq%20'ana'&column=dependencytoken"
        )
        assert waiting in narrowed.text
        assert '<th title="dependencytoken">Dependency token</th>' in narrowed.text
        wrong = await browser.get("/system-jobs?filter=wings%20eq%202")
        assert "wings" in wrong.text.partition('role="alert"')[2][:200]
        form: dict[str, Any] = {
            "csrf": page.csrf, "next": "/system-jobs", "selected": waiting, "in.until": "600",
            "confirmed": "1",
        }  # fmt: skip
        done = await browser.post("/act", **form, do="jobs.postpone")
        assert "Postpone: 1 done." in done.text
        spanish = await browser.get("/system-jobs", **{"Accept-Language": "es"})
        assert "Razón para el estado" in spanish.text
    found = await desk.app.jobs.query().where(id=waiting).first()
    assert found is not None
    assert found.status == "waiting"


async def test_settings_say_where_they_come_from_and_no_secrets(desk: Desk) -> None:
    async with desk.browser("admin") as browser:
        page = await browser.get("/settings")
    assert str(desk.app.settings.database_url) not in page.text
    rows = dict(
        re.findall(
            r'data-key="settings ([a-z_]+)">.*?<td class="">(argument|default)</td>',
            page.text,
            re.S,
        )
    )
    assert rows["database_url"] == "argument"
    assert rows["pool_size"] == "default"


async def test_the_board_shows_queues_skills_workers_and_offers(desk: Desk) -> None:
    router = desk.app.router
    await router.set_distribution_policy("soon", mode="longestIdle", offer_ttl=60)
    await router.set_queue("front", distribution_policy="soon")
    await router.register_worker("eva", queues=["front"], capacity=2, channels={"voice": 1})
    await router.create_job("voice", queue="front", job_id="first")
    english = WorkerSelector(key="English", label_operator="greaterThan", value=7)
    await router.create_job("voice", queue="front", job_id="second", selectors=[english])
    async with desk.browser("viewer") as browser:
        async with asyncio.timeout(20):
            while "/router/jobs/first" not in (page := await browser.get("/router")).text:
                await asyncio.sleep(0.05)
        assert '<b>English</b> &gt; <b>7</b> <span class="badge s-wait">1</span>' in page.text
        assert 'data-key="worker eva"' in page.text
        assert "50 % of 2" in page.text
        (offer,) = (await router.get_worker("eva")).offers
        await router.accept_offer("eva", str(offer.offer_id))
        page = await browser.get("/router?target=300&state=active")
        assert re.search(r"100 %\s*<span class=\"note\">of 1</span>", page.text)
        idle = await browser.get("/router?state=inactive")
        assert 'data-key="worker eva"' not in idle.text


async def test_a_policy_is_edited_as_a_whole_and_only_in_the_version_that_was_shown(
    desk: Desk,
) -> None:
    where = "/router/policy?kind=distribution&id=soonest"
    async with desk.browser("admin") as browser:
        page = await browser.get(where)
        assert "not there yet" in page.text
        form: dict[str, Any] = {
            "csrf": page.csrf, "next": where, "do": "router.distribution_policies.patch soonest",
            "body.patch": '{"offerExpiresAfterSeconds": 45, "mode": {"kind": "roundRobin"}}',
        }  # fmt: skip
        saved = await browser.post("/act", **form)
        assert saved.notice == "Save: 1 done.", saved.text
        assert "roundRobin" in saved.text
        stale = await browser.post("/act", **form, if_match='"nothing"')
        assert "1 refused" in stale.notice
        assert "soonest" in (await browser.get("/router/policies")).text
        gone: dict[str, Any] = {"csrf": page.csrf, "next": where, "confirmed": "1"}
        listed = await browser.post(
            "/act", **gone, do="router.distribution_policies.delete soonest"
        )
        assert "Delete: 1 done." in listed.text
        assert (await browser.get("/router/policy?kind=distribution")).status == 404
    async with desk.browser("viewer") as browser:
        page = await browser.get("/router/policy?kind=distribution&id=soon")
        assert "textarea" not in page.text


async def test_charts_show_waits_of_messages_lag_of_feeds_and_work_of_actors(desk: Desk) -> None:
    app = desk.app
    dishes = app.container("dishes", partition_key="/kind")
    await dishes.upsert({"id": "first", "kind": "soup"})
    kitchen = dishes.unit("kitchen")
    async with asyncio.timeout(20):
        while (await dishes.change_feed_estimator("kitchen").total()).estimated_lag != 0:
            await asyncio.sleep(0.05)
    await kitchen.pause()
    await dishes.upsert({"id": "second", "kind": "soup"})
    await app.queue("read").send(b"{}")
    figures: dict[str, float | None] = {"messages.delivered": 0}
    async with asyncio.timeout(20):
        while not figures["messages.delivered"]:
            await app.database.fetch("delete from relevo.figure_sample where step_seconds = 10")
            await app.history.take_sample()
            figures = (await app.history.read("hour")).samples[-1].figures
    assert (figures["messages.waited_seconds"] or 0) > 0
    assert figures["feeds.behind"] == 1
    assert (figures["feeds.lag_seconds"] or 0) > 0
    assert figures["actors.messages"] == 0
    async with desk.browser("viewer") as browser:
        for path, chart in (
            ("/queues", "message_wait"),
            ("/feeds", "feed_lag"),
            ("/actors", "actors"),
        ):
            assert f'id="chart_{chart}"' in (await browser.get(path)).text
    await kitchen.resume()
