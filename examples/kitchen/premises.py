"""A temporary home for the kitchen, from which nothing is left when the kitchen ends.

The kitchen, its hosts and a small process called the janitor share a pipe. The janitor reads it:
it ends when the kitchen and every host have ended, even by SIGKILL. Then the janitor stops
PostgreSQL, if nobody was left to do so, and removes the folder.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

LEASE_SECONDS = 3
"""How long a killed host keeps its leases; 10 s by default."""


@contextmanager
def temporary_home(database: str | None = None) -> Iterator[tuple[Path, int]]:
    """Make a folder and set the environment for it; yield it, and the pipe that hosts must hold.

    The database is an embedded PostgreSQL in it, unless `database` is the URL of another.
    """
    for setting in [name for name in os.environ if name.startswith("RELEVO_")]:
        del os.environ[setting]
    folder = Path(tempfile.mkdtemp(prefix="relevo-kitchen-"))
    folder.chmod(0o711)  # if root runs the kitchen, PostgreSQL's account passes through
    os.environ |= {
        "RELEVO_HOME": str(folder / "home"),
        "RELEVO_LEASE_EXPIRATION": str(LEASE_SECONDS),
        "RELEVO_LEASE_RENEW": "1",
        "RELEVO_LEASE_ACQUIRE": "1",
    }
    if database is not None:
        os.environ["RELEVO_DATABASE_URL"] = database
    reading, held = os.pipe()
    janitor = subprocess.Popen(
        [sys.executable, __file__, str(folder)], stdin=reading, start_new_session=True
    )
    os.close(reading)
    try:
        yield folder, held
    finally:
        os.close(held)
        janitor.wait()


def clean(folder: Path) -> None:
    """Wait until nobody holds the pipe; then stop PostgreSQL and remove the folder."""
    while os.read(sys.stdin.fileno(), 1):
        pass
    # If root runs the kitchen where PostgreSQL's account cannot enter, the data is elsewhere.
    notes = [note.read_text("utf-8") for note in folder.glob("*/postgres.location")]
    folders = [*(Path(note.partition("\n")[0]) for note in notes), folder]
    if any(next(each.glob("**/postmaster.pid"), None) for each in folders):
        import relevo

        async def join_and_leave() -> None:
            async with relevo.App():  # the last to leave stops the server
                pass

        asyncio.run(join_and_leave())
    for each in folders:
        shutil.rmtree(each, ignore_errors=True)


if __name__ == "__main__":
    clean(Path(sys.argv[1]))
