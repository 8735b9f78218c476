"""The types of actors that the kit defines in an app."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from relevo.governance.actors.cache_actor import CacheActor
from relevo.governance.actors.limit_actor import LimitActor
from relevo.governance.actors.pool_actor import PoolActor
from relevo.governance.actors.resolver_actor import ResolverActor
from relevo.governance.actors.writer_actor import WriterActor
from relevo.governance.calls.cache_calls import CACHE_TYPE, CacheCalls
from relevo.governance.calls.limit_calls import LIMIT_TYPE, LimitCalls
from relevo.governance.calls.pool_calls import POOL_TYPE, PoolCalls
from relevo.governance.calls.resolver_calls import RESOLVER_TYPE, ResolverCalls
from relevo.governance.calls.writer_calls import WRITER_TYPE, WriterCalls

if TYPE_CHECKING:
    from relevo.actors.service import Actors
    from relevo.governance.actors.kit import Kit, KitActor


def define_types(actors: Actors, kit: Kit) -> None:
    """Define the types in an app; hosts of apps that use none of the kit serve none of them."""

    def define(name: str, cls: type[KitActor[Any]], implements: type, **options: Any) -> None:
        own = type(cls.__name__, (cls,), {"__module__": cls.__module__, "kit": kit})
        actors.define(name, implements=implements, placement_group="relevo", **options)(own)

    define(POOL_TYPE, PoolActor, PoolCalls, mailbox=20_000)
    define(LIMIT_TYPE, LimitActor, LimitCalls, mailbox=20_000)
    define(RESOLVER_TYPE, ResolverActor, ResolverCalls, mailbox=20_000)
    define(WRITER_TYPE, WriterActor, WriterCalls, mailbox=100_000)
    define(CACHE_TYPE, CacheActor, CacheCalls, persist="volatile", mailbox=20_000)
