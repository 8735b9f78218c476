"""A table of operations for the tests of the HTTP layer itself."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from relevo.errors import DatabaseUnavailable
from relevo.http.operations import OPERATIONS
from relevo.kernel.operation import PUBLIC, Method, Operation

if TYPE_CHECKING:
    from relevo.kernel.operation import Handler


class Echo(Struct, frozen=True, kw_only=True):
    id: str = ""
    note: str = ""


class Poll(Struct, frozen=True, kw_only=True):
    wait_seconds: float = 0.0


class Echoed(Struct, frozen=True):
    id: str
    note: str


async def echo(_: Any, __: Any, command: Echo) -> Echoed:
    """Say it again."""
    return Echoed(command.id, command.note)


async def broken(*_: Any) -> None:
    """Fail in a way nobody expected."""
    raise ValueError("select secret_hash from access_key at 10.0.0.7")


async def unreachable(*_: Any) -> None:
    """Fail in a way that is foreseen."""
    raise DatabaseUnavailable("cannot connect to the database at 10.0.0.7")


def op(
    name: str,
    method: Method,
    path: str,
    handler: Handler,
    *,
    permission: str = "hosts:read",
    response: Any = Echoed,
) -> Operation:
    return Operation(
        name=name,
        method=method,
        path=path,
        summary="Test.",
        request=Echo,
        response=response,
        permission=permission,
        handler=handler,
    )


TABLE = (
    *OPERATIONS,
    op("test.echo", "GET", "/v1/echo/{id}", echo),
    op("test.write", "POST", "/v1/echo/{id}", echo),
    op("test.broken", "GET", "/v1/broken", broken),
    op("test.unreachable", "GET", "/v1/unreachable", unreachable),
    op("routing.echo", "GET", "/routing/echoes/{id}", echo),
    op("routing.write", "POST", "/routing/echoes/{id}:cancel", echo),
    op("routing.broken", "GET", "/routing/broken", broken),
)


def code(reply: Any) -> str:
    """The stable code of a problem, or the ancestor's of an envelope."""
    found: str = reply.json["error"]["code"] if "error" in reply.json else reply.json["code"]
    return found


class Gate:
    """A handler that waits to be let through."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.open = asyncio.Event()
        self.inside = 0

    async def __call__(self, *_: Any) -> Echoed:
        self.entered.set()
        self.inside += 1
        try:
            await self.open.wait()
        finally:
            self.inside -= 1
        return Echoed("done", "")

    async def until(self, inside: int) -> None:
        """Wait until so many requests wait here."""
        while self.inside != inside:
            await asyncio.sleep(0.005)

    def table(self) -> tuple[Operation, ...]:
        async def wait(*arguments: Any) -> Echoed:
            return await self(*arguments)

        return (
            *TABLE,
            op("test.wait", "GET", "/v1/wait", wait, permission=PUBLIC),
            op("test.wait_write", "POST", "/v1/wait", wait, permission=PUBLIC),
            op("test.hold", "GET", "/v1/hold", wait),
            Operation(
                name="test.poll",
                method="GET",
                path="/v1/poll",
                summary="Test.",
                request=Poll,
                response=Echoed,
                permission="hosts:read",
                handler=wait,
                wait="wait_seconds",
            ),
        )
