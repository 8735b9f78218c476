"""Handlers of consumers in processes of their own: the order, and the host's side of its calls."""

from __future__ import annotations

from base64 import b64decode, b64encode
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from relevo.errors import InvalidValue
from relevo.kernel.running.places import place_of

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from relevo.kernel.running.processes import Processes
    from relevo.messaging.registry import ConsumersDefinition
    from relevo.messaging.running.calls import ConsumerCall
    from relevo.messaging.running.context import Received

CALL: Final = "relevo.messaging.running.child:called"
"""The function that makes the call in the process."""
PLAIN: Final = frozenset({"complete", "defer", "release", "renew"})


def call_in_process(
    processes: Processes, consumers: ConsumersDefinition, ctx: ConsumerCall
) -> Awaitable[Any]:
    """Call the handler of consumers in a process; its messages travel as data."""
    place, main = place_of(consumers.handler)
    order = {
        "call": CALL, "handler": place, "main": main, "batch": consumers.batch > 1,
        "messages": [_data(message) for message in ctx.messages],
    }  # fmt: skip
    return processes.call(order, partial(_answer, ctx))


def _data(message: Received) -> dict[str, Any]:
    delivery = msgspec.structs.asdict(message.delivery)
    return {"delivery": msgspec.to_builtins(delivery), "names": msgspec.to_builtins(message.names)}


async def _answer(ctx: ConsumerCall, request: dict[str, Any]) -> Any:
    """Carry out one call of a handler's process, and return its result."""
    message = ctx.messages[request["of"]]
    match request["kind"]:
        case "preempt":
            deadline = message.preempt_deadline
            return None if deadline is None else deadline.isoformat()
        case "abandon":
            until = request["until"]
            await message.abandon(
                delay=request["delay"], until=until and datetime.fromisoformat(until)
            )
        case "dead_letter":
            await message.dead_letter(request["reason"], request["description"])
        case "suspend":
            await message.suspend(_bytes(request["checkpoint"]))
        case "save":
            await message.save(b64decode(request["checkpoint"]))
        case kind if kind in PLAIN:
            await getattr(message, kind)()
        case kind:
            raise InvalidValue(f"a handler's process cannot ask for {kind}")
    return None


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text)


def encoded(data: bytes | None) -> str | None:
    """Return bytes as they travel."""
    return None if data is None else b64encode(data).decode()
