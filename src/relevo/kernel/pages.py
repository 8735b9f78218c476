"""Parts of lists: some items, whether more follow, and how many of them fit into a number of bytes.

A page ends before the item that would exceed its bytes; one item is always given, however large.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec
from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

T = TypeVar("T")
U = TypeVar("U")


class Fetched(Struct, Generic[T], frozen=True):
    """Some items of a list in their order."""

    items: list[T]
    more: bool
    """Whether others follow."""

    def each(self, make: Callable[[T], U]) -> Fetched[U]:
        """Return the same with something made of each item.

        >>> Fetched([1, 2], True).each(str)
        Fetched(items=['1', '2'], more=True)
        """
        return Fetched([make(item) for item in self.items], self.more)


def first(found: Sequence[T], rows: int) -> Fetched[T]:
    """Return up to `rows` items of a list that was read one further.

    >>> first([1, 2, 3], 2)
    Fetched(items=[1, 2], more=True)
    """
    return Fetched(list(found[:rows]), len(found) > rows)


def fitting(sizes: Iterable[int], bytes_max: int) -> int:
    """Return how many items of these sizes fit together; the first one always does.

    >>> fitting([3, 3, 3], 7), fitting([9, 1], 7), fitting([], 7)
    (2, 1, 0)
    """
    total = count = 0
    for size in sizes:
        total += size
        if count and total > bytes_max:
            break
        count += 1
    return count


def json_bytes(item: Any) -> int:
    """Return how many bytes an item has in a JSON array, its comma included."""
    return len(msgspec.json.encode(item)) + 1
