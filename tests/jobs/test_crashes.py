"""SIGKILL of workers and of the database under load: nothing acknowledged is lost, no effect is
doubled, no chain runs out of order (A30, with A1, A5 to A7, A17)."""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from relevo import App, settings
from relevo.errors import OutcomeUnknown, RelevoError
from relevo.testing.cluster import Cluster
from tests.jobs import programs
from tests.jobs.office import PARCELS, QUICK
from tests.support.servers import kill_server

if TYPE_CHECKING:
    from uuid import UUID

pytestmark = pytest.mark.anyio
TOKENS = ("a", "b", "c", None)
SETTINGS = {
    **QUICK, "lease_expiration": 2.0, "lease_renew": 0.4, "pool_size": 4, "jobs_crashes_max": 1000,
}  # fmt: skip
AHEAD = 60
"""Jobs that wait at most, so that the end does not take longer than the kills."""


class Ledger:
    """Submits without end, and knows what was acknowledged."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.kept: dict[UUID, tuple[str | None, int]] = {}
        self.brief: set[UUID] = set()
        self.unknown = 0
        self._numbers: Counter[str | None] = Counter()

    async def submit(self, token: str | None) -> None:
        """One caller of one chain: each submit waits for the answer of the one before."""
        while True:
            if await self._enough():
                await asyncio.sleep(0.02)
                continue
            self._numbers[token] += 1
            number = self._numbers[token]
            data = {"token": token or "", "number": number}
            try:
                job = await self.app.jobs.submit("effect", data, token=token)
            except asyncio.CancelledError:
                self.unknown += 1  # it was on its way
                raise
            except OutcomeUnknown:
                self.unknown += 1
            except RelevoError:
                await asyncio.sleep(0.02)
            else:
                self.kept[job.id] = (token, number)

    async def submit_brief(self) -> None:
        """Another, of jobs that do nothing and come in numbers."""
        while True:
            if not await self._enough():
                with suppress(RelevoError):
                    jobs = await self.app.jobs.submit_many("brief", [{}] * 20)
                    self.brief |= {job.id for job in jobs}
            await asyncio.sleep(0.02)

    async def _enough(self) -> bool:
        try:
            waiting = await self.app.database.fetchval("select count(*) from relevo.live_job")
        except RelevoError:
            return True
        return bool(waiting >= AHEAD)

    async def done(self) -> int:
        try:
            return int(await self.app.database.fetchval("select count(*) from effect"))
        except RelevoError:
            return -1

    async def hurry(self) -> None:
        """Go on with jobs that wait because the server was killed under their handler."""
        with suppress(RelevoError):
            for row in await self.app.database.fetch(
                "select id from relevo.job where status = 10 and series is null"
            ):
                await self.app.jobs.handle(row["id"]).resume()

    async def check(self) -> None:
        """Every promise about what happened, against what is there."""
        database = self.app.database
        rows = await database.fetch("select job, token, number from effect order by at")
        times = Counter(row["job"] for row in rows)
        assert set(times.values()) == {1}  # no effect twice (A5)
        assert self.kept.keys() <= times.keys()  # nothing acknowledged was lost (A1)
        assert len(times) <= len(self.kept) + self.unknown
        for token in TOKENS[:-1]:
            order = [row["number"] for row in rows if row["token"] == token]
            assert order == sorted(order), f"chain {token} ran out of order"  # A6
        ended = await database.fetch(
            "select id, status from relevo.job_history where handler = $1", "effect"
        )
        assert {row["id"] for row in ended} == set(times)  # effect and completion, or neither
        assert {row["status"] for row in ended} == {30}
        brief = await database.fetch(
            "select id, status from relevo.job_history where handler = $1", "brief"
        )
        assert self.brief <= {row["id"] for row in brief}
        assert {row["status"] for row in brief} <= {30}


async def storm(app: App, folder: Path, kills: int, parcels_from: int) -> None:
    url = app.database.endpoint.url
    await app.database.write(programs.EFFECTS)
    await app.database.write(PARCELS.format(parcels_from))
    series = await app.jobs.submit("effect", {"token": "", "number": 0}, recurrence="FREQ=MINUTELY")
    seed = random.randrange(2**32)
    print("seed", seed)
    dice = random.Random(seed)
    ledger = Ledger(app)
    async with Cluster(
        url, "tests.jobs.programs:office", folder, settings=SETTINGS
    ) as cluster:  # fmt: skip
        for name in "ab":
            await cluster.start(name)
        writing = [asyncio.ensure_future(ledger.submit(token)) for token in TOKENS]
        writing.append(asyncio.ensure_future(ledger.submit_brief()))
        try:
            for turn in range(kills):
                wanted = await ledger.done() + dice.randrange(5, 40)

                async def more(wanted: int = wanted) -> bool:
                    await ledger.hurry()
                    return await ledger.done() >= wanted

                await cluster.until(more, "there is load")
                if turn % 4 == 3:
                    await kill_server(app.database)
                else:
                    name = dice.choice("ab")
                    cluster.nodes[name].kill()
                    await cluster.start(name, wait=False)
        finally:
            for one in writing:
                one.cancel()
            await asyncio.gather(*writing, return_exceptions=True)

        async def drained() -> bool:
            await ledger.hurry()
            return not await app.database.fetch("select from relevo.live_job where series is null")

        await cluster.until(drained, "all that was submitted has run", timeout=90)
        for node in cluster.nodes.values():
            node.terminate()
        for node in cluster.nodes.values():
            await asyncio.to_thread(node.process.wait)
    await check_series(app, series.id)
    await app.database.write(
        "delete from effect e using relevo.job_history h"
        " where h.id = e.job and h.series is not null returning 1"
    )
    await app.database.write("delete from relevo.job_history where series is not null returning 1")
    await ledger.check()
    kept = len(ledger.kept) + len(ledger.brief)
    print(f"{kills} kills, {kept} acknowledged, {ledger.unknown} unknown, 0 lost")


async def check_series(app: App, series: UUID) -> None:
    """One row that has not started, and every instant ran once (A17)."""
    rows: list[Any] = await app.database.fetch(
        "select nominal, status, attempt from relevo.job where series = $1", series
    )
    waiting = [row for row in rows if row["attempt"] == 0 and row["status"] in (0, 10)]
    assert len(waiting) == 1
    ran = await app.database.fetch(
        "select nominal from relevo.job_history where series = $1", series
    )
    instants = [row["nominal"] for row in (*rows, *ran)]
    assert len(instants) == len(set(instants))


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("parcels_from", [100, 1])
@pytest.mark.parametrize("kills", [5, pytest.param(300, marks=pytest.mark.soak)])
async def test_no_kill_loses_a_job_or_doubles_an_effect(
    kills: int, parcels_from: int, tmp_path: Path
) -> None:  # A30
    with tempfile.TemporaryDirectory(prefix="relevo-test-") as folder:
        Path(folder).chmod(0o755)
        home = Path(folder) / "home"  # a server of its own, whose files are synced
        told = settings.load({"home": home, **SETTINGS}, environ={})
        async with App(settings=told) as app:
            await storm(app, tmp_path, kills, parcels_from)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kills", [2, pytest.param(60, marks=pytest.mark.soak)])
async def test_no_kill_makes_a_batch_end_twice_or_never(
    kills: int, relevo_url: str, tmp_path: Path
) -> None:
    async with (
        App(settings=settings.load({"database_url": relevo_url, **SETTINGS}, environ={})) as app,
        Cluster(
            relevo_url, "tests.jobs.programs:office", tmp_path, settings=SETTINGS
        ) as cluster,
    ):  # fmt: skip
        await app.database.write(programs.EFFECTS)
        for name in "ab":
            await cluster.start(name)
        dice, batches = random.Random(7), []
        for turn in range(kills):
            batch = await app.jobs.batch(then="report")
            batches.append(batch)
            for part in range(3):
                data = [{"token": "m", "number": turn * 100 + part * 10 + n} for n in range(10)]
                await batch.submit_many("effect", data)
            await batch.close()
            wanted = dice.randrange(1, 29)

            async def under_way(batch: Any = batch, wanted: int = wanted) -> bool:
                return int((await batch.get()).succeeded) >= wanted

            await cluster.until(under_way, "the batch is under way")
            name = dice.choice("ab")
            cluster.nodes[name].kill()
            await cluster.start(name, wait=False)
        for batch in batches:
            over = await batch.wait(90)
            assert (over.total, over.succeeded) == (30, 30)

        async def reported() -> bool:
            sql = "select count(*) from effect where token <> 'm'"
            return int(await app.database.fetchval(sql)) >= kills

        await cluster.until(reported, "each batch has ended", timeout=90)
        rows = await app.database.fetch("select token, number from effect where token <> 'm'")
        assert Counter(row["token"] for row in rows) == Counter(str(each.id) for each in batches)
        assert {row["number"] for row in rows} == {30}
