"""`relevo backup` and `relevo restore`: the database as a file."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from msgspec import Struct

from relevo.cli.options import LOCAL, command
from relevo.cli.output.printing import note
from relevo.cli.output.render import Renderer, new_console
from relevo.errors import Conflict
from relevo.kernel.postgres import dumps
from relevo.kernel.postgres.pool.endpoint import Endpoint

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from relevo.cli.session import Session
    from relevo.kernel.postgres.dumps import Copying

_FILE: Final = click.argument("file", type=click.Path(dir_okay=False, path_type=Path))


class Backup(Struct, frozen=True):
    """A backup of a database."""

    file: str
    bytes: int


@command("backup", shared=LOCAL)
@_FILE
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
@click.pass_obj
def backup(session: Session, /, file: Path, *, force: bool) -> None:
    """Write the database to FILE, while hosts keep working.

    It holds everything that was committed when it began, in the custom format of pg_dump, and
    appears when it is complete. The master key that seals signing keys is not in it: keep a copy of
    secret.key from the data folder, or of RELEVO_SECRET_KEY.
    """
    if file.exists() and not force:
        raise Conflict(f"{file} exists; choose another name, or replace it with --force")
    _on_endpoint(session, "writing", lambda where, tell: dumps.dump(where, file, tell))
    made = Backup(str(file), file.stat().st_size)
    if session.output == "table":
        click.echo(f"wrote {made.file}, {made.bytes / 1e6:.1f} MB")
        note("keep the master key apart from it: secret.key, or RELEVO_SECRET_KEY")
    else:
        Renderer(session.output).result(made)


@command("restore", shared=LOCAL)
@_FILE
@click.pass_obj
def restore(session: Session, /, file: Path) -> None:
    """Fill an empty database from FILE, which `relevo backup` wrote.

    All of it is restored, or nothing. Without --database it fills the embedded database of --home.
    Work goes on from the state of the backup: start hosts only if the original has ended.
    """
    dumps.require_dump(file)
    _on_endpoint(session, "restoring", lambda where, tell: dumps.restore(where, file, tell))
    made = Backup(str(file), file.stat().st_size)
    if session.output == "table":
        click.echo(f"restored {made.file}; the first host says so in its log")
    else:
        Renderer(session.output).result(made)


def _on_endpoint(
    session: Session,
    doing: str,
    work: Callable[[Endpoint, Callable[[Copying], None]], Awaitable[None]],
) -> None:
    """Work on the database; on a terminal, show which table is being copied."""
    session.log_quietly()
    settings = session.database_settings(creates=doing == "restoring")
    console = new_console(stderr=True)

    async def run() -> None:
        endpoint = await Endpoint.open(settings)
        shown: Any = console.status(f"{doing} …") if console.is_terminal else nullcontext()

        def tell(copying: Copying) -> None:
            if console.is_terminal:
                shown.update(f"{doing} {copying.table}, {copying.rows:,} rows …")

        try:
            with shown:
                await work(endpoint, tell)
        finally:
            await endpoint.close()

    asyncio.run(run())
