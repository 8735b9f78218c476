"""The types of actors that the kit defines in an app."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from relevo.actors import KIT_DEFINED_GROUP, KIT_GROUP
from relevo.governance.actors.cache_actor import CacheActor
from relevo.governance.actors.limit_actor import LimitActor
from relevo.governance.actors.pool_actor import PoolActor
from relevo.governance.actors.resolver_actor import ResolverActor
from relevo.governance.actors.writer_actor import WriterActor
from relevo.governance.calls.cache_calls import CACHE_TYPE, CacheCalls
from relevo.governance.calls.gates import GateCalls
from relevo.governance.calls.limit_calls import LIMIT_TYPE, LimitCalls
from relevo.governance.calls.pool_calls import POOL_TYPE, PoolCalls
from relevo.governance.calls.resolver_calls import RESOLVER_TYPE, ResolverCalls
from relevo.governance.calls.writer_calls import WRITER_TYPE, WriterCalls

if TYPE_CHECKING:
    from relevo.actors import Actors, Persist
    from relevo.governance.actors.kit import Kit, KitActor


def define_types(actors: Actors, kit: Kit) -> None:
    """Define pools, limits and resolvers in an app, whose hosts then serve them."""
    _define(actors, kit, POOL_TYPE, PoolActor, (PoolCalls, GateCalls), KIT_GROUP)
    _define(actors, kit, LIMIT_TYPE, LimitActor, (LimitCalls, GateCalls), KIT_GROUP)
    _define(actors, kit, RESOLVER_TYPE, ResolverActor, ResolverCalls, KIT_GROUP)


def define_writers(actors: Actors, kit: Kit) -> None:
    """Define writers in an app that defines some of them."""
    _define(actors, kit, WRITER_TYPE, WriterActor, WriterCalls, KIT_DEFINED_GROUP, mailbox=100_000)


def define_caches(actors: Actors, kit: Kit) -> None:
    """Define caches in an app that defines some of them."""
    _define(actors, kit, CACHE_TYPE, CacheActor, CacheCalls, KIT_DEFINED_GROUP, persist="volatile")


def _define(
    actors: Actors, kit: Kit, name: str, cls: type[KitActor[Any]],
    implements: type | tuple[type, ...],
    placement_group: str, *, mailbox: int = 20_000, persist: Persist = "durable",
) -> None:  # fmt: skip
    own = type(cls.__name__, (cls,), {"__module__": cls.__module__, "kit": kit})
    actors.define(
        name, implements=implements, placement_group=placement_group, mailbox=mailbox,
        persist=persist,
    )(own)  # fmt: skip
