"""Turns of one actor: order, undo, deferred answers, save, cancellation, time limits."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import Struct, field

from relevo.actors import Actor, Deferred, Interface, Offloaded, method, timer
from relevo.errors import (
    ActivationLost,
    BadArguments,
    CallIdReused,
    DeadlineExceeded,
    Dropped,
    OutsideTurn,
    Overloaded,
    ReadOnlyTurn,
    RemoteError,
    TooLarge,
    TurnTimeout,
    UnknownMethod,
)
from relevo.limits import ACTOR_STATE_BYTES_MAX
from tests.actors.bank import InsufficientFunds
from tests.jobs.office import until
from tests.support.logs import capture_logs

if TYPE_CHECKING:
    from relevo import App
    from tests.actors.bank import Gates
    from tests.actors.running.conftest import Host, Hosts

pytestmark = pytest.mark.anyio


class LabState(Struct):
    number: int = 0
    deep: dict[str, list[dict[str, int]]] = field(default_factory=dict)
    blob: bytes = b""


class Lab(Interface):
    async def add(self, number: int) -> int: ...
    @method(cancel=True)
    async def cut(self, gate: str) -> int: ...
    async def watch(self, gate: str) -> bool: ...
    async def dig(self, key: str, number: int) -> None: ...
    @method(read_only=True)
    async def number(self) -> int: ...
    @method(read_only=True)
    async def read(self, gate: str) -> int: ...
    @method(interleave=True)
    async def through(self, gate: str, number: int) -> int: ...
    async def answer_later(self) -> int: ...
    async def give(self, first: int, second: int, fail: bool = False) -> None: ...
    async def work(self, gate: str) -> None: ...
    async def save_then_fail(self) -> None: ...
    async def escape(self) -> None: ...
    async def swallow(self, gate: str) -> None: ...
    async def block(self) -> int: ...
    async def raise_it(self, name: str) -> None: ...
    async def grow(self, size: int) -> None: ...
    async def delete_and_save(self) -> None: ...
    async def hog(self) -> None: ...


class Blocking:
    """Holds plain methods in their threads."""

    def __init__(self) -> None:
        self.begun, self.end = threading.Event(), threading.Event()


def define_lab(app: App, gates: Gates, blocking: Blocking | None = None, **options: Any) -> Any:
    @app.actor("lab", implements=Lab, **options)
    class LabActor(Actor[LabState]):
        waiting: Deferred[int] | None = None

        async def add(self, number: int) -> int:
            self.state.number += number
            return self.state.number

        async def cut(self, gate: str) -> int:
            self.state.number += 1
            await gates.hold(gate)
            return self.state.number

        async def watch(self, gate: str) -> bool:
            await gates.hold(gate)
            gates.log.append(("cancelled", self.ctx.cancelled))
            self.state.number += 1
            return self.ctx.cancelled

        async def dig(self, key: str, number: int) -> None:
            self.state.deep.setdefault(key, [{}])[0]["n"] = number

        async def number(self) -> int:
            return self.state.number

        async def read(self, gate: str) -> int:
            await gates.hold(gate)
            return self.state.number

        async def through(self, gate: str, number: int) -> int:
            await gates.hold(gate)
            total: int = await self.run_turn(self.add, number)
            return total

        async def answer_later(self) -> Any:
            self.state.number += 1
            self.waiting = self.defer()
            return self.waiting

        async def give(self, first: int, second: int, fail: bool = False) -> None:
            assert self.waiting is not None
            self.waiting.resolve(first)
            self.waiting.resolve(second)
            if fail:
                raise RuntimeError("not given")

        async def work(self, gate: str) -> None:
            self.offload(_outside(gates, gate), then=self.worked)

        async def worked(self, outcome: Offloaded[int]) -> None:
            self.state.number += outcome.result()
            gates.open("worked")

        async def save_then_fail(self) -> None:
            self.state.number += 1
            await self.save()
            self.state.number += 10
            raise RuntimeError("after save")

        async def escape(self) -> None:
            async def later() -> None:
                await gates.hold("escape")
                try:
                    self.state.number += 1
                except OutsideTurn:
                    gates.log.append("outside")
                gates.open("escaped")

            gates.tasks = asyncio.ensure_future(later())  # type: ignore[attr-defined]

        async def swallow(self, gate: str) -> None:
            self.state.number += 1
            for _ in range(3):
                try:
                    await gates.hold(gate)
                except asyncio.CancelledError:
                    gates.open("swallowed")
                    continue

        def block(self) -> int:
            assert blocking is not None
            self.state.number += 1
            blocking.begun.set()
            blocking.end.wait(20)
            self.state.number += 1
            return threading.get_ident()

        async def raise_it(self, name: str) -> None:
            raise {"cancel": asyncio.CancelledError, "exit": SystemExit}[name]("by design")

        async def grow(self, size: int) -> None:
            self.state.blob = b"x" * size

        async def delete_and_save(self) -> None:
            self.ctx.delete()
            await self.save()

        async def hog(self) -> None:
            assert blocking is not None
            blocking.end.wait(20)

    return LabActor


async def _outside(gates: Gates, gate: str) -> int:
    await gates.hold(gate)
    return 5


@pytest.fixture
def blocking() -> Blocking:
    return Blocking()


@pytest.fixture
async def lab(hosts: Hosts, blocking: Blocking) -> Host:
    return await hosts.start(lambda app, gates: define_lab(app, gates, blocking))


def of(host: Host, key: str) -> Any:
    return host.app.actor(Lab, key)


async def test_turns_run_one_at_a_time_in_order_and_undo_what_failed(host: Host) -> None:
    alice = host.account("alice")  # I8: nothing is in memory, nothing was asked
    assert host.activation("account/s:alice") is None
    held = asyncio.create_task(alice.wait("w"))
    await host.gates.event("w").wait()
    others = [asyncio.create_task(alice.note(tag)) for tag in "abc"]  # I9, I11
    assert await alice.peek() == 0  # beside the turn: the state after the last ended one
    host.gates.open("w")
    assert await held == 2
    assert [await one for one in others][-1] == ["a", "b", "c"]
    assert host.gates.log == [("activate", "alice")]

    with pytest.raises(InsufficientFunds) as declared:
        await alice.withdraw(5)
    assert declared.value.missing == 3
    with pytest.raises(RemoteError) as remote:
        await alice.fail_after(5)
    assert remote.value.type_name == "RuntimeError"
    assert remote.value.executed is True
    assert any("fail_after" in note for note in remote.value.__notes__)
    with pytest.raises(ReadOnlyTurn):
        await alice.cheat()
    assert await alice.balance() == 2  # I21
    assert await alice.blocking(3) == 5

    revision = await host.revision("account/s:alice")
    await alice.deposit(0)
    await alice.balance()
    assert await host.revision("account/s:alice") == revision  # I25
    tags = await alice.note("d")
    tags.append("mine")
    assert await alice.note("e") == ["a", "b", "c", "d", "e"]  # I32


async def test_changes_deep_in_the_state_are_stored(lab: Host) -> None:
    actor = of(lab, "deep")
    await actor.dig("a", 1)
    await actor.dig("a", 2)  # I20
    activation = lab.activation("lab/s:deep")
    assert activation is not None
    activation.deactivate("requested")
    await activation.over.wait()
    await actor.add(1)
    again = lab.activation("lab/s:deep")
    assert again is not None
    assert again is not activation
    assert again.document.value.deep == {"a": [{"n": 2}]}
    with pytest.raises(TooLarge):
        await actor.grow(ACTOR_STATE_BYTES_MAX + 1)
    with capture_logs() as logs:
        await actor.grow(300_000)
        await actor.grow(300_001)
    assert [one["event"] for one in logs].count("actor.large_state") == 1


async def test_save_makes_durable_and_the_rest_is_undone(lab: Host) -> None:
    actor = of(lab, "saver")
    with pytest.raises(RemoteError):
        await actor.save_then_fail()
    assert await actor.number() == 1
    assert await lab.revision("lab/s:saver") == 1
    with pytest.raises(RemoteError, match="deletes its actor"):
        await actor.delete_and_save()
    assert await actor.number() == 1


async def test_queued_calls_that_are_cancelled_or_late_never_run(lab: Host) -> None:
    actor = of(lab, "queue")
    held = asyncio.create_task(actor.cut("q"))
    await lab.gates.event("q").wait()
    queued = asyncio.create_task(actor.add(100))
    late = asyncio.create_task(actor.with_(timeout=0.05).add(1_000))
    told = asyncio.create_task(actor.tell.add(10))
    await told
    await asyncio.wait((late,))
    queued.cancel()
    with pytest.raises(asyncio.CancelledError):
        await queued
    with pytest.raises(DeadlineExceeded) as error:  # I30
        await late
    assert error.value.executed is False
    lab.gates.open("q")
    assert await held == 1
    assert await actor.number() == 11

    running = asyncio.create_task(actor.cut("r"))
    await lab.gates.event("r").wait()
    running.cancel()  # its method says cancel=True
    assert await actor.number() == 11
    at_once = asyncio.create_task(actor.cut("s"))
    await asyncio.sleep(0)  # the turn has been given a task that has not begun
    at_once.cancel()
    assert await actor.number() == 11

    with pytest.raises(DeadlineExceeded) as error:
        await actor.with_(timeout=0.05).watch("t")
    assert error.value.executed is None
    lab.gates.open("t")
    assert await actor.number() == 12  # it went on
    assert ("cancelled", True) in lab.gates.log
    assert lab.runtime.room.calls == 0


async def test_mailboxes_are_bounded(hosts: Hosts) -> None:
    host = await hosts.start(lambda app, gates: define_lab(app, gates, mailbox=2))
    actor = of(host, "small")
    held = asyncio.create_task(actor.watch("h"))
    await host.gates.event("h").wait()
    queued = [asyncio.create_task(actor.add(1)) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(Overloaded) as full:  # I37
        await actor.with_(timeout=0.05).add(1)
    assert full.value.executed is False
    activation = host.activation("lab/s:small")
    assert activation is not None
    assert activation.mailbox.calls == 2
    patient = asyncio.create_task(actor.add(1))  # tries again until there is room
    host.gates.open("h")
    assert await held is False
    await asyncio.gather(patient, *queued)
    assert await actor.number() == 4


async def test_the_bytes_of_waiting_calls_are_bounded(
    lab: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("relevo.actors.core.room.ACTOR_HOST_BYTES_MAX", 10_000)
    actor = of(lab, "long")
    held = asyncio.create_task(actor.watch("h"))
    await lab.gates.event("h").wait()
    long = asyncio.create_task(actor.watch("x" * 20_000))
    await until(lambda: lab.runtime.room.bytes > 20_000, "it waits for its turn")
    with pytest.raises(Overloaded) as full:  # I37
        await actor.with_(timeout=0.05).add(1)
    assert full.value.executed is False
    lab.gates.open("h")
    lab.gates.open("x" * 20_000)
    await asyncio.gather(held, long)
    assert lab.runtime.room.bytes == 0
    assert await actor.add(1) == 3


async def test_the_oldest_call_may_make_room(hosts: Hosts) -> None:
    host = await hosts.start(
        lambda app, gates: define_lab(app, gates, mailbox=1, overflow="oldest")
    )
    actor = of(host, "dropping")
    held = asyncio.create_task(actor.watch("h"))
    await host.gates.event("h").wait()
    first = asyncio.create_task(actor.add(100))
    await asyncio.sleep(0)
    second = asyncio.create_task(actor.add(1))
    with pytest.raises(Dropped):
        await first
    host.gates.open("h")
    await held
    assert await second == 2


async def test_readers_run_beside_readers_and_see_no_half_done_turn(lab: Host) -> None:
    actor = of(lab, "readers")
    readers = [asyncio.create_task(actor.read(name)) for name in "ab"]
    for name in "ab":
        await lab.gates.event(name).wait()  # both run
    writer = asyncio.create_task(actor.add(1))
    third = asyncio.create_task(actor.read("c"))  # behind the writer
    lab.gates.open("a")
    lab.gates.open("b")
    assert [await one for one in readers] == [0, 0]
    assert await writer == 1
    lab.gates.open("c")
    assert await third == 1
    inside = asyncio.create_task(actor.through("i", 5))
    await lab.gates.event("i").wait()
    assert await actor.add(1) == 2  # not held up by it
    lab.gates.open("i")
    assert await inside == 7


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
        host.runtime.collect_idle()
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
