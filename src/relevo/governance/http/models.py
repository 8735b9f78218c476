"""What requests about pools, limits and resolvers share."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta, Struct

from relevo import limits

WAIT_SECONDS_MAX: Final = limits.REQUEST_SECONDS_MAX - 20.0
"""How long a request may wait; the rest is for the answer of the actor."""
Name = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=limits.ACTOR_KEY_BYTES_MAX,
        description="Its name: up to 256 bytes of UTF-8 without control characters.",
    ),
]
UseKey = Annotated[
    str,
    Meta(
        max_length=limits.ACTOR_KEY_BYTES_MAX,
        description="For whom, such as a tenant. Keys are served in turn.",
    ),
]
WaitSeconds = Annotated[
    float,
    Meta(ge=0, le=WAIT_SECONDS_MAX, description="For how many seconds to wait."),
]


class ByName(Struct, frozen=True, kw_only=True):
    """Which one."""

    name: Name
