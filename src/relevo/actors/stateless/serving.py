"""The stateless types that a host serves."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from relevo.actors.core.calls import MovedTo
from relevo.actors.running.slots import PAUSE_SECONDS
from relevo.actors.running.turn import CURRENT
from relevo.actors.stateless.pool import StatelessPool
from relevo.kernel.leases.held import Lease
from relevo.kernel.leases.model import Fence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from relevo.actors.core.calls import Chain
    from relevo.actors.definitions import ActorDefinition
    from relevo.actors.running.arrivals import Arrival
    from relevo.actors.running.runtime import ActorRuntime
    from relevo.actors.running.turn import Turn
    from relevo.actors.stateless.pool import StatelessActivation
    from relevo.actors.states import DeactivationReason
    from relevo.kernel.leases.hosts import Deadline


class StatelessTypes:
    """A pool of activations for each stateless type that has been called.

    A type is served by each host that serves its placement group. No slot is needed, so what runs
    is bound to the life of the host: it ends with that.
    """

    def __init__(self, runtime: ActorRuntime) -> None:
        self._runtime = runtime
        self._pools: dict[str, StatelessPool] = {}
        self._former: dict[str, StatelessPool] = {}
        """Those of earlier lives, while some of their code has not ended."""
        self._groups: set[str] = set()
        self._deadline: Deadline | None = None
        self._is_closed = False

    @property
    def pools(self) -> list[StatelessPool]:
        """Those of the types that were called."""
        return list(self._pools.values())

    def begin_life(self, group: str, deadline: Deadline) -> None:
        """Serve a placement group in a life of the host; what ran in another life is aborted."""
        if self._deadline is not deadline:
            former, self._pools = self._pools, {}
            self._groups.clear()
            for name, pool in former.items():
                pool.lose()
                if pool.remaining:
                    self._former[name] = pool
            self._deadline = deadline
        self._groups.add(group)

    def activations(self) -> Iterator[StatelessActivation]:
        """Yield the activations in memory."""
        for pool in self.pools:
            yield from list(pool.activations)

    def takes(self, definition: ActorDefinition) -> bool:
        """Whether a call that is made now may run here."""
        if definition.options.placement_group not in self._groups:
            return False
        turn = CURRENT.get()
        return not self._is_closed or (turn is not None and not turn.is_over)

    def admit(self, arrival: Arrival, definition: ActorDefinition) -> None:
        """Take in a call; raises errors of calls that have not run."""
        if self._deadline is None or definition.options.placement_group not in self._groups:
            arrival.give(MovedTo(0, None, PAUSE_SECONDS))
            return
        pool = self._pools.get(definition.name)
        if pool is None:
            group = definition.options.placement_group
            lease = Lease(Fence(0, 0, group, ""), {}, self._deadline, clean=True, save=_save)
            former = self._former.pop(definition.name, None)
            pool = StatelessPool(self._runtime, definition, lease, former)
            self._pools[definition.name] = pool
            pool.is_open = not self._is_closed
        pool.admit(arrival)

    def turn_waiting(self, chain: Chain) -> Turn | None:
        """Return a turn of a stateless type here that waits for a call of a chain."""
        found = (pool.turn_waiting(chain) for pool in self.pools)
        return next((turn for turn in found if turn is not None), None)

    async def close(self, timeout: float) -> None:
        """Take no calls but those that turns of this host make; wait for those that run."""
        self._is_closed = True
        for pool in self.pools:
            pool.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                for pool in self.pools:
                    await pool.until_quiet()

    async def drain(self, reason: DeactivationReason, timeout: float) -> None:
        """Let all activations leave; what does not end in time is aborted."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                for pool in self.pools:
                    await pool.drain(reason)
        for pool in self.pools:
            pool.lose()
        self._pools.clear()
        self._groups.clear()


async def _save(*_: Any) -> None:
    """There is no lease in the store."""
