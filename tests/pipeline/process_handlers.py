"""Handlers that use data operations from processes of their own."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from relevo.errors import Conflict, InvalidValue, NotFound

if TYPE_CHECKING:
    from collections.abc import Callable


class Order(Struct):
    id: str
    total: int


def everything(ctx: Any) -> dict[str, Any]:
    """Use each operation once."""
    service = ctx.service
    key = service.create("order", Order(id="1", total=5))
    service.create("mail", {"id": "m"})
    service.update("order", key, {"total": 7}, bypass=())
    service.associate("order", key, "mails", [("mail", "m")])
    related = service.related("order", key, "mails")
    service.disassociate("order", key, "mails", [("mail", "m")])
    records, token = service.retrieve_multiple("order", [("total", ">", 6)])
    service.delete("mail", "m")
    return {
        "key": key, "record": service.retrieve("order", key, ["total"]), "records": records,
        "token": token, "related": [list(one) for one in related], "tuples": _tuples(related),
        "left": service.related("order", key, "mails"),
        "said": service.execute("Shout", input={"text": "hola"})["text"], "pid": os.getpid(),
    }  # fmt: skip


def _tuples(related: Any) -> bool:
    return all(isinstance(one, tuple) for one in related)


async def awaited(ctx: Any) -> list[str]:
    """The same for a coroutine; several at once take turns."""
    await asyncio.gather(*(ctx.service.create("order", {"id": f"a{n}"}) for n in range(5)))
    records, _ = await ctx.service.retrieve_multiple("order")
    return sorted(one["id"] for one in records)


def refused(ctx: Any) -> list[str]:
    """Errors come as what they are, and are caught as such."""
    found = []
    attempts: tuple[tuple[type[Exception], Callable[[], Any]], ...] = (
        (NotFound, lambda: ctx.service.retrieve("order", "none")),
        (InvalidValue, lambda: ctx.service.create("order", {"total": float("nan")})),
        (InvalidValue, lambda: ctx.service.create("order", {"total": object()})),
        (Conflict, lambda: ctx.service.create("order", {}, tx="a transaction")),
        (Conflict, lambda: ctx.transaction()),
        (AttributeError, lambda: ctx.service.joined),
    )
    for kind, wrong in attempts:
        try:
            wrong()
        except kind as error:
            found.append(f"{type(error).__name__}: {error}")
    return found


def missing(ctx: Any) -> None:
    """Let the error of an operation pass."""
    ctx.service.update("order", "none", {"total": 1})


def waits(ctx: Any) -> None:
    """Write until somebody stops it."""
    n = 0
    while True:
        ctx.service.update("order", "1", {"n": n})
        n += 1


def bypassing(ctx: Any) -> str:
    """Leave out steps."""
    key: str = ctx.service.create("order", {"id": "b"}, bypass={"sync", "async"})
    return key
