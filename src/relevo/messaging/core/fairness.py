"""Fairness between tenants: tags that make messages of equal class alternate.

A tenant with a thousand messages and one with a single message are served in turns. Each message
gets a tag when it is accepted, which is its rank; tags of one tenant are `SCALE / weight` apart.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SCALE: Final = 1_000_000
"""The distance between two tags of a tenant of weight 1."""


def next_tag(key: str, *, reached: int, last: int | None, weight: int = 1) -> int:
    """Return the tag of a tenant's next message.

    `reached` is the largest tag that was claimed of the class, `last` the tenant's last tag; a
    tenant that has nothing waiting begins where the others are, and needs no history.

    The tags of a tenant lie on a grid of its own, `phase + n * step`. With a common grid two
    tenants would have equal tags; the sequence number would decide between these, and could let
    one of them go twice in a row. This is also why a tag is always above `reached`.
    """
    step = SCALE // weight
    phase = zlib.crc32(key.encode()) % step
    floor = reached if last is None else max(reached, last)
    return floor + step - (floor - phase) % step


def tag_all(
    keys: Iterable[str],
    *,
    reached: int,
    last: Mapping[str, int],
    weights: Mapping[str, int],
) -> tuple[list[int], dict[str, int]]:
    """Return the tags of messages that are accepted together, and the last tag of every key."""
    tags, latest = [], dict(last)
    for key in keys:
        latest[key] = next_tag(
            key, reached=reached, last=latest.get(key), weight=weights.get(key, 1)
        )
        tags.append(latest[key])
    return tags, latest
