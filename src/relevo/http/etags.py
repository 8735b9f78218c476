"""Versions of resources in headers: `ETag: "7"`, `If-Match: "7"`."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from relevo.errors import InvalidValue

IfMatch = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=100,
        description='Only if this is its etag, such as `"7"`; `*` is any, but it must exist.',
    ),
]


def etag_of(version: int) -> str:
    """Return the etag of a version."""
    return f'"{version}"'


def version_of(if_match: str | None) -> int | None:
    """Return the version that `If-Match` names; None for any."""
    if if_match is None or if_match.strip() == "*":
        return None
    number = if_match.strip().removeprefix("W/").strip('"')
    if not (number.isascii() and number.isdigit() and len(number) < 19):
        raise InvalidValue(
            f'If-Match is {if_match!r}; send the etag as it was answered, such as "7", or *',
            pointer="If-Match",
        )
    return int(number)
