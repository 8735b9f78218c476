"""What the actors of the kit know of their app."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, TypeVar

from msgspec import Struct

from relevo.actors import BY, Actor, headers
from relevo.governance.calls.cache_calls import CacheDefinition
from relevo.governance.calls.writer_calls import WriterDefinition
from relevo.governance.clock import StoreClock
from relevo.governance.operating import events

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from datetime import datetime
    from uuid import UUID

    from relevo.governance.calls.gates import GateCalls, GateRef

    EndedLives = Callable[[Iterable[UUID]], Awaitable[tuple[datetime, set[UUID]]]]
    GateOf = Callable[[GateRef], GateCalls]

S = TypeVar("S")


class Kit(Struct, eq=False):
    """What an app defines of the kit, and its view of the store's time and of other hosts."""

    clock: StoreClock
    ended_lives: EndedLives
    """Returns the present time, and which of some lives of hosts have ended."""
    gate: GateOf
    """Returns a proxy of a pool or a limit."""
    writers: dict[str, WriterDefinition] = {}
    caches: dict[str, CacheDefinition] = {}


class KitActor(Actor[S]):
    """An actor of the kit. Each app defines a subclass of its own, which has the app's `kit`."""

    kit: ClassVar[Kit]

    def log_change(self, type_name: str, subject: str | None = None, to: str | None = None) -> None:
        """Log a change in the transaction of the present turn, for the caller of that turn."""
        self.log_change_for(headers().get(BY), type_name, subject, to)

    def log_change_for(
        self, by: str | None, type_name: str, subject: str | None, to: str | None
    ) -> None:
        """The same for a change that somebody has asked for in an earlier turn."""
        name = str(self.ctx.key)
        data = events.GovernanceData(name=name, by=by, subject=subject, to=to)
        self.log_event(type_name, events.subject_of(type_name, name), data)
