"""Dead letters: changes that a processor gave up on, to look at, redrive or discard."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Struct

from relevo import limits
from relevo.errors import Conflict, HandlerError, NotFound
from relevo.feed.http.units import ByFeed
from relevo.http import paging
from relevo.http.paging import Cursor, Limit, Page
from relevo.kernel.operation import Operations
from relevo.store.http.containers import SCOPE
from relevo.store.http.items import container_of, key_shown
from relevo.store.keys import parse

if TYPE_CHECKING:
    from relevo.feed.operating.dead_letters import DeadLetter, DeadLetters
    from relevo.http.access.authenticator import Principal
    from relevo.http.services import Services

LETTER_ID_MAX: Final = 2**63 - 1
_PATH: Final = "/v1/feeds/{container}/{name}/dead-letters"


operation = Operations(scope=SCOPE)


class LetterInfo(Struct, frozen=True, kw_only=True):
    """A dead letter, without the item."""

    id: int
    lease_token: str
    """The lease that gave it up."""
    item_id: str
    partition_key: list[Any]
    lsn: int
    ts: datetime
    reason: Literal["failed", "crash", "parked"]
    """`parked` waits behind an earlier letter of its partition key."""
    error_type: str
    attempts: int
    first_failed_at: datetime
    last_failed_at: datetime
    host: str


class Letter(LetterInfo, frozen=True, kw_only=True):
    """A change that was given up, with all that is known of it."""

    body: Any
    """The item at that change; null for a delete."""
    message: str
    traceback: str


def _info(letter: DeadLetter) -> LetterInfo:
    return LetterInfo(
        id=letter.id,
        lease_token=letter.token,
        item_id=letter.item_id,
        partition_key=key_shown(parse(letter.pk)),
        lsn=letter.lsn,
        ts=letter.ts,
        reason=letter.reason,
        error_type=letter.error_type,
        attempts=letter.attempts,
        first_failed_at=letter.first_failed_at,
        last_failed_at=letter.last_failed_at,
        host=letter.instance,
    )


def _letters(services: Services, command: ByFeed) -> DeadLetters:
    return container_of(services, command).dead_letters(command.name, command.leases_in)


class ListLetters(ByFeed, frozen=True, kw_only=True):
    """Which page of dead letters."""

    cursor: Cursor | None = None
    limit: Limit = limits.PAGE_ROWS_DEFAULT


@operation("letters.list", f"GET {_PATH}", "feeds:read", errors=(NotFound,))
async def list_letters(services: Services, _: Principal, command: ListLetters) -> Page[LetterInfo]:
    """List the changes that a processor gave up on.

    Oldest first.
    """
    after = min(paging.decode(command.cursor, int) or 0, LETTER_ID_MAX)
    found = await _letters(services, command).page(max(after, 0), command.limit)
    return paging.page(services.page_bytes, found.each(_info), lambda one: one.id)


class ByLetter(ByFeed, frozen=True, kw_only=True):
    """Which dead letter."""

    id: Annotated[int, Meta(ge=1, le=LETTER_ID_MAX, description="The letter's id.")]


@operation("letters.get", f"GET {_PATH}/{{id}}", "items:read", errors=(NotFound,))
async def get_letter(services: Services, _: Principal, command: ByLetter) -> Letter:
    """Show a dead letter with the item and the error."""
    letter = await _letters(services, command).get(command.id)
    body = None if letter.body is None else msgspec.json.decode(letter.body)
    info = msgspec.structs.asdict(_info(letter))
    return Letter(**info, body=body, message=letter.message, traceback=letter.traceback)


@operation("letters.discard", f"DELETE {_PATH}/{{id}}", "feeds:manage", errors=(NotFound, Conflict))
async def discard_letter(services: Services, _: Principal, command: ByLetter) -> None:
    """Forget a dead letter; its change is never delivered."""
    await _letters(services, command).discard(command.id)


class RedriveLetter(ByLetter, frozen=True, kw_only=True):
    """Which dead letter, in which version."""

    image: Annotated[
        Literal["current", "stored"],
        Meta(description="The item as it is now, or as it was when it was given up."),
    ] = "current"


@operation(
    "letters.redrive",
    f"POST {_PATH}/{{id}}:redrive",
    "feeds:manage",
    errors=(NotFound, Conflict, HandlerError),
)
async def redrive_letter(services: Services, _: Principal, command: RedriveLetter) -> None:
    """Deliver a dead letter and the changes parked behind it, on a host that has the handler.

    Success removes it.
    """
    await _letters(services, command).redrive(command.id, command.image)
