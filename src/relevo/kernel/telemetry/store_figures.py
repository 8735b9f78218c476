"""Metrics of the store: one host, which leads, reads them for all and alone shows them."""

from __future__ import annotations

import math
import time
from abc import abstractmethod
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.core import Metric

READ_SECONDS: Final = 20.0
OLD_SECONDS: Final = 60.0
LONG_SECONDS: Final = 0.2
REST: Final = 50
"""So many times as long as a long read took, the next one waits: it costs at most 2 % of a core."""
SERIES_MAX: Final = 256
"""Names that are shown; those with most to show come first, the rest is added up as `others`."""

T = TypeVar("T")


class StoreFigures(Collector, Generic[T]):
    """What the leading host last read."""

    def __init__(self) -> None:
        self._shown: T | None = None
        self._read_at = self._not_before = -math.inf
        self._rest = 0.0

    @abstractmethod
    async def load(self) -> T:
        """Read the figures."""

    @abstractmethod
    def families(self, shown: T | None) -> Iterator[Metric]:
        """Return the metrics; without samples if this host has nothing to show."""

    async def read(self) -> None:
        """Read what is shown from now on; does nothing if the last read was long and is recent."""
        began = time.monotonic()
        if began < self._not_before:
            return
        self._shown = await self.load()
        self._read_at = time.monotonic()
        took = self._read_at - began
        self._rest = REST * took if took > LONG_SECONDS else 0.0
        self._not_before = self._read_at + self._rest

    def collect(self) -> Iterator[Metric]:
        """Return what the registry shows; nothing old, which another host has gone on reading."""
        if time.monotonic() - self._read_at > OLD_SECONDS + self._rest:
            self._shown = None
        yield from self.families(self._shown)
