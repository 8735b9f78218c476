"""How many files a reader has to follow: walks of real calls, counted.

The bounds are what the code needs today. Lower them when a walk becomes shorter.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import pytest

from tests.support.walks import files_touched

if TYPE_CHECKING:
    from tests.http.conftest import Site

pytestmark = pytest.mark.anyio
POLICY = {"offerExpiresAfterSeconds": 60, "mode": {"kind": "longestIdle"}}


def assert_short(files: list[str], most: int) -> None:
    assert len(files) <= most, f"{len(files)} files, at most {most}: {' '.join(files)}"


async def test_a_router_job_over_http(site: Site) -> None:
    base, numbers = f"{site.address.url}/routing", count()
    headers = {"Authorization": f"Bearer {site.secrets['admin']}"}

    async def put(target: str, body: object) -> None:
        url = f"{base}/{target}?api-version=2023-11-01"
        async with site.session.patch(url, json=body, headers=headers) as response:
            assert response.status == 201, await response.text()

    await put("distributionPolicies/d", POLICY)
    await put("queues/q", {"distributionPolicyId": "d"})
    job = {"channelId": "chat", "queueId": "q", "priority": 1}
    assert_short(await files_touched(lambda: put(f"jobs/{next(numbers)}", job)), 43)


async def test_submit_to_stored(site: Site) -> None:
    jobs = site.services.app.jobs
    assert_short(await files_touched(lambda: jobs.submit("mail", {"to": "ana"})), 18)


async def test_upsert_to_commit(site: Site) -> None:
    orders = site.services.app.container("orders", partition_key="/city")
    assert_short(await files_touched(lambda: orders.upsert({"id": "1", "city": "Vigo"})), 20)
