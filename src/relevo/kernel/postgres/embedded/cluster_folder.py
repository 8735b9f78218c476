"""The folder of an embedded server on disk: its content, owner and creation.

    home/                     0700; under root 0710 root:<group of the account>
      postgres/               the data folder of PostgreSQL, 0700, of the server's account
      socket/                 0700, of the server's account
      socket.location         only where the path of `socket/` is unfit: which folder stands in
      postgresql.conf  pg_hba.conf  pg_ident.conf      written at each start
      postgres.log            what the server says, and the log before it in postgres.log.1
      postgres.users.lock     held shared by each user of the server
      postgres.server.lock    held by the server, all its processes, and the process that starts it
      postgres.location       only where root's account cannot enter `home`: all the above is there

Root never writes into a folder of the account, where a symbolic link could lead it astray.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from relevo.errors import EmbeddedServerError
from relevo.kernel.durable import sync_folder
from relevo.kernel.postgres.embedded.account import POSTGRES_MAJOR, Account
from relevo.kernel.postgres.embedded.failures import failure
from relevo.kernel.postgres.embedded.settings import (
    ACCESS_RULES,
    PORT,
    ROLE,
    configuration,
    identity_map,
)
from relevo.limits import MIB

if TYPE_CHECKING:
    from collections.abc import Mapping

DATABASE: Final = "relevo"
CREATE_DATABASE: Final = f"CREATE DATABASE {DATABASE}\n"
INITDB_OPTIONS: Final = (
    f"--username={ROLE}",
    "--encoding=UTF8",
    "--locale=C",
    "--locale-provider=builtin",
    "--builtin-locale=C.UTF-8",
    "--auth-local=peer",
    "--auth-host=reject",
    "--data-checksums",
    "--no-instructions",
)
SINGLE_OPTIONS: Final = ("-c", "fsync=off", "-c", "exit_on_error=on", "postgres")

LOG_BYTES_MAX: Final = 10 * MIB
LOG_TAIL_BYTES: Final = 2_000
OUTSIDE: Final = Path("/tmp")  # noqa: S108 - see _socket_folder
SOCKET_PATH_BYTES_MAX: Final = 103  # macOS; Linux has 107
# What neither a URL, nor a list of hosts, nor a list of folders gives a second meaning to.
SOCKET_PATH_PLAIN: Final = re.compile(r"[A-Za-z0-9_./@+-]+")


class ClusterFolder(Struct, frozen=True):
    """The paths of one server."""

    path: Path

    @property
    def data(self) -> Path:
        """PostgreSQL's own data folder."""
        return self.path / "postgres"

    @property
    def log(self) -> Path:
        """Outside `data`, so that a base backup does not carry it along."""
        return self.path / "postgres.log"

    @property
    def configuration(self) -> Path:
        """The file that the server is started with, in place of the one in `data`."""
        return self.path / "postgresql.conf"

    @property
    def users_lock(self) -> Path:
        """Held shared by each user; only the last can get it exclusively, and stop the server."""
        return self.path / "postgres.users.lock"

    @property
    def server_lock(self) -> Path:
        """Held as long as any process of the server lives; its next holder may start a new one."""
        return self.path / "postgres.server.lock"

    def check_version(self) -> None:
        """Raises EmbeddedServerError if the data is not of the PostgreSQL that we bring."""
        if not self.data.exists():
            return
        try:
            found = (self.data / "PG_VERSION").read_text().strip()
        except FileNotFoundError:
            raise EmbeddedServerError(
                f"{self.data} is not a data folder of PostgreSQL (it has no PG_VERSION); move it"
                " away, or set RELEVO_HOME to another folder"
            ) from None
        if found != str(POSTGRES_MAJOR):
            raise EmbeddedServerError(
                f"{self.data} was made by PostgreSQL {found}, and this Relevo brings PostgreSQL"
                f" {POSTGRES_MAJOR}; nothing was changed. Convert it with pg_upgrade, or run a"
                f" PostgreSQL {found} on it yourself and set RELEVO_DATABASE_URL"
            )

    def create_data(self, account: Account, programs: Path, lock: int) -> None:
        """Makes the data folder with the database in it: completely, or not at all.

        The children inherit `lock`: who comes after a SIGKILL of ours waits until they are gone.
        """
        for unfinished in self.path.glob("postgres.new-*"):
            shutil.rmtree(unfinished, ignore_errors=True)
        fresh = Path(tempfile.mkdtemp(prefix="postgres.new-", dir=self.path))
        initdb, postgres = str(programs / "initdb"), str(programs / "postgres")
        steps = (
            ([initdb, "--no-sync", "--pgdata", str(fresh), *INITDB_OPTIONS], ""),
            ([postgres, "--single", "-D", str(fresh), *SINGLE_OPTIONS], CREATE_DATABASE),
            ([initdb, "--sync-only", "--pgdata", str(fresh)], ""),
        )
        try:
            if account.is_other:
                os.chown(fresh, account.uid, account.gid)
            for command, stdin in steps:
                done = account.run(command, stdin=stdin, keep=(lock,))
                if done.returncode != 0:
                    raise failure(self.path, f"{command[0]} failed: {done.stdout[-2_000:].strip()}")
            fresh.rename(self.data)
            sync_folder(self.path)
        except BaseException:
            shutil.rmtree(fresh, ignore_errors=True)
            raise

    def configure(self, account: Account, settings: Mapping[str, str]) -> None:
        """Writes the configuration for the next start, and chooses the folder of its socket."""
        access, identities = self.path / "pg_hba.conf", self.path / "pg_ident.conf"
        sockets = self._socket_folder(account)
        _own_folder(sockets, account)
        _empty(sockets)  # of what a killed server left; its number may be taken by now
        places = {
            "unix_socket_directories": str(sockets),
            "hba_file": str(access),
            "ident_file": str(identities),
        }
        write_file(access, ACCESS_RULES, reader=account)
        write_file(identities, identity_map(account.name), reader=account)
        text = configuration({**settings, **places})
        write_file(self.configuration, text, reader=account)

    def open_log(self) -> int:
        """A descriptor to append to the log with; a log that has grown large is put aside first."""
        if self.log.exists() and self.log.stat().st_size > LOG_BYTES_MAX:
            self.log.rename(self.path / "postgres.log.1")
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
        return os.open(self.log, flags, 0o600)

    def log_since(self, position: int) -> str:
        """The end of what the log says after `position`."""
        if not self.log.exists():
            return ""
        with self.log.open("rb") as log:
            log.seek(max(position, self.log.stat().st_size - LOG_TAIL_BYTES))
            return log.read().decode(errors="replace").strip()

    def remove_socket_folder(self) -> None:
        """Removes the socket folder of a stopped server if it is outside."""
        outside = self._remembered()
        if outside is not None:
            with suppress(OSError):
                outside.rmdir()
            with suppress(OSError):
                self._location.unlink()

    @property
    def _location(self) -> Path:
        return self.path / "socket.location"

    def _remembered(self) -> Path | None:
        try:
            return Path(self._location.read_text().strip())
        except FileNotFoundError:
            return None

    def _socket_folder(self, account: Account) -> Path:
        """A folder whose path is short and plain enough for a socket and for a URL.

        One outside has a name that nobody can guess, and so nobody can take before us. It is
        remembered, so that a restart by another process does not change the URL.
        """
        folder = self.path / "socket"
        length = len(os.fsencode(folder / socket_name(PORT)))
        if length <= SOCKET_PATH_BYTES_MAX and SOCKET_PATH_PLAIN.fullmatch(str(folder)):
            return folder
        known = self._remembered()
        if known is not None and is_private(known, account.uid):
            return known
        made = Path(tempfile.mkdtemp(prefix="relevo-", dir=OUTSIDE))
        write_file(self._location, f"{made}\n", reader=account)
        return made


