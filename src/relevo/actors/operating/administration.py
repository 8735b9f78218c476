"""Lists of actors, and what operators ask of one: delete, deactivate, move."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
from msgspec import Struct

from relevo import limits
from relevo.actors.calls.proxies import CallOptions, ProxyBase
from relevo.actors.core.identity import ActorRef, checked_type, slot_of
from relevo.actors.operating import events
from relevo.actors.operating.events import ActorData, event_of
from relevo.actors.running.control import PREFIX, ActivationReport, control_method
from relevo.actors.storing.stored_actors import ListedActor
from relevo.errors import InvalidValue, NotFound
from relevo.kernel.leases.directory import Directory
from relevo.kernel.postgres import catalog

if TYPE_CHECKING:
    from collections.abc import Sequence

    from relevo.actors.service import Actors
    from relevo.kernel.pages import Fetched
    from relevo.kernel.postgres import Transaction

SQL = catalog.load("relevo.actors")
FAULTS_MAX: Final = 200
Named = Any
"""An actor: its `ActorRef`, a proxy, or its canonical id. Proxies are typed as their interfaces."""


class ActorRecord(ListedActor, frozen=True, kw_only=True):
    """What is stored of an actor, without its state."""

    schema: int
    placement_group: str
    slot: int
    quarantine_error: str | None
    """Why its state cannot be used; None if it can."""
    bytes: int
    """Of its state."""


class ActorState(Struct, frozen=True):
    """The stored state of an actor."""

    revision: int
    schema: int
    document: bytes | None
    """MessagePack; None is the default state."""

    def value(self) -> Any:
        """Return the state as plain values; the bytes if they cannot be decoded."""
        try:
            return None if self.document is None else msgspec.msgpack.decode(self.document)
        except msgspec.MsgspecError:
            return self.document


class ActorOwner(Struct, frozen=True):
    """The host that owns the slot of an actor."""

    host: str
    epoch: int


class ActorFault(Struct, frozen=True):
    """Something that fails at an actor."""

    kind: Literal["message", "reminder", "state"]
    name: str
    """Of the reminder, or the number of the message."""
    error: str
    attempt: int
    """How often it has failed."""
    at: datetime
    """When it is tried next, or since when it is not tried any more."""
    dead: bool
    """Whether it is a dead letter."""


class Administration:
    """What operators see of actors and ask of them.

    Changes leave an event in the log; `by` says there who has asked.
    """

    def __init__(self, actors: Actors) -> None:
        self._actors = actors

    async def list(
        self, type_name: str, after: str = "", limit: int = limits.PAGE_ROWS_DEFAULT
    ) -> Fetched[ListedActor]:
        """Return actors of a type that have stored data, beyond the canonical id `after`."""
        return await self._actors.storage.actors.list(checked_type(type_name), after, limit)

    async def get(self, actor: Named) -> ActorRecord | None:
        """Return what is stored of an actor; None if nothing is."""
        row = await self._actors.database.fetchrow(SQL.get_actor, ref_of(actor).canonical)
        return None if row is None else ActorRecord(**row)

    async def state(self, actor: Named) -> ActorState:
        """Return the stored state of an actor; raises `NotFound` if nothing is stored of it."""
        ref = ref_of(actor)
        stored = await self._actors.storage.load(ref.canonical)
        if await self.get(ref) is None:
            raise NotFound(f"nothing is stored of {ref}")
        return ActorState(stored.revision, stored.schema, stored.document)

    async def owner(self, actor: Named) -> ActorOwner | None:
        """Return the host that owns the slot of an actor now; None if no live host does."""
        group, slot = await self.place(ref_of(actor))
        row = await self._actors.database.fetchrow(SQL.slot_owner, group, slot)
        return None if row is None else ActorOwner(row["name"], row["epoch"])

    async def activation(self, actor: Named) -> ActivationReport | None:
        """Return the actor as it is in memory on its host; None if it is not. Activates nothing."""
        found: ActivationReport | None = await self._control(ref_of(actor), "activation")
        return found

    async def delete(self, actor: Named, *, by: str | None = None) -> None:
        """Remove an actor and all that is stored of it, as a turn of its own.

        Calls that wait are handled by a fresh actor of the same id.
        """
        ref = ref_of(actor)
        await self._control(ref, "delete", by=by)

    async def deactivate(self, actor: Named, *, by: str | None = None) -> bool:
        """Let an actor leave memory after its running turn; False if it was not in memory."""
        return bool(await self._control(ref_of(actor), "deactivate", by=by))

    async def move(self, actor: Named, *, to: str, by: str | None = None) -> None:
        """Ask for the slot of an actor, and all actors in it, to go to the host named `to`.

        Raises `Conflict` if that host does not serve the placement group, or owns the slot.
        """
        ref = ref_of(actor)
        group, slot = await self.place(ref)
        directory = Directory(self._actors.database, self._actors.wakeups)
        moved = event_of(events.MOVED, ActorData(actor=ref.canonical, by=by, to=to))

        async def note(tx: Transaction) -> None:
            await events.append(tx, moved)

        await directory.move("actors", group, str(slot), to=to, note=note)

    async def errors(self, actor: Named) -> Sequence[ActorFault]:
        """Return what fails at an actor: its state, reminders and messages; 200 at most."""
        ref = ref_of(actor)
        group, slot = await self.place(ref)
        rows = await self._actors.database.fetch(
            SQL.faults_of, ref.canonical, group, slot, FAULTS_MAX
        )
        return [ActorFault(**row) for row in rows]

    async def cancel_reminder(self, actor: Named, name: str, *, by: str | None = None) -> bool:
        """Remove a reminder as a turn of its actor; False if there is none of that name."""
        ref = ref_of(actor)
        if not await self._actors.storage.has_reminder(ref.canonical, name):
            return False  # and activates nothing
        return bool(await self._control(ref, "cancel_reminder", name, by=by))

    async def place(self, ref: ActorRef) -> tuple[str, int]:
        """Return the placement group and the slot of an actor; raises `NotFound`.

        Raises `InvalidValue` for a stateless type.
        """
        await self._check_identity(ref)
        group, slots = await self._actors.ways.slots(ref.type)
        return group, slot_of(ref.canonical, slots)

    async def _control(
        self, ref: ActorRef, name: str, *arguments: Any, by: str | None = None
    ) -> Any:
        await self._check_identity(ref)
        method = control_method(self._actors.interfaces, f"{PREFIX}{name}")
        body = method.encode_arguments(arguments, {})
        return await self._actors.call(ref, method, body, CallOptions(headers=_asked_by(by)))

    async def _check_identity(self, ref: ActorRef) -> None:
        if await self._actors.ways.is_stateless(ref.type):
            raise InvalidValue(
                f"{ref.type!r} is stateless: it has activations, and no actors to look at; `relevo"
                " actor watch` shows how many"
            )


def _asked_by(by: str | None) -> tuple[tuple[str, str], ...]:
    return () if by is None else ((events.BY, by),)


def ref_of(actor: Named) -> ActorRef:
    """Return the identity of an actor; raises `InvalidValue` for a text that is none."""
    if isinstance(actor, ProxyBase):
        return actor.ref
    if isinstance(actor, ActorRef):
        return actor
    if isinstance(actor, str):
        return ActorRef.read(actor)
    raise InvalidValue(f"{actor!r:.80} is no actor; give a proxy, an ActorRef or a canonical id")
