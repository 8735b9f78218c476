"""Claimed messages and their settlements, as they travel between host and database."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from relevo.messaging.core.tokens import token_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from uuid import UUID


LockKey = tuple[int, int]
"""Sequence number and number of the claim: what a lock token is made of."""


class Delivery(Struct, frozen=True, gc=False):
    """A message that is held, as it was delivered.

    The fields stand in the order of `relevo.message_notice`, from which they are filled.
    """

    sequence: int
    token: int
    """A random number of its claim: with the sequence number, the lock token."""
    claim: int | None
    """The number of the claim of a host; receivers have none."""
    entity_id: int
    sub_queue: int
    consumers: int | None
    class_number: int
    priority: int
    body_kind: int
    delivery_count: int
    preempt_count: int
    enqueued_at: datetime
    expires_at: datetime | None
    locked_until: datetime | None
    enqueued_sequence: int | None
    message_id: str
    fairness_key: str | None
    session_id: str | None
    head: str | None
    """The rarer fields that its sender set, as JSON."""
    body: bytes
    checkpoint: bytes | None
    dead: str | None

    @classmethod
    def of(cls, row: Iterable[Any]) -> Delivery:
        """Return the delivery of a row of `relevo.message_notice`."""
        _, *fields = row
        return cls(*fields)

    @property
    def lock_token(self) -> UUID:
        """The key to its lock, new with each delivery."""
        return token_of(self.sequence, self.token)


class MessageClaim(Struct, frozen=True, gc=False):
    """Messages for one call of a handler: one, or with `batch` up to so many."""

    id: LockKey
    """The lock of the first."""
    lane: str
    """The consumers."""
    deliveries: tuple[Delivery, ...]
    taken_at: float
    """When they were claimed, by this host's clock."""

    @property
    def ids(self) -> tuple[LockKey, ...]:
        """Their locks."""
        return tuple([(one.sequence, one.token) for one in self.deliveries])

    @property
    def label(self) -> str:
        """The number of the first message, for logs and traces."""
        return str(self.deliveries[0].sequence)

    @property
    def number(self) -> int:
        """The number of the claim."""
        return self.deliveries[0].claim or 0

    @property
    def handler(self) -> str:
        """The handler, which has the name of its consumers."""
        return self.lane


def claims_of(
    lane: str, deliveries: Sequence[Delivery], batch: int, at: float
) -> list[MessageClaim]:
    """Return messages as claims, `batch` in each."""
    if batch == 1:
        return [MessageClaim((one.sequence, one.token), lane, (one,), at) for one in deliveries]
    parts = (deliveries[n : n + batch] for n in range(0, len(deliveries), batch))
    return [
        MessageClaim((part[0].sequence, part[0].token), lane, tuple(part), at) for part in parts
    ]


class MessageSettlement(Struct, frozen=True, kw_only=True, gc=False):
    """The outcome of a call, written with the next statement."""

    claim: MessageClaim
    event: str
    """`done` for completion, else a settlement of the transition table."""
    deliveries: tuple[Delivery, ...]
    """Those that the handler has not settled itself."""
    delay: float | None = None
    reason: str | None = None
    description: str | None = None
    in_doubt: bool = False
    """Whether a transaction of the handler's own may have settled them."""
    seconds: float = 0.0


def arguments(settlements: Iterable[MessageSettlement]) -> tuple[list[Any], ...]:
    """Return the arrays of `relevo.serve_messages` from the sequence numbers on.

    A column without values is empty, also that of events if all messages are completed.
    """
    pairs = [(one, delivery) for one in settlements for delivery in one.deliveries]
    sequences = [delivery.sequence for _, delivery in pairs]
    locks = [delivery.token for _, delivery in pairs]
    if all(one.event == "done" for one, _ in pairs):
        return sequences, locks, [], [], [], [], [], []
    events = ["complete" if one.event == "done" else one.event for one, _ in pairs]
    columns: list[list[Any]] = [
        [getattr(one, name) for one, _ in pairs] for name in ("delay", "reason", "description")
    ]
    unsaid = [None] * len(pairs)
    said = [[] if column == unsaid else column for column in columns]
    return sequences, locks, events, [], *said, []
