"""The command line as its users meet it: real processes, real signals, a real database."""

from __future__ import annotations

import contextlib
import io
import os
import pty
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from relevo.cli import root
from tests.support import forks
from tests.support.logs import unchanged_logging

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from relevo.testing.databases import TestDatabases

QUICK = {
    "RELEVO_LEASE_EXPIRATION": "3",
    "RELEVO_LEASE_RENEW": "0.5",
    "RELEVO_LEASE_ACQUIRE": "0.5",
}
PRESET = "cHJlc2V0LXByZXNldC1wcmVzZXQtcHJlc2V0LXByZXM="


class Result:
    """How a command ended.

    `using` is the line that names the database or host, `err` everything else on standard error.
    """

    def __init__(self, code: int, out: str, err: str) -> None:
        lines = err.splitlines(keepends=True)
        self.code = code
        self.out = out
        self.using = "".join(line for line in lines if line.startswith("using "))
        self.err = "".join(line for line in lines if not line.startswith("using "))

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.out)

    def __repr__(self) -> str:
        return f"exit {self.code}\n--- out\n{self.out}\n--- err\n{self.err}"


class Host:
    """A running `relevo up`."""

    def __init__(self, process: subprocess.Popen[str] | forks.Forked, log: Path) -> None:
        self.process = process
        self._log = log
        self.told: dict[str, Any] = {}

    def begin(self) -> Host:
        """Wait until it serves, and read what it says of itself (`--output json`)."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"it did not start:\n{self.log}"
        self.told = msgspec.json.decode(line)
        return self

    @property
    def url(self) -> str:
        return str(self.told["url"])

    @property
    def log(self) -> str:
        return self._log.read_text()

    def ask(self, path: str, headers: Mapping[str, str] | None = None) -> tuple[int, Any]:
        """GET; returns status and JSON, or status 0 if nobody answers."""
        request = urllib.request.Request(self.url + path, headers=dict(headers or {}))
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, msgspec.json.decode(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, msgspec.json.decode(error.read())
        except OSError:
            return 0, None

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self) -> Result:
        """Wait for the end; returns everything it wrote that was not read yet."""
        out, _ = self.process.communicate(timeout=60)
        return Result(self.process.wait(), out, self.log)

    def stop(self) -> Result:
        self.send(signal.SIGTERM)
        return self.end()


class Terminal:
    """A command and the terminal it runs on."""

    def __init__(
        self, arguments: tuple[str, ...], folder: Path, environment: Mapping[str, str]
    ) -> None:
        self._ours, theirs = pty.openpty()
        self.process = forks.start(
            "relevo.cli", arguments, folder=folder, files=(theirs, theirs, theirs),
            environment={**{k: v for k, v in environment.items() if k != "CI"}, "TERM": "xterm"},
            process_group=True,
        )  # fmt: skip
        os.close(theirs)
        self.said = ""

    def read_until(self, text: str) -> None:
        """Read until it has said something; fails if it ends before."""
        while text not in self.said:
            assert self.read_more(), self.said

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def end(self) -> int:
        """Read to the end and return the exit code."""
        while self.read_more():
            pass
        return self.process.wait()

    def read_more(self) -> bool:
        """Wait for more; False if there will be none."""
        try:
            data = os.read(self._ours, 65_536)
        except OSError:  # nobody is at the other end any more
            return False
        self.said += data.decode(errors="replace")
        return bool(data)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._ours)


class Cli:
    """Runs `relevo` as a process, on one database, with no other settings than told."""

    def __init__(self, folder: Path, stack: contextlib.ExitStack, **settings: str) -> None:
        self.folder = folder
        self.within: tuple[str, ...] = ()
        """What hosts are started by, such as a command that lowers a limit first."""
        self._stack = stack
        self._hosts = 0
        clean = {key: value for key, value in os.environ.items() if "RELEVO_" not in key}
        told = {f"RELEVO_{key.upper()}": value for key, value in settings.items()}
        own = {"RELEVO_HOME": str(folder / "home"), "XDG_CONFIG_HOME": str(folder / "config")}
        self.environment = {**clean, **QUICK, **own, **told}

    def __call__(self, *arguments: str, stdin: str = "", **settings: str) -> Result:
        environment = self._with(settings)
        done = forks.run(
            "relevo.cli", arguments, environment=environment, folder=self.folder, stdin=stdin
        )
        return Result(*done)

    def spawn(self, *arguments: str, **settings: str) -> Host:
        """Start a command that goes on, without waiting for anything."""
        self._hosts += 1
        log = self.folder / f"host-{self._hosts}.log"
        environment = self._with(settings)
        process: subprocess.Popen[str] | forks.Forked
        with log.open("wb") as err:
            if self.within:
                process = subprocess.Popen(
                    [*self.within, sys.executable, "-m", "relevo.cli", *arguments],
                    env=environment, cwd=self.folder, stdout=subprocess.PIPE, stderr=err, text=True,
                )  # fmt: skip
            else:
                process = forks.pipe(
                    "relevo.cli", arguments,
                    environment=environment, folder=self.folder, stderr=err.fileno(),
                )  # fmt: skip
        self._stack.callback(_finish, process)
        return Host(process, log)

    def on_terminal(self, *arguments: str) -> Terminal:
        """Start a command that believes to be on a terminal."""
        terminal = Terminal(arguments, self.folder, self.environment)
        self._stack.callback(terminal.close)
        return terminal

    def up(self, *arguments: str, **settings: str) -> Host:
        """Start a host on a free port and wait until it serves."""
        return self.spawn("up", "--port", "0", "--output", "json", *arguments, **settings).begin()

    def _with(self, settings: Mapping[str, str]) -> dict[str, str]:
        return {**self.environment, **{f"RELEVO_{k.upper()}": v for k, v in settings.items()}}


def _finish(process: subprocess.Popen[str] | forks.Forked) -> None:
    if process.poll() is None:
        process.kill()
    process.communicate()


@pytest.fixture
def cli(relevo_url: str, tmp_path: Path) -> Iterator[Cli]:
    """The command line on a fresh, migrated database."""
    with contextlib.ExitStack() as stack:
        yield Cli(tmp_path, stack, database_url=relevo_url)


@pytest.fixture
def empty_cli(relevo_databases: TestDatabases, tmp_path: Path) -> Iterator[Cli]:
    """The command line on a database where Relevo never was."""
    url = relevo_databases.create(migrated=False)
    with contextlib.ExitStack() as stack:
        yield Cli(tmp_path, stack, database_url=url)
    relevo_databases.drop(url)


@pytest.fixture(scope="module")
def site(
    relevo_databases: TestDatabases, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    """One host for all tests of a module that only look or ask."""
    url = relevo_databases.create()
    with contextlib.ExitStack() as stack:
        cli = Cli(tmp_path_factory.mktemp("site"), stack, database_url=url, access_key=PRESET)
        yield Site(cli, cli.up("--name", "alpha"), url)
    relevo_databases.drop(url)


class Site:
    """A host, and commands run in this process: they cost no start of an interpreter."""

    def __init__(self, cli: Cli, host: Host, database_url: str) -> None:
        self.cli = cli
        self.host = host
        self._where = {
            "database": {
                "RELEVO_DATABASE_URL": database_url,
                "RELEVO_HOME": str(cli.folder / "home"),
            },
            "http": {"RELEVO_URL": host.url, "RELEVO_KEY": PRESET},
        }

    def run(self, *arguments: str, way: str = "database", **environment: str) -> Result:
        return invoke(*arguments, environment={**self._where[way], **environment})


def invoke(*arguments: str, environment: Mapping[str, str] | None = None) -> Result:
    """Run a command in this process."""
    out, err = io.StringIO(), io.StringIO()
    with unchanged_logging(), pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if "RELEVO_" in name]:
            patch.delenv(name)
        patch.setenv("XDG_CONFIG_HOME", os.devnull)
        for name, value in (environment or {}).items():
            patch.setenv(name, value)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = root.run(arguments)
    return Result(code, out.getvalue(), err.getvalue())


def until(condition: Callable[[], bool], what: str, timeout: float = 60.0) -> None:
    """Wait until a condition holds; says what was waited for when it never does."""
    give_up = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > give_up:
            raise AssertionError(f"not within {timeout} s: {what}")
        time.sleep(0.02)
