"""Locks: what the holder of a lock token does with its message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final
from uuid import UUID

import msgspec
from msgspec import Meta, Struct

from relevo import limits
from relevo.errors import MessageLockLost
from relevo.kernel.operation import Operations
from relevo.messaging.http.models import Instant
from relevo.messaging.http.places import ENTITIES, SOURCES, Place, each

if TYPE_CHECKING:
    from relevo.http.access.authenticator import Principal
    from relevo.http.services import Services
    from relevo.kernel.operation import Handler

operation = Operations(errors=(MessageLockLost,))

Reason = Annotated[str, Meta(max_length=limits.MESSAGE_REASON_LENGTH_MAX)]


class ByLock(Struct, frozen=True, kw_only=True):
    """Which lock."""

    token: Annotated[UUID, Meta(description="The lock token of the received message.")]


class AbandonMessage(ByLock, frozen=True, kw_only=True):
    """Which message is given back, and when it is visible again."""

    delay: (
        Annotated[float, Meta(ge=0, description="Seconds for which it stays invisible.")] | None
    ) = None
    until: Annotated[Instant, Meta(description="Until when it stays invisible.")] | None = None


class DeadLetterMessage(ByLock, frozen=True, kw_only=True):
    """Which message goes to the dead-letter queue, and why."""

    reason: Annotated[Reason, Meta(description="Why, in a word.")] | None = None
    description: Annotated[Reason, Meta(description="Why, in full.")] | None = None


class SuspendMessage(ByLock, frozen=True, kw_only=True):
    """Which message is given back, with what its next receiver goes on from."""

    checkpoint: Annotated[bytes, Meta(description="In base64; at most 256 KiB.")] | None = None


class Settle(Struct, frozen=True):
    """A settlement: its event in the table of transitions, its options, and where there is one."""

    event: str
    summary: str
    command: type[Struct] = ByLock
    places: tuple[Place, ...] = SOURCES


SETTLEMENTS: Final = (
    Settle("complete", "Finish a received message of {}: it is gone."),
    Settle(
        "abandon", "Give a received message back to {}; the delivery counts as failed.",
        AbandonMessage,
    ),
    Settle("defer", "Put a received message of {} aside, to be received by its sequence number."),
    Settle(
        "dead_letter", "Move a received message of {} to its dead-letter queue.",
        DeadLetterMessage, ENTITIES,
    ),
    Settle("renew", "Hold a received message of {} for another lock duration."),
    Settle("release", "Give a received message back to {}; the delivery does not count."),
    Settle(
        "suspend", "Give a received message back to {}, with a checkpoint for its next receiver.",
        SuspendMessage,
    ),
)  # fmt: skip
_PATH: Final = frozenset({"queue", "topic", "subscription", "token"})


def _settling(event: str) -> Handler:
    async def settle(services: Services, _: Principal, command: Any) -> None:
        """Settle a received message by its lock token, wherever it was received."""
        given = msgspec.structs.asdict(command)
        options = {name: value for name, value in given.items() if name not in _PATH}
        receiving = services.app.messaging.tools.receiving
        await receiving.settle(command.token, event, **options)

    return settle


for _one in SETTLEMENTS:
    each(
        operation, _one.places, _one.event,
        f"POST {{}}/locks/{{token}}:{_one.event.replace('_', '-')}", "messages:receive",
        _one.summary, command=_one.command,
    )(_settling(_one.event))  # fmt: skip
