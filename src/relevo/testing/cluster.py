"""Real host processes that a test kills, freezes and disconnects from their database."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from typing import IO, TYPE_CHECKING, Any, Protocol

import msgspec

from relevo.errors import InvalidValue
from relevo.kernel.postgres.binding import DEFAULT
from relevo.testing import diagnosis
from relevo.testing.faults import FaultBoard
from relevo.testing.proxy import Proxy
from relevo.testing.recorder import SKEW_VARIABLE, TRACE_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from pathlib import Path

POLL_SECONDS = 0.02
STACKS_SECONDS = 1.0
"""How long processes get to log their stacks; a frozen one logs nothing."""
LOG_CHARACTERS_MAX = 20_000


def _end_of(log: str) -> str:
    return log[-LOG_CHARACTERS_MAX:]


class HostProcess(Protocol):
    """A process of a node; the part of `subprocess.Popen` that a cluster needs."""

    returncode: int | None

    def poll(self) -> int | None:
        """Return the exit code if it has ended."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end."""

    def send_signal(self, sig: int, /) -> None:
        """Send a signal, unless it has ended."""

    def kill(self) -> None:
        """Send SIGKILL."""


def start_process(program: str, environment: Mapping[str, str], output: IO[bytes]) -> HostProcess:
    """Start a node in an interpreter of its own."""
    command = [sys.executable, "-m", "relevo.testing.node", program]
    return subprocess.Popen(command, env=environment, stdout=output, stderr=output)


class Node:
    """A host process and its own proxy to the database."""

    def __init__(
        self,
        name: str,
        process: HostProcess,
        trace: Path,
        log: Path,
        proxy: Proxy,
        peer: Proxy | None = None,
    ) -> None:
        self.name = name
        self.process = process
        self.proxy = proxy
        self._peer = peer
        self._trace = trace
        self._log = log
        self._read = 0
        self._records: list[dict[str, Any]] = []

    @property
    def peer(self) -> Proxy:
        """The faulty network by which other processes call the actors of a node.

        Start the node with `peer=True`.
        """
        if self._peer is None:
            raise InvalidValue(
                f"other processes reach {self.name!r} directly; start it with peer=True"
            )
        return self._peer

    def kill(self) -> None:
        """Send SIGKILL and wait for the end of the process."""
        self.process.kill()
        self.process.wait()

    def freeze(self) -> None:
        """Send SIGSTOP: all threads stop, including the heartbeat."""
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Send SIGCONT: the process continues."""
        self.process.send_signal(signal.SIGCONT)

    def partition(self) -> None:
        """Disconnect the node from its database: nothing arrives, nothing is refused."""
        self.proxy.cut()

    def heal(self) -> None:
        """End all network faults of the node."""
        self.proxy.heal()
        if self._peer is not None:
            self._peer.heal()

    def terminate(self) -> None:
        """Send SIGTERM: the host drains and stops."""
        self.process.send_signal(signal.SIGTERM)

    def show_stacks(self) -> None:
        """Send SIGUSR1: the process logs the stack of every task and thread."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGUSR1)

    @property
    def log(self) -> str:
        """The log of the process."""
        return self._log.read_text("utf-8", errors="replace")

    def records(self, event: str | None = None) -> list[dict[str, Any]]:
        """Return the records of the node, or those of one event."""
        if self._trace.exists():
            with self._trace.open("rb") as file:
                file.seek(self._read)
                *lines, rest = file.read().split(b"\n")
                self._read = file.tell() - len(rest)
            self._records += map(msgspec.json.decode, lines)
        return [record for record in self._records if event is None or record["event"] == event]


