"""`relevo mcp`: serves one AI agent at standard input and output."""

from __future__ import annotations

import asyncio
from importlib.util import find_spec
from typing import TYPE_CHECKING

import click

from relevo.cli.options import ALWAYS, REMOTE, SELECTION, WHERE, command
from relevo.errors import SettingsError

if TYPE_CHECKING:
    from relevo.cli.session import Session


@command("mcp", shared=(*WHERE, *REMOTE, *SELECTION, *ALWAYS))
@click.pass_obj
def mcp(session: Session, /) -> None:
    """Let an AI agent work: take offers, complete jobs, submit jobs, ask why one waits.

    Serves the Model Context Protocol at standard input and output; start it from the configuration
    of the agent. With --url the agent has the rights of the key in RELEVO_KEY. Without, it works on
    the database of this folder with all rights.
    """
    if find_spec("mcp") is None:
        raise SettingsError(
            "the package mcp is missing; install it with: pip install 'relevo[mcp]'"
        )
    session.log_quietly()
    from relevo.cli.mcp.server import serve  # here, because the package is large and optional

    asyncio.run(serve(session))
