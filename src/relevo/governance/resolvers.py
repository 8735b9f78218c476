"""Resolvers: which partition an entity is in, and which resource that has now.

dbs = app.governance.resolver("orders-db")
async with dbs.use(user_id) as resolution:
    await save(resolution.resource.data["dsn"], user_id)
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from msgspec import structs

from relevo.actors import BY
from relevo.errors import Conflict, InvalidValue, NotFound, RelevoError
from relevo.governance.calls.resolver_calls import (
    RESOLVER_TYPE,
    ReaderNote,
    Resolved,
    ResolverCalls,
)
from relevo.governance.core.resolutions import Missing, Paused, Resolutions
from relevo.governance.errors import Moving, StaleResolution
from relevo.governance.pools import new_ticket
from relevo.kernel import error_text

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from contextlib import AbstractAsyncContextManager

    from relevo.actors import Actors
    from relevo.governance.calls.resolver_calls import ResolverOptions, ResolverView
    from relevo.governance.core.assignments import Assignment, Partition, Resolution, Resource
    from relevo.governance.core.moves import Move
    from relevo.governance.core.rebalancing import PlannedMove
    from relevo.governance.guards import ResourceGuard
    from relevo.governance.holders import Holders
    from relevo.governance.pools import ResourcePool
    from relevo.governance.rate_limits import RateLimit
    from relevo.kernel.leases.life import Life

    CopyData = Callable[[str, str, str], Awaitable[None]]
V = TypeVar("V")
WAIT_SECONDS: Final = 5.0  # of one call, for a move to go on
PAGE_ROWS: Final = 500
ALIVE_SECONDS: Final = 5.0
ERROR_LENGTH: Final = 1_000


class Resolver:
    """A resolver, as its users see it, with this process's cache of its answers."""

    def __init__(
        self, name: str, options: ResolverOptions, actors: Actors, holders: Holders,
        assign: Callable[[str], str] | None = None, by: str | None = None,
    ) -> None:  # fmt: skip
        self.name = name
        self.options = options
        self._actors = actors
        self._holders = holders
        self._assign = assign
        """Chooses the partition of a new entity."""
        self._by = by
        """Who asks for its changes, if that is not this program."""
        self._declared: Any = None
        self._life: Life | None = None
        self._reader = ""
        self._cache = Resolutions(options.rules)
        self._version = 0
        self._first = asyncio.Lock()  # of questions without a version
        self._refreshing: asyncio.Task[None] | None = None
        self._reporting: asyncio.Task[None] | None = None
        self._reported: set[tuple[str, int]] = set()  # moves, so that they are told of once
        self._pauses: dict[tuple[str, int], asyncio.Task[None]] = {}
        """Those who wait for the end of a move."""

    async def resolve(self, entity: str, *, stale_ok: bool = False) -> Resolution:
        """Return where an entity is; assigns it first if it is new.

        With `stale_ok` an older answer is better than none while the resolver cannot be reached.
        """
        self._renew_reader()
        found = self._cache.get(entity, _now())
        if found is not None:
            return found
        try:
            return await self._fetch(entity)
        except RelevoError:
            old = self._cache.get(entity, _now(), stale_ok=True) if stale_ok else None
            if old is None:
                raise
            return old

    @asynccontextmanager
    async def use(
        self, entity: str, *, gate: Callable[[Resolution], ResourceGuard] | None = None
    ) -> AsyncIterator[Resolution]:
        """Run the body with the resource of an entity, which is not moved meanwhile.

        Waits while it is being moved, then raises `Moving`. The body is canceled, with
        `TimeoutError`, when it takes longer than `use_ttl`. `gate` returns the guard of a
        resource, which the use passes first. If that knows of a later move, the entity is resolved
        once more; then `StaleResolution` is raised.
        """
        async with AsyncExitStack() as stack:
            try:
                resolution = await stack.enter_async_context(self._using(entity, gate))
            except StaleResolution:
                await self._refresh()
                resolution = await stack.enter_async_context(self._using(entity, gate))
            yield resolution

    @asynccontextmanager
    async def _using(
        self, entity: str, gate: Callable[[Resolution], ResourceGuard] | None
    ) -> AsyncIterator[Resolution]:
        use = await self._begin(entity)
        life, cache = self._life, self._cache
        try:
            async with AsyncExitStack() as bounds:
                await bounds.enter_async_context(asyncio.timeout_at(use.deadline))
                await bounds.enter_async_context(self._in(life))
                if gate is not None:
                    guard = gate(use.resolution).enter(resolution=use.resolution)
                    await bounds.enter_async_context(guard)
                yield use.resolution
        finally:
            cache.end(use.number)
            if cache is self._cache and self._unreported():
                self._report()

    def _in(self, life: Life | None) -> AbstractAsyncContextManager[None]:
        """Cancel a body when that life of this host may have ended; a client has none."""
        return nullcontext() if life is None else self._holders.holding(life, 0.0, _never)

    async def _begin(self, entity: str) -> Any:
        give_up = _now() + self.options.rules.max_pause
        while True:
            self._renew_reader()
            found = self._cache.begin(entity, _now())
            if not isinstance(found, (Missing, Paused)):
                return found
            if _now() > give_up:
                raise Moving(f"the partition of {entity!r} in {self.name!r} is being moved")
            if isinstance(found, Missing):
                await self._fetch(entity)
            else:
                await self._await_move(found, give_up - _now())
                await self._refresh()

    async def _await_move(self, paused: Paused, seconds: float) -> None:
        """Wait until a move has ended, with all others of this process that wait for it."""
        key = (paused.subject, paused.generation)
        if (waiting := self._pauses.get(key)) is None:
            move = (await self._made()).await_move(*key, WAIT_SECONDS)
            waiting = self._pauses[key] = self._holders.keep(_quietly(move))
            waiting.add_done_callback(lambda _: self._pauses.pop(key, None))
        await asyncio.wait({waiting}, timeout=max(0.0, seconds))

    def _unreported(self) -> tuple[tuple[str, int], ...]:
        """Return moves of which no older use is left here, unless the resolver knows that."""
        quiet = [(one.subject, one.generation) for one in self._cache.quiet_moves()]
        self._reported.intersection_update(quiet)
        return tuple(one for one in quiet if one not in self._reported)

    def _report(self) -> None:
        """Let the resolver know at once that no use is left for which a move waits."""
        if self._reporting is None or self._reporting.done():
            self._reporting = self._holders.keep(_quietly(self._refresh()))

    async def add_resource(self, name: str, data: Any = None, *, capacity: float = 1.0) -> Resource:
        """Add a resource with data of your own, or change it."""
        return await (await self._made()).add_resource(name, data, capacity)

    async def attach(self, resource: str, *gates: ResourcePool | RateLimit) -> None:
        """Let pools and limits refuse the users of partitions that have left a resource.

        They raise `StaleResolution` for users that show an older `resolution`. The gates given
        replace those that were attached before.
        """
        await (await self._made()).attach(resource, [one.gate for one in gates])

    async def add_partition(self, name: str, *, on: str, low: str = "") -> Partition:
        """Add a partition on a resource; ranges of entities begin at `low`."""
        return await (await self._made()).add_partition(name, on, low)

    async def pin(self, entity: str, partition: str) -> Assignment:
        """Put an entity into a partition; one that is in use stays on its resource."""
        return await self._changed((await self._made()).pin(entity, partition))

    async def drain(self, resource: str, *, draining: bool = True) -> Resource:
        """Assign nothing new to a resource; `plan_rebalance` then empties it."""
        return await (await self._made()).drain(resource, draining)

    async def remove(self, resource: str) -> None:
        """Remove a resource that no partition points to; raises `InUse`."""
        await (await self._made()).remove(resource)

    async def view(self) -> ResolverView:
        """Return resources and moves, and how many partitions and entities there are."""
        return await (await self._made()).view()

    async def partition(self, name: str) -> Partition | None:
        """Return a partition; None if there is none."""
        return await (await self._made()).partition(name)

    async def partitions(self, *, resource: str | None = None) -> AsyncIterator[Partition]:
        """Yield the partitions by name, or those of one resource."""
        after: str | None = ""
        while after is not None:
            page = await (await self._made()).partitions(after, PAGE_ROWS, resource)
            for one in page.items:
                yield one
            after = page.end

    async def split(self, partition: str, *, into: str, at: str | None = None) -> int:
        """Give half of the entities of a partition, or those from `at` on, to a new partition.

        It is on the same resource, so no use is disturbed. Returns how many entities it got.
        """
        return await self._changed((await self._made()).split(partition, into, at))

    async def merge(self, partition: str, *, into: str) -> int:
        """Give all entities of a partition to another one on the same resource, and remove it."""
        return await self._changed((await self._made()).merge(partition, into))

    async def plan_rebalance(self) -> list[PlannedMove]:
        """Return moves after which resources are loaded as their capacity says; 10,000 at most."""
        return await (await self._made()).plan()

    async def apply(self, plan: list[PlannedMove], *, copy: CopyData | None = None) -> None:
        """Carry out the moves of a plan, one after the other."""
        for move in plan:
            await self.move(partition=move.partition, to=move.target, copy=copy)

    async def move(
        self,
        *,
        to: str,
        entity: str | None = None,
        partition: str | None = None,
        resource: str | None = None,
        copy: CopyData | None = None,
        switch: bool = False,
    ) -> None:
        """Move a partition, all partitions of a resource, or an entity to another resource.

        An entity gets a partition of its own. Uses of the old and the new resource never overlap:
        new uses wait, those that run end, then `copy(partition, source, target)` copies the data.
        If it raises, the partition stays on its old resource; it does, too, if this process dies,
        unless another one begins the same move within 30 s, which copies again. A move without
        `copy` goes on without the process that began it. With `switch` nothing waits and nothing
        is copied, and uses may overlap.
        """
        given = [one for one in (entity, partition, resource) if one is not None]
        if len(given) != 1:
            raise InvalidValue("give one of entity=, partition= and resource=, which is to move")
        resolver = await self._made()
        if entity is not None:
            await self._ask(entity)  # which assigns it if it is new
            partition = await resolver.detach(entity)
        if partition is not None:
            await self._changed(self._move(resolver, partition, to, copy, switch=switch))
            return
        view = await resolver.view()
        if resource not in {one.name for one in view.resources}:
            raise NotFound(f"there is no resource {resource!r}; nothing was moved")
        async for one in self.partitions(resource=resource):
            await self._changed(self._move(resolver, one.name, to, copy, switch=switch))

    async def _changed(self, change: Awaitable[V]) -> V:
        """Make a change, of which this process knows when it returns."""
        found = await change
        await self._refresh()
        return found

    async def _move(
        self, resolver: ResolverCalls, partition: str, to: str, copy: CopyData | None, *,
        switch: bool,
    ) -> None:  # fmt: skip
        life = self._holders.life
        move = await resolver.begin_move(partition, to, switch, copy is not None)
        if move is None:
            return
        await self._refresh()
        while True:
            stage = await resolver.step_move(partition, to, move.generation, WAIT_SECONDS)
            if stage != "wait":
                break
        if stage == "returned":
            raise Conflict(f"the move of partition {partition!r} was given up; begin it again")
        if copy is None or stage == "moved":
            return
        alive = self._holders.keep(self._stay(resolver, move))
        try:
            async with self._in(life):
                await copy(partition, move.source, move.target)
        except BaseException as error:
            alive.cancel()
            told = error_text.shown(error)[:ERROR_LENGTH] or "failed"
            await asyncio.shield(resolver.end_move(partition, to, move.generation, told))
            raise
        alive.cancel()
        await resolver.end_move(partition, to, move.generation, "")

    async def _stay(self, resolver: ResolverCalls, move: Move) -> None:
        """Let the resolver know that the mover is there."""
        while True:
            await asyncio.sleep(ALIVE_SECONDS)
            try:
                await resolver.step_move(move.subject, move.target, move.generation)
            except RelevoError:
                continue

    def _renew_reader(self) -> None:
        """Begin with an empty cache in each life of the host."""
        life = self._holders.life
        if self._reader and life is self._life:
            return
        self._life, self._reader = life, new_ticket() if life is None else str(life.incarnation)
        self._cache, self._version = Resolutions(self.options.rules), 0
        self._reported.clear()

    async def _fetch(self, entity: str) -> Resolution:
        cache, asked_at = self._cache, _now()
        found = await self._ask(entity)
        assert found.resolution is not None
        resolution = structs.replace(found.resolution, resolver=self.name)
        cache.put(resolution, asked_at)
        return resolution

    async def _refresh(self) -> None:
        while (found := await self._ask(None)).version < found.newest:
            pass  # it has missed more than one answer tells

    async def _ask(self, entity: str | None) -> Resolved:
        """Ask where an entity is, and what has changed since the version of the first answer."""
        self._renew_reader()
        if self._version:
            return await self._ask_since(entity)
        async with self._first:
            return await self._ask_since(entity)

    async def _ask_since(self, entity: str | None) -> Resolved:
        resolver = await self._made()
        cache, version, asked_at = self._cache, self._version, _now()
        quiet = self._unreported()
        found = None if quiet else await resolver.look(entity, self._reader, version)
        if found is None:
            host = None if self._life is None else str(self._life.incarnation)
            note, choice = ReaderNote(self._reader, host, quiet), None
            if self._assign is not None and entity is not None and not cache.knows(entity):
                choice = self._assign(entity)
            found = await resolver.resolve(entity, note, version, choice)
        if cache is self._cache:
            complete = found.version == found.newest
            cache.learn(found.notices, asked_at, complete=complete, resources=found.resources)
            self._version = max(self._version, found.version)
            self._reported.update(quiet)
            if self._unreported():
                self._report()
            if self._refreshing is None or self._refreshing.done():
                self._refreshing = self._holders.keep(self._keep_fresh())
        return found

    async def _keep_fresh(self) -> None:
        """Learn of moves in time, and let the resolver know that nothing old is in use."""
        while self._actors.connection.is_open:
            await asyncio.sleep(self.options.rules.max_stale / 4)
            try:
                self._renew_reader()
                await self._refresh()
            except RelevoError:
                continue

    async def _made(self) -> ResolverCalls:
        connection = self._actors.connection.opened
        proxy: Any = self._actors.proxy(ResolverCalls, self.name, type=RESOLVER_TYPE)
        if self._by is not None:
            proxy = proxy.with_(headers={BY: self._by})
        if self._declared is not connection:
            await proxy.declare(self.options)
            self._declared = connection
        return cast("ResolverCalls", proxy)


async def _never() -> bool:
    return False


async def _quietly(work: Awaitable[None]) -> None:
    """Do what is done again if it fails."""
    with suppress(RelevoError):
        await work


def _now() -> float:
    return asyncio.get_running_loop().time()
