"""Messages that wait, as operators see them: why they wait, in which order, and which go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

from msgspec import Meta, Struct

from relevo import limits
from relevo.errors import InvalidExpression, InvalidValue, MessageNotFound, NotFound
from relevo.http import paging
from relevo.http.paging import Cursor, Limit, Page
from relevo.kernel.operation import Operations
from relevo.kernel.pages import first
from relevo.messaging.core.explaining import MessageExplanation
from relevo.messaging.http.models import ByMessage, ChangedCount, Instant, Priority
from relevo.messaging.http.places import (
    DEAD_LETTERS,
    ENTITIES,
    SOURCES,
    TRANSFERS,
    Addressed,
    each,
    source_of,
)
from relevo.messaging.operating import describing
from relevo.messaging.operating.describing import EntityFigures

if TYPE_CHECKING:
    from relevo.http.access.authenticator import Principal
    from relevo.http.services import Services

REDRIVEN_MAX: Final = 10_000
SECONDS_MAX: Final = 20.0
"""How many messages one request redrives, and how long it takes if they go at a rate."""

operation = Operations()


class ListFigures(Struct, frozen=True, kw_only=True):
    """Which page of entities."""

    cursor: Cursor | None = None
    limit: Limit = limits.PAGE_ROWS_DEFAULT


@operation("messages.figures", "GET /v1/messages:figures", "queues:read")
async def figures(services: Services, _: Principal, command: ListFigures) -> Page[EntityFigures]:
    """Count messages by queue, topic or subscription, and by class."""
    after = paging.decode(command.cursor, str) or ""
    found = await describing.figures(services.app.database, after=after, limit=command.limit + 1)
    return paging.page(services.page_bytes, first(found, command.limit), lambda one: one.path)


@each(
    operation, (*SOURCES, *TRANSFERS), "explain", "POST {}/messages/{sequence}:explain",
    "queues:read", "Say why a message of {} waits.", errors=(NotFound, MessageNotFound),
)  # fmt: skip
async def explain(services: Services, _: Principal, command: ByMessage) -> MessageExplanation:
    """Say why a message waits."""
    return await source_of(services, command).explain(command.sequence)


class ReprioritizeMessage(ByMessage, frozen=True, kw_only=True):
    """Which message gets which priority."""

    priority: Priority | None = None
    priority_class: Annotated[str, Meta(description="The class, by its name.")] | None = None


@each(
    operation, ENTITIES, "reprioritize", "POST {}/messages/{sequence}:reprioritize",
    "queues:manage", "Give a waiting message of {} another priority or class.",
    errors=(NotFound, MessageNotFound),
)  # fmt: skip
async def reprioritize(services: Services, _: Principal, command: ReprioritizeMessage) -> None:
    """Give a waiting message another priority or class."""
    if command.priority is None and command.priority_class is None:
        raise InvalidValue("say the new priority or priority_class", pointer="/priority")
    changed = await source_of(services, command).reprioritize(
        command.sequence, priority=command.priority, priority_class=command.priority_class
    )
    if not changed:
        raise MessageNotFound(
            f"there is no message {command.sequence} in {str(command.address)!r} that waits"
        )


class PurgeMessages(Addressed, Struct, frozen=True, kw_only=True):
    """Which messages are deleted."""

    before: Annotated[Instant, Meta(description="Only what arrived before.")] | None = None


async def _purge(services: Services, command: PurgeMessages) -> ChangedCount:
    return ChangedCount(await source_of(services, command).purge(command.before))


@each(
    operation, ENTITIES, "purge", "POST {}/messages:purge", "queues:manage",
    "Delete messages of {} that nobody holds.", errors=(NotFound,),
)  # fmt: skip
async def purge(services: Services, _: Principal, command: PurgeMessages) -> ChangedCount:
    """Delete messages that nobody holds."""
    return await _purge(services, command)


@each(
    operation, DEAD_LETTERS, "purge", "POST {}:purge", "queues:manage",
    "Delete messages of {} that nobody holds.", errors=(NotFound,),
)  # fmt: skip
async def purge_dead_letters(
    services: Services, _: Principal, command: PurgeMessages
) -> ChangedCount:
    """Delete dead letters that nobody holds."""
    return await _purge(services, command)


class RedriveMessages(Addressed, Struct, frozen=True, kw_only=True):
    """Which dead letters return, and how fast."""

    filter: Annotated[str, Meta(description="A SQL filter, such as `tier = 'paying'`.")] | None = (
        None
    )
    limit: Annotated[
        int,
        Meta(
            ge=1,
            le=REDRIVEN_MAX,
            description="At most so many, and with a `rate` what goes in 20 s; repeat the request"
            " for more.",
        ),
    ] = REDRIVEN_MAX
    rate: Annotated[float, Meta(ge=0.1, description="Messages a second.")] | None = None
    reset_count: Annotated[bool, Meta(description="Count deliveries from 0 again.")] = True


@each(
    operation, DEAD_LETTERS, "redrive", "POST {}:redrive", "queues:manage",
    "Return messages of {} to the queue or subscription they came from.",
    errors=(NotFound, InvalidExpression),
)  # fmt: skip
async def redrive(services: Services, _: Principal, command: RedriveMessages) -> ChangedCount:
    """Return dead letters to the queue or subscription they came from."""
    rate = command.rate
    most = command.limit if rate is None else min(command.limit, max(1, int(rate * SECONDS_MAX)))
    return ChangedCount(
        await source_of(services, command).redrive(
            command.filter, most, rate=rate, reset_count=command.reset_count
        )
    )
