"""Filters: functions around the turns of a host, and around the calls that an app makes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Literal, TypeVar

from msgspec import Struct

from relevo.actors.core.identity import ActorRef
from relevo.errors import Conflict

T = TypeVar("T")


class ActorCall(Struct, kw_only=True):
    """What a filter is around."""

    actor: ActorRef
    kind: Literal["method", "message", "reminder", "timer"]
    name: str
    """Of the method, the reminder or the timer."""
    headers: dict[str, str] = {}
    """Those of the call; an outgoing filter may add to them."""


Proceed = Callable[[], Awaitable[None]]
Filter = Callable[[ActorCall, Proceed], Awaitable[None]]
"""`async def (call, proceed)`: it awaits `proceed()` once, or raises to refuse the call."""
F = TypeVar("F", bound=Filter)


async def filtered(
    filters: Sequence[Filter], call: ActorCall, run: Callable[[], Awaitable[T]]
) -> T:
    """Return what `run` returns, with the filters around it; the first is the outermost."""
    results: list[Any] = []
    begun: set[int] = set()

    async def step(index: int) -> None:
        if index in begun:
            raise Conflict("a filter of actors awaited proceed() twice; it runs the call once")
        begun.add(index)
        if index == len(filters):
            results.append(await run())
        else:
            await filters[index](call, partial(step, index + 1))

    await step(0)
    if not results:
        raise Conflict(
            f"a filter ended {call.kind} {call.name!r} of {call.actor} without its result; await"
            " proceed(), and raise an error to refuse the call"
        )
    result: T = results[0]
    return result
