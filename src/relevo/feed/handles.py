"""What a container and the event log have in common: handles of the units that read them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from relevo.feed.operating.dead_letters import DeadLetters
from relevo.feed.operating.estimator import Estimator
from relevo.feed.operating.operations import UnitHandle

if TYPE_CHECKING:
    from collections.abc import Callable

    from relevo.feed.operating.estimator import TotalLag
    from relevo.feed.service import Feeds


class UnitHandles:
    """Gives handles of units by the names of their processors."""

    name: str
    _feeds: Feeds

    def change_feed_estimator(self, name: str, leases_in: str = "leases") -> Estimator:
        """Return an estimator of what the unit `name` has before it; it takes no lease."""
        return Estimator(self._feeds.database, self.name, name, leases_in)

    async def estimator_loop(
        self,
        name: str,
        callback: Callable[[TotalLag], Any],
        *,
        every: float = 5.0,
        leases_in: str = "leases",
    ) -> None:
        """Call back with the lag of the unit `name` every so many seconds, until cancelled."""
        await self.change_feed_estimator(name, leases_in).watch(callback, every)

    def unit(self, name: str, leases_in: str = "leases") -> UnitHandle:
        """Return the unit of the processor `name` for an operator: pause, rewind, snapshots."""
        return UnitHandle(*self._feeds.connection.opened, self.name, name, leases_in)

    def dead_letters(self, name: str, leases_in: str = "leases") -> DeadLetters:
        """Return the changes that the processor `name` gave up on: to look at, redrive, discard."""
        processor = self._feeds.processors.get((self.name, name))
        return DeadLetters(self._feeds.database, f"{leases_in}/{self.name}/{name}", processor)
