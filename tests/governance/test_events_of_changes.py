"""A change and its event are stored together, whichever process ends in between."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from relevo import App, settings
from relevo.actors import Actor, Interface, reminder_handler
from relevo.actors.definitions import NoState
from relevo.actors.reminders import Tick  # noqa: TC001 - read when it runs
from relevo.governance.calls.limit_calls import LimitOptions
from relevo.governance.core.pools import PoolOptions
from relevo.governance.core.windows import Rate
from relevo.governance.operating.limits import LimitService
from relevo.governance.operating.pools import PoolService
from relevo.governance.operating.resolvers import MoveSubject, ResolverService
from relevo.testing.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable
    from pathlib import Path

    from relevo.testing.recorder import Recorder

pytestmark = pytest.mark.anyio
SETTINGS = {"lease_expiration": 3, "lease_renew": 0.5, "lease_acquire": 0.5, "actors_slots": 4}


class Diary(Interface):
    async def remind(self) -> None: ...


class DiaryActor(Actor[NoState]):
    async def remind(self) -> None:
        await self.reminders.set("bill", self.bill, after=3_600.0)

    @reminder_handler
    async def bill(self, _: Tick[None]) -> None: ...


async def program(app: App, record: Recorder) -> None:
    app.actor("diary", implements=Diary)(DiaryActor)
    app.governance.pool("erp")
    await app.actor(Diary, "first", type="diary").remind()  # the host serves its placement group


class Operator:
    """A client that changes what a host governs, and reads the events of it."""

    def __init__(self, app: App, cluster: Cluster) -> None:
        self.app = app
        self.cluster = cluster
        self.pools = PoolService(app.governance)
        self.limits = LimitService(app.governance)
        self.resolvers = ResolverService(app.governance)

    async def events_of(self, subject: str) -> list[tuple[str, str | None]]:
        page = await self.app.events.read()
        return [
            (one.type.removeprefix("relevo."), one.data.get("by"))
            for one in page.events
            if one.subject == subject
        ]

    async def across_a_kill(self, point: str, change: Awaitable[object], skip: int = 0) -> None:
        """Make a change while its host is killed at a point; it is repeated at the next host."""
        node = self.cluster.nodes["a"]
        self.cluster.faults.arm(point, "kill", skip=skip, process="a")
        changing = asyncio.ensure_future(change)
        await self.cluster.until(lambda: node.process.poll() is not None, "the host is killed")
        self.cluster.faults.disarm(point)
        await self.cluster.start("a")
        await changing


@pytest.fixture
async def operator(relevo_url: str, tmp_path: Path) -> AsyncIterator[Operator]:
    home = str(tmp_path / "home")
    chosen = settings.load({**SETTINGS, "database_url": relevo_url, "home": home}, environ={})
    async with (
        Cluster(
            relevo_url, f"{__name__}:program", tmp_path, settings={**SETTINGS, "home": home}
        ) as cluster,
        App(settings=chosen) as app,
    ):
        app.actor("diary", implements=Diary)(DiaryActor)
        await cluster.start("a")
        yield Operator(app, cluster)


async def test_a_killed_host_leaves_no_change_without_its_event_nor_the_reverse(
    operator: Operator,
) -> None:
    pools, limits, resolvers = operator.pools, operator.limits, operator.resolvers
    await pools.put("erp", PoolOptions(size=2), by="ann")
    await operator.across_a_kill("before_turn_commit", pools.resize("erp", 5, by="ann"))
    assert (await pools.get("erp")).size == 5
    assert await operator.events_of("pool/erp") == [
        ("pool.created", "ann"),
        ("pool.changed", "ann"),
    ]

    options = LimitOptions(rates=(Rate(10, per=1.0),))
    await operator.across_a_kill("after_turn_commit", limits.put("mail", options, by="bob"))
    assert (await limits.get("mail")).rates == options.rates
    assert await operator.events_of("limit/mail") == [("limit.created", "bob")]

    dbs = operator.app.governance.resolver("orders", max_stale=0.2, use_ttl=0.2)
    await dbs.add_resource("db1")
    await dbs.add_resource("db2")
    await dbs.add_partition("eu", on="db1")
    move = resolvers.move(
        "orders", MoveSubject(partition="eu"), "db2", switch=False, wait=60, by="eve"
    )
    await operator.across_a_kill("before_turn_commit", move, skip=1)  # what ends it
    assert [(one.name, one.resource) for one in [part async for part in dbs.partitions()]] == [
        ("eu", "db2")
    ]
    assert await operator.events_of("resolver/orders") == [
        ("resolver.created", None), ("resolver.resource_put", None),
        ("resolver.resource_put", None), ("resolver.partition_put", None),
        ("resolver.partition_moved", "eve"),
    ]  # fmt: skip


async def test_a_change_has_its_event_although_nobody_waits_for_the_answer(
    operator: Operator,
) -> None:
    diary = operator.app.actor(Diary, "ann", type="diary")
    await diary.remind()
    actors = operator.app.actors
    for change in (
        actors.reminders.cancel(diary, "bill", by="ann"),
        actors.administration.delete(diary, by="ann"),
    ):
        operator.cluster.faults.arm("after_turn_commit", "stop", process="a")
        changing = asyncio.ensure_future(change)
        await operator.cluster.faults.reached("after_turn_commit")
        changing.cancel()
        operator.cluster.faults.disarm("after_turn_commit")
        operator.cluster.nodes["a"].thaw()
        await asyncio.wait({changing})
    assert await actors.reminders.cancel(diary, "bill", by="ann") is False
    assert await operator.events_of("actor/diary/s:ann") == [
        ("actor.reminder_canceled", "ann"), ("actor.deleted", "ann"),
    ]  # fmt: skip
