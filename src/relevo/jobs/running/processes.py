"""Handlers of jobs in separate processes: the order, and the host's side of its calls."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from relevo.errors import InvalidValue
from relevo.jobs.running.child import OPERATIONS
from relevo.kernel.running.places import place_of

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from relevo.jobs.registry import Handler
    from relevo.jobs.running.context import JobContext
    from relevo.kernel.running.processes import Processes

CALL: Final = "relevo.jobs.running.child:called"
"""The function that makes the call in the process."""


def call_in_process(processes: Processes, handler: Handler, ctx: JobContext) -> Awaitable[Any]:
    """Call the handler of a job in a process."""
    return processes.call(_order(handler, ctx), partial(_answer, ctx))


async def _answer(ctx: JobContext, message: dict[str, Any]) -> Any:
    """Carry out one call of a handler's process, and return its result."""
    match message["kind"]:
        case "check":
            ctx.check()
        case "checkpoint":
            state = {"state": message["state"]} if "state" in message else {}
            await ctx.checkpoint(progress=message["progress"], **state)
        case "service" if message["method"] in OPERATIONS:
            operation = getattr(ctx.service, message["method"])
            return await operation(*message["args"], **message["options"])
        case kind:
            raise InvalidValue(f"a handler's process cannot ask for {kind} {message.get('method')}")
    return None


def _order(handler: Handler, ctx: JobContext) -> dict[str, Any]:
    place, main = place_of(handler.function)
    return {
        "call": CALL, "handler": place, "main": main, "id": str(ctx.id), "name": ctx.name,
        "attempt": ctx.attempt, "data": {} if ctx.data is None else ctx.data,
        "details": ctx.details, "owner": None if ctx.owner is None else str(ctx.owner),
        "state": ctx.state,
    }  # fmt: skip
