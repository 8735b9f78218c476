"""Looks for calls that wait for each other, over all hosts, and refuses one of each circle."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from relevo.actors.core import deadlocks
from relevo.actors.core.deadlocks import ActorWaits, Probe, RunningTurn, WaitingCall
from relevo.errors import DeadlockDetected, RelevoError
from relevo.kernel.telemetry.logs import get_logger
from relevo.limits import ACTOR_CHAIN_FRAMES_MAX, ACTOR_PROBE_SECONDS

if TYPE_CHECKING:
    from relevo.actors.running.activation import Activation
    from relevo.actors.running.runtime import ActorRuntime
    from relevo.actors.running.turn import Turn, Work

log = get_logger(__name__)
LOOK_SECONDS: Final = 0.5
AGAIN_SECONDS: Final = 2.0
"""How long until a call that still waits is looked at again."""
HOPS_MAX: Final = ACTOR_CHAIN_FRAMES_MAX
_decoder = msgspec.msgpack.Decoder(Probe)
_encode = msgspec.msgpack.Encoder().encode


class ProbeSender(Protocol):
    """Sends probes to the hosts of their actors."""

    async def send_probe(self, actor: str, body: bytes) -> None:
        """Send a probe to the host that owns an actor; may be lost."""


class Prober:
    """Sends probes for the calls of this host that wait long, and answers those of others."""

    def __init__(self, runtime: ActorRuntime, sender: ProbeSender) -> None:
        self._runtime = runtime
        self._sender = sender
        self._again_at: dict[int, float] = {}

    async def run(self) -> None:
        """Look at calls that wait until the host stops."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self.look()

    def look(self) -> None:
        """Send probes for the calls that have waited long enough."""
        now = asyncio.get_running_loop().time()
        kept: dict[int, float] = {}
        for activation in list(self._runtime.waiting):
            head = activation.mailbox.head
            if head is None:
                self._runtime.waiting.discard(activation)
            elif now - head.queued_at >= ACTOR_PROBE_SECONDS:
                self._look_at(activation, now, kept)
        self._again_at = kept

    def receive(self, body: bytes) -> None:
        """Take in a probe; one that cannot be read is dropped."""
        try:
            probe = _decoder.decode(body)
        except msgspec.MsgspecError as error:
            log.warning("actors.bad_probe", error=str(error))
            return
        self.take(probe)

    def take(self, probe: Probe) -> None:
        """Follow a probe at an actor of this host, or refuse the call that it proves to wait."""
        try:
            activation = self._runtime.activation_of(probe.target)
        except RelevoError:
            return
        if activation is None:
            return
        if probe.is_proof:
            self._refuse(activation, probe)
            return
        self._send_all(deadlocks.follow(probe, waits_at(activation), hops_max=HOPS_MAX))

    def _look_at(self, activation: Activation, now: float, kept: dict[int, float]) -> None:
        waits: ActorWaits | None = None
        for work in activation.mailbox.queued():
            call = waiting_call(activation.canonical, work)
            if call is None or work.call is None or now - work.queued_at < ACTOR_PROBE_SECONDS:
                continue
            kept[id(work)] = self._again_at.get(id(work), now)
            if kept[id(work)] > now:
                continue
            kept[id(work)] = now + AGAIN_SECONDS
            waits = waits or waits_at(activation)
            turns = tuple(frame.turn for frame in work.call.chain.frames)
            self._send_all(deadlocks.start(call, turns, waits))

    def _send_all(self, probes: list[Probe]) -> None:
        for probe in probes:
            if self._runtime.owns(probe.target):
                asyncio.get_running_loop().call_soon(self.take, probe)
            else:
                self._runtime.run(self._sender.send_probe(probe.target, _encode(probe)))

    def _refuse(self, activation: Activation, probe: Probe) -> None:
        for work in activation.mailbox.queued():
            if waiting_call(activation.canonical, work) == probe.last:
                activation.mailbox.remove(work)
                text = deadlocks.refusal(probe)
                log.warning("actor.deadlock", actor=activation.canonical, error=text)
                work.finish(None, DeadlockDetected(text))


def waits_at(activation: Activation) -> ActorWaits:
    """Return who runs at an actor and who waits there."""
    calls = (waiting_call(activation.canonical, work) for work in activation.mailbox.queued())
    return ActorWaits(
        activation.canonical,
        tuple(_running(turn) for turn in activation.turns.values()),
        tuple(call for call in calls if call is not None),
    )


def waiting_call(canonical: str, work: Work) -> WaitingCall | None:
    """Return a call that a turn waits for; None for other work."""
    call = work.call
    if call is None or call.one_way or not call.chain.frames:
        return None
    return WaitingCall(canonical, call.chain.frames[-1].turn, call.chain.id, call.made_at)


def _running(turn: Turn) -> RunningTurn:
    call = turn.work.call
    frames = () if call is None or call.one_way else call.chain.frames
    return RunningTurn(
        turn.id, turn.chain.id, frames[-1].turn if frames else None,
        is_blocking=turn.outer is None and turn.work.mode != "interleave",
        targets=tuple(dict.fromkeys(each.actor for each in turn.waiting_for)),
    )  # fmt: skip
