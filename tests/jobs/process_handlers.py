"""Handlers that run in processes of their own."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from relevo.kernel.running.verdicts import Fail, RetryLater, Suspend


def add(ctx: Any, a: int, b: int = 1) -> dict[str, Any]:
    print("what handlers print does not get between messages")
    return {"sum": a + b, "pid": os.getpid(), "id": str(ctx.id), "attempt": ctx.attempt}


def multiply(a: int, b: int = 2) -> int:
    """Do without a context."""
    return a * b


async def count(ctx: Any, to: int) -> int:
    """Take a checkpoint at every number; a job that is resumed goes on."""
    for n, _ in ctx.resume(enumerate(range(to))):
        await ctx.checkpoint(progress=(n + 1) / to, state=n)
        await asyncio.sleep(0)
    return int(ctx.state) + 1


def linger(ctx: Any, folder: str) -> None:
    """Reach a checkpoint again and again until told otherwise."""
    _write(folder, "started", os.getpid())
    while True:
        ctx.checkpoint(state={"pid": os.getpid()})
        time.sleep(0.01)


def hang(ctx: Any, folder: str) -> None:
    """Never reach a checkpoint; start a process of its own, too."""
    del ctx
    other = subprocess.Popen(["sleep", "600"])
    _write(folder, "grandchild", other.pid)
    _write(folder, "started", os.getpid())
    time.sleep(600)


def deaf(ctx: Any, folder: str) -> None:
    """Ignore every polite signal, as native code might."""
    del ctx
    for one in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(one, signal.SIG_IGN)
    _write(folder, "started", os.getpid())
    time.sleep(600)


def end(ctx: Any, how: str) -> None:
    del ctx
    match how:
        case "fail":
            raise Fail(0x80041234, "there is no such customer")
        case "retry":
            raise RetryLater(77, text="later")
        case "suspend":
            raise Suspend("repair it")
        case "network":
            raise ConnectionResetError("the line was cut")
        case "error":
            raise KeyError("missing")
        case "several":
            raise ExceptionGroup("both", [RetryLater(1), Fail(None, "the worse")])
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "unspeakable":
            raise type("Local", (Exception,), {})("no class to import")


class Unspeakable(Exception):
    """An error that cannot say what it is."""

    def __str__(self) -> str:
        raise ValueError("no words")

    @property
    def status(self) -> int:
        raise RuntimeError("no status")


def mute(ctx: Any, how: str) -> None:
    del ctx
    match how:
        case "text":
            raise Unspeakable
        case "group":
            raise ExceptionGroup("\ud800", [Unspeakable(), ValueError("\ud800")])
        case "fields":
            error = Fail(None, "\ud800")
            error.status = "\ud800"  # type: ignore[attr-defined]
            error.number = 2**70  # type: ignore[attr-defined]
            raise error
        case "stdout":
            sys.stdout.close()


def leave_thread(ctx: Any) -> int:
    """Leave a thread behind that Python would wait for."""
    del ctx
    threading.Thread(target=time.sleep, args=(600,), daemon=False).start()
    return os.getpid()


def unanswerable(ctx: Any) -> object:
    del ctx
    return object()


def _write(folder: str, name: str, pid: int) -> None:
    part = Path(folder) / f".{name}"
    part.write_text(str(pid))
    part.rename(Path(folder) / name)


async def _counted(ctx: Any, to: int) -> int:
    for n in range(to):
        await ctx.checkpoint(progress=(n + 1) / to, state=n)
    return int(ctx.state) + 1


def counted_elsewhere(ctx: Any, to: int) -> Any:
    """A plain function that returns a coroutine."""
    return _counted(ctx, to)
