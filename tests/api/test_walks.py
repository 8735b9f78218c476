"""How many files a reader has to follow: walks of real calls, counted, so that they stay short."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import pytest

from tests.support.walks import files_touched

if TYPE_CHECKING:
    from tests.api.conftest import Site

pytestmark = pytest.mark.anyio
VERSION = "api-version=2023-11-01"
POLICY = {"offerExpiresAfterSeconds": 60, "mode": {"kind": "longestIdle"}}


def assert_short(files: list[str], most: int) -> None:
    assert len(files) <= most, f"{len(files)} files, at most {most}: {' '.join(files)}"


async def test_a_router_job_over_http(site: Site) -> None:
    numbers = count()

    async def put(target: str, body: object) -> None:
        reply = await site.ask("PATCH", f"/routing/{target}?{VERSION}", key="admin", json=body)
        assert reply.status == 201, reply.body

    await put("distributionPolicies/d", POLICY)
    await put("queues/q", {"distributionPolicyId": "d"})
    job = {"channelId": "chat", "queueId": "q", "priority": 1}
    assert_short(await files_touched(lambda: put(f"jobs/{next(numbers)}", job)), 24)


async def test_submit_to_stored(site: Site) -> None:
    jobs = site.services.app.jobs
    assert_short(await files_touched(lambda: jobs.submit("mail", {"to": "ana"})), 10)


async def test_upsert_to_commit(site: Site) -> None:
    orders = site.services.app.container("orders", partition_key="/city")
    assert_short(await files_touched(lambda: orders.upsert({"id": "1", "city": "Vigo"})), 10)
