"""Probes find every circle of waiting calls, and nothing else."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from relevo.actors.core.deadlocks import (
    ActorWaits,
    Probe,
    RunningTurn,
    WaitingCall,
    follow,
    refusal,
    start,
)

HOPS = 32


class World(Struct):
    """Actors that each run one turn, which may wait for a call to another one."""

    waits: dict[str, ActorWaits]

    def probe(self, call: WaitingCall) -> list[Probe]:
        pending = start(call, (call.caller,), self.waits[call.actor])
        proofs: list[Probe] = []
        for _ in range(HOPS * 10):
            if not pending:
                return proofs
            probe = pending.pop()
            if probe.is_proof:
                proofs.append(probe)
            else:
                pending += follow(probe, self.waits[probe.target], hops_max=HOPS)
        raise AssertionError("a probe went on for ever")


def world(targets: dict[int, int], made_at: dict[int, float]) -> World:
    """Turn n runs at actor n in chain n, and waits for a turn of actor targets[n]."""
    calls = {n: WaitingCall(f"a/i:{target}", n, n, made_at[n]) for n, target in targets.items()}
    return World({
        f"a/i:{n}": ActorWaits(
            f"a/i:{n}",
            (RunningTurn(n, n, None, True, (f"a/i:{targets[n]}",) if n in targets else ()),),
            tuple(call for call in calls.values() if call.actor == f"a/i:{n}"),
        )
        for n in made_at
    })  # fmt: skip


@given(st.data())
def test_a_call_is_refused_if_and_only_if_it_is_the_last_of_its_circle(data: st.DataObject) -> None:
    count = data.draw(st.integers(2, 8))
    actors = st.integers(0, count - 1)
    targets = {
        n: target
        for n, target in data.draw(st.dictionaries(actors, actors)).items()
        if n != target  # a chain that comes back to its own turn runs nested in it
    }
    made_at = dict(enumerate(data.draw(st.permutations([float(n) for n in range(count)]))))
    made = world(targets, made_at)
    for actor in made.waits.values():
        for call in actor.waiting:
            circle = [call.caller]
            while circle[-1] in targets and targets[circle[-1]] not in circle:
                circle.append(targets[circle[-1]])
            is_circle = targets.get(circle[-1]) == call.caller
            proofs = made.probe(call)
            assert bool(proofs) == is_circle
            for proof in proofs:
                assert made_at[proof.last.caller] == max(made_at[n] for n in circle)
                assert proof.target == proof.last.actor
                assert all(f"{n:x}" in refusal(proof) for n in circle)


def test_a_turn_of_the_same_chain_that_does_not_wait_is_no_circle() -> None:
    """Two branches of a chain: one waits for an actor that waits for the other, which runs."""
    call = WaitingCall("a/s:b", caller=1, chain=7, made_at=1.0)
    made = World({
        "a/s:b": ActorWaits("a/s:b", (RunningTurn(2, 8, None, True, ("a/s:c",)),), (call,)),
        "a/s:c": ActorWaits(
            "a/s:c", (RunningTurn(3, 7, 1, True),), (WaitingCall("a/s:c", 2, 8, 2.0),)
        ),
    })  # fmt: skip
    assert made.probe(call) == []


def test_a_circle_through_a_nested_turn_is_found() -> None:
    """P waits for B, whose holder called C, which called back into B; that turn waits for P."""
    call = WaitingCall("a/s:b", caller=1, chain=1, made_at=1.0)
    back = WaitingCall("a/s:p", caller=22, chain=2, made_at=2.0)
    made = World({
        "a/s:p": ActorWaits("a/s:p", (RunningTurn(1, 1, None, True, ("a/s:b",)),), (back,)),
        "a/s:b": ActorWaits(
            "a/s:b",
            (
                RunningTurn(2, 2, None, True, ("a/s:c",)),
                RunningTurn(22, 2, 21, False, ("a/s:p",)),
            ),
            (call,),
        ),
        "a/s:c": ActorWaits("a/s:c", (RunningTurn(21, 2, 2, True, ("a/s:b",)),)),
    })  # fmt: skip
    (proof,) = made.probe(call)
    assert proof.last == back
