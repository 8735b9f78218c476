"""The example that priority messaging is made for, as a user writes it, and what else it asks."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from relevo import App
from relevo.kernel.postgres.pool.endpoint import Endpoint
from relevo.messaging import Message
from tests.jobs.office import told, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from relevo.messaging import Received
    from relevo.testing import Clock

pytestmark = pytest.mark.anyio
ORDERS = """
import asyncio
from relevo import App
from relevo.messaging import Message

app = App()
orders = app.priority_topic("orders", {"high": 4, "low": 1})

@orders.on_messages("high")
@orders.on_messages("low")
async def cook(msg):
    [row] = await app.database.write(
        "insert into meal (dish, class) values ($1, $2) returning number",
        msg.body, msg.properties["Priority"],
    )
    while await app.database.fetchval("select served from waiter") < row["number"]:
        await asyncio.sleep(0.01)
"""
SENDER = """
import asyncio
from orders import Message, app, orders

async def main():
    async with app:
        for priority in ("low", "high"):
            await orders.send_many(
                [Message(f"{priority}-{n}", properties={"Priority": priority}) for n in range(10)]
            )

asyncio.run(main())
"""
SCALED = """
import asyncio
from relevo import App
from relevo.messaging import Scaling

app = App()
rules = Scaling(
    min_replicas=0, max_replicas=2, by=("backlog",), target_per_replica=2, cooldown=0.5
)

@app.queue("render").on_messages("renderers", scaling=rules)
async def draw(msg):
    await app.database.write("insert into meal (dish) values ($1) returning dish", str(msg.body))
    while await app.database.fetchval("select served from waiter") < msg.body:
        await asyncio.sleep(0.01)
