"""What is around the code of a turn: a span, the app's filters, and its caller's connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from relevo.actors.calls.filters import ActorCall, filtered
from relevo.kernel import uses
from relevo.kernel.telemetry import tracing

if TYPE_CHECKING:
    from relevo.actors.running.turn import Turn

_FILTERED: Final = frozenset({"method", "message", "reminder", "timer"})


async def run(turn: Turn) -> Any:
    """Run the code of a turn and return its value."""
    work, activation = turn.work, turn.activation
    kind, _, name = work.name.partition(" ")
    attributes: dict[str, str | int] = {
        "relevo.actor": activation.canonical, "relevo.turn": work.name,
        "relevo.chain": str(turn.chain.id), "relevo.epoch": activation.home.lease.epoch,
    }  # fmt: skip
    with tracing.span("relevo.actor.turn", attributes, work.parent), uses.held_as(work.held):
        if kind not in _FILTERED or name.startswith("$"):
            return await work.begin(activation.instance)
        headers = {} if work.call is None else dict(work.call.headers)
        call = ActorCall(actor=activation.ref, kind=kind, name=name, headers=headers)  # type: ignore[arg-type]
        return await filtered(
            activation.definition.incoming, call, lambda: work.begin(activation.instance)
        )
