"""The turns of actors, as hosts have recorded them, and a check of their invariants.

A program records them with `record_turns(app, record)`. The event `turn` has the time of its
beginning and, in `until`, of its end; `commit` says that a revision was stored; `output` that a
result left the host.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from relevo.actors.host import ActorsPart
from relevo.testing.trace import Act, Violation

if TYPE_CHECKING:
    from collections.abc import Iterable

    from relevo.app import App
    from relevo.testing.recorder import Recorder

TurnRecord = dict[str, Any]


def record_turns(app: App, record: Recorder) -> None:
    """Record the turns of this host from now on."""
    app.parts.of(ActorsPart).record_turns(record)


def outputs(records: Iterable[TurnRecord]) -> list[Act]:
    """Return the outputs as acts under the leases of their slots, in the order of time."""
    return [
        Act(
            at=one["at"], host=one["host"], unit=one["unit"], lease=one["lease"], epoch=one["epoch"]
        )
        for one in sorted(records, key=lambda one: float(one["at"]))
        if one["event"] == "output"
    ]


def check_turns(records: Iterable[TurnRecord]) -> None:
    """Raise `Violation` if turns break an invariant.

    I9: within an epoch of its slot an actor has one activation at a time, on one host.
    I11: a writing turn of an activation overlaps no other, except those that interleave.
    I24: no result leaves before the commits of its activation that were queued before it.

    `check_invariants` checks I2 and I3, the latter by what `outputs` returns.
    """
    turns: dict[tuple[str, int], list[TurnRecord]] = defaultdict(list)
    stored: dict[tuple[str, str, int], int] = {}
    for one in sorted(records, key=lambda one: float(one["at"])):
        match one["event"]:
            case "turn" if not one["lost"]:
                turns[one["actor"], one["epoch"]].append(one)
            case "commit":
                stored[_activation(one)] = one["revision"]
            case "output" if one["revision"] > stored.get(_activation(one), one["loaded"]):
                raise Violation(f"I24: a result left before the commits ahead of it: {one}")
    for of_actor in turns.values():
        _check_activations(of_actor)
        _check_overlaps(of_actor)


def _activation(record: TurnRecord) -> tuple[str, str, int]:
    return record["host"], record["actor"], record["activation"]


def _check_activations(turns: list[TurnRecord]) -> None:
    """Check the turns of an actor in an epoch, in the order of their beginnings."""
    spans: dict[tuple[str, str, int], tuple[float, float]] = {}
    for one in turns:
        begun, until = spans.get(_activation(one), (one["at"], 0.0))
        spans[_activation(one)] = begun, max(until, one["until"])
    if len({host for host, _, _ in spans}) > 1:
        raise Violation(f"I9: an actor was on several hosts in one epoch: {sorted(spans)}")
    ordered = sorted(spans.items(), key=lambda item: item[1])
    for (before, (_, until)), (after, (begun, _)) in pairwise(ordered):
        if begun < until:
            raise Violation(f"I9: two activations at a time: {before} until {until}, {after}")


def _check_overlaps(turns: list[TurnRecord]) -> None:
    """Check the turns of an actor in an epoch, in the order of their beginnings."""
    writer: TurnRecord | None = None
    last: TurnRecord | None = None
    for one in turns:
        if one["mode"] == "interleave":
            continue
        beside = last if one["mode"] == "write" else writer
        if beside is not None and one["at"] < beside["until"]:
            raise Violation(f"I11: a turn began beside a writing one: {beside} and {one}")
        if one["mode"] == "write":
            writer = one
        if last is None or one["until"] > last["until"]:
            last = one
