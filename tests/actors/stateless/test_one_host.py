"""Stateless types on one host: as many activations as there is work for, and never too many."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from relevo import App
from relevo.actors import Actor, Interface, reminder_handler
from relevo.errors import (
    ActivationFailed,
    ActivationLost,
    BadArguments,
    DeadlineExceeded,
    InvalidValue,
    NotFound,
    Overloaded,
    RemoteError,
)
from relevo.kernel.leases.hosts import Deadline
from relevo.testing import ActorTest
from tests.actors.bank import Account, AccountState
from tests.actors.stateless.conftest import Press, PressActor, Works

if TYPE_CHECKING:
    from relevo.actors import Tick
    from tests.actors.stateless.conftest import Host, Hosts

pytestmark = pytest.mark.anyio


def start_all(host: Host, *tags: str, name: str | None = None) -> list[asyncio.Task[str]]:
    press: Any = host.app.stateless(Press, name)
    return [asyncio.ensure_future(press.hold(tag)) for tag in tags]


def release(host: Host, *tags: str) -> None:
    for tag in tags:
        host.works.gate(tag).set()


async def test_activations_are_made_while_all_are_busy_and_then_calls_wait(hosts: Hosts) -> None:
    host = await hosts.start(max_local=3)
    tags = [f"c{number}" for number in range(8)]
    calls = start_all(host, *tags)
    await host.works.until_begun(*tags[:3])
    for _ in range(50):
        await asyncio.sleep(0)
    assert host.works.tags == tags[:3]
    release(host, *tags)
    assert await asyncio.gather(*calls) == [f"{tag} at a" for tag in tags]
    assert host.works.tags == tags, "calls begin in their order"
    assert host.works.most == host.works.made == 3  # I38


async def test_one_activation_is_enough_for_calls_one_after_the_other(hosts: Hosts) -> None:
    host = await hosts.start(max_local=8)
    for number in range(20):
        await host.press.stamp(f"{number}")
    assert host.works.made == 1


async def test_the_first_free_activation_takes_a_call(hosts: Hosts) -> None:
    host = await hosts.start(max_local=3)
    calls = start_all(host, "x", "y", "z")
    await host.works.until_begun("x", "y", "z")
    release(host, "y", "z")
    await asyncio.gather(*calls[1:])
    await host.press.stamp("second")
    release(host, "x")
    await calls[0]
    await host.press.stamp("first")
    numbers = {tag: number for tag, _, number in host.works.log}
    assert numbers["first"] == numbers["x"] == 1
    assert numbers["second"] == numbers["y"] == 2


async def test_activations_without_work_leave_and_others_stay_apart_by_name(hosts: Hosts) -> None:
    host = await hosts.start(max_local=2)
    await host.app.stateless(Press, "left").stamp("l")
    await host.app.stateless(Press, "right").stamp("r")
    await host.app.stateless(Press, "third").stamp("t")  # one of the others makes room
    names = {name for _, name, _ in host.works.log}
    assert names == {"left", "right", "third"}
    assert len({number for _, _, number in host.works.log}) == 3
    assert host.works.most <= 2  # I38
    assert [reason for _, reason in host.works.left] == ["pressure"]
    host.app.actors.runtime.eviction.idle_seconds = 1e-9
    host.app.actors.runtime.eviction.collect_idle()
    async with asyncio.timeout(10):
        while host.works.live:
            await asyncio.sleep(0.002)
    assert [reason for _, reason in host.works.left[1:]] == ["idle", "idle"]


async def test_no_name_waits_for_ever_behind_another(hosts: Hosts) -> None:
    host = await hosts.start(max_local=1)
    many = start_all(host, *(f"m{number}" for number in range(4)), name="many")
    one = start_all(host, "one", name="one")
    late = start_all(host, "late", name="many")
    release(host, "m0", "m1", "m2", "m3", "one", "late")
    await asyncio.gather(*many, *one, *late)
    assert host.works.tags == ["m0", "m1", "m2", "m3", "one", "late"]
    assert host.works.most == 1  # I38


async def test_a_chain_that_comes_back_does_not_wait_for_itself(hosts: Hosts) -> None:
    host = await hosts.start(max_local=2)
    async with asyncio.timeout(10):
        number = await host.press.again(5)
    assert number in (1, 2)
    assert host.works.most == 2  # I38


async def test_calls_that_wait_too_long_or_whose_callers_leave_never_run(hosts: Hosts) -> None:
    host = await hosts.start(max_local=1)
    (first,) = start_all(host, "first")
    await host.works.until_begun("first")
    with pytest.raises(DeadlineExceeded) as late:
        await host.press.with_(timeout=0.05).stamp("late")
    assert late.value.executed is False
    (gone,) = start_all(host, "gone")
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.wait([gone])
    release(host, "first")
    await first
    await host.press.stamp("last")
    assert host.works.tags == ["first", "last"]  # I30


async def test_the_queue_is_bounded(hosts: Hosts) -> None:
    host = await hosts.start(max_local=1, mailbox=2)
    calls = start_all(host, "running", "one", "two")
    await host.works.until_begun("running")
    with pytest.raises(Overloaded):
        await host.press.with_(timeout=0.1).stamp("three")
    release(host, "running", "one", "two")
    await asyncio.gather(*calls)
    assert host.works.tags == ["running", "one", "two"]


async def test_what_raises_keeps_its_activation_and_what_cannot_begin_is_tried_again(
    hosts: Hosts,
) -> None:
    host = await hosts.start(max_local=4)
    host.works.fails_to_begin = True
    with pytest.raises(ActivationFailed):
        await host.press.with_(timeout=0.05).stamp("never")
    host.works.fails_to_begin = False
    with pytest.raises(RemoteError):
        await host.press.fail()
    await host.press.stamp("after")
    assert host.works.tags == ["after"]
    assert len(host.works.live) == 1


async def test_what_an_earlier_life_of_the_host_left_behind_counts(hosts: Hosts) -> None:
    host = await hosts.start(max_local=1)
    stubborn = asyncio.ensure_future(host.press.resist("stubborn"))
    await host.works.until_begun("stubborn")
    deadline = Deadline()
    deadline.renew(float("inf"))
    host.app.actors.runtime.stateless.begin_life("default", deadline)
    with pytest.raises(ActivationLost):
        await stubborn  # I6: what ran in the life that has ended gives no result
    later = asyncio.ensure_future(host.press.stamp("later"))
    for _ in range(50):
        await asyncio.sleep(0)
    assert host.works.tags == ["stubborn"]  # I38: its code has not ended
    release(host, "stubborn")
    assert await later == "later at a"
    assert host.works.tags == ["stubborn", "later"]


async def test_nothing_is_stored_and_what_would_be_is_refused(hosts: Hosts) -> None:
    host = await hosts.start()
    await host.press.stamp("x")
    assert await host.app.database.fetch("select * from relevo.actor") == []
    with pytest.raises(BadArguments):
        await host.press.with_(call_id="once").stamp("x")
    with pytest.raises(InvalidValue):
        host.app.actors.send(host.press)
    with pytest.raises(InvalidValue):
        await host.app.actors.owner(host.press)
    with pytest.raises(InvalidValue):
        await host.app.actors.delete(host.press)
    assert [one.state for one in host.app.actors.activations(host.press)] == ["active"]


class Nothing(Interface):
    """An interface without methods."""


def test_classes_that_expect_something_stored_are_refused_at_their_definition() -> None:
    app = App("postgresql://nowhere")
    with pytest.raises(InvalidValue, match="declares the state AccountState"):

        @app.stateless("account", implements=Nothing)
        class WithState(Actor[AccountState]):
            pass

    with pytest.raises(InvalidValue, match="a stateless type has no reminders"):

        @app.stateless("reminded", implements=Nothing)
        class WithReminder(Actor[None]):
            @reminder_handler
            async def remind(self, tick: Tick[None]) -> None: ...

    with pytest.raises(InvalidValue, match="max_local must be above 0"):
        app.stateless("press", implements=Press, max_local=0)(PressActor)
    with pytest.raises(NotFound, match="no stateless type of this app implements Account"):
        app.stateless(Account)
    app.stateless("press", implements=Press)(PressActor)
    with pytest.raises(InvalidValue, match=r"use app\.stateless"):
        app.actor(Press, "key", type="press")
    with pytest.raises(NotFound, match="no actor type of this app implements Press"):
        app.actor(Press, "key")


async def test_actors_under_test_reach_stateless_types() -> None:
    app, works = App("postgresql://nowhere"), Works("test")

    @app.stateless("press", implements=Press)
    class TestPress(PressActor):
        pass

    TestPress.works = works

    class Clerk(Press):
        pass

    @app.actor("clerk", implements=Clerk)
    class ClerkActor(Actor[None]):
        async def stamp(self, tag: str) -> str:
            return await app.stateless(Press).stamp(tag)

        async def hold(self, tag: str) -> str:
            return tag

        async def again(self, depth: int) -> int:
            return depth

        async def resist(self, tag: str) -> str:
            return tag

        async def fail(self) -> None: ...

    async with ActorTest(ClerkActor) as test:
        assert await test.proxy.stamp("x") == "x at test"
        await test.settle()
