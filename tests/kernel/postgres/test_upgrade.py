"""A major upgrade by logical replication, by the commands of the how-to, while everything works."""

from __future__ import annotations

import asyncio
import os
import re
from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import pytest

import relevo
from relevo import errors, settings
from relevo.kernel.postgres.embedded.account import binaries, server_account, usable_binaries
from tests.kernel.postgres.servers import debian_server, server
from tests.support.logs import capture_logs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

pytestmark = pytest.mark.anyio

PAGE: Final = Path(__file__).parents[3] / "docs" / "how-to" / "upgrade-postgresql.md"
ACCESS: Final = "local all all trust\nhost all all 127.0.0.1/32 trust\n"
BACKLOG: Final = 300
"""Pieces of work that wait at any time."""
SETTINGS: Final = {
    "wal_level": "logical", "max_wal_senders": "20", "max_replication_slots": "20",
    "max_sync_workers_per_subscription": "12", "max_logical_replication_workers": "16",
    "max_worker_processes": "24",
}  # fmt: skip
"""With more workers than by default, for the rows are few and the tables many."""


def commands() -> dict[int, str]:
    """The shell commands of each step of the page."""
    steps = re.split(r"^## (\d+)\. .*$", PAGE.read_text(), flags=re.MULTILINE)[1:]
    return {
        int(number): "\n".join(
            re.findall(r"^```sh[^\n]*\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        )
        for number, text in zip(steps[::2], steps[1::2], strict=True)
    }


class Servers:
    """The old server and the new one, and what a reader of the page does with them."""

    def __init__(self, old: int, new: int) -> None:
        self.old = f"postgresql://relevo@127.0.0.1:{old}/relevo"
        self.new = f"postgresql://relevo@127.0.0.1:{new}/relevo"

    async def do(self, *steps: int) -> str:
        """Run the commands of some steps in a shell; return what they write."""
        script = "\n".join(commands()[step] for step in steps)
        path = f"{binaries()}:{os.environ['PATH']}"
        running = await asyncio.create_subprocess_exec(
            "bash", "-euo", "pipefail", "-c", script,
            env={"PATH": path, "OLD_URL": self.old, "NEW_URL": self.new},
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        async with asyncio.timeout(240):
            written, _ = await running.communicate()
        assert running.returncode == 0, written.decode()
        return written.decode()


@pytest.fixture
def servers() -> Iterator[Servers]:
    with (
        debian_server(ACCESS, SETTINGS, {}) as old,
        server(usable_binaries(server_account()), ACCESS, SETTINGS, {}) as new,
    ):
        yield Servers(old, new)


class Load:
    """What was acknowledged, and the apps that work on it."""

    def __init__(self) -> None:
        self.given: Counter[str] = Counter()
        self.stop = asyncio.Event()
        self.handled = 0
        self.serving: list[asyncio.Future[None]] = []

    def app(self, url: str) -> relevo.App:
        """An app that notes what it does in a table, in the transaction that does it."""
        app = relevo.App(settings=settings.load({"database_url": url}, environ={}))
        orders = app.container("orders", partition_key="/city")
        note = "insert into done (what) values ($1)"

        @orders.on_changes("kitchen", start="beginning")
        async def cook(ctx: Any, changes: list[Any]) -> None:
            async with ctx.transaction() as tx:
                await tx.executemany(note, [(f"item {one.item['id']}",) for one in changes])
            self.handled += len(changes)

        @app.job("receipt")
        async def receipt(ctx: relevo.JobContext, number: str) -> None:
            async with ctx.transaction() as tx:
                await tx.execute(note, f"job {number}")
            self.handled += 1

        return app

    @asynccontextmanager
    async def working(self, url: str, hosts: int) -> AsyncIterator[relevo.App]:
        """Some hosts that serve, a worker that takes offers, and those who give them work."""
        self.stop.clear()
        apps = [self.app(url) for _ in range(hosts)]
        async with AsyncExitStack() as stack:
            for app in apps:
                await stack.enter_async_context(app.host())
            async with asyncio.TaskGroup() as group:
                taking = group.create_task(self.take(apps[0]))
                async with asyncio.TaskGroup() as giving:
                    for give in (self._submit, self._put, self._route):
                        giving.create_task(give(apps[-1]))
                    yield apps[0]
                    self.stop.set()
                taking.cancel()
                await asyncio.wait(self.serving)

    async def wants_more(self) -> bool:
        """Wait until most of what was given is done; False when nobody is to give more."""
        while self.given.total() - self.handled > BACKLOG and not self.stop.is_set():
            await asyncio.sleep(0.02)
        return not self.stop.is_set()

    async def submit(self, app: relevo.App, amount: int) -> None:
        numbers = [uuid4().hex for _ in range(amount)]
        await app.jobs.submit_many("receipt", [{"number": one} for one in numbers])
        self.given.update(f"job {one}" for one in numbers)

    async def _submit(self, app: relevo.App) -> None:
        while await self.wants_more():
            await self.submit(app, 1)
            await self.submit(app, 120)  # stored as a batch

    async def _put(self, app: relevo.App) -> None:
        orders = app.container("orders")
        while await self.wants_more():
            number = uuid4().hex
            await orders.upsert({"id": number, "city": number[:1]})
            self.given[f"item {number}"] += 1

    async def _route(self, app: relevo.App) -> None:
        while await self.wants_more():
            number = uuid4().hex
            await app.router.create_job("pizza", queue="kitchen", job_id=number)
            self.given[f"offer {number}"] += 1

    async def take(self, app: relevo.App) -> None:
        """Serve offers one after the other; one that was accepted is served to its end."""
        async for offer in app.router.worker("ana").offers():
            self.serving = [asyncio.ensure_future(self._serve(app, offer))]
            await asyncio.shield(self.serving[0])

    async def _serve(self, app: relevo.App, offer: Any) -> None:
        with suppress(errors.OfferGone):  # it comes again
            async with offer.accepted() as job:
                await app.database.write("insert into done (what) values ($1)", f"offer {job.id}")
                self.handled += 1

    async def done(self, app: relevo.App) -> Counter[str]:
        rows = await app.database.fetch("select what, count(*) as times from done group by what")
        return Counter({row["what"]: row["times"] for row in rows})


async def prepare(url: str) -> None:
    """The tables of the user, and the router's queue and worker."""
    async with Load().app(url) as app:
        await app.database.write("create table done (what text not null)")
        router = app.router
        await router.set_distribution_policy("fair", mode="longestIdle", offer_ttl=20)
        await router.set_queue("kitchen", distribution_policy="fair")
        await router.register_worker("ana", capacity=5, queues=["kitchen"], channels={"pizza": 1})


async def until_handled(load: Load, amount: int) -> None:
    """Wait for so many more pieces of work."""
    until = load.handled + amount
    async with asyncio.timeout(240):
        while load.handled < until:
            await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    ("hosts", "amount"),
    [(1, 500), pytest.param(3, 20_000, marks=pytest.mark.soak)],
)
async def test_nothing_is_lost_skipped_or_doubled(
    servers: Servers, hosts: int, amount: int
) -> None:
    load = Load()
    await prepare(servers.old)
    async with load.working(servers.old, hosts) as app:
        await until_handled(load, amount)
        await servers.do(1, 2, 3)
        await until_handled(load, amount)
    async with load.app(servers.old) as app:  # and there is work left
        await load.submit(app, 250)
    written = await servers.do(4, 5, 6)
    assert written.count("(0 rows)") == 2, written
    with capture_logs() as logs:
        async with load.working(servers.new, hosts) as app:
            await until_handled(load, amount)
            await servers.do(8)
        async with load.app(servers.new).host() as app, asyncio.timeout(240):
            taking = asyncio.create_task(load.take(app))
            while (await load.done(app)).total() < load.given.total():
                await asyncio.sleep(0.1)
            taking.cancel()
            assert await load.done(app) == load.given
    assert [one["event"] for one in logs].count("database.restored") == 1


async def test_a_host_refuses_rows_that_came_without_sequences(servers: Servers) -> None:
    load = Load()
    await prepare(servers.old)
    async with load.app(servers.old) as app:
        orders = app.container("orders", partition_key="/city")
        await orders.upsert({"id": "1", "city": "Vigo"})
    await servers.do(1, 2, 3, 5)
    with pytest.raises(errors.SchemaError, match="without its sequences"):
        async with load.app(servers.new).host():
            pass
    await servers.do(6)
    async with load.app(servers.new).host() as app:
        await app.container("orders").upsert({"id": "2", "city": "Vigo"})
        await until_handled(load, 2)
        assert await load.done(app) == Counter(["item 1", "item 2"])
