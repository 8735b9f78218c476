"""The transition table of feed units; the code uses it, and the docs are generated from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, Protocol, cast

from relevo.kernel.machine import Machine, Transition

if TYPE_CHECKING:
    from collections.abc import Collection

    from relevo.kernel.leases.model import LeaseState

UnitPhase = Literal["running", "pausing", "paused", "resetting", "completed"]

UNIT: Final = Machine(
    "unit",
    initial="running",
    transitions=[
        Transition("running", "pause", "pausing"),
        Transition("pausing", "settle", "paused", "nothing runs any more"),
        Transition("pausing", "resume", "running"),
        Transition("paused", "resume", "running"),
        Transition("paused", "rewind", "resetting", "rewind or import"),
        Transition("running", "force", "resetting", "rewind with force: owners are fenced"),
        Transition("pausing", "force", "resetting", "the same"),
        Transition("resetting", "restart", "running", "committed, was not paused"),
        Transition("resetting", "settle", "paused", "committed, was paused"),
        Transition("running", "complete", "completed", "every lease has reached its end"),
        Transition("completed", "rewind", "resetting", "rewind or import"),
    ],
)


class Resting(Protocol):
    """The facts of a lease that decide the phase of its unit."""

    @property
    def state(self) -> LeaseState:
        """Whether it may be owned."""

    @property
    def running(self) -> bool:
        """Whether its owner may still be at work on it."""


def phase(leases: Collection[Resting], *, completed: bool = False) -> UnitPhase:
    """Return the phase of a unit: `pausing` while calls that should stop still run.

    `completed`: all leases have reached the end of a bounded run.
    """
    state = UNIT.initial
    if all(lease.state != "active" for lease in leases):
        state = UNIT.next(state, "pause")
        if not any(lease.running for lease in leases):
            state = UNIT.next(state, "settle")
    elif completed:
        state = UNIT.next(state, "complete")
    return cast(UnitPhase, state)
