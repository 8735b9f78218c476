"""Messages: sent, received, settled by their lock tokens, looked at and moved.

The same operations exist for queues, subscriptions and their dead-letter queues; see `places`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from msgspec import Meta, Struct

from relevo import limits
from relevo.errors import (
    Conflict,
    EntityDisabled,
    Forbidden,
    MessageLockLost,
    MessageNotFound,
    NotFound,
    QuotaExceeded,
    TooLarge,
)
from relevo.http import paging
from relevo.http.access.authenticator import reaches
from relevo.http.paging import Cursor, Limit, Page
from relevo.kernel import cpu
from relevo.kernel.operation import OperationOptions, Operations
from relevo.kernel.pages import Fetched, fitting, json_bytes
from relevo.messaging.core.names import Path
from relevo.messaging.http.entities import record_of
from relevo.messaging.http.models import (
    ByMessage,
    MessageView,
    NewMessage,
    NewMessages,
    ReceiptView,
    ReceivedBatch,
    SentBatch,
    SequenceNumber,
    message_of,
    messages_of,
    view_of,
)
from relevo.messaging.http.places import (
    DESTINATIONS,
    SOURCES,
    TRANSFERS,
    Addressed,
    destination_of,
    each,
    source_at,
    source_of,
)
from relevo.messaging.model import ReceiveMode
from relevo.messaging.operating.peeking import PeekOrder, peeked_page
from relevo.messaging.receiving import SUB_QUEUES, settlement

if TYPE_CHECKING:
    from collections.abc import Sequence

    from relevo.http.access.authenticator import Principal
    from relevo.http.services import Services
    from relevo.messaging.model import Receipt
    from relevo.messaging.running.context import Received
    from relevo.messaging.service import Messaging

CLAIMED_MAX: Final = 100
"""How many messages one request receives; their bytes are bounded, too."""
SOURCES_MAX: Final = 100
WAIT_SECONDS_MAX: Final = 60.0

operation = Operations()
_SEND: Final[OperationOptions] = {
    "errors": (NotFound, Forbidden, EntityDisabled, TooLarge, QuotaExceeded),
    "status": 201,
}
_CLAIM: Final[OperationOptions] = {
    "errors": (NotFound, Conflict, EntityDisabled, MessageNotFound),
    "wait": "wait_seconds",
}
_LOCK: Final[OperationOptions] = {"errors": (MessageLockLost,)}


class SendMessage(Addressed, NewMessage, frozen=True, kw_only=True):
    """A message to be sent."""


@each(
    operation, DESTINATIONS, "send", "POST {}/messages", "messages:send",
    "Send a message to {}; it is stored when the answer comes.", _SEND,
)  # fmt: skip
async def send(services: Services, principal: Principal, command: SendMessage) -> ReceiptView:
    """Send a message; it is stored when the answer comes."""
    receipt = await destination_of(services, principal, command).send(message_of(command))
    return _receipt(receipt)


class SendBatch(Addressed, NewMessages, frozen=True, kw_only=True):
    """Messages to be sent together."""


@each(
    operation, DESTINATIONS, "send_batch", "POST {}/messages:batch", "messages:send",
    "Send messages to {}: all of them, or none.", _SEND,
)  # fmt: skip
async def send_batch(services: Services, principal: Principal, command: SendBatch) -> SentBatch:
    """Send messages: all of them, or none."""
    messages = await cpu.off_loop(messages_of, command.messages)
    receipts = await destination_of(services, principal, command).send_many(messages)
    return SentBatch([_receipt(one) for one in receipts])


def _receipt(receipt: Receipt) -> ReceiptView:
    return ReceiptView(
        message_id=receipt.message_id, sequence_number=receipt.sequence_number,
        duplicate=receipt.duplicate,
    )  # fmt: skip


@each(
    operation, DESTINATIONS, "cancel", "POST {}/messages/{sequence}:cancel", "messages:send",
    "Cancel a scheduled message of {}.", errors=(NotFound, MessageNotFound),
)  # fmt: skip
async def cancel(services: Services, principal: Principal, command: ByMessage) -> None:
    """Cancel a scheduled message."""
    await destination_of(services, principal, command).cancel_scheduled(command.sequence)


class ReceiveOptions(Struct, frozen=True, kw_only=True):
    """How many messages, and how."""

    max_messages: Annotated[
        int,
        Meta(
            ge=1,
            le=CLAIMED_MAX,
            description="At most so many; fewer if they would be larger than a page.",
        ),
    ] = 1
    wait_seconds: Annotated[
        float,
        Meta(ge=0, le=WAIT_SECONDS_MAX, description="How long to wait for the first one."),
    ] = 0.0
    mode: Annotated[
        ReceiveMode,
        Meta(
            description="`peek_lock`: each is locked until it is settled. `receive_and_delete`:"
            " each is gone at once, delivered at most once."
        ),
    ] = "peek_lock"


class ReceiveMessages(Addressed, ReceiveOptions, frozen=True, kw_only=True):
    """What to receive."""

    sequence_numbers: Annotated[
        tuple[SequenceNumber, ...],
        Meta(max_length=CLAIMED_MAX, description="Receive these, which were deferred."),
    ] = ()


@each(
    operation, SOURCES, "claim", "POST {}/messages:claim", "messages:receive",
    "Receive messages of {}; waits for the first one.", _CLAIM,
)  # fmt: skip
async def claim(services: Services, _: Principal, command: ReceiveMessages) -> ReceivedBatch:
    """Receive messages; waits for the first one."""
    source = source_of(services, command)
    if command.sequence_numbers:
        await source.ensure()
        received = await source.receive_deferred(*command.sequence_numbers)
    else:
        received = await source.receive(command.max_messages, wait=command.wait_seconds)
    return await answer_of(services, received, command.mode)


class ReceiveFromSources(ReceiveOptions, frozen=True, kw_only=True):
    """What to receive, and where from."""

    sources: Annotated[
        tuple[Annotated[str, Meta(max_length=limits.NAME_LENGTH_MAX)], ...],
        Meta(
            min_length=1,
            max_length=SOURCES_MAX,
            description="Addresses of queues and subscriptions (`orders/subscriptions/high`); the"
            " first with messages goes first.",
        ),
    ]


@operation(
    "messages.claim_any", "POST /v1/messages:claim", "messages:receive", _CLAIM, checks_scopes=True
)
async def claim_any(
    services: Services, principal: Principal, command: ReceiveFromSources
) -> ReceivedBatch:
    """Receive messages of several queues and subscriptions; the first source goes first."""
    messaging: Messaging = services.app.messaging
    paths = [Path.of(one) for one in command.sources]
    for path in paths:
        kind = "queue" if path.subscription is None else "topic"
        if not reaches(principal, f"{kind}:{path.entity}"):
            raise Forbidden(f"{str(path)!r} is outside of this key's scopes")
    sources = [source_at(messaging, path) for path in paths]
    received = await messaging.receive(sources, command.max_messages, wait=command.wait_seconds)
    return await answer_of(services, received, command.mode)


async def answer_of(
    services: Services, received: Sequence[Received], mode: ReceiveMode
) -> ReceivedBatch:
    """Return as many messages as fit into an answer; the others are released.

    All are locked at first, also those that are deleted with their receipt: what does not fit is
    not lost.
    """
    locked = mode == "peek_lock"
    shown = [view_of(one, locked=locked) for one in received]
    count = fitting(map(json_bytes, shown), services.page_bytes)
    given = [settlement(one.lock_token, "release") for one in received[count:]]
    if not locked:
        given += [settlement(one.lock_token, "complete") for one in received[:count]]
    if given:
        await services.app.messaging.tools.receiving.settle_all(given)
    return ReceivedBatch(shown[:count])


class PeekMessages(Addressed, Struct, frozen=True, kw_only=True):
    """Which messages."""

    start: Annotated[int, Meta(ge=0, description="The first sequence number.")] = msgspec.field(
        name="from", default=0
    )
    order: Annotated[
        PeekOrder,
        Meta(description="`arrival`, or `service`: the next ones, as claims would take them."),
    ] = "arrival"
    cursor: Cursor | None = None
    limit: Limit = limits.PAGE_ROWS_DEFAULT


@each(
    operation, (*SOURCES, *TRANSFERS), "peek", "GET {}/messages", "messages:read",
    "Look at messages of {} without receiving them.", errors=(NotFound,),
)  # fmt: skip
async def peek(services: Services, _: Principal, command: PeekMessages) -> Page[MessageView]:
    """Look at messages without receiving them.

    Messages that are not accepted yet have no number to go on from: they are on the last page, as
    many as it has room for. So are the next ones by service order.
    """
    after = paging.decode(command.cursor, int)
    after = max(0, command.start - 1) if after is None else after
    if command.order == "service":
        most = min(command.limit, CLAIMED_MAX)
        found = Fetched(await source_of(services, command).peek(0, most, "service"), more=False)
    else:
        found = await peeked_page(
            services.app.database, await record_of(services, command),
            SUB_QUEUES[command.address.sub_queue], after=after, limit=command.limit,
            bytes_max=services.page_bytes,
        )  # fmt: skip
    shown = [view_of(one) for one in found.items]
    sent = fitting(map(json_bytes, shown), services.page_bytes)
    last = shown[sent - 1].sequence_number if sent and command.order == "arrival" else None
    goes_on = last is not None and (found.more or sent < len(shown))
    return Page(shown[:sent], paging.encode(last) if goes_on else None)
