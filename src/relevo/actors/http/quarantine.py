"""Actors in quarantine: listed, exported, repaired."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from relevo import limits
from relevo.actors.http.models import ONE, SCOPE, ByActor, decoded
from relevo.actors.storing.stored_actors import QuarantinedActor
from relevo.errors import InvalidValue, NotFound
from relevo.http import paging
from relevo.http.paging import Cursor, Limit, Page
from relevo.kernel.operation import Operations

if TYPE_CHECKING:
    from relevo.http.access.authenticator import Principal
    from relevo.http.services import Services

operation = Operations(errors=(NotFound,))


class ListQuarantine(Struct, frozen=True, kw_only=True):
    """Which page of actors in quarantine."""

    cursor: Cursor | None = None
    limit: Limit = limits.PAGE_ROWS_DEFAULT


@operation("actors.quarantine.list", "GET /v1/actor-quarantine", "actors:read", errors=())
async def list_quarantine(
    services: Services, _: Principal, command: ListQuarantine
) -> Page[QuarantinedActor]:
    """List actors whose stored state cannot be used, and why."""
    after = paging.decode(command.cursor, str) or ""
    found = await services.app.actors.quarantine.list(after, command.limit)
    return paging.page(services.page_bytes, found, lambda one: one.id)


class ExportedState(Struct, frozen=True, kw_only=True):
    """The state of an actor in quarantine."""

    document: bytes
    """As it is stored, in base64."""
    state: Any
    """The same as JSON, as far as it can be decoded."""


@operation("actors.quarantine.export", f"GET {ONE}/quarantine", "actors:state", scope=SCOPE)
async def export_state(services: Services, _: Principal, command: ByActor) -> ExportedState:
    """Return the state of an actor in quarantine as it is stored."""
    document = await services.app.actors.quarantine.export(command.ref)
    return ExportedState(document=document, state=decoded(document))


class ReplaceState(ByActor, frozen=True, kw_only=True):
    """The new state of an actor in quarantine: JSON, or MessagePack in base64."""

    state: Annotated[dict[str, Any], Meta(description="The new state, as JSON.")] | UnsetType = (
        UNSET
    )
    document: (
        Annotated[bytes, Meta(description="The new state, as MessagePack in base64.")] | UnsetType
    ) = UNSET
    state_schema: Annotated[
        int, Meta(ge=1, le=2**31 - 1, description="The schema number of the new state.")
    ] = 1


@operation(
    "actors.quarantine.replace", f"POST {ONE}/quarantine:replace", "actors:manage", scope=SCOPE
)
async def replace_state(services: Services, principal: Principal, command: ReplaceState) -> None:
    """Let an actor out of quarantine with another state."""
    if isinstance(command.document, bytes) == isinstance(command.state, dict):
        raise InvalidValue("send `state` or `document`, and not both", pointer="/state")
    document = command.document
    if not isinstance(document, bytes):
        document = msgspec.msgpack.encode(command.state)
    await services.app.actors.quarantine.replace(
        command.ref, document, schema=command.state_schema, by=principal.name
    )


@operation("actors.quarantine.reset", f"POST {ONE}/quarantine:reset", "actors:manage", scope=SCOPE)
async def reset_state(services: Services, principal: Principal, command: ByActor) -> None:
    """Let an actor out of quarantine with its default state; the stored one is lost."""
    await services.app.actors.quarantine.reset(command.ref, by=principal.name)


@operation("actors.quarantine.retry", f"POST {ONE}/quarantine:retry", "actors:manage", scope=SCOPE)
async def retry_state(services: Services, principal: Principal, command: ByActor) -> None:
    """Let an actor out of quarantine with its state as it is."""
    await services.app.actors.quarantine.retry(command.ref, by=principal.name)
