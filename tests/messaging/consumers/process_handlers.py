"""Handlers of consumers that run in processes of their own."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any


def work(msg: Any) -> None:
    match msg.body:
        case {"do": "note", "in": folder, "name": name}:
            (Path(folder) / name).write_text(msg.priority_class)
        case {"do": "fail"}:
            raise ValueError("no")
        case {"do": "defer"}:
            msg.defer()


async def count(msg: Any) -> None:
    """Save three numbers, and fail on the way; the next delivery goes on."""
    start = int(msg.checkpoint or b"0")
    for n in range(start, 3):
        await msg.save(str(n + 1).encode())
        if n == 1:
            raise ValueError("again")
    Path(msg.body, "counted").write_text(f"{3} after {msg.checkpoint and str(start).encode()!r}")


def dawdle(msg: Any) -> None:
    """Never reach a checkpoint after the first."""
    if msg.checkpoint is None:
        msg.save(b"begun")
    while msg.preempt_count == 0 and msg.priority < 7:
        time.sleep(0.01)


def stay(msg: Any) -> None:
    """Never make room, for anyone."""
    if msg.checkpoint is None:
        msg.save(b"begun")
    while msg.priority < 7:
        time.sleep(0.01)


async def polite(msg: Any) -> None:
    """Save until asked to make room."""
    while msg.preempt_count == 0 and msg.priority < 7:
        await msg.save(b"so far")
        await asyncio.sleep(0.01)
