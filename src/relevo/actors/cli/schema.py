"""`relevo actor schema module:app`: the interfaces of a program, for clients in other languages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec

from relevo.cli.generic.values import Text
from relevo.cli.hosts.programs import app_for
from relevo.cli.options import DEBUG, WHERE, command
from relevo.cli.output.printing import echo_text

if TYPE_CHECKING:
    from relevo.app import App
    from relevo.cli.session import Session


@command("schema", shared=(*WHERE, *DEBUG))
@click.argument(
    "target",
    type=Text(),
    metavar="MODULE:APP",
    help="Module and variable of the program's app; `:app` is the default.",
)
@click.pass_obj
def schema(session: Session, target: str) -> None:
    """Print the interfaces of a program's actors as JSON Schema; connects to nothing.

    For each method: its arguments by name, as the call gateway takes them, and its result.
    """
    document = schema_of(app_for(target, session))
    echo_text(msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n")


def schema_of(app: App) -> dict[str, Any]:
    """Return the types of an app with their interfaces, and the schemas of those."""
    types = app.actors.types.by_name
    interfaces = {one for definition in types.values() for one in definition.implements}
    return {
        "types": {
            name: {
                "interfaces": [one.__name__ for one in definition.implements],
                "placement_group": definition.options.placement_group,
                "persist": definition.options.persist,
            }
            for name, definition in sorted(types.items())
        },
        **app.actors.interfaces.schema(sorted(interfaces, key=lambda one: one.__name__)),
    }
