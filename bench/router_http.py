"""Full jobs over HTTP: a host in a process of its own, and two that load it.

`python -m bench.router_http URL KEY NAME JOBS` is one of the two.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from typing import TYPE_CHECKING, Any, Final

import aiohttp
import msgspec

from bench import Figure

if TYPE_CHECKING:
    from pathlib import Path

JOBS: Final = int(os.environ.get("BENCH_ROUTER_HTTP_JOBS", "4000"))
CALLERS: Final = 128
LOADERS: Final = 2
VERSION: Final = {"api-version": "2023-11-01"}
KEY: Final = "cmVsZXZvLWJlbmNoLXJlbGV2by1iZW5jaC1yZWxldm8tYg=="

HOW: Final = f"""
HTTP: `relevo up` in a process of its own with a bearer key, {JOBS:,} jobs from {LOADERS} aiohttp
processes with {CALLERS} callers each on the same machine, who learn of offers from
/v1/router/events.
"""


async def measure(url: str, folder: Path) -> list[Figure]:
    """Start a host at a database that has the bench's queue and workers; return the rate."""
    host = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "relevo.cli", "up", "--port", "0", "--output", "json",
        "--database", url, "--name", "bench",
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
        env={
            **os.environ, "RELEVO_ACCESS_KEY": KEY, "RELEVO_HOME": str(folder),
            "RELEVO_LOG_LEVEL": "warning", "RELEVO_REQUESTS_PER_SECOND": "1000000",
        },
    )  # fmt: skip
    try:
        assert host.stdout is not None
        told = msgspec.json.decode(await host.stdout.readline())
        rate = await _loaded(told["url"])
    finally:
        host.terminate()
        await host.wait()
    return [
        Figure(name="full jobs over HTTP", measured=rate, unit="jobs/s", beside=500.0, bound=1.0)
    ]


async def _loaded(url: str) -> float:
    loaders = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bench.router_http", url, KEY, f"h{number}-{os.getpid()}",
            str(JOBS // LOADERS), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )
        for number in range(LOADERS)
    ]  # fmt: skip
    for one in loaders:
        assert one.stdout is not None
        await one.stdout.readline()
    begun = time.perf_counter()
    for one in loaders:
        assert one.stdin is not None
        one.stdin.write(b"go\n")
    for one in loaders:
        assert await one.wait() == 0
    return JOBS / (time.perf_counter() - begun)


class Loader:
    """Creates jobs, and does what a worker does with the offers of them."""

    def __init__(self, session: aiohttp.ClientSession, name: str, jobs: int) -> None:
        self._session = session
        self._name = name
        self._left = jobs
        self._numbers = iter(range(jobs))
        self._offers: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    async def run(self) -> None:
        after = (await self._events({"start": "now"}))["continuation"]
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        follower = asyncio.create_task(self._follow(after))
        serving = [asyncio.create_task(self._serve()) for _ in range(CALLERS)]
        await asyncio.gather(*(self._create() for _ in range(CALLERS)))
        while self._left:
            await asyncio.sleep(0.005)
        for one in (follower, *serving):
            one.cancel()

    async def _create(self) -> None:
        for number in self._numbers:
            job = f"{self._name}-{number}"
            body = {"channelId": "call", "queueId": "bench", "labels": {"number": number}}
            async with self._session.patch(
                f"/routing/jobs/{job}", params=VERSION, json=body
            ) as answer:
                assert answer.status == 201, await answer.text()

    async def _follow(self, after: str) -> None:
        while True:
            page = await self._events({"continuation": after, "limit": "2000", "wait_seconds": "5"})
            after = page["continuation"]
            for event in page["items"]:
                told = event["data"]
                mine = told.get("jobId", "").startswith(self._name)
                if mine and event["type"].endswith("OfferIssued"):
                    self._offers.put_nowait(told)

    async def _events(self, params: dict[str, str]) -> Any:
        async with self._session.get("/v1/router/events", params=params) as answer:
            assert answer.status == 200, await answer.text()
            return await answer.json()

    async def _serve(self) -> None:
        while True:
            told = await self._offers.get()
            offer = f"/routing/workers/{told['workerId']}/offers/{told['offerId']}"
            accepted = await self._post(f"{offer}:accept")
            assignment = f"/routing/jobs/{told['jobId']}/assignments/{accepted['assignmentId']}"
            await self._post(f"{assignment}:complete")
            await self._post(f"{assignment}:close")
            self._left -= 1

    async def _post(self, path: str) -> Any:
        async with self._session.post(path, params=VERSION, json={}) as answer:
            assert answer.status == 200, await answer.text()
            return await answer.json()


async def main(url: str, key: str, name: str, jobs: int) -> None:
    """Load a host."""
    headers = {"Authorization": f"Bearer {key}"}
    async with aiohttp.ClientSession(
        url, headers=headers, connector=aiohttp.TCPConnector(limit=0)
    ) as session:
        await Loader(session, name, jobs).run()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
