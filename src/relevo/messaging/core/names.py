"""Names of queues, topics, subscriptions, rules and classes, and the paths made of them.

    Path.of("orders/Subscriptions/high/$DeadLetterQueue")
    # Path(entity="orders", subscription="high", sub_queue="dead_letters")

Names may hold slashes. A path is read without knowing what exists, so no name has a segment
`subscriptions`, or one that begins with `$`.
"""

from __future__ import annotations

import re
from typing import Any, Final, Literal

from msgspec import Struct

from relevo.errors import InvalidValue
from relevo.limits import (
    MESSAGE_ENTITY_NAME_LENGTH_MAX,
    MESSAGE_ID_LENGTH_MAX,
    MESSAGE_RULE_NAME_LENGTH_MAX,
)

Kind = Literal["queue", "topic", "subscription", "rule", "class", "consumers"]
SubQueue = Literal["dead_letters", "transfer_dead_letters"]

LENGTHS: Final[dict[Kind, int]] = {
    "queue": MESSAGE_ENTITY_NAME_LENGTH_MAX,
    "topic": MESSAGE_ENTITY_NAME_LENGTH_MAX,
    "subscription": MESSAGE_RULE_NAME_LENGTH_MAX,
    "rule": MESSAGE_RULE_NAME_LENGTH_MAX,
    "class": MESSAGE_RULE_NAME_LENGTH_MAX,
    "consumers": MESSAGE_ID_LENGTH_MAX,
}
DEFAULT_RULE: Final = "$Default"
"""The rule of a subscription for which none was given; it selects everything."""
DEAD_LETTERS: Final = "$DeadLetterQueue"
TRANSFER: Final = "$Transfer"
SUBSCRIPTIONS: Final = "subscriptions"
_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._/-]*[A-Za-z0-9])?")


class Path(Struct, frozen=True):
    """The address of a queue or topic, of a subscription, or of a sub-queue of one of them."""

    entity: str
    """The queue or topic."""
    subscription: str | None = None
    sub_queue: SubQueue | None = None

    @classmethod
    def of(cls, text: str) -> Path:
        """Read an address; raise `InvalidValue` if it is none."""
        segments = str(text).split("/")
        words = [segment.lower() for segment in segments]
        sub_queue: SubQueue | None = None
        if words[-1:] == [DEAD_LETTERS.lower()]:
            transfer = words[-2:-1] == [TRANSFER.lower()]
            sub_queue = "transfer_dead_letters" if transfer else "dead_letters"
            end = -2 if transfer else -1
            segments, words = segments[:end], words[:end]
        if SUBSCRIPTIONS in words:
            at = words.index(SUBSCRIPTIONS)
            entity, subscription = "/".join(segments[:at]), "/".join(segments[at + 1 :])
            check(entity, "topic")
            check(subscription, "subscription")
            return cls(entity, subscription, sub_queue)
        check("/".join(segments), "queue")
        return cls("/".join(segments), None, sub_queue)

    def __str__(self) -> str:
        parts = [self.entity]
        if self.subscription is not None:
            parts += [SUBSCRIPTIONS, self.subscription]
        if self.sub_queue == "transfer_dead_letters":
            parts.append(TRANSFER)
        if self.sub_queue is not None:
            parts.append(DEAD_LETTERS)
        return "/".join(parts)

    @property
    def key(self) -> str:
        """What two spellings of the same address have in common."""
        return str(self).lower()


def check(name: Any, kind: Kind, *, pointer: str | None = None) -> str:
    """Return a name that a thing of this kind can have, or refuse it."""
    where = pointer or "name"
    if kind == "rule" and name == DEFAULT_RULE:
        return DEFAULT_RULE
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidValue(
            f"{str(name)[:100]!r} is no name of a {kind}; a name begins and ends with a letter A to"
            " Z or a digit, and has only these, '.', '-', '_' and '/' between",
            pointer=where,
        )
    if len(name) > LENGTHS[kind]:
        raise InvalidValue(
            f"the name {name[:50]!r}… of a {kind} has {len(name)} characters; at most"
            f" {LENGTHS[kind]} are allowed",
            pointer=where,
        )
    if SUBSCRIPTIONS in name.lower().split("/"):
        raise InvalidValue(
            f"the name {name!r} of a {kind} has a segment {SUBSCRIPTIONS!r}, which stands between a"
            " topic and a subscription in addresses; choose another",
            pointer=where,
        )
    return name
