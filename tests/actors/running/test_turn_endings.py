"""Ends of turns: deferred answers, work that goes on outside, time limits, idle actors."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from relevo.actors import Actor, Interface, timer
from relevo.errors import (
    ActivationLost,
    BadArguments,
    CallIdReused,
    RemoteError,
    TurnTimeout,
    UnknownMethod,
)
from tests.actors.running.lab import Blocking, LabState, define_lab, of
from tests.jobs.office import until

if TYPE_CHECKING:
    from relevo import App
    from tests.actors.bank import Gates
    from tests.actors.running.conftest import Host, Hosts

pytestmark = pytest.mark.anyio


async def test_deferred_answers_come_with_a_later_turn(lab: Host) -> None:
    actor = of(lab, "deferring")
    asked = asyncio.create_task(actor.answer_later())
    await until(lambda: _pending(lab, "lab/s:deferring") == 1, "deferred")
    activation = lab.activation("lab/s:deferring")
    assert activation is not None
    assert not activation.is_idle  # I13
    with pytest.raises(RemoteError):
        await actor.give(1, 2, True)
    await actor.give(3, 4)
    assert await asked == 3

    lost = asyncio.create_task(actor.answer_later())
    await until(lambda: _pending(lab, "lab/s:deferring") == 1, "deferred")
    activation.deactivate("requested")
    with pytest.raises(ActivationLost) as error:  # I31
        await lost
    assert error.value.executed is None
    assert await actor.number() == 2  # the turn was committed

    gone = asyncio.create_task(actor.answer_later())
    await until(lambda: _pending(lab, "lab/s:deferring") == 1, "deferred")
    gone.cancel()
    await until(lambda: _pending(lab, "lab/s:deferring") == 0, "forgotten")
    await actor.give(5, 6)  # harmless


async def test_deferred_answers_of_calls_with_an_id_are_recorded_once(lab: Host) -> None:
    actor = of(lab, "recorded")
    call = actor.with_(call_id="c-1")
    first = asyncio.create_task(call.answer_later())
    await until(lambda: _pending(lab, "lab/s:recorded") == 1, "deferred")
    first.cancel()  # the caller goes, and comes again
    repeat = asyncio.create_task(call.answer_later())
    await asyncio.sleep(0)
    await actor.give(7, 8)
    assert await repeat == 7
    assert await call.answer_later() == 7  # I28
    assert await actor.number() == 1
    with pytest.raises(CallIdReused):
        await call.add(1)


def _pending(host: Host, canonical: str) -> int:
    activation = host.activation(canonical)
    return 0 if activation is None else len(activation.deferred)


async def test_repeats_of_a_call_with_an_id_join_it_and_run_once(lab: Host) -> None:
    actor = of(lab, "ids")
    call = actor.with_(call_id="pay-1")
    first = asyncio.create_task(call.watch("w"))
    await lab.gates.event("w").wait()
    first.cancel()
    repeats = [asyncio.create_task(call.watch("w")) for _ in range(2)]
    await asyncio.sleep(0)
    lab.gates.open("w")
    assert await asyncio.gather(*repeats) == [True, True]  # I27, I28
    assert await actor.number() == 1
    activation = lab.activation("lab/s:ids")
    assert activation is not None
    assert not activation.calls_by_id
    activation.deactivate("requested")
    assert await call.watch("w") is True
    assert await actor.number() == 1


async def test_offloaded_work_is_outside_of_turns(lab: Host) -> None:
    actor = of(lab, "offload")
    await actor.work("o")
    await lab.gates.event("o").wait()
    activation = lab.activation("lab/s:offload")
    assert activation is not None
    assert not activation.is_idle  # I13
    assert await actor.add(1) == 1  # turns run meanwhile
    lab.gates.open("o")
    await lab.gates.hold("worked")
    assert await actor.number() == 6


async def test_an_actor_stays_for_work_that_starts_with_a_commit(lab: Host) -> None:
    actor, gates = of(lab, "held"), lab.gates
    await actor.add(1)
    activation = lab.activation("lab/s:held")
    assert activation is not None
    async with lab.app.database.transaction() as tx:
        await tx.execute("select from relevo.actor where id = 'lab/s:held' for update")
        calls = [asyncio.create_task(call) for call in (actor.add(1), actor.work("o"))]
        await until(lambda: activation.offloads_to_come == 1, "its turn has ended")
        assert not activation.is_idle  # I13: its commit is on its way
        activation.deactivate("requested")
    await gates.event("o").wait()
    assert activation.state == "deactivating"
    gates.open("o")
    await asyncio.gather(*calls)
    await activation.over.wait()
    assert await actor.number() == 7


async def test_tasks_that_outlive_their_turn_are_outside_of_it(lab: Host) -> None:
    actor = of(lab, "escape")
    await actor.escape()
    lab.gates.open("escape")
    await lab.gates.hold("escaped")
    assert lab.gates.log == ["outside"]
    assert await actor.number() == 0
    with pytest.raises(RemoteError, match="CancelledError"):
        await actor.raise_it("cancel")
    with pytest.raises(RemoteError, match="SystemExit"):
        await actor.raise_it("exit")
    with pytest.raises(UnknownMethod):
        await actor.call("nothing")
    with pytest.raises(BadArguments):
        await actor.call("add", "one")


async def test_turns_have_a_time_limit(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relevo.actors.running.turn_runner.ACTOR_ABORT_SECONDS", 0.05)
    host = await hosts.start(lambda app, gates: define_lab(app, gates, turn_timeout=0.2))
    actor = of(host, "slow")
    await actor.add(1)
    with pytest.raises(TurnTimeout) as error:
        await actor.cut("never")
    assert error.value.executed is True
    assert await actor.number() == 1
    with pytest.raises(ActivationLost):  # it goes on after its cancellation
        await actor.swallow("never")
    assert await actor.number() == 1


async def test_the_next_turn_waits_for_the_thread_of_a_cut_one(
    hosts: Hosts, blocking: Blocking
) -> None:
    host = await hosts.start(lambda app, gates: define_lab(app, gates, blocking, turn_timeout=0.3))
    actor = of(host, "thread")
    blocked = asyncio.create_task(actor.block())
    await asyncio.to_thread(blocking.begun.wait)
    activation = host.activation("lab/s:thread")
    assert activation is not None
    (turn,) = activation.turns.values()
    await until(lambda: turn.timed_out, "its time is over")
    behind = asyncio.create_task(actor.add(5))
    await asyncio.sleep(0)
    assert turn.id in activation.turns  # I11: the thread still runs
    blocking.end.set()
    with pytest.raises(TurnTimeout):
        await blocked
    assert await behind == 5


async def test_idle_actors_leave_and_busy_ones_stay(hosts: Hosts) -> None:
    class Ticking(Interface):
        async def touch(self) -> None: ...

    def define(app: App, gates: Gates) -> None:
        define_lab(app, gates, idle_after=0.001)

        @app.actor("ticking", implements=Ticking, idle_after=0.001)
        class TickingActor(Actor[LabState]):
            @timer(every=0.001)
            async def tick(self) -> None:
                gates.open("ticked")

            async def touch(self) -> None: ...

    host = await hosts.start(define)
    busy = asyncio.create_task(of(host, "busy").watch("b"))
    await of(host, "idle").add(1)
    await host.app.actor(Ticking, 1).touch()
    await host.gates.hold("ticked")
    await host.gates.event("b").wait()

    def gone() -> bool:
        host.runtime.eviction.collect_idle()
        return all(host.activation(one) is None for one in ("lab/s:idle", "ticking/i:1"))

    await until(gone, "idle actors have left")  # I14
    assert host.activation("lab/s:busy") is not None  # I13
    host.gates.open("b")
    await busy
    assert await of(host, "idle").number() == 1


async def test_pressure_evicts_the_longest_unused(hosts: Hosts) -> None:
    host = await hosts.start(define_lab, actors_activations_max=20)
    for number in range(21):
        await of(host, str(number)).add(1)
    await until(lambda: host.runtime.activations == 19, "two have left")
    assert host.activation("lab/s:0") is None
    assert host.activation("lab/s:20") is not None


async def test_a_turn_that_holds_the_loop_is_named(
    hosts: Hosts, blocking: Blocking, monkeypatch: pytest.MonkeyPatch
) -> None:
    warned: list[dict[str, Any]] = []

    class Log:
        def warning(self, event: str, **values: Any) -> None:
            warned.append({"event": event, **values})
            blocking.end.set()

    monkeypatch.setattr("relevo.actors.running.watchdog.log", Log())
    host = await hosts.start(lambda app, gates: define_lab(app, gates, blocking))
    await of(host, "hog").hog()
    assert blocking.end.is_set()
    assert warned[0]["event"] == "actor.holds_loop"
    assert (warned[0]["actor"], warned[0]["turn"]) == ("lab/s:hog", "method hog")
