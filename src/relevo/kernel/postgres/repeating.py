"""Large work in small transactions: repeat a bounded statement until nothing is left for it."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


async def until_fewer(
    most: int, step: Callable[[], Awaitable[int]], *, rounds: int | None = None
) -> int:
    """Repeat a step that touches at most `most` rows until it touches fewer; how many in all.

    After so many `rounds` the rest is left for another time, so that other work is not held up.
    """
    total = 0
    for _ in itertools.count() if rounds is None else range(rounds):
        touched = await step()
        total += touched
        if touched < most:
            break
    return total
