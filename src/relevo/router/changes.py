"""Changes of jobs and workers as callers give them: JSON, or keyword arguments of Python."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from relevo.errors import CallerError, NotFound
from relevo.kernel import cpu
from relevo.kernel.decoding import json_object
from relevo.router.wire import documents
from relevo.router.wire.checks import check_id
from relevo.router.wire.conditions import Conditions

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

Change = bytes | Mapping[str, Any]
"""A merge patch, or the JSON of one."""
ANYTHING = Conditions()


async def given(
    resource_id: str, change: Change, conditions: Conditions
) -> Mapping[str, Any] | CallerError:
    """Return the change, or why it cannot be read: that is told after the conditions were met."""
    check_id(resource_id, "/id")
    if not isinstance(change, bytes):
        return change
    try:
        merged = await cpu.decoded(len(change), json_object, change)
        documents.check_size(merged)
        return merged
    except CallerError as error:
        if conditions == ANYTHING:
            raise
        return error


def readable(merged: Mapping[str, Any] | CallerError) -> Mapping[str, Any]:
    """Return the change, or raise why it cannot be read."""
    if isinstance(merged, CallerError):
        raise merged
    return merged


def camel(change: Mapping[str, Any]) -> dict[str, Any]:
    """Return keyword arguments under the names that the wire has for them."""
    return {_camel(name): msgspec.to_builtins(value) for name, value in change.items()}


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def resource_uuid(text: str, what: str) -> UUID:
    """Return the key of an offer or assignment; a text that is none names nothing."""
    try:
        return UUID(text)
    except ValueError:
        raise NotFound(f"there is no {what} {text!r}") from None


async def each(page: Any, wanted: Any) -> AsyncIterator[Any]:
    """Yield the items of all pages of a list."""
    after: int | None = 0
    while after is not None:
        listing = await page(wanted, after)
        for item in listing.items:
            yield item
        after = listing.after