class Postmaster(Struct, frozen=True):
    """The content of postmaster.pid, of a running or a dead server."""

    pid: int
    socket_folder: Path
    port: int
    is_ready: bool

    @property
    def socket(self) -> Path:
        """Where it listens."""
        return self.socket_folder / socket_name(self.port)

    @classmethod
    def read(cls, data: Path) -> Postmaster | None:
        """The postmaster of `data`; None if there is none, or it has only just begun to start."""
        try:
            lines = (data / "postmaster.pid").read_text(errors="replace").splitlines()
            ready = len(lines) > 7 and lines[7].strip() in {"ready", "standby"}
            return cls(int(lines[0]), Path(lines[4]), int(lines[3]), ready)
        except (FileNotFoundError, IndexError, ValueError):
            return None


def socket_name(port: int) -> str:
    """The file name of PostgreSQL's socket for `port`."""
    return f".s.PGSQL.{port}"


def is_private(folder: Path, owner: int) -> bool:
    """Whether `folder` is one, no link to one, of us or of `owner`, and closed to all others."""
    try:
        info = folder.lstat()
    except OSError:
        return False
    ours = info.st_uid in {os.geteuid(), owner}
    return stat.S_ISDIR(info.st_mode) and ours and not info.st_mode & 0o077


def _own_folder(folder: Path, account: Account) -> None:
    """Makes `folder` private to `account`; refuses one that another account made or can enter."""
    folder.mkdir(mode=0o700, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        info = os.fstat(descriptor)
        if info.st_uid not in {os.geteuid(), account.uid} or info.st_mode & 0o077:
            raise EmbeddedServerError(
                f"{folder} is not a private folder of {account.name!r} (it belongs to uid"
                f" {info.st_uid}, mode {info.st_mode & 0o7777:o}), so that its socket could be"
                " somebody else's; remove it"
            )
        if info.st_uid != account.uid:
            os.fchown(descriptor, account.uid, account.gid)
    finally:
        os.close(descriptor)


def write_file(path: Path, text: str, *, reader: Account | None = None) -> None:
    """Writes `path` for us and `reader` alone; it is there as a whole, also after a power cut."""
    if path.exists() and path.read_text() == text:
        return  # so that a server may still start when the disk is full
    unfinished = path.with_name(f"{path.name}.new")
    unfinished.unlink(missing_ok=True)
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w") as file:
        if reader is not None and reader.is_other:
            os.fchown(descriptor, -1, reader.gid)
            os.fchmod(descriptor, 0o640)
        file.write(text)
        file.flush()
        os.fsync(descriptor)
    unfinished.replace(path)
    sync_folder(path.parent)


def _empty(folder: Path) -> None:
    """Removes the files of a folder that may be another account's, without following a link."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        for name in os.listdir(descriptor):
            os.unlink(name, dir_fd=descriptor)
    finally:
        os.close(descriptor)
