"""Metrics of the store, which the leading host reads for all: what waits, and for how long."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from relevo.jobs.host import JobsPart
from relevo.router.service import RouterPart

if TYPE_CHECKING:
    from relevo import App
    from relevo.testing import Clock

pytestmark = pytest.mark.anyio


def shown(app: App, name: str, **labels: str) -> float | None:
    value: float | None = app.metrics.registry.get_sample_value(f"relevo_{name}", labels)
    return value


async def test_waiting_jobs_and_their_age_are_shown_by_lane(app: App, clock: Clock) -> None:
    @app.job("mail")
    async def mail() -> None: ...

    await mail.submit()
    await mail.using(start=await app.now() + timedelta(hours=2)).submit()
    await clock.advance(3_600)
    assert shown(app, "jobs", lane="default", state="ready") is None  # it does not lead
    await app.parts.of(JobsPart).figures.read()
    assert shown(app, "jobs", lane="default", state="ready") == 1.0
    assert shown(app, "jobs", lane="default", state="suspended") == 1.0
    assert shown(app, "jobs", lane="default", state="running") == 0.0
    oldest = shown(app, "oldest_ready_seconds", lane="default")
    assert oldest is not None
    assert 3_600 <= oldest < 3_700


async def test_router_queues_show_waiting_jobs_and_workers(app: App, clock: Clock) -> None:
    router = app.router
    await router.set_distribution_policy("fair", offer_ttl=60)
    await router.set_queue("kitchen", distribution_policy="fair")
    await router.register_worker(
        "ana", queues=["kitchen"], total_capacity=100, channels={"pizza": 50}
    )
    await router.create_job("soup", queue="kitchen", job_id="j1")
    await clock.advance(600)
    await app.parts.of(RouterPart).figures.read()
    assert shown(app, "router_jobs", queue="kitchen", state="waiting") == 1.0
    assert shown(app, "router_jobs", queue="kitchen", state="assigned") == 0.0
    assert shown(app, "router_workers", queue="kitchen", state="active") == 1.0
    longest = shown(app, "router_longest_wait_seconds", queue="kitchen")
    assert longest is not None
    assert 600 <= longest < 700
