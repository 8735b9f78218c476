"""Timers of an actor: ticks are turns, one after the other, with the whole period in between."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relevo import App
from relevo.actors import Actor, Interface, timer
from relevo.testing import ActorTest
from tests.actors import bank

if TYPE_CHECKING:
    from datetime import datetime

PERIOD = 10.0


class Pulse(Interface):
    async def begin(self) -> None: ...


class Pulses:
    """What ticks have done, and how long the next ones take."""

    def __init__(self) -> None:
        self.spans: list[tuple[datetime, datetime]] = []
        self.running = 0
        self.gates = bank.Gates()


def pulse(app: App, pulses: Pulses, test_of: list[ActorTest[Actor[None]]]) -> type[Actor[None]]:
    @app.actor("pulse", implements=Pulse, persist="volatile")
    class PulseActor(Actor[None]):
        async def begin(self) -> None:
            """Activate."""

        @timer(every=PERIOD)
        async def tick(self) -> None:
            began = test_of[0].clock.now
            assert pulses.running == 0, "ticks overlap"
            pulses.running += 1
            try:
                await pulses.gates.hold(f"tick {len(pulses.spans)}")
                if len(pulses.spans) % 2:
                    raise RuntimeError("by design: the timer goes on")
            finally:
                pulses.running -= 1
                pulses.spans.append((began, test_of[0].clock.now))

    return PulseActor


@given(st.lists(st.integers(0, 40), min_size=1, max_size=6))
def test_ticks_never_overlap_and_keep_their_distance(lengths: list[int]) -> None:
    asyncio.run(_tick(lengths))  # I33


async def _tick(lengths: list[int]) -> None:
    """Let each tick take so many seconds of the actor's time, in steps of one."""
    app, pulses = App(), Pulses()
    tests: list[ActorTest[Actor[None]]] = []
    async with ActorTest(pulse(app, pulses, tests)) as test:
        tests.append(test)
        await test.proxy.begin()
        for number, length in enumerate(lengths):
            gate = f"tick {number}"
            while not pulses.gates.event(gate).is_set():
                await _second(test)
            for _ in range(length):
                await _second(test)
            pulses.gates.open(gate)
            await test.settle()
        assert len(pulses.spans) == len(lengths)
        ends = [began for began, _ in pulses.spans[1:]]
        for (_, ended), began in zip(pulses.spans, ends, strict=False):
            assert began - ended == timedelta(seconds=PERIOD)


async def _second(test: ActorTest[Actor[None]]) -> None:
    test.clock.now += timedelta(seconds=1)
    test.clock.fire()
    for _ in range(10):  # passes of the loop in which a tick would begin
        await asyncio.sleep(0)


@pytest.mark.anyio
async def test_a_tick_that_waits_for_its_turn_is_not_queued_twice() -> None:
    app, pulses = App(), Pulses()
    tests: list[ActorTest[Actor[None]]] = []
    async with ActorTest(pulse(app, pulses, tests)) as test:
        tests.append(test)
        await test.proxy.begin()
        for _ in range(100):
            await _second(test)
        assert pulses.running == 1
        assert test.activation is not None
        assert not test.activation.mailbox.queued()  # I33: the first has not ended
        pulses.gates.open("tick 0")
        await test.settle()
        assert len(pulses.spans) == 1
