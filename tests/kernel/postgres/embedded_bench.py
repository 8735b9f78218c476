"""What the tests of the embedded server share: folders, disks, and other processes as its users."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from relevo.kernel.postgres.embedded.cluster_folder import Postmaster
from relevo.kernel.postgres.embedded.file_locks import is_free, until
from relevo.kernel.postgres.embedded.server import EmbeddedServer, binaries

if TYPE_CHECKING:
    from collections.abc import Iterator

FAST = {"fsync": "off"}
IS_ROOT = os.geteuid() == 0
as_root = pytest.mark.skipif(
    not IS_ROOT or sys.platform != "linux", reason="is about what root does on Linux"
)


def _fast_disk() -> Path | None:
    """A file system in memory where there is room, for making and removing data folders costs."""
    memory = Path("/dev/shm")
    if not memory.is_dir():
        return None
    space = os.statvfs(memory)
    is_roomy = space.f_bavail * space.f_frsize > 2 * 1024**3
    return memory if is_roomy and not space.f_flag & os.ST_NOEXEC else None


@contextmanager
def open_folder() -> Iterator[Path]:
    """A folder that every account can enter (pytest's own is closed for the server's account)."""
    folder = Path(tempfile.mkdtemp(prefix="relevo-test-", dir=_fast_disk())).resolve()
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        running = [lock for lock in folder.rglob("postgres.server.lock") if not is_free(lock)]
        for lock in running:  # only after a failed test
            if found := Postmaster.read(lock.parent / "postgres"):
                os.kill(found.pid, signal.SIGQUIT)
                until(lambda lock=lock: is_free(lock), 10)  # type: ignore[misc]
        shutil.rmtree(folder)
    assert running == []


@contextmanager
def joined(home: Path, **settings: str) -> Iterator[EmbeddedServer]:
    server = EmbeddedServer.join(home, settings=FAST | settings)
    try:
        yield server
    finally:
        server.leave()


class User:
    """Another process that joins the server of `home`, and leaves when it is told to."""

    CODE = """
        import sys
        from pathlib import Path
        from relevo.kernel.postgres.embedded.server import EmbeddedServer
        sys.stdin.readline()
        server = EmbeddedServer.join(Path(sys.argv[1]), settings={"fsync": "off"})
        print(server.pid, flush=True)
        sys.stdin.readline()
        server.leave()
    """

    def __init__(self, home: Path, code: str = CODE) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(code), str(home)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def join(self) -> int:
        self.go()
        return int(self.line())

    def leave(self) -> None:
        self.go()
        assert self.end() == 0

    def kill(self) -> None:
        self.process.kill()
        self.end()

    def end(self) -> int:
        with self.process:
            return self.process.wait()


def sql(server: EmbeddedServer, statement: str) -> str:
    command = [str(binaries() / "psql"), "--no-psqlrc", "-At", "-d", server.url, "-c", statement]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def kill_server(server: EmbeddedServer) -> int:
    """Kills the server and returns its former number once nobody listens any more."""

    def is_deaf() -> bool:
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(str(server.socket_dir / ".s.PGSQL.5432")) != 0

    pid = server.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    assert until(is_deaf, 30)
    return pid


def snapshot(folder: Path) -> dict[str, tuple[int, int, float]]:
    found = {str(path): path.lstat() for path in (folder, *folder.rglob("*"))}
    return {path: (info.st_mode, info.st_uid, info.st_mtime) for path, info in found.items()}


def is_running(server: EmbeddedServer) -> bool:
    return server.pid is not None


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o7777


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=0755", "tmpfs", str(folder)]
    if not IS_ROOT or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("may not mount a file system here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)
