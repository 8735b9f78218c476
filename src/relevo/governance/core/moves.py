"""A move of a partition to another resource: nobody uses the old one and the new one side by side.

    move = begin(subject="eu-0", source="db1", target="db2", generation=8, now=now, rules=rules)
    move, what = step(move, readers, now, readers_are_complete=True)

A move is stored after every step, so any owner of the resolver goes on from there. It waits until
every reader has reported that no use of an older generation is left; a reader that is silent holds
none after `max_stale` + `use_ttl` and a margin, because it may use a cached resolution for only so
long. Then the data is copied, and then the partition points to the new resource. A failure before
that returns to the old resource, with another generation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct, structs

from relevo.errors import InvalidValue
from relevo.kernel.machine import END, Machine, Transition

if TYPE_CHECKING:
    from collections.abc import Mapping

MARGIN_SECONDS: Final = 1.0
"""For clocks that run at different rates."""

MOVE: Final = Machine(
    "move",
    initial="moving",
    transitions=[
        Transition("moving", "quiet", "copying", "no use of the old resource is left"),
        Transition("moving", "fail", "returned", "given up, or the target is gone"),
        Transition("copying", "copied", "pointing", "the copy has ended"),
        Transition("copying", "fail", "returned", "the copy failed for good"),
        Transition("pointing", "point", END, "points to the new resource"),
        Transition("returned", "point", END, "points to the old resource again"),
    ],
)
MoveState = Literal["moving", "copying", "pointing", "returned"]


class MoveRules(Struct, frozen=True, kw_only=True):
    """How long a cached resolution is used, from which follows how long a move waits."""

    max_stale: float = 5.0
    """A cached resolution is fresh for so many seconds after it was asked for."""
    use_ttl: float = 60.0
    """A use is canceled after so many seconds."""
    max_pause: float = 10.0
    """A new use waits so long for a move to end."""
    margin: float = MARGIN_SECONDS

    def __post_init__(self) -> None:
        if min(self.max_stale, self.use_ttl, self.margin) <= 0 or self.max_pause < 0:
            raise InvalidValue(
                "max_stale and use_ttl must be more than 0 seconds, max_pause not less"
            )

    @property
    def silence(self) -> float:
        """Seconds after which a reader that said nothing holds nothing older than the move."""
        return self.max_stale + self.use_ttl + self.margin


class Reader(Struct, frozen=True):
    """Somebody who caches resolutions: a life of a host, or a client."""

    id: str
    asked_at: float
    """When it was last given a resolution."""
    ended: bool = False
    """Whether its host has ended and its lease has passed: it holds nothing any more."""


class Move(Struct, frozen=True, kw_only=True):
    """A move as it is stored."""

    subject: str
    source: str
    target: str
    generation: int
    """Resolutions below it are of the time before the move."""
    began_at: float
    deadline: float
    """When no use from before the move is left, whatever readers say."""
    state: MoveState = "moving"
    reported: frozenset[str] = frozenset()
    copies: bool = False
    """Whether its mover copies data; only that process can, so the move ends without it."""
    error: str = ""
    by: str | None = None
    """The name of the key whose holder asked for it; none from a program."""


class WaitForReaders(Struct, frozen=True):
    """Some readers may still use the old resource; look again at that time at the latest."""

    silent: tuple[str, ...]
    until: float


class Copy(Struct, frozen=True):
    """Copy the data, perhaps again; then tell the end with `copied` or `failed`."""


class PointTo(Struct, frozen=True):
    """Point the partition to that resource, with the next generation; the move has ended."""

    resource: str
    failed: bool


MoveStep = WaitForReaders | Copy | PointTo


def begin(
    *, subject: str, source: str, target: str, generation: int, now: float, rules: MoveRules,
    copies: bool = False, by: str | None = None,
) -> Move:  # fmt: skip
    """Return a new move; `generation` is the one that marks the partition as moving."""
    if source == target:
        raise InvalidValue(f"{subject!r} is on {target!r} already", pointer="to")
    return Move(
        subject=subject, source=source, target=target, generation=generation, began_at=now,
        deadline=now + rules.silence, copies=copies, by=by,
    )  # fmt: skip


def report(move: Move, reader: str, generation: int) -> Move:
    """Take in that a reader has no use left of a generation below this one."""
    if generation < move.generation:
        return move
    return structs.replace(move, reported=move.reported | {reader})


def step(
    move: Move, readers: Mapping[str, Reader], now: float, *, readers_are_complete: bool
) -> tuple[Move, MoveStep]:
    """Return the move as it stands now, and what is to be done.

    `readers` were given resolutions; one that was given its first after the move began knows of
    the move. If nobody knows whether they are all, as after a restart, the deadline decides.
    """
    if move.state == "moving":
        silent = _silent(move, readers)
        if now < move.deadline and (silent or not readers_are_complete):
            return move, WaitForReaders(silent, move.deadline)
        move = _after(move, "quiet")
    match move.state:
        case "copying":
            return move, Copy()
        case "returned":
            return move, PointTo(move.source, failed=True)
        case _:
            return move, PointTo(move.target, failed=False)


def copied(move: Move) -> Move:
    """Take in that the copy has ended well."""
    return _after(move, "copied")


def failed(move: Move, error: str) -> Move:
    """Take in that the move is given up: the partition stays on its old resource."""
    return structs.replace(_after(move, "fail"), error=error)


def _silent(move: Move, readers: Mapping[str, Reader]) -> tuple[str, ...]:
    return tuple(
        sorted(one.id for one in readers.values() if not one.ended and one.id not in move.reported)
    )


def _after(move: Move, event: str) -> Move:
    state: MoveState = MOVE.next(move.state, event)  # type: ignore[assignment]
    return structs.replace(move, state=state)
