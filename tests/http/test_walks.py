"""How many files a reader has to follow: walks of real calls, counted.

The bounds are what the code needs today. Lower them when a walk becomes shorter. The three long
walks are those of docs/explanation/code-tour.md, which must name their files.
"""

from __future__ import annotations

import asyncio
import re
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from tests.support.walks import files_touched

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.http.conftest import Opens, Site
    from tests.support.walks import Walk

pytestmark = pytest.mark.anyio
POLICY = {"offerExpiresAfterSeconds": 60, "mode": {"kind": "longestIdle"}}
JOB = {"channelId": "chat", "queueId": "q", "priority": 1}
LEASE = ("kernel/leases/fencing.py", "kernel/leases/held.py")
QUICK: dict[str, Any] = {"lease_expiration": 3.0, "lease_renew": 0.5, "lease_acquire": 0.5}


TOUR = Path(__file__).parents[2] / "docs" / "explanation" / "code-tour.md"


def assert_short(walk: Walk, most: int) -> None:
    files = walk.always
    assert len(files) <= most, f"{len(files)} files, at most {most}: {' '.join(files)}"


def assert_toured(walk: Walk, title: str, most: int) -> None:
    """The tables of a section name every file that always runs, and none that never does."""
    section = TOUR.read_text().partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    named = re.findall(r"^\| `([^`]+\.py)` \|", section, re.MULTILINE)
    add = [file for file in walk.always if file not in named]
    drop = [file for file in named if file not in walk.ever]
    assert not add, f"{TOUR.name}, {title!r}: add a line for {', '.join(add)}"
    assert not drop, f"{TOUR.name}, {title!r}: drop the line of {', '.join(drop)}"
    assert len(named) <= most, f"{TOUR.name}, {title!r}: {len(named)} files, at most {most}"


async def routing(site: Site) -> Callable[[str, Any], Awaitable[None]]:
    """Make a queue `q` over HTTP; return the call that puts any resource."""
    base = f"{site.address.url}/routing"
    headers = {"Authorization": f"Bearer {site.secrets['admin']}"}

    async def put(target: str, body: object) -> None:
        url = f"{base}/{target}?api-version=2023-11-01"
        async with site.session.patch(url, json=body, headers=headers) as response:
            assert response.status == 201, await response.text()

    await put("distributionPolicies/d", POLICY)
    await put("queues/q", {"distributionPolicyId": "d"})
    return put


async def test_a_router_job_over_http(site: Site) -> None:
    put, numbers = await routing(site), count()
    assert_short(await files_touched(lambda: put(f"jobs/{next(numbers)}", JOB)), 39)


async def test_submit_to_stored(site: Site) -> None:
    jobs = site.services.app.jobs
    assert_short(await files_touched(lambda: jobs.submit("mail", {"to": "ana"})), 16)


async def test_upsert_to_commit(site: Site) -> None:
    orders = site.services.app.container("orders", partition_key="/city")
    assert_short(await files_touched(lambda: orders.upsert({"id": "1", "city": "Vigo"})), 15)


async def test_a_router_job_to_its_offer(open_site: Opens, relevo_url: str) -> None:
    numbers = count()
    async with open_site(**QUICK) as site, site.services.app.host():
        put, reader = await routing(site), await asyncpg.connect(relevo_url)
        channels = [{"channelId": "chat", "capacityCostPerJob": 1}]
        worker = {"queues": ["q"], "capacity": 100, "channels": channels}
        await put("workers/w", worker | {"availableForOffers": True})

        async def offered() -> None:
            job = str(next(numbers))
            await put(f"jobs/{job}", JOB)
            sql = "select from relevo.router_offer where job_id = $1"
            while not await reader.fetch(sql, job):
                await asyncio.sleep(0.01)

        walk = await files_touched(
            offered, beside=("feed/", "jobs/", "kernel/telemetry/", "messaging/"), also=LEASE
        )
        await reader.close()
    assert_toured(walk, "A router job", 58)


async def test_submit_to_result(open_site: Opens) -> None:
    async with open_site(**QUICK) as site:
        app = site.services.app

        @app.job("mail")
        async def mail(to: str) -> str:
            return "sent"

        async def submitted() -> None:
            assert await (await app.jobs.submit("mail", {"to": "ana"})).wait() == "sent"

        async with app.host():
            beside = ("feed/", "http/", "messaging/", "router/")
            walk = await files_touched(submitted, beside=beside)
    assert_toured(walk, "A system job", 31)


async def test_upsert_to_the_change_handler(open_site: Opens) -> None:
    came = asyncio.Event()
    async with open_site(**QUICK) as site:
        app = site.services.app
        orders = app.container("orders", partition_key="/city")

        @orders.on_changes("billing")
        async def bill(changes: Any) -> None:
            came.set()

        async def changed() -> None:
            came.clear()
            await orders.upsert({"id": "1", "city": "Vigo"})
            await came.wait()

        async with app.host():
            beside = ("http/", "jobs/", "messaging/", "router/")
            walk = await files_touched(changed, beside=beside, also=LEASE)
    assert_toured(walk, "A change", 39)
