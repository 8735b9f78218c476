"""A host process of a `Cluster`: `python -m relevo.testing.node module:function`.

Settings come from the environment, as for any host. The function gets the running `App` and a
`Recorder`, registers its handlers, and may return; the host runs until SIGTERM.
"""

from __future__ import annotations

import asyncio
import faulthandler
import importlib
import os
import signal
import sys
import time
from typing import TYPE_CHECKING

from relevo.app import App
from relevo.errors import HostSuperseded
from relevo.kernel import telemetry
from relevo.testing.recorder import SKEW_VARIABLE, TRACE_VARIABLE, Recorder

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


async def _main(program: Callable[[App, Recorder], Awaitable[None]]) -> int:
    _show_stacks_on_signal()
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


def _show_stacks_on_signal() -> None:
    """Make SIGUSR1 log the stack of every task and thread; the host continues."""

    def show_tasks() -> None:
        for task in sorted(asyncio.all_tasks(), key=asyncio.Task.get_name):
            task.print_stack(file=sys.stderr)

    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, show_tasks)
    # The interpreter shows the threads, so this works even when the loop is blocked.
    faulthandler.register(signal.SIGUSR1, all_threads=True, chain=True)


def _skew_clock(seconds: float) -> None:
    """Simulate a wrong wall clock of this machine."""
    right = time.time
    time.time = lambda: right() + seconds


if __name__ == "__main__":
    telemetry.configure_logs("json", "debug")
    if os.environ.get(SKEW_VARIABLE):
        _skew_clock(float(os.environ[SKEW_VARIABLE]))
    module, _, function = sys.argv[1].partition(":")
    sys.exit(asyncio.run(_main(getattr(importlib.import_module(module), function))))