"""
TABLES = (
    "create table if not exists meal (number serial primary key, dish text, class text)",
    "create table if not exists waiter (served integer primary key)",
    "truncate meal, waiter restart identity",
    "insert into waiter values (0) returning served",
)


class Kitchen:
    """Programs of a user, each in a process of its own."""

    def __init__(self, app: App, folder: Path, url: str) -> None:
        self.app = app
        self._folder = folder
        kept = {key: value for key, value in os.environ.items() if not key.startswith("RELEVO_")}
        quick = {"RELEVO_LEASE_EXPIRATION": "3", "RELEVO_LEASE_RENEW": "0.5"}
        self._environment = kept | quick | {"RELEVO_DATABASE_URL": url}
        self.processes: list[subprocess.Popen[bytes]] = []

    def write(self, **modules: str) -> None:
        for name, text in modules.items():
            (self._folder / f"{name}.py").write_text(text)

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        with (self._folder / "log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, *command], cwd=self._folder, env=self._environment,
                stdout=log, stderr=log,
            )  # fmt: skip
        self.processes.append(process)
        return process

    async def until(self, condition: Any, what: str) -> None:
        async def shown() -> str:
            return f"{what}\n{(self._folder / 'log').read_text()[-5000:]}"

        await until(condition, shown, timeout=60)

    async def meals(self) -> list[str]:
        rows = await self.app.database.fetch("select class from meal order by number")
        return [row["class"] for row in rows]


@pytest.fixture
async def kitchen(app: App, relevo_url: str, tmp_path: Path) -> AsyncIterator[Kitchen]:
    for statement in TABLES:
        await app.database.write(statement)
    kitchen = Kitchen(app, tmp_path, relevo_url)
    yield kitchen
    for process in kitchen.processes:
        process.send_signal(signal.SIGKILL)
        process.wait()


async def test_high_and_low_have_their_own_consumers_in_their_own_processes(
    kitchen: Kitchen,
) -> None:
    kitchen.write(orders=ORDERS, send=SENDER)
    sender = kitchen.start("send.py")
    hosts = [
        kitchen.start("-m", "relevo.cli", "run", "orders:app", "--plain", "--only", name)
        for name in ("orders-high", "orders-low")
    ]
    assert await asyncio.to_thread(sender.wait) == 0
    left = Counter(high=10, low=10)
    rounds: list[Counter[str]] = []
    begun = 0
    while left.total():
        now = Counter(high=min(4, left["high"]), low=min(1, left["low"]))
        begun += now.total()

        async def all_begun(begun: int = begun) -> bool:
            return len(await kitchen.meals()) == begun

        await kitchen.until(all_begun, f"{begun} meals are begun")
        rounds.append(Counter((await kitchen.meals())[-now.total() :]))
        left -= now
        await kitchen.app.database.write("update waiter set served = $1 returning served", begun)
    assert rounds[:4] == [Counter(high=4, low=1)] * 2 + [Counter(high=2, low=1), Counter(low=1)]
    assert len(rounds) == 10
    for host in hosts:
        host.terminate()
        assert await asyncio.to_thread(host.wait) == 0
    rows = await kitchen.app.database.fetch("select count(distinct dish) as n from meal")
    assert rows[0]["n"] == 20
    assert await kitchen.app.database.fetchval("select count(*) from relevo.message") == 0


async def test_processes_follow_the_backlog_up_down_and_to_none(kitchen: Kitchen) -> None:
    app, queue = kitchen.app, kitchen.app.queue("render")
    kitchen.write(scaled=SCALED)
    await queue.send_many([Message(1), Message(1), Message(1), Message(2)])
    scaler = kitchen.start("-m", "relevo.cli", "consumer", "autoscale", "renderers", "scaled:app")

    async def until_hosts(count: int) -> None:
        async def there() -> bool:
            views = await app.messaging.consumers()
            return [len(view.hosts) for view in views] == [count]

        await kitchen.until(there, f"{count} hosts serve")

    async def serve(bodies: int, left: int) -> None:
        await app.database.write("update waiter set served = $1 returning served", bodies)

        async def served() -> bool:
            return len(await queue.peek()) == left

        await kitchen.until(served, f"{left} messages are left")

    await until_hosts(2)
    await serve(1, left=1)
    await until_hosts(1)
    await serve(2, left=0)
    await until_hosts(0)
    await queue.send(3)

    async def begun() -> bool:
        return bool(
            await app.database.fetchval("select exists (select from meal where dish = '3')")
        )

    await kitchen.until(begun, "the last message is at a handler")
    scaler.terminate()
    await serve(3, left=0)  # a process that is told to stop finishes what it has begun
    assert await asyncio.to_thread(scaler.wait) == 0
    await until_hosts(0)


class Service:
    """An app whose consumers note the order in which messages begin."""

    def __init__(self, url: str, host: str = "a") -> None:
        self.app = App(settings=told(url, host_name=host))
        self.begun: list[Received] = []
        self.go = asyncio.Event()

    async def __call__(self, msg: Received) -> None:
        self.begun.append(msg)
        await self.go.wait()

    @property
    def bodies(self) -> list[Any]:
        return [one.body for one in self.begun]

    async def until_begun(self, count: int) -> None:
        await until(lambda: len(self.begun) >= count, f"{count} messages, not {self.bodies}")


@pytest.fixture
def service(relevo_url: str) -> Service:
    return Service(relevo_url)


def batch(priority: str, count: int = 10) -> list[Message]:
    return [Message(f"{priority}-{n}", properties={"Priority": priority}) for n in range(count)]


def names(priority: str, count: int = 10) -> list[str]:
    return [f"{priority}-{n}" for n in range(count)]


@pytest.mark.parametrize("concurrency", [1, 3])
async def test_single_consumers_serve_every_high_before_every_low(
    app: App, service: Service, concurrency: int
) -> None:
    orders = service.app.priority_topic("orders", {"high": 1, "low": 1})
    sending = app.priority_topic("orders", {"high": 1, "low": 1})
    await sending.send_many(batch("low"))
    await sending.send_many(batch("high"))
    service.app.consumers(
        "kitchen", sources=[orders["high"], orders["low"]], across="strict", concurrency=concurrency
    )(service)
    service.go.set()
    async with service.app.host():
        await service.until_begun(20)
    assert service.bodies == names("high") + names("low")


async def test_a_third_class_is_a_subscription_a_rule_and_consumers(
    app: App, relevo_url: str, service: Service
) -> None:
    orders = app.priority_topic("orders", {"high": 1, "low": 1})
    await orders.send_many(batch("high") + batch("urgent"))  # nobody wants these urgent ones
    added = service.app.topic("orders").subscription(
        "urgent", rules={"urgent": "Priority = 'urgent'"}
    )
    added.on_messages("orders-urgent", concurrency=2)(service)
    service.go.set()
    async with service.app.host():
        await orders.send_many(batch("urgent", 3) + batch("low", 3))
        await service.until_begun(3)
    assert sorted(service.bodies) == names("urgent", 3)
    assert len(await orders["high"].peek()) == 10
    assert len(await orders["low"].peek()) == 3


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements that apps run from now on."""
    found: list[str] = []
    connect = Endpoint.connect

    async def counted(endpoint: Endpoint, **options: Any) -> Any:
        connection = await connect(endpoint, **options)
        connection.add_query_logger(lambda record: found.append(record.query))
        return connection

    monkeypatch.setattr(Endpoint, "connect", counted)
    return found


