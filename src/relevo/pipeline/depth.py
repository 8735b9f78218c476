"""How deep an operation is in its chain of causes. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from relevo.jobs.errors import LoopDetected

DEPTH_MAX: Final = 8
DEPTH_WINDOW: Final = timedelta(hours=1)


def following(
    depth: int,
    since: datetime | None,
    now: datetime,
    *,
    most: int = DEPTH_MAX,
    window: timedelta = DEPTH_WINDOW,
) -> int:
    """Return the depth of an operation made by an extension of a depth reached at an instant.

    Raises `LoopDetected` if that is too deep. What took longer than the window is no loop: then
    counting begins again.

    >>> following(1, datetime(2026, 1, 1), datetime(2026, 1, 1))
    2
    """
    if since is not None and now - since > window:
        return 1
    if depth + 1 > most:
        raise LoopDetected(
            f"this would have depth {depth + 1}, and at most {most} is allowed: steps or workflows"
            " cause each other without end; let one of them look whether there is anything to do"
        )
    return depth + 1
