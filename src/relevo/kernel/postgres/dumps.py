"""Writes a database to a file, and fills an empty database from one.

The programs of our own PostgreSQL do it, which can dump every version that Relevo supports, while
others keep working on the database.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from relevo.errors import Conflict, InvalidValue
from relevo.kernel.postgres.embedded.account import binaries

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from relevo.kernel.postgres.pool.endpoint import Endpoint

MAGIC: Final = b"PGDMP"
RESTORES_MIN: Final = 17
"""Older servers refuse a setting that our pg_restore makes."""
LOOK_SECONDS: Final = 0.5
_COPYING: Final = """
select relid::regclass::text, tuples_processed from pg_catalog.pg_stat_progress_copy
where datname = current_database() limit 1
"""
_IS_USED: Final = "select to_regnamespace($1) is not null"


class Copying(Struct, frozen=True):
    """The table that is being copied, and how far."""

    table: str
    rows: int


async def dump(endpoint: Endpoint, file: Path, tell: Callable[[Copying], None]) -> None:
    """Write the database to a file, which appears when it is complete."""
    part = file.with_name(f"{file.name}.part")
    try:
        os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        raise Conflict(
            f"{part} exists: another backup is being written, or one was killed; remove the file"
        ) from None
    except OSError as error:
        raise InvalidValue(f"{file} cannot be written: {error.strerror}") from None
    try:
        await _run(endpoint, tell, "pg_dump", "--format=custom", f"--file={part}")
        with part.open("rb") as written:
            os.fsync(written.fileno())
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)


def require_dump(file: Path) -> None:
    """Raise `InvalidValue` unless the file begins as a dump does."""
    try:
        with file.open("rb") as opened:
            begins = opened.read(len(MAGIC))
    except OSError as error:
        raise InvalidValue(f"{file} cannot be read: {error.strerror}") from None
    if begins != MAGIC:
        raise InvalidValue(f"{file} is no backup: it is not a custom-format dump of pg_dump")


async def restore(endpoint: Endpoint, file: Path, tell: Callable[[Copying], None]) -> None:
    """Fill a database that has no Relevo yet, wholly or not at all."""
    await _require_room(endpoint)
    await _run(
        endpoint, tell, "pg_restore", "--no-owner", "--no-privileges", "--exit-on-error",
        "--single-transaction", str(file),
    )  # fmt: skip


async def _require_room(endpoint: Endpoint) -> None:
    connection = await endpoint.connect()
    try:
        if await connection.fetchval(_IS_USED, endpoint.schema):
            raise Conflict(
                f"the database at {endpoint} has a schema {endpoint.schema} already; restore into"
                " an empty database, or into another --home"
            )
        version = connection.get_server_version().major
    finally:
        await connection.close()
    if version < RESTORES_MIN:
        raise Conflict(
            f"the database at {endpoint} is a PostgreSQL {version}, which cannot load this"
            " file; use the pg_restore of your server on a dump that its pg_dump wrote"
        )


async def _run(
    endpoint: Endpoint, tell: Callable[[Copying], None], program: str, *arguments: str
) -> None:
    """Run a program of PostgreSQL on the database; tell what it copies meanwhile."""
    url, secrets = _without_password(endpoint.url)
    process = await asyncio.create_subprocess_exec(
        str(binaries() / program), *arguments, f"--dbname={url}",
        stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **secrets}, start_new_session=True,
    )  # fmt: skip
    watching = asyncio.create_task(_watch(endpoint, tell))
    try:
        _, said = await process.communicate()
    except BaseException:
        process.kill()
        await process.wait()
        raise
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    if process.returncode:
        lines = said.decode(errors="replace").strip().splitlines() or ["it said nothing"]
        raise Conflict(f"{program} failed, and nothing was changed: {lines[0]}")


async def _watch(endpoint: Endpoint, tell: Callable[[Copying], None]) -> None:
    connection = await endpoint.connect()
    try:
        while True:
            if row := await connection.fetchrow(_COPYING):
                tell(Copying(*row))
            await asyncio.sleep(LOOK_SECONDS)
    finally:
        connection.terminate()


def _without_password(url: str) -> tuple[str, dict[str, str]]:
    """Return the URL as others may see it in `ps`, and the password as a variable for libpq."""
    parts = urlsplit(url)
    if parts.password is None:
        return url, {}
    netloc = parts.netloc.replace(f":{parts.netloc.rpartition('@')[0].partition(':')[2]}@", "@", 1)
    return parts._replace(netloc=netloc).geturl(), {"PGPASSWORD": unquote(parts.password)}
