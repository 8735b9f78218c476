"""The ways of calls: from an actor's type to its slot, and from the slot to its owner."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import TYPE_CHECKING, Final

from relevo.actors.calls.delivery import Way, Ways
from relevo.actors.core.calls import MovedTo
from relevo.actors.core.identity import ActorRef, slot_of
from relevo.actors.core.routing import Route
from relevo.actors.running.emitter import subscribe
from relevo.actors.transport.errors import NotSent
from relevo.errors import NoHost, NotFound, OutcomeUnknown, RelevoError
from relevo.limits import ACTOR_KIT_SLOTS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from relevo.actors.calls.subscriptions import OpenSubscription
    from relevo.actors.core.calls import Answer, Call
    from relevo.actors.definitions import ActorTypes
    from relevo.actors.running.runtime import ActorRuntime
    from relevo.actors.storing.placement_groups import DeclaredType
    from relevo.actors.storing.storage import ActorStorage
    from relevo.actors.transport.network import Network
    from relevo.settings import Settings

KIT_GROUP: Final = "relevo"
"""The placement group of pools, limits and resolvers, which any host can serve."""
KIT_DEFINED_GROUP: Final = "relevo.defined"
"""That of writers and caches: only hosts whose programs define some can serve them."""
KIT_GROUPS: Final = frozenset({KIT_GROUP, KIT_DEFINED_GROUP})


class ActorWays(Ways):
    """Looks among the slots of this host, then at what is known of others."""

    def __init__(
        self,
        types: ActorTypes,
        storage: ActorStorage,
        settings: Settings,
        network: Network,
        when_unserved: Callable[[str], Awaitable[None]],
    ) -> None:
        self._types = types
        self._when_unserved = when_unserved
        self._storage = storage
        self._settings = settings
        self._network = network
        self.runtime: ActorRuntime | None = None
        self.serves: Callable[[str], bool] = lambda _: False
        """Whether this process serves a placement group, or is about to."""
        self._counts: dict[str, int] = {}
        self._declared: dict[str, DeclaredType] = {}
        """Types that only other hosts define."""
        self._changes: dict[str, asyncio.Event] = {}

    # -- slots ------------------------------------------------------------------------------------

    async def slots(self, type_name: str) -> tuple[str, int]:
        """Return the placement group of a type and its number of slots.

        Raises `NotFound` for a type that no host has ever defined, `NoHost` if none has served it.
        """
        group = self._group_of(type_name) or await self.group_of(type_name)
        if group not in self._counts and await self.read_count(group) is None:
            await self._when_unserved(group)
            await self.read_count(group)
        return group, self.count(group)

    def is_joining(self, type_name: str) -> bool:
        """Whether this process serves the placement group of a type, or is about to."""
        group = self._group_of(type_name)
        return group is not None and self.serves(group)

    async def group_of(self, type_name: str) -> str:
        """Return the placement group of a type; raises `NotFound`."""
        if self._group_of(type_name) is None:
            self._declared = {one.name: one for one in await self._storage.groups.declared()}
        group = self._group_of(type_name)
        if group is None:
            raise NotFound(
                f"no actor type {type_name!r} is defined, neither in this app nor by a host"
            )
        return group

    async def is_stateless(self, type_name: str) -> bool:
        """Whether a type is stateless; raises `NotFound`."""
        definition = self._types.by_name.get(type_name)
        if definition is not None:
            return definition.is_stateless
        await self.group_of(type_name)
        return self._declared[type_name].persist == "stateless"

    def slots_of_type(self, type_name: str) -> tuple[str, int]:
        """Return the same without I/O: of a type whose placement group is known here."""
        group = self._group_of(type_name)
        if group is None:
            raise NotFound(f"no actor type {type_name!r} is defined")
        return group, self.count(group)

    async def read_count(self, group: str) -> int | None:
        """Return the number of slots that a placement group has; None if it was never served."""
        stored = await self._storage.groups.slots(group)
        if stored is not None:
            self._counts[group] = stored
        return stored

    def note_count(self, group: str, count: int) -> None:
        """Note the number of slots of a placement group that this host serves."""
        self._counts[group] = count

    def wanted_count(self, group: str) -> int:
        """Return the number of slots that this host makes a placement group with."""
        return ACTOR_KIT_SLOTS if group in KIT_GROUPS else self._settings.actors_slots

    def count(self, group: str) -> int:
        """Return the number of slots of a placement group; raises `NoHost` if it has none yet."""
        count = self._counts.get(group)
        if count is None:
            raise NoHost(
                f"no host has ever served placement group {group!r}; start one that defines its"
                " types: relevo run module:app"
            )
        return count

    # -- owners -----------------------------------------------------------------------------------

    def here(self, call: Call) -> asyncio.Future[Answer] | None:
        """Run a call in this process; None if it does not own the actor's slot."""
        return None if self.runtime is None else self.runtime.take(call)

    async def find(self, group: str, slot: int) -> Way | None:
        """Return how to reach another owner of a slot, or None if nobody is known to own it."""
        self._network.follow_routes()
        route = await self._network.routes.route(group, slot)
        if route.address is None or route.address == self._network.address:
            await self._when_unserved(group)
            return None
        return Way(partial(self._send, group, slot, route.epoch, route.address), route.epoch)

    async def _send(self, group: str, slot: int, epoch: int, address: str, call: Call) -> Answer:
        table = self._network.routes.table(group)
        peers = await self._network.peers()
        try:
            answer = await peers.call(address, call)
        except (NotSent, OutcomeUnknown):
            table.forget_address(slot, epoch)
            raise
        if type(answer) is MovedTo:
            return answer
        table.learn(slot, Route(answer.epoch, address if answer.epoch == epoch else None))
        if table.is_late(slot, answer.epoch):
            raise OutcomeUnknown(
                f"{call.method} of {call.actor} was answered by a host that no longer owned the"
                " actor's slot; it may or may not have taken effect"
            )
        return answer

    async def subscribe(
        self,
        group: str,
        slot: int,
        body: bytes,
        on_event: Callable[[int, bytes], None],
        on_end: Callable[[], None],
    ) -> tuple[Answer, OpenSubscription]:
        """Ask the owner of a slot for events; raises `NoHost` if nobody is known to own it."""
        runtime = self.runtime
        if runtime is not None and (group, slot) in runtime.slots:
            local = LocalSubscription(runtime, on_event, on_end)
            return await local.renew(body), local
        route = await self._network.routes.route(group, slot)
        if route.address is None or route.address == self._network.address:
            raise NoHost(f"no host serves slot {slot} of placement group {group!r} now")
        peers = await self._network.peers()
        return await peers.subscribe(route.address, body, on_event, on_end)

    def learn(self, group: str, slot: int, moved: MovedTo) -> None:
        """Note where a slot has gone; without an address it is read anew."""
        table = self._network.routes.table(group)
        route = Route(moved.epoch, moved.address, in_order_from=moved.in_order_from)
        if not table.learn(slot, route):
            table.forget_address(slot, table.route(slot).epoch)

    def known(self, group: str, slot: int) -> MovedTo:
        """Return what an answer says of a slot that this host does not own."""
        route = self._network.routes.table(group).route(slot)
        if route.address is None or route.address == self._network.address:
            return MovedTo(0)
        return MovedTo(route.epoch, route.address, in_order_from=route.in_order_from)

    async def owner(self, ref: ActorRef) -> Route:
        """Return the owner of an actor's slot, as the store has it now."""
        group, slots = await self.slots(ref.type)
        await self._network.routes.refresh(group)
        return self._network.routes.table(group).route(slot_of(ref.canonical, slots))

    async def send_probe(self, actor: str, body: bytes) -> None:
        """Send a probe for deadlocks to the owner of an actor; it may be lost."""
        try:
            group, slots = await self.slots(ActorRef.read(actor).type)
            route = await self._network.routes.route(group, slot_of(actor, slots))
            if route.address is not None and route.address != self._network.address:
                await (await self._network.peers()).probe(route.address, body)
        except RelevoError:
            return  # a call that still waits is probed again

    async def has_ended(self, group: str, slot: int, way: Way) -> bool:
        """Whether the owner of a slot in an epoch was lost, as the store has it now."""
        await self._network.routes.refresh(group)
        return self._network.routes.table(group).is_late(slot, way.epoch)

    async def changed(self, group: str, seconds: float) -> None:
        """Wait until owners of a group have changed, at most so long."""
        event = self._changes.setdefault(group, asyncio.Event())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await event.wait()

    def note_change(self, group: str) -> None:
        """Let those look again who wait for an owner of a group."""
        event = self._changes.pop(group, None)
        if event is not None:
            event.set()

    def _group_of(self, type_name: str) -> str | None:
        definition = self._types.by_name.get(type_name)
        if definition is not None:
            return definition.options.placement_group
        declared = self._declared.get(type_name)
        return None if declared is None else declared.placement_group


class LocalSubscription:
    """A subscription to an actor of this process."""

    def __init__(
        self,
        runtime: ActorRuntime,
        on_event: Callable[[int, bytes], None],
        on_end: Callable[[], None],
    ) -> None:
        self._runtime = runtime
        self._on_event = on_event
        self._on_end = on_end

    async def renew(self, body: bytes) -> Answer:
        """Begin it, or keep it for another while."""
        return subscribe(self._runtime, self, body, self._on_event, self._on_end)

    def close(self) -> None:
        """End it."""
        self._runtime.emitter.unsubscribe(self)
