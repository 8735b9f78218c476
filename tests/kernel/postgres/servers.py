"""Servers that a test starts for itself: Debian's PostgreSQL, and PgBouncer."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, unquote, urlsplit

import psycopg
import pytest

from relevo.kernel.postgres.embedded.account import server_account
from relevo.kernel.postgres.embedded.file_locks import until
from relevo.testing.databases import MEMORY, MEMORY_BYTES_MIN

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from relevo.kernel.postgres.embedded.account import Account

DEBIAN = Path("/usr/lib/postgresql")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def folder_of(account: Account) -> Iterator[Path]:
    """A folder that belongs to the account under which servers run; in memory if there is space."""
    roomy = MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= MEMORY_BYTES_MIN
    folder = Path(tempfile.mkdtemp(prefix="relevo-test-", dir=MEMORY if roomy else None))
    if account.is_other:
        shutil.chown(folder, account.uid, account.gid)
    yield folder
    shutil.rmtree(folder)


@contextmanager
def debian_server(
    access: str, settings: Mapping[str, str], files: Mapping[str, bytes]
) -> Iterator[int]:
    """Debian's newest PostgreSQL on a port of 127.0.0.1, with the role and database `relevo`."""
    programs = debian_programs()
    if programs is None:
        pytest.skip("Debian's PostgreSQL is not installed (apt-get install postgresql)")
    with server(programs, access, settings, files) as port:
        yield port


def debian_programs() -> Path | None:
    """The folder of the programs of Debian's newest PostgreSQL, if one is installed."""
    found = sorted(DEBIAN.glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
    return found[-1].parent if found else None


@contextmanager
def server(
    programs: Path, access: str, settings: Mapping[str, str], files: Mapping[str, bytes]
) -> Iterator[int]:
    """A PostgreSQL of these programs on a port of 127.0.0.1, with role and database `relevo`."""
    account, port = server_account(), free_port()

    def do(*command: str | Path) -> None:
        done = account.run(command)
        assert done.returncode == 0, done.stdout

    with folder_of(account) as folder:
        data = folder / "data"
        do(
            programs / "initdb",
            "-D",
            data,
            "-U",
            "relevo",
            "-A",
            "trust",
            "--no-sync",
            "-E",
            "UTF8",
        )
        for name, content in files.items():
            (data / name).write_bytes(content)
            (data / name).chmod(0o600)
            if account.is_other:
                shutil.chown(data / name, account.uid, account.gid)
        (data / "pg_hba.conf").write_text(access)
        told = {
            "fsync": "off",
            "port": str(port),
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(folder),
            **settings,
        }
        with (data / "postgresql.conf").open("a") as conf:
            conf.writelines(f"{name} = '{text}'\n" for name, text in told.items())
        do(programs / "pg_ctl", "-D", data, "-l", folder / "log", "-w", "start")
        try:
            place = f"host={folder} port={port} user=relevo dbname=postgres"
            with psycopg.connect(place, autocommit=True) as connection:
                connection.execute("create database relevo")
            yield port
        finally:
            do(programs / "pg_ctl", "-D", data, "-m", "immediate", "-w", "stop")


@contextmanager
def pgbouncer(database_url: str) -> Iterator[str]:
    """PgBouncer in transaction mode in front of a database, with fewer connections than clients."""
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if program is None:
        pytest.skip("PgBouncer is not installed (apt-get install pgbouncer)")
    parts = urlsplit(database_url)
    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
    target = {
        "host": query.get("host") or parts.hostname,
        "port": query.get("port") or parts.port or 5432,
        "user": parts.username,
        "password": unquote(parts.password) if parts.password else None,
    }
    place = " ".join(f"{name}={value}" for name, value in target.items() if value)
    account, port = server_account(), free_port()
    with folder_of(account) as folder:
        (folder / "pgbouncer.ini").write_text(f"""
[databases]
* = {place}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 3
max_client_conn = 200
""")
        user = {"user": account.uid, "group": account.gid, "extra_groups": []}
        with (folder / "log").open("w") as log:
            process = subprocess.Popen(
                [program, str(folder / "pgbouncer.ini")],
                stdout=log,
                stderr=log,
                cwd="/",
                **(user if account.is_other else {}),  # type: ignore[call-overload]
            )
        try:
            assert until(lambda: _listens(port), 30), (folder / "log").read_text()
            yield f"postgresql://relevo@127.0.0.1:{port}{parts.path}"
        finally:
            process.kill()
            process.wait()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
