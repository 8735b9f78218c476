"""What the host processes of webhook tests run: nothing of their own; the part does the work."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from relevo import App
    from relevo.testing.recorder import Recorder


async def serve(app: App, record: Recorder) -> None:
    """Collect and send."""
