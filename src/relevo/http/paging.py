"""Lists in pages: a cursor says where the last page ended, so that changes meanwhile hide nothing.

Every list ends a page at its number of rows or at its bytes, whichever comes first: `page` counts
what is sent, and `Database.fetch_page` what is read for it.

A cursor is opaque but not signed: it only moves the caller within rows it may see anyway, and what
it holds is typed before it is bound to a statement.
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar

import msgspec
from msgspec import Meta, Struct

from relevo import limits
from relevo.errors import InvalidValue
from relevo.kernel.decoding import refuse_unstorable
from relevo.kernel.pages import Fetched, fitting, json_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
P = TypeVar("P")

Limit = Annotated[
    int, Meta(ge=1, le=limits.PAGE_ROWS_MAX, description="The largest number of items to return.")
]
Cursor = Annotated[
    str, Meta(max_length=2_000, description="`next` of the page before; without it the first page.")
]


class Page(Struct, Generic[T], frozen=True):
    """One page of a list."""

    items: list[T]
    next: str | None = None
    """Send it as `cursor` to get the next page; null on the last one."""


def page(
    bytes_max: int,
    found: Fetched[T],
    position: Callable[[T], Any],
    *,
    show: Callable[[T], Any] = lambda item: item,
    end: Any = None,
) -> Page[Any]:
    """Return a page of as many items as fit, and the cursor of the next one.

    `position` tells the place of an item in the list, and `show` what is sent of it. `end` is where
    the next page begins if all items are sent; by default that is behind the last one.
    """
    shown = [show(item) for item in found.items]
    sent = fitting(map(json_bytes, shown), bytes_max)
    if sent < len(shown) or (found.more and end is None):
        return Page(shown[:sent], encode(position(found.items[sent - 1])))
    return Page(shown, encode(end) if found.more else None)


def encode(position: Any) -> str:
    """Return a position as a cursor of characters that need no escaping."""
    return base64.urlsafe_b64encode(msgspec.json.encode(position)).rstrip(b"=").decode()


def decode(cursor: str | None, kind: type[P]) -> P | None:
    """Return the position in a cursor of ours; raises `InvalidValue` for anything else."""
    if cursor is None:
        return None
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        position = msgspec.json.decode(text, type=kind)
        parts = msgspec.structs.astuple(position) if isinstance(position, Struct) else position
        refuse_unstorable(parts, "")
    except (binascii.Error, ValueError, RecursionError, InvalidValue):
        raise InvalidValue("this cursor was not issued by Relevo", pointer="/cursor") from None
    return position
