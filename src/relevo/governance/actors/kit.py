"""What the actors of the kit know of their app."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, TypeVar

from msgspec import Struct

from relevo.actors.actor import Actor
from relevo.governance.calls.cache_calls import CacheDefinition
from relevo.governance.calls.writer_calls import WriterDefinition
from relevo.governance.clock import StoreClock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from datetime import datetime
    from uuid import UUID

    EndedLives = Callable[[Iterable[UUID]], Awaitable[tuple[datetime, set[UUID]]]]

S = TypeVar("S")


class Kit(Struct, eq=False):
    """What an app defines of the kit, and its view of the store's time and of other hosts."""

    clock: StoreClock
    ended_lives: EndedLives
    """Returns the present time, and which of some lives of hosts have ended."""
    writers: dict[str, WriterDefinition] = {}
    caches: dict[str, CacheDefinition] = {}


class KitActor(Actor[S]):
    """An actor of the kit. Each app defines a subclass of its own, which has the app's `kit`."""

    kit: ClassVar[Kit]
