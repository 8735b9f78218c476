"""Fairness between tenants: tags that make messages of equal class alternate.

A tenant with a thousand messages and one with a single message are served in turns. Each message
gets a tag when it is accepted, which is its rank; tags of one tenant are `SCALE / weight` apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SCALE: Final = 1_000_000
"""The distance between two tags of a tenant of weight 1."""


def next_tag(sequence: int, *, reached: int, last: int | None, weight: int = 1) -> int:
    """Return the tag of a tenant's next message, which has this sequence number.

    `reached` is the largest tag that was claimed of the class, `last` the tenant's last tag, None
    if it has no history. A tenant that has nothing waiting begins where the others are.

    The tags of a tenant lie on a grid of its own, `n * step` after its first tag, which gets its
    place in the step from the sequence number. On a common grid two tenants would have equal tags;
    the sequence numbers would decide between these, and could let one go twice in a row.
    """
    step = SCALE // weight
    place = sequence if last is None else last
    floor = reached if last is None else max(reached, last)
    return floor + step - (floor - place) % step


def forgettable(last: int, *, reached: int, weight: int = 1, others: bool = True) -> bool:
    """Return whether a tenant with nothing waiting needs its history no more.

    If nothing of `others` waits either, nobody is overtaken by a tenant who begins anew.
    """
    return not others or reached >= last + SCALE // weight


def tag_all(
    messages: Iterable[tuple[int, str]],
    *,
    reached: int,
    last: Mapping[str, int],
    weights: Mapping[str, int],
) -> tuple[list[int], dict[str, int]]:
    """Return the tags of messages that are accepted together, and the last tag of every key.

    `messages` are sequence numbers with the fairness keys.
    """
    tags, latest = [], dict(last)
    for sequence, key in messages:
        weight = weights.get(key, 1)
        latest[key] = next_tag(sequence, reached=reached, last=latest.get(key), weight=weight)
        tags.append(latest[key])
    return tags, latest
