"""Stateless types on several hosts: where calls run, and one bound for all."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from relevo.errors import Moved, NoHost, RelevoError
from tests.actors.stateless.conftest import Press

if TYPE_CHECKING:
    from tests.actors.stateless.conftest import Hosts

pytestmark = pytest.mark.anyio


async def test_calls_run_on_the_host_of_the_caller_if_it_serves_the_type(hosts: Hosts) -> None:
    one, two = await hosts.start("one"), await hosts.start("two")
    for host in (one, two):
        for _ in range(10):
            assert await host.press.stamp("x") == f"x at {host.works.name}"


async def test_calls_of_clients_are_shared_among_the_hosts(hosts: Hosts) -> None:
    one, two = await hosts.start("one", max_local=2), await hosts.start("two", max_local=2)
    client = await hosts.client()
    press: Any = client.stateless(Press, type="press")
    held = [asyncio.ensure_future(press.hold(f"h{number}")) for number in range(4)]
    async with asyncio.timeout(20):
        while one.works.running + two.works.running < 4:
            await asyncio.sleep(0.002)
    # Of two hosts the better one is taken: so neither has more than it can run at once.
    assert (one.works.running, two.works.running) == (2, 2)
    for host in (one, two):
        for number in range(4):
            host.works.gate(f"h{number}").set()
    where = Counter(answer.rpartition(" ")[2] for answer in await asyncio.gather(*held))
    assert where == {"one": 2, "two": 2}
    assert max(one.works.most, two.works.most) <= 2  # I38


async def test_calls_go_on_while_hosts_come_and_go(hosts: Hosts) -> None:
    client = await hosts.client()
    await hosts.start("stays")
    press: Any = client.stateless(Press, type="press")
    answers: list[str] = []
    errors: list[RelevoError] = []
    stop = asyncio.Event()

    async def call() -> None:
        while not stop.is_set():
            try:
                answers.append(await press.stamp("x"))
            except RelevoError as error:
                errors.append(error)

    async with asyncio.TaskGroup() as group:
        for _ in range(4):
            group.create_task(call())
        for _ in range(2):
            app = hosts.app(host_name="leaves")
            hosts.define(app, "leaves")
            async with app.host():
                seen = answers.count("x at leaves")
                async with asyncio.timeout(20):
                    while answers.count("x at leaves") < seen + 20:
                        await asyncio.sleep(0.002)
        stop.set()
    assert errors == []  # I7: what a host that leaves does not take runs elsewhere
    assert "x at stays" in answers


async def test_a_host_that_stops_lets_calls_end_and_gives_back_those_that_wait(
    hosts: Hosts,
) -> None:
    client, app = await hosts.client(), hosts.app(host_name="only")
    works = hosts.define(app, "only", max_local=1)
    press: Any = client.stateless(Press, type="press")
    serving = app.host()
    await serving.__aenter__()
    running = asyncio.ensure_future(press.hold("running"))
    await works.until_begun("running")
    (pool,) = app.actors.runtime.stateless.pools
    queued = asyncio.ensure_future(press.with_(timeout=0.5).stamp("queued"))
    async with asyncio.timeout(20):
        while not pool.queue.calls:
            await asyncio.sleep(0.002)
    stopping = asyncio.ensure_future(serving.__aexit__(None, None, None))
    with pytest.raises((NoHost, Moved)) as refused:
        await queued  # I7: there is no other host
    assert not refused.value.executed
    works.gate("running").set()
    assert await running == "running at only"
    await stopping
    assert works.tags == ["running"]
    assert works.live == []


async def test_calls_of_all_hosts_are_bounded_by_max_cluster(hosts: Hosts) -> None:
    started = [await hosts.start(name, max_local=4, max_cluster=3) for name in ("one", "two")]
    tags = [f"c{number}" for number in range(12)]
    calls = [
        asyncio.ensure_future(started[number % 2].press.hold(tag))
        for number, tag in enumerate(tags)
    ]
    most = 0
    for _tag in tags:
        async with asyncio.timeout(30):
            while sum(host.works.running for host in started) < min(3, len(calls)):
                await asyncio.sleep(0.002)
        most = max(most, sum(host.works.running for host in started))
        running = [one for host in started for one in host.works.tags]
        open_tags = [
            one for one in running if not any(host.works.gate(one).is_set() for host in started)
        ]
        for host in started:
            host.works.gate(open_tags[0]).set()
        done, _ = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        calls = [call for call in calls if call not in done]
        assert {one.result().rpartition(" ")[2] for one in done} <= {"one", "two"}
    assert most == 3  # I44
    assert sorted(one for host in started for one in host.works.tags) == sorted(tags)
