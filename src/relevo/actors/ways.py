"""The ways of calls: from an actor's type to its slot, and from the slot to its owner."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from relevo.actors.calling import Way, Ways
from relevo.errors import NotFound

if TYPE_CHECKING:
    from relevo.actors.core.calls import MovedTo
    from relevo.actors.definitions import ActorTypes
    from relevo.actors.running.runtime import ActorRuntime
    from relevo.actors.storage import ActorStorage
    from relevo.settings import Settings


class ActorWays(Ways):
    """Looks among the slots of this host, then at what is known of others."""

    def __init__(self, types: ActorTypes, storage: ActorStorage, settings: Settings) -> None:
        self._types = types
        self._storage = storage
        self._settings = settings
        self.runtime: ActorRuntime | None = None
        self._counts: dict[str, int] = {}

    async def slots(self, type_name: str) -> tuple[str, int]:
        """Return the placement group of a type and its number of slots; raises `NotFound`."""
        return self.slots_of_type(type_name)

    def slots_of_type(self, type_name: str) -> tuple[str, int]:
        """Return the same, of a type that this app defines."""
        definition = self._types.by_name.get(type_name)
        if definition is None:
            raise NotFound(f"no actor type {type_name!r} is defined")
        group = definition.options.placement_group
        return group, self.count(group)

    async def read_count(self, group: str) -> int:
        """Return the number of slots that a placement group has, or will be made with."""
        stored = await self._storage.groups.slots(group)
        self._counts[group] = stored or self._settings.actors_slots
        return self._counts[group]

    def count(self, group: str) -> int:
        """Return the number of slots of a placement group."""
        return self._counts.get(group, self._settings.actors_slots)

    async def find(self, group: str, slot: int) -> Way | None:
        """Return how to reach the owner of a slot, or None if nobody is known to own it."""
        runtime = self.runtime
        if runtime is not None:
            own = runtime.slots.get((group, slot))
            if own is not None and not own.lease.over:
                return Way(runtime.deliver, own.lease.epoch, is_local=True)
        return None

    def learn(self, group: str, slot: int, moved: MovedTo) -> None:
        """Note where a slot has gone."""

    async def changed(self, group: str, seconds: float) -> None:
        """Wait until owners of a group have changed, at most so long."""
        await asyncio.sleep(seconds)
