"""Which actors leave memory, and which stay."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.jobs.office import until

if TYPE_CHECKING:
    from tests.actors.running.conftest import Host, Hosts

pytestmark = pytest.mark.anyio


async def collected(host: Host, canonical: str) -> bool:
    """Whether an idle actor leaves when the host looks."""
    activation = host.activation(canonical)
    assert activation is not None
    host.runtime.eviction.collect_idle()
    if activation.state == "active":
        return False
    await activation.over.wait()
    return host.activation(canonical) is None


async def test_an_idle_actor_leaves_after_the_time_of_the_setting(hosts: Hosts) -> None:
    host = await hosts.start(actors_idle_seconds=1e-9)
    alice = host.account("alice")
    await alice.deposit(5)
    assert await collected(host, "account/s:alice")
    assert ("deactivate", "alice", "idle") in host.gates.log
    assert await alice.balance() == 5


async def test_the_time_of_a_type_goes_before_the_setting(hosts: Hosts) -> None:
    from tests.actors import bank

    def define(app: Any, gates: bank.Gates) -> Any:
        return bank.define(app, gates, idle_after=3_600.0)

    host = await hosts.start(define, actors_idle_seconds=1e-9)
    await host.account("alice").deposit(5)
    assert not await collected(host, "account/s:alice")


async def test_what_is_busy_stays(hosts: Hosts) -> None:  # I13
    host = await hosts.start(actors_idle_seconds=1e-9)
    alice = host.account("alice")
    held = asyncio.ensure_future(alice.wait("door"))
    await host.gates.event("door").wait()
    assert not await collected(host, "account/s:alice")  # a turn runs
    host.gates.open("door")
    await held
    later = asyncio.ensure_future(alice.later())
    while host.activation("account/s:alice").deferred == set():  # type: ignore[union-attr]
        await asyncio.sleep(0)
    assert not await collected(host, "account/s:alice")  # an answer is pending
    await alice.resolve(7)
    assert await later == 7
    assert await collected(host, "account/s:alice")


async def test_pressure_takes_the_longest_unused_first(hosts: Hosts) -> None:
    host = await hosts.start(actors_activations_max=3)
    for key in ("a", "b", "c", "d"):
        await host.account(key).deposit(1)
        await asyncio.sleep(0)
    gone = [key for key in "abcd" if host.activation(f"account/s:{key}") is None]
    assert gone[:1] == ["a"]
    assert "d" not in gone
    assert ("deactivate", "a", "pressure") in host.gates.log


async def test_memory_pressure_takes_the_longest_unused_first(hosts: Hosts) -> None:
    host = await hosts.start(actors_memory_max=1_000)
    eviction = host.runtime.eviction
    held = asyncio.ensure_future(host.account("a").wait("door"))
    await host.gates.event("door").wait()
    for key in "bcdef":
        await host.account(key).deposit(1)
    used = eviction.resident_bytes()
    assert used > 1_000_000 or sys.platform != "linux"
    eviction.resident_bytes = lambda: 1_000
    eviction.relieve_memory()
    assert host.runtime.activations == 6, "there is no pressure at the bound"
    eviction.resident_bytes = lambda: 1_900
    eviction.relieve_memory()  # 3 of 6 would have 950 bytes
    await until(lambda: host.runtime.activations == 3, "half of them have left")
    left = [key for key in "abcdef" if host.activation(f"account/s:{key}") is not None]
    assert left == ["a", "e", "f"], "the one that runs stays"
    assert ("deactivate", "b", "pressure") in host.gates.log
    host.gates.open("door")
    await held
