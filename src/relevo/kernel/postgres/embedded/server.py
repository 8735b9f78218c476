"""The PostgreSQL that Relevo brings along: one per data folder, shared by any number of processes.

Two file locks carry it, and nothing that a SIGKILL could leave stale:

- `postgres.users.lock` is held shared by each user for as long as it lives. Who leaves gives it up
  and tries to get it exclusively: whoever succeeds was the last, and stops the server.
- `postgres.server.lock` is handed on to the server, and every process of it holds it until it ends.
  So who gets it knows that no process of any server is left (whatever postmaster.pid says), and
  starts one; who does not get it waits until the server accepts connections.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import signal
import socket
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final
from urllib.parse import quote

from relevo.errors import Closed, EmbeddedServerError
from relevo.kernel.postgres.embedded.account import (
    POSTGRES_MAJOR,
    binaries,
    server_account,
    usable_binaries,
)
from relevo.kernel.postgres.embedded.cluster_folder import (
    DATABASE,
    ClusterFolder,
    Postmaster,
    is_private,
)
from relevo.kernel.postgres.embedded.failures import explained, failure
from relevo.kernel.postgres.embedded.file_locks import (
    POLL_SECONDS,
    is_free,
    open_lock,
    try_lock,
    until,
)
from relevo.kernel.postgres.embedded.home_folder import settle
from relevo.kernel.postgres.embedded.settings import ROLE, machine_memory_bytes, server_settings

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["POSTGRES_MAJOR", "EmbeddedServer", "binaries"]

START_SECONDS_MAX: Final = 120.0
"""Includes making the cluster, the recovery after a crash, and the end of a former server."""
STOP_SECONDS_MAX: Final = 60.0


class EmbeddedServer:
    """One user's hold on the PostgreSQL of a data folder.

    Each `join` is a user of its own, also within one process. A forked child has no hold: what it
    inherits ends with its parent's, so it must `join` for itself. A user that ends without `leave`
    (SIGKILL) counts no longer; the next user that leaves as the last stops the server.
    """

    _joined: ClassVar[set[EmbeddedServer]] = set()
    """The holds of this process."""
    home: Path
    socket_dir: Path
    port: int
    binaries = staticmethod(binaries)
    """Returns the folder of PostgreSQL's programs, such as `pg_dump`."""

    def __init__(self, home: Path, folder: ClusterFolder, settings: Mapping[str, str]) -> None:
        self.home = home
        self._folder = folder
        self._settings = dict(settings)
        self._process = os.getpid()
        self._guard = threading.Lock()
        self._hold: int | None = None

    @classmethod
    def join(cls, home: Path, *, settings: Mapping[str, str] | None = None) -> EmbeddedServer:
        """A hold on the server of `home`, which runs and accepts connections; blocks until it does.

        `settings` are further settings of PostgreSQL, used if this very user starts the server.
        Raises EmbeddedServerError, and leaves nothing half-made, where it cannot run.
        """
        home = home.expanduser().absolute()
        with explained(home):
            home = home.resolve()
            folder = settle(home)
            folder.check_version()
            server = cls(home, folder, settings or {})
            server._enter()
        return server

    def ensure_running(self) -> None:
        """Returns at once if the server runs, starts it again if it died. For failed connects."""
        with self._guard, explained(self.home):
            if self._hold is None:
                raise Closed(
                    f"the hold on the embedded server of {self.home} was given up; join again"
                )
            self._run()

    def leave(self) -> None:
        """Releases the hold, and stops the server if it was the last. May be called again."""
        if os.getpid() != self._process:
            self._forget()  # unlocking what a fork shares would end the parent's hold
            return
        with self._guard, explained(self.home):
            if self._hold is None:
                return
            try:
                fcntl.flock(self._hold, fcntl.LOCK_UN)
                if try_lock(self._hold, fcntl.LOCK_EX):
                    self._stop()
            finally:
                self._forget()

    @classmethod
    def leave_all(cls) -> None:
        """Release all holds of this process, also one whose server is starting right now."""
        for server in list(cls._joined):
            server.leave()

    @property
    def url(self) -> str:
        """Where Relevo's database is, for asyncpg and libpq; a restart does not change it."""
        return self.url_of(DATABASE)

    def url_of(self, database: str) -> str:
        """Where `database` of this server is."""
        place = f"host={quote(str(self.socket_dir), safe='')}&port={self.port}"
        return f"postgresql://{ROLE}@/{quote(database, safe='')}?{place}"

    @property
    def pid(self) -> int | None:
        """The process id of the running server (its postmaster), None if it does not run."""
        found = Postmaster.read(self._folder.data)
        return found.pid if found and _is_server(found.pid, self._folder.data) else None

    @property
    def log(self) -> Path:
        """The log of the server, for people."""
        return self._folder.log

    def _enter(self) -> None:
        hold = open_lock(self._folder.users_lock)
        try:
            # The process that stops the server holds the lock exclusively meanwhile.
            if not until(lambda: try_lock(hold, fcntl.LOCK_SH), 2 * STOP_SECONDS_MAX):
                raise failure(
                    self._folder.path, "another process has been stopping it for too long"
                )
        except BaseException:
            os.close(hold)
            raise
        self._hold = hold
        self._joined.add(self)
        atexit.register(self.leave)
        try:
            self._run()
        except EmbeddedServerError:
            self._forget()  # without stopping: a long recovery goes on for the next user
            raise
        except BaseException:
            self.leave()
            raise

    def _forget(self) -> None:
        hold, self._hold = self._hold, None
        self._joined.discard(self)
        atexit.unregister(self.leave)
        if hold is not None:
            os.close(hold)

    def _run(self) -> None:
        """Returns when the server accepts connections; starts it if it does not run."""
        log_start: int | None = None
        deadline = time.monotonic() + START_SECONDS_MAX
        while (accepting := _accepting(self._folder.data)) is None:
            lock = open_lock(self._folder.server_lock)
            try:
                if try_lock(lock, fcntl.LOCK_EX):
                    if log_start is not None:
                        raise failure(self._folder.path, self._folder.log_since(log_start))
                    log_start = self._start(lock)
            finally:
                os.close(lock)
            if time.monotonic() > deadline:
                raise self._too_late()
            time.sleep(POLL_SECONDS)
        if not is_private(accepting.socket_folder, self._folder.data.stat().st_uid):
            raise failure(
                self._folder.path,
                f"the folder of its socket, {accepting.socket_folder}, is open to others, so that"
                " somebody else may answer there; stop the server",
            )
        self.socket_dir, self.port = accepting.socket_folder, accepting.port

    def _too_late(self) -> EmbeddedServerError:
        lock = self._folder.server_lock
        state = f"its log: {self._folder.log_since(0)}"
        if self.pid is None:
            state = (
                f"processes of an earlier server still hold {lock}: find them with lsof, end them"
            )
        waited = f"it does not accept connections after {START_SECONDS_MAX:.0f} s"
        return failure(self._folder.path, f"{waited}; {state}")

    def _start(self, lock: int) -> int:
        """Starts the server, which takes over `lock`; returns where in the log its words begin."""
        folder, account = self._folder, server_account()
        programs = usable_binaries(account)
        folder.check_version()
        if not folder.data.exists():
            folder.create_data(account, programs, lock)
        if self._hold is None:
            raise Closed(f"the embedded server of {self.home} is not started: its user has left")
        self._remove_false_pid()
        folder.configure(account, server_settings(machine_memory_bytes()) | self._settings)
        log = folder.open_log()
        try:
            said_before = os.fstat(log).st_size
            server: list[str | Path] = [programs / "postgres", "-D", folder.data]
            server += ["-c", f"config_file={folder.configuration}"]
            # The shell exits at once, so that the server is no child of this process.
            launch = ["/bin/sh", "-c", '"$@" &', "sh", *server]
            account.run(launch, output=log, keep=(lock,))
        finally:
            os.close(log)
        return said_before

    def _remove_false_pid(self) -> None:
        """Removes a postmaster.pid that is left over: we hold the lock, so no server of ours runs.

        Its number may be another process's by now, or a zombie's, and a power cut may have emptied
        it; PostgreSQL would refuse to start. One of a server started by hand is left alone.
        """
        left = Postmaster.read(self._folder.data)
        if left is None or not _is_server(left.pid, self._folder.data):
            (self._folder.data / "postmaster.pid").unlink(missing_ok=True)

    def _stop(self) -> None:
        """Stops the server: properly, else as a crash, from which the next start recovers."""
        if not self._folder.data.exists():
            return  # deleted under the server, which notices that within a minute and ends
        for request in (signal.SIGINT, signal.SIGQUIT):
            asked: set[int] = set()

            def has_ended(request: signal.Signals = request, asked: set[int] = asked) -> bool:
                pid = self.pid  # none yet if its starter was killed just now
                if pid is not None and pid not in asked:
                    asked.add(pid)
                    with suppress(ProcessLookupError):
                        os.kill(pid, request)
                return is_free(self._folder.server_lock) and all(map(_has_exited, asked))

            if until(has_ended, STOP_SECONDS_MAX):
                self._folder.remove_socket_folder()
                return
        raise failure(self._folder.path, f"it does not stop; its process is {self.pid}")


def _accepting(data: Path) -> Postmaster | None:
    """The server of `data` if it listens and has finished its recovery."""
    found = Postmaster.read(data)
    if found is None or not found.is_ready:
        return None
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(found.socket))
        except BlockingIOError:
            return found  # so many are connecting that this one would have to wait
        except OSError:
            return None
    return found


def _is_server(pid: int, data: Path) -> bool:
    """Whether process `pid` is a postmaster of `data`: the number may be reused by now."""
    if Path("/proc/self/cmdline").exists():
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            return False
    else:
        listing = ["ps", "-ww", "-o", "command=", "-p", str(pid)]
        command = subprocess.run(listing, capture_output=True, check=False).stdout.split()
    return bool(command) and command[0].endswith(b"postgres") and os.fsencode(data) in command


def _has_exited(pid: int) -> bool:
    """Whether process `pid` is gone, or a zombie: only then can its disk be unmounted."""
    if Path("/proc/self/stat").exists():
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2]
        except OSError:
            return True
        return state.split()[0] in {"Z", "X"}
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False
