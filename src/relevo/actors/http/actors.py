"""`/v1/actors`: what is stored of actors, where they are, and what operators ask of one."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from relevo import limits
from relevo.actors.core.identity import ActorRef, checked_type
from relevo.actors.http.models import ONE, SCOPE, ByActor, ByType, shown
from relevo.actors.operating import figures
from relevo.actors.operating.administration import FAULTS_MAX, ActorFault
from relevo.actors.operating.figures import SlotsOfHost, StoredWork, TypeAtWork
from relevo.actors.storing.stored_actors import ListedActor
from relevo.errors import Conflict, NoHost, NotFound
from relevo.http import paging
from relevo.http.paging import Cursor, Limit, Page
from relevo.http.system import Nothing
from relevo.kernel.operation import Operations

if TYPE_CHECKING:
    from relevo.actors.operating.administration import ActorRecord
    from relevo.actors.service import Actors
    from relevo.http.access.authenticator import Principal
    from relevo.http.services import Services

operation = Operations(scope=SCOPE)


class ActorFigures(Struct, frozen=True, kw_only=True):
    """What actors do now."""

    slots: list[SlotsOfHost]
    """By placement group and host."""
    stored: list[StoredWork]
    """Reminders and messages, by type of their actors."""
    here: list[TypeAtWork]
    """Activations of the host that answers, by type."""


@operation("actors.figures", "GET /v1/actor-figures", "actors:read", scope=None)
async def get_figures(services: Services, _: Principal, __: Nothing) -> ActorFigures:
    """Show the slots that hosts own, and the work of actors by type."""
    database, runtime = services.app.database, services.app.actors.own_runtime
    return ActorFigures(
        slots=await figures.slots_by_host(database), stored=await figures.stored_work(database),
        here=[] if runtime is None else figures.at_work(runtime),
    )  # fmt: skip


class ListActors(ByType, frozen=True, kw_only=True):
    """Which page of actors."""

    cursor: Cursor | None = None
    limit: Limit = limits.PAGE_ROWS_DEFAULT


@operation("actors.list", "GET /v1/actors/{type}", "actors:read")
async def list_actors(services: Services, _: Principal, command: ListActors) -> Page[ListedActor]:
    """List the actors of a type that have stored data."""
    after = paging.decode(command.cursor, str) or ""
    actors = services.app.actors
    found = await actors.list(checked_type(command.type), after, command.limit)
    return paging.page(services.page_bytes, found, lambda one: one.id)


class ActorView(Struct, frozen=True, kw_only=True):
    """An actor, without its state."""

    id: str
    """Canonical id: type, kind of key and key."""
    placement_group: str
    slot: int
    """The fraction of its placement group that it is in: a lease."""
    host: str | None
    """The host that owns the slot; null if no live host does."""
    epoch: int | None
    """The fencing number of the owner; it grows with each change of owner."""
    stored: bool = False
    """Whether anything is stored of it."""
    revision: int = 0
    """Grows with each stored turn."""
    incarnation: int = 0
    """Grows with each delete."""
    schema: int = 1
    """Of the stored state."""
    bytes: int = 0
    """Of the stored state."""
    updated_at: datetime | None = None
    quarantined_at: datetime | None = None
    """Since when the stored state cannot be used."""


@operation("actors.get", f"GET {ONE}", "actors:read", errors=(NotFound,))
async def get_actor(services: Services, _: Principal, command: ByActor) -> ActorView:
    """Show an actor: where it is, and what is stored of it, without its state."""
    actors = services.app.actors
    return await _view(actors, command.ref, await actors.get(command.ref))


async def _view(actors: Actors, ref: ActorRef, found: ActorRecord | None) -> ActorView:
    group, slot = await actors.administration.place(ref)
    owner = await actors.administration.owner(ref)
    view = ActorView(
        id=ref.canonical, placement_group=group, slot=slot,
        host=None if owner is None else owner.host, epoch=None if owner is None else owner.epoch,
    )  # fmt: skip
    if found is None:
        return view
    return msgspec.structs.replace(
        view, stored=True, revision=found.revision, incarnation=found.incarnation,
        schema=found.schema, bytes=found.bytes, updated_at=found.updated_at,
        quarantined_at=found.quarantined_at,
    )  # fmt: skip


class ActorStateView(Struct, frozen=True, kw_only=True):
    """The stored state of an actor."""

    revision: int
    schema: int
    state: Any
    """Null is the default state; in base64 if it cannot be decoded."""


@operation("actors.state", f"GET {ONE}/state", "actors:state", errors=(NotFound,))
async def get_state(services: Services, _: Principal, command: ByActor) -> ActorStateView:
    """Show the stored state of an actor."""
    found = await services.app.actors.administration.state(command.ref)
    return ActorStateView(revision=found.revision, schema=found.schema, state=shown(found.value()))


class ActivationView(Struct, frozen=True, kw_only=True):
    """Whether an actor is in memory, and what it does there."""

    host: str | None
    """Null if it is not in memory."""
    state: Literal["loading", "activating", "active", "deactivating"] | None = None
    turns: int = 0
    """Turns that run, nested ones included."""
    waiting: int = 0
    """Calls that wait for a turn."""
    deferred: int = 0
    """Answers that a later turn gives."""
    idle_seconds: float | None = None


@operation("actors.activation", f"GET {ONE}/activation", "actors:read", errors=(NotFound, NoHost))
async def get_activation(services: Services, _: Principal, command: ByActor) -> ActivationView:
    """Ask the owner of an actor whether it is in memory; this activates nothing."""
    administration = services.app.actors.administration
    info = await administration.activation(command.ref)
    if info is None:
        return ActivationView(host=None)
    owner = await administration.owner(command.ref)
    state: Any = info.state
    return ActivationView(
        host=None if owner is None else owner.host, state=state, turns=info.turns,
        waiting=info.waiting, deferred=info.deferred, idle_seconds=info.idle_seconds,
    )  # fmt: skip


class ActorFaults(Struct, frozen=True):
    """What fails at an actor."""

    items: Annotated[list[ActorFault], Meta(max_length=FAULTS_MAX)]


@operation("actors.errors", f"GET {ONE}/errors", "actors:read", errors=(NotFound,))
async def get_errors(services: Services, _: Principal, command: ByActor) -> ActorFaults:
    """Show what fails at an actor: its state, reminders and messages."""
    return ActorFaults(list(await services.app.actors.administration.errors(command.ref)))


@operation("actors.delete", f"DELETE {ONE}", "actors:manage", errors=(NotFound, NoHost))
async def delete_actor(services: Services, principal: Principal, command: ByActor) -> None:
    """Remove an actor and all that is stored of it, as a turn of its own."""
    await services.app.actors.administration.delete(command.ref, by=principal.name)


class Deactivated(Struct, frozen=True):
    """The answer to a deactivation."""

    deactivated: bool
    """False if the actor was not in memory."""


@operation(
    "actors.deactivate", f"POST {ONE}:deactivate", "actors:manage", errors=(NotFound, NoHost)
)
async def deactivate_actor(
    services: Services, principal: Principal, command: ByActor
) -> Deactivated:
    """Let an actor leave memory after its running turn; a later call activates it again."""
    administration = services.app.actors.administration
    return Deactivated(await administration.deactivate(command.ref, by=principal.name))


class MoveActor(ByActor, frozen=True, kw_only=True):
    """Which actor goes where."""

    to: Annotated[
        str,
        Meta(
            max_length=limits.NAME_LENGTH_MAX,
            description="The name of a live host that serves the placement group.",
        ),
    ]


@operation("actors.move", f"POST {ONE}:move", "actors:manage", errors=(NotFound, Conflict))
async def move_actor(services: Services, principal: Principal, command: MoveActor) -> None:
    """Ask for the slot of an actor, and all actors in it, to go to another host."""
    administration = services.app.actors.administration
    await administration.move(command.ref, to=command.to, by=principal.name)