class Cluster:
    """Several nodes on one database, each behind its own proxy.

    >>> async with Cluster(url, "tests.programs:spread", folder) as cluster:  # doctest: +SKIP
    ...     a, b = await cluster.start("a"), await cluster.start("b")
    ...     a.freeze()
    """

    def __init__(
        self,
        database_url: str,
        program: str,
        folder: Path,
        *,
        settings: Mapping[str, object] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._url = database_url
        self._program = program
        self._folder = folder
        self._settings = dict(settings or {})
        self._environment = dict(environment or {})
        self._proxies = contextlib.ExitStack()
        self._starts = 0
        self.nodes: dict[str, Node] = {}
        self._former: list[Node] = []
        self.faults = FaultBoard(folder / "faults")

    async def __aenter__(self) -> Cluster:
        return self

    async def __aexit__(self, *_: object) -> None:
        for node in [*self.nodes.values(), *self._former]:
            node.process.kill()
            node.process.send_signal(signal.SIGCONT)
            node.process.wait()
        self._proxies.close()

    async def start(
        self,
        name: str,
        *,
        skew: float = 0.0,
        wait: bool = True,
        peer: bool = False,
        **settings: object,
    ) -> Node:
        """Start a node and, with `wait`, wait until it serves.

        With `peer` other processes call its actors through the proxy `node.peer`.
        """
        self._starts += 1
        label = f"{name}-{self._starts}"
        trace, log = self._folder / f"{label}.trace", self._folder / f"{label}.log"
        proxy = self._proxies.enter_context(Proxy.to(self._url))
        between: Proxy | None = None
        if peer:
            port = _free_port()
            between = self._proxies.enter_context(Proxy(("127.0.0.1", port)))
            settings |= {
                "actors_listen": f"127.0.0.1:{port}",
                "actors_address": f"127.0.0.1:{between.port}",
            }
        chosen = {"database_url": proxy.url(self._url), "host_name": name, "migrate": "false"}
        chosen |= {key: str(value) for key, value in {**self._settings, **settings}.items()}
        environment = {key: value for key, value in os.environ.items() if "RELEVO_" not in key}
        environment |= {f"RELEVO_{key.upper()}": value for key, value in chosen.items()}
        environment |= self._environment | self.faults.env(process=name)
        environment |= {TRACE_VARIABLE: str(trace), SKEW_VARIABLE: str(skew)}
        with log.open("wb") as output:
            process = start_process(self._program, environment, output)
        if name in self.nodes:
            self._former.append(self.nodes[name])
        node = self.nodes[name] = Node(name, process, trace, log, proxy, between)
        if wait:
            await self.until(lambda: bool(node.records("ready")), f"{name} is ready", node=node)
        return node

    async def until(
        self,
        condition: Callable[[], bool | Awaitable[bool]],
        what: str | Callable[[], str],
        *,
        timeout: float = 60.0,
        node: Node | None = None,
    ) -> None:
        """Wait until a condition holds; raises `AssertionError` that names it and the state."""
        give_up = time.monotonic() + timeout
        while True:
            held = condition()
            if not isinstance(held, bool):
                held = await held
            if held:
                return
            if node is not None and node.process.poll() is not None:
                raise AssertionError(f"{node.name} ended with {node.process.poll()}:\n{node.log}")
            if time.monotonic() > give_up:
                missing = what if isinstance(what, str) else what()
                raise AssertionError(f"not within {timeout} s: {missing}\n{await self.diagnose()}")
            await asyncio.sleep(POLL_SECONDS)

    async def diagnose(self) -> str:
        """Describe the state of the database and of every live node, for a wait that timed out."""
        store = await diagnosis.describe(self._url, str(self._settings.get("schema", DEFAULT)))
        for node in self.nodes.values():
            node.show_stacks()
        await asyncio.sleep(STACKS_SECONDS)
        logs = [f"== log of {name}\n{_end_of(node.log)}" for name, node in self.nodes.items()]
        return "\n".join([store, *logs])

    def records(self, event: str | None = None) -> list[dict[str, Any]]:
        """Return the records of all nodes, also former ones, in the order of time."""
        nodes = [*self._former, *self.nodes.values()]
        records = [record for node in nodes for record in node.records(event)]
        return sorted(records, key=lambda record: float(record["at"]))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
