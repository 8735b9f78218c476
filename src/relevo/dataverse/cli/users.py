"""`relevo user show`: a user by its id or name, for people."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click
import msgspec

from relevo.cli.calls import way_to
from relevo.cli.generic.values import Text
from relevo.cli.options import EVERYWHERE, command
from relevo.cli.render import Renderer, printable
from relevo.dataverse.users.model import UserInfo, UserView
from relevo.errors import Conflict, NotFound
from relevo.http import operations
from relevo.http.paging import Page

if TYPE_CHECKING:
    from relevo.cli.calls import Calls
    from relevo.cli.session import Session


@command("show", shared=EVERYWHERE)
@click.argument("user", type=Text(), metavar="USER", help="Its id, or its name if no other has it.")
@click.pass_obj
def show(session: Session, user: str) -> None:
    """Show a user: where it belongs, and what it may do."""
    session.log_quietly()
    asyncio.run(_show(session, user))


async def _show(session: Session, user: str) -> None:
    operation = operations.operation("users.get")
    async with way_to(operation, session) as calls:
        key = _id(user) or await _named(calls, user)
        body = (await calls.call(operation, {"id": str(key)})).body
    renderer = Renderer(session.output)
    if session.output == "json":
        renderer.show(body, UserView)
        return
    found = msgspec.json.decode(body)
    renderer.console.print(printable(_sentence(found)), soft_wrap=True)
    renderer.record({**found, "teams": sorted(found["teams"])}, UserView)


def _id(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


async def _named(calls: Calls, name: str) -> UUID:
    """Return the one user of a name."""
    reply = await calls.call(operations.operation("users.list"), {"name": name})
    found = msgspec.json.decode(reply.body, type=Page[UserInfo]).items
    if not found:
        raise NotFound(f"there is no user {name!r}; `relevo user list` shows who there is")
    if len(found) > 1:
        ids = ", ".join(str(one.id) for one in found)
        raise Conflict(f"{len(found)} users are named {name!r}; give the id of one: {ids}")
    return found[0].id


def _sentence(user: dict[str, Any]) -> str:
    """What a user may do, in a line."""
    if user["disabled"]:
        return f"{user['name']}: is kept out; let it in with relevo user enable {user['id']}"
    if not user["rights"]:
        return (
            f"{user['name']}: has no rights of its own; give it a key with"
            f" relevo key create --user-id {user['id']}"
        )
    rights = ", ".join(f"{name}:{reach}" for name, reach in user["rights"].items())
    return f"{user['name']}: may {rights}."
