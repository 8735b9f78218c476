"""Deadlocks between chains of calls, found by probes that follow who waits for whom. Pure.

A call waits at an actor for the turns that run there. Each of those may wait for calls of its own,
which run or wait elsewhere. A probe starts at a waiting call and follows these waits from actor to
actor. When it meets a turn that waits for the call it started from, all of them wait in a circle,
and the call that was made last is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class WaitingCall(Struct, frozen=True, array_like=True):
    """A call that waits for a turn, made by a turn that waits for its answer."""

    actor: str
    """Where it waits."""
    caller: int
    """The turn that made it."""
    chain: int
    made_at: float

    @property
    def order(self) -> tuple[float, int]:
        """Of two calls the one with the higher order was made last."""
        return self.made_at, self.caller


class RunningTurn(Struct, frozen=True):
    """A turn that runs, as a probe sees it."""

    turn: int
    chain: int
    caller: int | None
    """The turn that waits for it, if a turn made its call."""
    is_blocking: bool
    """Whether calls in the mailbox wait for it."""
    targets: tuple[str, ...] = ()
    """Actors whose answers it waits for."""


class ActorWaits(Struct, frozen=True):
    """Who runs at an actor, and who waits there."""

    actor: str
    turns: tuple[RunningTurn, ...] = ()
    waiting: tuple[WaitingCall, ...] = ()


class Probe(Struct, frozen=True, array_like=True):
    """A question on its way: whether the call it started from waits for itself."""

    origin: WaitingCall
    turns: tuple[int, ...]
    """The turns that wait for the origin."""
    last: WaitingCall
    """Of the waiting calls that the probe met, the one made last."""
    followed: int
    """The turn whose call is followed."""
    path: tuple[str, ...]
    """The actors it has come through; the last is where it goes."""
    others: tuple[int, ...] = ()
    """Chains of the waiting calls that it met."""
    is_proof: bool = False
    """It came back: `last` is to be refused."""

    @property
    def target(self) -> str:
        """The actor that is to answer it."""
        return self.last.actor if self.is_proof else self.path[-1]


def start(call: WaitingCall, turns: tuple[int, ...], waits: ActorWaits) -> list[Probe]:
    """Return the probes for a call that waits at an actor; `turns` wait for it."""
    probe = Probe(call, turns, call, 0, (call.actor,), (call.chain,))
    return _past_holders(probe, waits)


def follow(probe: Probe, waits: ActorWaits, *, hops_max: int) -> list[Probe]:
    """Return what becomes of a probe at the actor that it was sent to."""
    if len(probe.path) > hops_max:
        return []
    found: list[Probe] = []
    for turn in waits.turns:
        if turn.caller == probe.followed:
            found += _past(probe, turn)
    for call in waits.waiting:
        if call.caller == probe.followed:
            others = probe.others if call.chain in probe.others else (*probe.others, call.chain)
            last = max(probe.last, call, key=lambda one: one.order)
            met = msgspec.structs.replace(probe, last=last, others=others)
            found += _past_holders(met, waits)
    return _without_repeats(found)


def _past_holders(probe: Probe, waits: ActorWaits) -> list[Probe]:
    found: list[Probe] = []
    for turn in waits.turns:
        if not turn.is_blocking:
            continue
        if turn.turn in probe.turns:
            return [msgspec.structs.replace(probe, is_proof=True)]
        found += _past(probe, turn)
    return found


def _past(probe: Probe, turn: RunningTurn) -> list[Probe]:
    return [
        msgspec.structs.replace(probe, followed=turn.turn, path=(*probe.path, target))
        for target in turn.targets
    ]


def _without_repeats(probes: Iterable[Probe]) -> list[Probe]:
    proofs = [probe for probe in probes if probe.is_proof]
    return proofs[:1] or list(dict.fromkeys(probes))


def refusal(probe: Probe) -> str:
    """Say what waits for what, for the error of the call that is refused."""
    chains: Sequence[str] = [f"{chain:x}" for chain in probe.others]
    return (
        f"the chains of calls {' and '.join(chains)} wait for each other at"
        f" {' → '.join(probe.path)}; this call to {probe.last.actor} was made last, and was"
        " refused. It did not run: try again, or let all callers use the actors in the same order"
    )
