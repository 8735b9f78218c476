"""Real processes in milliseconds: forks of one process that has imported Relevo already.

A command or a host spends most of a second of CPU on imports before its first statement, and the
tests start hundreds of them. The fork server imports once. Each child is a process of its own with
its own arguments, environment, folder and files, to be killed, frozen and cut off as any other.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import time
import types
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, cast

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

REQUEST_BYTES_MAX = 1 << 20
PLAIN = "relevo"
PRELOADED = (
    "relevo.exports", "relevo.testing.node", "relevo.cli", "relevo.cli.generic.commands",
    "relevo.cli.calling.local_calls", "relevo.cli.calling.remote_calls",
    "relevo.cli.hosts.run", "relevo.cli.hosts.up",
    "relevo.http.operations", "relevo.http.server", "relevo.kernel.outbound",
)  # fmt: skip
"""What a process would import at once, or when it runs a command."""
FILES_MAX = 4_096
ROOT = Path(__file__).parents[2]


class Request(Struct, frozen=True):
    """A module to run as `python -m` would, a file, or "-" for a program on standard input."""

    module: str
    first: str
    """The first entry of `sys.path`."""
    folder: str
    mode: Literal["", "process_group", "tied"]
    """`tied`: it is killed when its caller is."""
    arguments: list[str]
    environment: dict[str, str]

    def encode(self) -> bytes:
        """Return it as a message, of words (`forked_command` makes the same)."""
        settings = [f"{name}={text}" for name, text in self.environment.items()]
        words = [self.module, self.first, self.folder, self.mode, str(len(self.arguments))]
        return os.fsencode("\0".join([*words, *self.arguments, *settings]))

    @classmethod
    def decode(cls, message: bytes) -> Request:
        module, first, folder, mode, count, *words = os.fsdecode(message).split("\0")
        arguments, settings = words[: int(count)], words[int(count) :]
        environment = dict(setting.split("=", 1) for setting in settings)
        return cls(module, first, folder, cast(Any, mode), arguments, environment)


class Forked:
    """A running child; the part of `subprocess.Popen` that the tests use."""

    def __init__(self, status: socket.socket, stdout: IO[str] | None) -> None:
        self._status = status
        self.stdout = stdout
        self.returncode: int | None = None
        self.pid = int(status.recv(64))

    def poll(self) -> int | None:
        """Return the exit code if it has ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end; negative codes are signals."""
        if self.returncode is None:
            with selectors.DefaultSelector() as selector:
                selector.register(self._status, selectors.EVENT_READ)
                if not selector.select(timeout):
                    raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            self.returncode = int(self._status.recv(64))
            self._status.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float | None = None) -> tuple[str, None]:
        """Read the rest of its output, and wait for the end."""
        out = ""
        if self.stdout is not None and not self.stdout.closed:
            with self.stdout as stdout:
                out = stdout.read()
        self.wait(timeout)
        return out, None


def run(
    module: str, arguments: Sequence[str], *, environment: Mapping[str, str], folder: Path,
    stdin: str = "", timeout: float = 120.0,
) -> tuple[int, str, str]:  # fmt: skip
    """Run a module to its end; return its code and what it wrote to both outputs."""
    with (
        _temporary(stdin) as given, _temporary() as out, _temporary() as err,
    ):  # fmt: skip
        child = start(
            module, arguments, environment=environment, folder=folder,
            files=(given.fileno(), out.fileno(), err.fileno()),
        )  # fmt: skip
        try:
            code = child.wait(timeout)
        except subprocess.TimeoutExpired:
            child.kill()
            raise
        return code, _written(out), _written(err)


def pipe(
    module: str, arguments: Sequence[str], *, environment: Mapping[str, str], folder: Path,
    stderr: int,
) -> Forked:  # fmt: skip
    """Start a module whose standard output is read while it runs."""
    ours, theirs = os.pipe()
    try:
        with open(os.devnull, "rb") as nothing:
            return start(
                module, arguments, environment=environment, folder=folder,
                files=(nothing.fileno(), theirs, stderr), stdout=os.fdopen(ours, "r"),
            )  # fmt: skip
    finally:
        os.close(theirs)


def start_node(program: str, environment: Mapping[str, str], output: IO[bytes]) -> Forked:
    """Start a node of a cluster."""
    with open(os.devnull, "rb") as nothing:
        return start(
            "relevo.testing.node", [program], environment=environment, folder=ROOT,
            files=(nothing.fileno(), output.fileno(), output.fileno()),
        )  # fmt: skip


def start(
    module: str, arguments: Sequence[str], *, environment: Mapping[str, str], folder: Path | str,
    files: tuple[int, int, int], stdout: IO[str] | None = None, process_group: bool = False,
) -> Forked:  # fmt: skip
    """Start a module with these files as its standard input, output and error."""
    mode: Literal["", "process_group"] = "process_group" if process_group else ""
    request = Request(
        module, str(folder), str(folder), mode, list(arguments), dict(environment)
    )  # fmt: skip
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        socket.send_fds(requests(), [request.encode()], [*files, theirs.fileno()])
    return Forked(ours, stdout)


def requests() -> socket.socket:
    """Return where this process sends its requests to."""
    ours, _ = _server(os.getpid())
    return ours


@functools.cache
def _server(pid: int) -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """The fork server of this process, which ends when this process does."""
    del pid
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in (ours, theirs):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, REQUEST_BYTES_MAX)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.forks", str(theirs.fileno())],
            pass_fds=[theirs.fileno()], cwd=ROOT, stdin=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
    return ours, process


@contextlib.contextmanager
def _temporary(text: str = "") -> Iterator[IO[bytes]]:
    with open(os.memfd_create("standard"), "r+b") as file:
        file.write(text.encode())
        file.seek(0)
        yield file


def _written(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()


class Server:
    """Forks a child for each request and reports how it ended."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        self._children: dict[int, socket.socket] = {}

    def serve(self) -> tuple[Request, list[int]] | None:
        """Serve until the other end is closed; returns a request in the child that is to run it."""
        awake, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        with selectors.DefaultSelector() as selector:
            selector.register(self._requests, selectors.EVENT_READ)
            selector.register(awake, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select():
                    if key.fileobj == awake:
                        os.read(awake, 4_096)
                        self._report(selector)
                        continue
                    if key.data is not None:  # its caller is gone
                        selector.unregister(key.fileobj)
                        os.kill(key.data, signal.SIGKILL)
                        continue
                    message, files, _, _ = socket.recv_fds(self._requests, REQUEST_BYTES_MAX, 4)
                    if not message:
                        return None
                    request = Request.decode(message)
                    if self._fork(files, selector if request.mode == "tied" else None):
                        return request, files

    def _fork(self, files: list[int], watching: selectors.BaseSelector | None) -> bool:
        status = socket.socket(fileno=files.pop())
        pid = os.fork()
        if not pid:
            return True
        for file in files:
            os.close(file)
        self._children[pid] = status
        if watching is not None:
            watching.register(status, selectors.EVENT_READ, pid)
        with contextlib.suppress(OSError):
            status.send(str(pid).encode())
        return False

    def _report(self, selector: selectors.BaseSelector) -> None:
        while self._children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            with self._children.pop(pid) as child, contextlib.suppress(OSError):
                with contextlib.suppress(KeyError):
                    selector.unregister(child)
                child.send(str(os.waitstatus_to_exitcode(status)).encode())


def _become(request: Request, files: list[int]) -> None:
    """Make this child what `python -m module` would have made it."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if request.mode == "process_group":
        os.setpgid(0, 0)
    for number, file in enumerate(files):
        os.dup2(file, number)
    os.closerange(3, FILES_MAX)
    os.environ.clear()
    os.environ.update(request.environment)
    time.tzset()
    os.chdir(request.folder)
    sys.path[0] = request.first
    sys.argv = [request.module, *request.arguments]
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False, errors="backslashreplace")
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=stream.isatty() or stream is sys.stderr)
    _arm_faults()


def _arm_faults() -> None:
    from relevo.kernel import faults

    faults._live = faults.LivePoints.from_environment(os.environ)  # type: ignore[misc]
    faults.LIVE = faults._live is not None  # type: ignore[misc]


def _run(module: str, plain: frozenset[str]) -> None:
    """Run a module, or a program with nothing loaded of Relevo but what `import relevo` loads."""
    if module != "-" and not module.endswith(".py"):
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        return
    for name in [name for name in sys.modules if name.startswith(("relevo.", "tests"))]:
        if name not in plain:
            sys.modules.pop(name)
            room, _, leaf = name.rpartition(".")
            if room in sys.modules:
                delattr(sys.modules[room], leaf)
    program = types.ModuleType("__main__")
    if module == "-":
        text: str | bytes = sys.stdin.read()
    else:
        text, program.__file__ = Path(module).read_bytes(), module
    sys.modules["__main__"] = program
    code = compile(text, "<stdin>" if module == "-" else module, "exec", dont_inherit=True)
    exec(code, program.__dict__)


def main() -> None:
    requests = socket.socket(fileno=int(sys.argv[1]))
    __import__(PLAIN)
    plain = frozenset(sys.modules)
    for module in PRELOADED:
        __import__(module)
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    accepted = Server(requests).serve()
    if accepted is not None:
        _become(*accepted)
        _run(accepted[0].module, plain)


if __name__ == "__main__":
    main()
