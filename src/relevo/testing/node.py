"""One real host process of a `Cluster`: `python -m relevo.testing.node module:function`.

Settings come from the environment, as for any host. The function gets the running `App` and a
`Recorder`, registers what it wants to serve, and may return; the host runs until SIGTERM.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
import time
from typing import TYPE_CHECKING, Any

import msgspec

from relevo import telemetry
from relevo.app import App
from relevo.errors import HostSuperseded
from relevo.leases.hosts import instant

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

TRACE_VARIABLE = "RELEVO_TESTING_TRACE"
SKEW_VARIABLE = "RELEVO_TESTING_SKEW"


class Recorder:
    """Appends what happened to the node's trace, one line each, at once: it survives SIGKILL."""

    def __init__(self, path: str, host: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._host = host

    def __call__(self, event: str, *, at: float | None = None, **details: Any) -> None:
        """Record an event; `at` is an instant taken earlier (see `relevo.leases.hosts.instant`)."""
        entry = {"at": instant() if at is None else at, "host": self._host, "event": event}
        os.write(self._file, msgspec.json.encode(entry | details) + b"\n")


async def _main(program: Callable[[App, Recorder], Awaitable[None]]) -> int:
    app = App()
    async with app.host():
        record = Recorder(os.environ[TRACE_VARIABLE], app.leases.name)
        await program(app, record)
        record("ready", incarnation=str(app.leases.life.incarnation))
        try:
            await app.until_signal()
        except HostSuperseded:
            record("superseded")
            return 9
    record("stopped")
    return 0


def _skew_clock(seconds: float) -> None:
    """Act as if this machine's wall clock were wrong."""
    right = time.time
    time.time = lambda: right() + seconds


if __name__ == "__main__":
    telemetry.configure_logs("json", "debug")
    if os.environ.get(SKEW_VARIABLE):
        _skew_clock(float(os.environ[SKEW_VARIABLE]))
    module, _, function = sys.argv[1].partition(":")
    sys.exit(asyncio.run(_main(getattr(importlib.import_module(module), function))))
