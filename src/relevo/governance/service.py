"""`app.governance`: pools, limits, writers and what else governs scarce resources."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager  # noqa: TC003 - msgspec reads it
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from relevo.actors import checked_key
from relevo.errors import Conflict, InvalidValue
from relevo.governance.actors.kit import Kit
from relevo.governance.actors.types import define_caches, define_types, define_writers
from relevo.governance.budgets import ClusterBudgets
from relevo.governance.caches import ResultCache
from relevo.governance.calls.cache_calls import CACHE_TYPE, CacheDefinition
from relevo.governance.calls.gates import GateCalls
from relevo.governance.calls.limit_calls import LimitOptions
from relevo.governance.calls.resolver_calls import ResolverOptions
from relevo.governance.calls.writer_calls import WRITER_TYPE, Ack, WriterDefinition
from relevo.governance.clock import StoreClock
from relevo.governance.core.ages import AgeRules
from relevo.governance.core.assignments import POLICIES
from relevo.governance.core.buckets import Buckets
from relevo.governance.core.buffers import BufferOptions
from relevo.governance.core.moves import MoveRules
from relevo.governance.core.pools import WAITERS_MAX, PoolOptions
from relevo.governance.guards import ResourceGuard
from relevo.governance.holders import Holders
from relevo.governance.pools import Coordination, ResourcePool
from relevo.governance.rate_limits import RateLimit
from relevo.governance.reach import KitReach
from relevo.governance.resolvers import Resolver
from relevo.governance.writers import ExclusiveWriter
from relevo.kernel.leases.directory import Directory
from relevo.kernel.part import Part, Service
from relevo.limits import MIB

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence
    from datetime import datetime
    from uuid import UUID

    from relevo.actors import Actors
    from relevo.governance.core.assignments import Policy
    from relevo.governance.core.breaking import BreakerRules
    from relevo.governance.core.windows import Rate
    from relevo.governance.sinks import Sink
    from relevo.kernel.part import Connection, Host

CLOSE_SECONDS = 5.0


class Governance(Service):
    """Governs scarce resources with actors that all hosts serve once one program uses some.

    >>> erp = app.governance.pool("erp", size=20)  # doctest: +SKIP
    >>> async with erp.lease(key="acme") as permit:  # doctest: +SKIP
    ...     await call_erp(permit.fence)
    """

    def __init__(self, connection: Connection, actors: Actors) -> None:
        super().__init__(connection)
        self._actors = actors
        self.holders = Holders()
        self.clock = StoreClock(actors.now)
        self._kit = Kit(
            self.clock, self._ended_lives,
            lambda gate: actors.proxy(GateCalls, gate.name, type=gate.type),
        )  # fmt: skip
        self.budgets = ClusterBudgets(self)
        """What lanes and consumers share by naming pools and limits."""
        self._pools: dict[str, ResourcePool] = {}
        self._limits: dict[str, RateLimit] = {}
        self._resolvers: dict[str, Resolver] = {}
        self._caches: dict[str, ResultCache] = {}
        self._serves = False
        self.reach = KitReach(self)
        actors.when_unserved = self.reach.let_serve
        """How programs that use nothing of the kit reach it."""

    def _serve(self) -> None:
        """Let this app know the actors of the kit; see `reach` for hosts of other apps."""
        if not self._serves:
            self._serves = True
            define_types(self._actors, self._kit)

    @property
    def actors(self) -> Actors:
        """The actors of the app, of which those of the kit are some."""
        return self._actors

    @property
    def serves(self) -> bool:
        """Whether this app knows the actors of the kit."""
        return self._serves

    def serve(self) -> None:
        """Serve the kit on this host, although this program uses none of it."""
        self._serve()

    def _serve_own(self, type_name: str, define: Callable[[Actors, Kit], None]) -> None:
        """Let this app know actors that only programs serve which define what they do."""
        self._serve()
        if type_name not in self._actors.types.by_name:
            define(self._actors, self._kit)

    def pool(
        self,
        name: str,
        *,
        size: int | None = None,
        per_key: int | None = None,
        burst: bool = False,
        coordination: Coordination = "server",
        max_waiters: int = WAITERS_MAX,
    ) -> ResourcePool:
        """Return a pool; no I/O, so modules may call it on import. It is made when first used.

        At most `size` is in use at once, over all hosts. A key, such as a tenant, has at most
        `per_key` of it; with `burst` more while no other key waits. With `coordination="client"` a
        host borrows permits and serves its callers by itself; what is idle there for 1 s goes
        back, and at once if others wait. Without `size` the pool is one that this program has named
        before, or that exists.
        """
        checked_key(name)
        _check_coordination(coordination)
        self._serve()
        if size is None:
            return self._pools.get(name) or ResourcePool(
                name, None, self._actors, self.holders, coordination
            )
        if per_key is not None and per_key < 1:
            raise InvalidValue(f"per_key is {per_key!r}; give 1 or more", pointer="per_key")
        options = PoolOptions(size=size, per_key=per_key, burst=burst, max_waiters=max_waiters)
        known = self._pools.get(name)
        if known is None or (known.options, known.coordination) != (options, coordination):
            known = self._pools[name] = ResourcePool(
                name, options, self._actors, self.holders, coordination
            )
        return known

    def limit(
        self,
        name: str,
        *,
        rates: Sequence[Rate] | None = None,
        burst: float = 0.0,
        coordination: Coordination = "server",
    ) -> RateLimit:
        """Return a rate limit; no I/O, so modules may call it on import.

        It is made when first used. In any window of a rate its amount and the burst are admitted
        at most, over all hosts and across restarts. With `coordination="client"` a host borrows
        for the next 250 ms and decides by itself. Without `rates` the limit is one that this
        program has named before, or that exists.
        """
        checked_key(name)
        _check_coordination(coordination)
        self._serve()
        if rates is None:
            found = self._limits.get(name)
            return found or RateLimit(name, None, self._actors, self.holders, self.clock)
        Buckets(tuple(rates), burst).of("", 0.0)
        options = LimitOptions(rates=tuple(rates), burst=burst)
        known = self._limits.get(name)
        if known is None or (known.options, known.coordination) != (options, coordination):
            known = self._limits[name] = RateLimit(
                name,
                options,
                self._actors,
                self.holders,
                self.clock,
                coordination=coordination,
            )
        return known

    def writer(
        self,
        name: str,
        *,
        sink: Sink,
        max_batch: int = 500,
        max_bytes: int = 4 * MIB,
        max_delay: float = 0.05,
        ack: Ack = "sink",
        max_buffer: int = 100_000,
    ) -> ExclusiveWriter:
        """Return a writer; `writer[key].write(event)` writes to the sink of that key.

        A batch is written when it has `max_batch` events or `max_bytes`, or when its first event
        has waited `max_delay` seconds. With `ack="sink"` a write returns when the sink has the
        event; with `ack="buffer"` when Relevo has stored it, and it is written later, also after a
        crash. At most `max_buffer` events of a key wait. Every host that serves must define it.
        """
        checked_key(name)
        if ":" in name:
            raise InvalidValue(f"the name of a writer has no colon: {name!r}", pointer="name")
        if ack not in ("sink", "buffer"):
            raise InvalidValue(f'ack is "sink" or "buffer", not {ack!r}', pointer="ack")
        if min(max_batch, max_bytes, max_buffer) < 1 or not max_delay >= 0:
            raise InvalidValue("the bounds of a writer are 1 or more, and max_delay 0 or more")
        options = BufferOptions(
            max_batch=max_batch, max_bytes=max_bytes, max_delay=max_delay, max_buffer=max_buffer
        )
        definition = WriterDefinition(name, sink, options, ack)
        self._serve_own(WRITER_TYPE, define_writers)
        known = self._kit.writers.setdefault(name, definition)
        if known != definition:
            raise Conflict(
                f"writer {name!r} is defined twice, with other settings; give each a name"
            )
        return ExclusiveWriter(definition, self._actors)

    def cache(
        self,
        name: str,
        *,
        load: Callable[[str], Awaitable[Any]],
        ttl: float,
        refresh: float | None = None,
        stale: float = 0.0,
        preload: Iterable[str] = (),
        pool: ResourcePool | None = None,
        limit: RateLimit | None = None,
        replicate: bool = False,
    ) -> ResultCache:
        """Return a cache of what `load(key)` returns, for `ttl` seconds.

        A result in use is loaded again `refresh` seconds before its end. If a load fails, the last
        result is served for `stale` seconds more. The keys in `preload` are loaded without a
        caller, and count as in use. Each load takes a permit of `pool` and passes `limit`. With
        `replicate` each process keeps results that are in use, and asks every second whether they
        still hold. Every host that serves must define the cache.
        """
        checked_key(name)
        if ":" in name:
            raise InvalidValue(f"the name of a cache has no colon: {name!r}", pointer="name")
        if not ttl > 0 or not stale >= 0 or not (refresh is None or 0 < refresh < ttl):
            raise InvalidValue("ttl is above 0, stale 0 or more, and refresh between 0 and ttl")
        definition = CacheDefinition(
            name, load, AgeRules(ttl=ttl, refresh=refresh, stale=stale), tuple(preload),
            _gate(name, pool, limit), replicate,
        )  # fmt: skip
        self._serve_own(CACHE_TYPE, define_caches)
        known = self._caches.get(name)
        if known is None:
            known = self._caches[name] = ResultCache(definition, self._actors)
            self._kit.caches[name] = definition
            if self.holders.leases is not None:
                self._preload(known)
        elif known.definition != definition:
            raise Conflict(f"cache {name!r} is defined twice, with other settings; rename one")
        return known

    def preload(self) -> None:
        """Load what caches are to have before anybody asks, from now on."""
        for cache in self._caches.values():
            self._preload(cache)

    def _preload(self, cache: ResultCache) -> None:
        if cache.definition.preload:
            self.holders.keep(cache.keep_loaded())

    def guard(
        self,
        resource: str,
        *,
        pool: ResourcePool | None = None,
        limit: RateLimit | None = None,
        breaker: BreakerRules | None = None,
    ) -> ResourceGuard:
        """Return a guard: each use of the resource passes the breaker, the limit and the pool."""
        return ResourceGuard(resource, pool, limit, breaker)

    def resolver(
        self,
        name: str,
        *,
        assign: Policy | Callable[[str], str] = "hash",
        max_stale: float = 5.0,
        max_pause: float = 10.0,
        use_ttl: float = 60.0,
    ) -> Resolver:
        """Return a resolver of entities, such as users, to partitions and their resources.

        `assign` chooses the partition of a new entity: "hash", "range", "least_loaded", "explicit"
        or a function; the choice is kept. Answers are cached for `max_stale` seconds; a use takes
        `use_ttl` at most, and waits `max_pause` while its partition is moved.
        """
        checked_key(name)
        self._serve()
        function = assign if callable(assign) else None
        policy = assign if function is None else "function"
        if policy not in ("function", *POLICIES):
            raise InvalidValue(f"assign is {assign!r}; it is one of {', '.join(POLICIES)}")
        rules = MoveRules(max_stale=max_stale, max_pause=max_pause, use_ttl=use_ttl)
        options = ResolverOptions(assign=policy, rules=rules)
        known = self._resolvers.setdefault(
            name, Resolver(name, options, self._actors, self.holders, function)
        )
        if known.options != options:
            raise Conflict(f"resolver {name!r} is defined twice, with other settings; rename one")
        return known

    async def _ended_lives(self, lives: Iterable[UUID]) -> tuple[datetime, set[UUID]]:
        return await Directory(self.database, self.wakeups).ended_lives(lives)


class _LoadGate(Struct, frozen=True):
    """What loads of a cache pass."""

    guard_name: str
    pool: ResourcePool | None
    limit: RateLimit | None

    def __call__(self) -> AbstractAsyncContextManager[object]:
        return ResourceGuard(self.guard_name, self.pool, self.limit, None).enter()


def _gate(name: str, pool: ResourcePool | None, limit: RateLimit | None) -> _LoadGate | None:
    return None if pool is None and limit is None else _LoadGate(name, pool, limit)


def _check_coordination(coordination: Coordination) -> None:
    if coordination not in ("server", "client"):
        raise InvalidValue(
            f'coordination is "server" or "client", not {coordination!r}', pointer="coordination"
        )


class GovernancePart(Part[Governance]):
    """Lets permits live with the host while there is one."""

    def __init__(self, service: Governance) -> None:
        super().__init__(service)
        self._host: Host | None = None

    async def start(self, host: Host) -> None:
        """Take permits in the name of the host from now on."""
        self.service.holders.leases = host.leases
        self.service.preload()
        self._host = host
        self.service.reach.start(host)

    async def stop(self, timeout: float) -> None:
        """Finish releases that are under way; what is left ends with the host."""
        if self._host is not None:
            await self.service.reach.stop(self._host)
            self._host = None
        await self.service.holders.close(min(timeout, CLOSE_SECONDS))
        self.service.holders.leases = None

    async def close(self) -> None:
        """Finish releases of a client."""
        await self.service.holders.close(CLOSE_SECONDS)
