"""`relevo dataverse user show`: a user by id or name."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click
import msgspec

from relevo.cli import tree
from relevo.cli.calling.calls import way_to
from relevo.cli.generic.values import Text
from relevo.cli.options import EVERYWHERE, command
from relevo.cli.output.printing import printable
from relevo.cli.output.render import Renderer
from relevo.dataverse.users.model import UserInfo, UserView
from relevo.errors import Conflict, NotFound
from relevo.http.paging import Page

if TYPE_CHECKING:
    from relevo.cli.calling.calls import Calls
    from relevo.cli.session import Session


@command("show", shared=EVERYWHERE)
@click.argument("user", type=Text(), metavar="USER", help="Id, or a unique name.")
@click.pass_obj
def show(session: Session, user: str) -> None:
    """Show a user: business unit, teams and rights."""
    session.log_quietly()
    asyncio.run(_show(session, user))


async def _show(session: Session, user: str) -> None:
    operation = tree.operation("users.get")
    async with way_to(operation, session) as calls:
        key = _id(user) or await _named(calls, user)
        body = (await calls.call(operation, {"id": str(key)})).body
    renderer = Renderer(session.output)
    if session.output != "table":
        renderer.show(body, UserView)
        return
    view = msgspec.json.decode(body)
    renderer.console.print(printable(_sentence(view)), soft_wrap=True)
    renderer.record({**view, "teams": sorted(view["teams"])}, UserView)


def _id(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


async def _named(calls: Calls, name: str) -> UUID:
    """Return the user of a name; raises `Conflict` if several have it."""
    reply = await calls.call(tree.operation("users.list"), {"name": name})
    matches = msgspec.json.decode(reply.body, type=Page[UserInfo]).items
    if not matches:
        raise NotFound(f"there is no user {name!r}; `relevo dataverse user list` lists all users")
    if len(matches) > 1:
        ids = ", ".join(str(one.id) for one in matches)
        raise Conflict(f"{len(matches)} users are named {name!r}; give the id of one: {ids}")
    return matches[0].id


def _sentence(user: dict[str, Any]) -> str:
    """Describe the rights of a user in one line."""
    if user["disabled"]:
        return (
            f"{user['name']}: is disabled; enable it with relevo dataverse user enable {user['id']}"
        )
    if not user["rights"]:
        return (
            f"{user['name']}: has no rights; create a key for it with"
            f" relevo key create --user-id {user['id']}"
        )
    rights = ", ".join(f"{name}:{reach}" for name, reach in user["rights"].items())
    return f"{user['name']}: may {rights}."
