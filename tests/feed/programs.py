"""What the host processes of feed tests run: a processor over the container "orders"."""

from __future__ import annotations

import asyncio
import itertools
import os
from typing import TYPE_CHECKING, Any

from relevo.feed.service import FeedPart
from relevo.kernel.backoff import Backoff
from relevo.kernel.leases.hosts import instant
from tests.support.parts import serve

if TYPE_CHECKING:
    from collections.abc import Callable

    from relevo import App
    from relevo.feed import Change, ChangeContext
    from relevo.feed.model import Mode
    from relevo.testing.recorder import Recorder

MODE_VARIABLE = "PROGRAM_MODE"
LEASES_VARIABLE = "PROGRAM_LEASES"
WORK_VARIABLE = "PROGRAM_WORK"


async def ledger(app: App, record: Recorder) -> None:
    """Note every call, its changes, and how and when it ended."""
    numbers = itertools.count()
    seconds = float(os.environ.get(WORK_VARIABLE, "0.004"))

    async def note(ctx: ChangeContext, changes: list[Change[Any]]) -> None:
        number, ending = next(numbers), "cut"
        record(
            "call", at=instant(), number=number, lease=ctx.lease_token, epoch=ctx.epoch,
            changes=[(c.id, c.lsn, c.ordinal, _version(c)) for c in changes],
        )  # fmt: skip
        try:
            await asyncio.sleep(seconds)
            ending = "returned"
        finally:
            record(ending, number=number)

    await _serve(app, note)


async def effects(app: App, record: Recorder) -> None:
    """Apply every change to a table, in the transaction that moves the position."""

    async def apply(ctx: ChangeContext, changes: list[Change[Any]]) -> None:
        async with ctx.transaction() as tx:
            for change in changes:
                await tx.execute(
                    "insert into effect (change_id, id, version) values ($1, $2, $3)",
                    change.change_id, change.id, _version(change),
                )  # fmt: skip
        record("applied", changes=len(changes))

    await _serve(app, apply)


async def _serve(app: App, handler: Callable[..., Any]) -> None:
    mode: Mode = "all_versions" if os.environ.get(MODE_VARIABLE) == "all_versions" else "latest"
    leases = os.environ.get(LEASES_VARIABLE)
    app.container("orders").processor(
        "kitchen", handler, mode=mode, start="beginning", max_items=20, poll_interval=0.25,
        handoff_timeout=5.0, backoff=Backoff(first=0.05, longest=0.2),
        leases=int(leases) if leases else None,
    )  # fmt: skip
    await serve(app, FeedPart)


def _version(change: Change[Any]) -> int | None:
    return None if change.current is None else change.item["version"]
