"""What the host processes of bootstrap tests run: a processor, begun at odds with its fellows."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from relevo.feed.service import FeedPart
from relevo.kernel.leases.hosts import instant
from tests.support.parts import serve

if TYPE_CHECKING:
    from relevo import App
    from relevo.feed import Change, ChangeContext
    from relevo.testing.recorder import Recorder


async def join(app: App, record: Recorder) -> None:
    """Serve "orders"; every other host asks for another start."""
    heart = app.leases.life.heart

    async def note(ctx: ChangeContext, changes: list[Change[Any]]) -> None:
        record(
            "call", at=instant(), beats=heart.beats, lease=ctx.lease_token, epoch=ctx.epoch,
            changes=[change.id for change in changes],
        )  # fmt: skip
        await asyncio.sleep(0.002)

    odd = app.leases.name[-1] in "13579"
    app.container("orders").processor(
        "billing", note, start="beginning" if odd else "now", max_items=5, poll_interval=0.05,
        handoff_timeout=5.0, leases=8,
    )  # fmt: skip
    record("joining")
    await serve(app, FeedPart)
