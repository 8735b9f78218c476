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
    """Return the depth of an operation caused by one of `depth`, which was reached at `since`.

    Raises `LoopDetected` if that is too deep. A chain slower than the window is not a loop, so its
    depth starts again at 1.

    >>> following(1, datetime(2026, 1, 1), datetime(2026, 1, 1))
    2
    """
    if since is not None and now - since > window:
        return 1
    if depth + 1 > most:
        raise LoopDetected(
            f"depth {depth + 1} exceeds the limit of {most}: steps or workflows keep causing each"
            " other; make one of them check whether there is anything to do"
        )
    return depth + 1