def of_claims(statements: Sequence[str]) -> list[str]:
    """The names of those that claim messages."""
    names = [sql.split()[2] for sql in statements if sql.startswith("/* relevo messaging.")]
    return [name for name in names if name.startswith(("messaging.serve", "messaging.rec"))]


async def test_many_sources_cost_one_statement_per_claim(
    statements: list[str], relevo_url: str, service: Service
) -> None:
    queues = [service.app.queue(f"q{n}") for n in range(8)]
    async with service.app:
        for queue in queues:
            await queue.send(b"")
        statements.clear()
        assert len(await service.app.receive(queues, 8)) == 8
        assert of_claims(statements) == ["messaging.receive"]
        for queue in queues:
            await queue.send(b"")
    other = Service(relevo_url, "b")
    sources = [other.app.queue(f"q{n}") for n in range(8)]
    other.app.consumers("all", sources=sources, concurrency=8)(other)
    statements.clear()
    async with other.app.host():
        await other.until_begun(8)
        assert len({one.delivery.claim for one in other.begun}) == 1
        other.go.set()


async def test_a_deep_stale_backlog_does_not_delay_a_high_message(
    app: App, clock: Clock, service: Service
) -> None:
    queue = app.queue("render")
    for _ in range(10):
        await queue.send_many([Message("low", priority=0) for _ in range(500)])
    await clock.advance(timedelta(days=1))
    service.app.queue("render").on_messages("drawers", concurrency=2, prefetch=0)(service)
    async with service.app.host():
        await service.until_begun(2)
        await queue.send("high", priority=9)
        service.go.set()
        await service.until_begun(3)
        assert service.bodies[:3] == ["low", "low", "high"]
    await queue.send("next", priority=9)
    assert [one.body for one in await queue.receive()] == ["next"]


async def test_parked_work_stays(app: App, service: Service) -> None:  # M34
    queue = service.app.queue("archive")
    queue.on_messages("archivists", concurrency=2)(service)
    async with service.app.host():
        sending = app.queue("archive")
        await sending.send("first")
        await service.until_begun(1)
        await app.messaging.pause_consumers("archivists", reason="busy day")
        [paused] = await app.messaging.consumers()
        assert (paused.name, paused.state, paused.reason) == ("archivists", "paused", "busy day")
        await sending.send_many([Message("later")] * 2)
        await app.queue("other").send("other")
        held = service.begun[0].delivery
        before = await app.database.fetch("select * from relevo.message order by sequence")
        assert [row["token"] for row in before[:3]] == [held.token, None, None]
        service.go.set()  # what is held is settled all the same

        async def settled() -> bool:
            return len(await sending.peek()) == 2

        await until(settled, "the first is done")
        assert service.bodies == ["first"]
        assert {one.state for one in await sending.peek()} == {"active"}
        await app.messaging.resume_consumers("archivists")
        await service.until_begun(3)


async def test_work_out_of_hours_stays(app: App, clock: Clock, service: Service) -> None:
    now = await clock.now()
    opens, closes = now + timedelta(hours=2), now + timedelta(hours=4)
    queue = service.app.queue("archive")
    queue.on_messages("night", hours=f"{opens:%H:%M}-{closes:%H:%M} UTC")(service)
    day = service.app.queue("day")
    day.on_messages("day")(service)
    service.go.set()
    async with service.app.host():
        await app.queue("archive").send("night")
        await app.queue("day").send("day")
        await service.until_begun(1)
        await clock.advance(timedelta(hours=1))
        await app.queue("day").send("day")
        await service.until_begun(2)
        assert service.bodies == ["day", "day"]
        await clock.advance(timedelta(hours=2))
        await service.until_begun(3)
    assert service.bodies[2] == "night"
