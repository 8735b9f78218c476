"""Dead letters of actors: messages and reminders that are not tried any more."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta, Struct

from relevo import limits
from relevo.actors.http.models import decoded
from relevo.actors.operating.letters import ActorLetter
from relevo.errors import NotFound
from relevo.http import paging
from relevo.http.paging import Cursor, Limit, Page
from relevo.kernel.operation import Operations

if TYPE_CHECKING:
    from relevo.http.access.authenticator import Principal
    from relevo.http.services import Services

operation = Operations()
_PATH = "/v1/actor-letters"


class ListActorLetters(Struct, frozen=True, kw_only=True):
    """Which page of dead letters."""

    actor: (
        Annotated[
            str,
            Meta(
                max_length=limits.ACTOR_KEY_BYTES_MAX + 70,
                description="Only those of this actor, by its canonical id, such as"
                " `account/s:alice`.",
            ),
        ]
        | None
    ) = None
    cursor: Cursor | None = None
    limit: Limit = limits.PAGE_ROWS_DEFAULT


@operation("actors.letters.list", f"GET {_PATH}", "actors:read")
async def list_letters(
    services: Services, _: Principal, command: ListActorLetters
) -> Page[ActorLetter]:
    """List messages and reminders that actors gave up on, without their content."""
    after = paging.decode(command.cursor, str)
    letters = services.app.actors.letters
    found = await letters.list(after, command.limit, actor=command.actor)
    return paging.page(services.page_bytes, found, lambda one: one.id)


class ByActorLetter(Struct, frozen=True, kw_only=True):
    """Which dead letter."""

    id: Annotated[str, Meta(min_length=2, max_length=2_000, description="The letter's id.")]


class ActorLetterView(Struct, frozen=True, kw_only=True):
    """A dead letter with its content."""

    id: str
    kind: Literal["message", "reminder"]
    actor: str
    name: str
    sender: str
    method: str
    attempt: int
    since: datetime
    dead_at: datetime
    error: str
    headers: dict[str, str]
    content: Any
    """The arguments of the message, or the payload of the reminder."""


@operation("actors.letters.get", f"GET {_PATH}/{{id}}", "actors:state", errors=(NotFound,))
async def get_letter(services: Services, _: Principal, command: ByActorLetter) -> ActorLetterView:
    """Show a dead letter with its content."""
    found = await services.app.actors.letters.get(command.id)
    return ActorLetterView(
        id=found.id, kind=found.kind, actor=found.actor, name=found.name, sender=found.sender,
        method=found.method, attempt=found.attempt, since=found.since, dead_at=found.dead_at,
        error=found.error, headers=found.headers, content=decoded(found.body),
    )  # fmt: skip


@operation(
    "actors.letters.redrive", f"POST {_PATH}/{{id}}:redrive", "actors:manage", errors=(NotFound,)
)
async def redrive_letter(services: Services, principal: Principal, command: ByActorLetter) -> None:
    """Let a dead letter be tried again, from its first attempt."""
    await services.app.actors.letters.redrive(command.id, by=principal.name)


@operation("actors.letters.discard", f"DELETE {_PATH}/{{id}}", "actors:manage", errors=(NotFound,))
async def discard_letter(services: Services, principal: Principal, command: ByActorLetter) -> None:
    """Remove a dead letter; it is never handled."""
    await services.app.actors.letters.discard(command.id, by=principal.name)
