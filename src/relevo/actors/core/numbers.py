"""Numbers that processes give out without asking each other, and that no two of them share."""

from __future__ import annotations

import itertools
import os
import secrets
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Numbers:
    """Counts up from a random start; a forked process starts anew."""

    __slots__ = ("take",)

    take: Callable[[], int]
    """Returns the next number."""

    def __init__(self) -> None:
        self._begin()
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        self.take = itertools.count(secrets.randbits(62)).__next__
