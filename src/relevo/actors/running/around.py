"""What is around the code of a turn: figures, a span, and the app's filters."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final

from relevo.actors.calls.filters import ActorCall, filtered
from relevo.kernel.telemetry import tracing

if TYPE_CHECKING:
    from relevo.actors.running.turn import Turn

_NAMED: Final = frozenset({"method", "message"})
"""Kinds of work whose names are those of methods; others may be named by users' data."""
_FILTERED: Final = frozenset({"method", "message", "reminder", "timer"})


async def run(turn: Turn) -> Any:
    """Run the code of a turn and return its value."""
    work, activation = turn.work, turn.activation
    definition = activation.definition
    kind, _, name = work.name.partition(" ")
    runs, waits = definition.figures.of(definition.name, name if kind in _NAMED else kind)
    if work.queued_at:
        waits.add(asyncio.get_running_loop().time() - work.queued_at)
    begun, outcome = time.perf_counter(), "raised"
    try:
        has_filters = definition.incoming and kind in _FILTERED and not name.startswith("$")
        if has_filters or tracing.is_on():
            value = await _observed(turn, kind, name)
        else:
            value = await work.begin(activation.instance)
        outcome = "done"
        return value
    finally:
        runs.ended("lost" if turn.given_up else outcome, time.perf_counter() - begun)


async def _observed(turn: Turn, kind: Any, name: str) -> Any:
    work, activation = turn.work, turn.activation
    attributes: dict[str, str | int] = {
        "relevo.actor": activation.canonical, "relevo.turn": work.name,
        "relevo.chain": str(turn.chain.id), "relevo.epoch": activation.home.lease.epoch,
    }  # fmt: skip
    with tracing.span("relevo.actor.turn", attributes):
        if kind not in _FILTERED or name.startswith("$"):
            return await work.begin(activation.instance)
        headers = {} if work.call is None else dict(work.call.headers)
        call = ActorCall(actor=activation.ref, kind=kind, name=name, headers=headers)
        return await filtered(
            activation.definition.incoming, call, lambda: work.begin(activation.instance)
        )
