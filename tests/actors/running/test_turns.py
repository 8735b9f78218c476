"""Turns of one actor: order, undo, deferred answers, save, cancellation, time limits."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from relevo.errors import (
    DeadlineExceeded,
    Dropped,
    Overloaded,
    ReadOnlyTurn,
    RemoteError,
    TooLarge,
)
from relevo.limits import ACTOR_STATE_BYTES_MAX
from tests.actors.bank import InsufficientFunds
from tests.actors.running.lab import define_lab, of
from tests.jobs.office import until
from tests.support.logs import capture_logs

if TYPE_CHECKING:
    from tests.actors.running.conftest import Host, Hosts

pytestmark = pytest.mark.anyio


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


async def test_queued_calls_that_are_canceled_or_late_never_run(lab: Host) -> None:
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
    assert ("canceled", True) in lab.gates.log
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
