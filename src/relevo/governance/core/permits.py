"""The permits of a pool: which there are, who holds them, and when they come back.

    ledger = PermitLedger(size=20)
    permit = ledger.grant("acme", 1, Holder(host="5f0c..."))  # None: it does not fit
    ledger.release(permit.number)

The weight of all permits never exceeds the size by a grant. A smaller size revokes nothing: grants
stop until enough came back. Numbers of permits only grow, so a number is a fence.

A host holds permits as long as it lives; anybody else until a time, which it may renew. A chunk is
a permit that a host divides among its own callers (`core/chunks.py`); it may grow and shrink.
"""

from __future__ import annotations

from heapq import nsmallest
from typing import TYPE_CHECKING, Final

from msgspec import Struct, structs

from relevo.errors import InvalidValue, NotFound

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

SIZE_MAX: Final = 1_000_000


class Holder(Struct, frozen=True, gc=False):
    """Who holds a permit: a life of a host, by its incarnation, or somebody else, by a name."""

    host: str | None = None
    name: str = ""


class Permit(Struct, frozen=True, gc=False):
    """A part of a pool that is in use."""

    number: int
    key: str
    weight: int
    holder: Holder
    expires_at: float | None = None
    """The store's time at which it is free again, unless renewed; None for permits of hosts."""
    item: str | None = None
    """The named thing, of a pool of items."""
    chunk: bool = False
    """Whether its host serves callers of its own from it."""


class PermitState(Struct, frozen=True):
    """A ledger as it is stored."""

    size: int
    last: int = 0
    permits: tuple[Permit, ...] = ()
    items: tuple[str, ...] | None = None


class PermitLedger:
    """The permits of one pool. It knows no time of its own: callers pass the store's."""

    def __init__(self, size: int, *, items: Iterable[str] | None = None) -> None:
        self._items = None if items is None else _checked_items(items)
        self._item_names = frozenset(self._items) if self._items is not None else frozenset[str]()
        self._size = _checked_size(size) if self._items is None else len(self._items)
        self._last = 0
        self._permits: dict[int, Permit] = {}
        self._in_use = 0
        self._free_items = dict.fromkeys(() if self._items is None else self._items)

    @classmethod
    def restored(cls, state: PermitState) -> PermitLedger:
        """Return the ledger that was stored."""
        ledger = cls(state.size, items=state.items)
        ledger._size, ledger._last = state.size, state.last
        for permit in state.permits:
            ledger._put(permit)
        return ledger

    def state(self) -> PermitState:
        """Return what is to be stored."""
        permits = tuple(self._permits.values())
        return PermitState(self._size, self._last, permits, self._items)

    def __iter__(self) -> Iterator[Permit]:
        return iter(self._permits.values())

    def __len__(self) -> int:
        return len(self._permits)

    def get(self, number: int) -> Permit | None:
        """Return a permit that is in use."""
        return self._permits.get(number)

    def page(self, after: int, count: int) -> list[Permit]:
        """Return so many permits in use, by number, beyond a number."""
        later = (one for one in self._permits.values() if one.number > after)
        return nsmallest(count, later, key=lambda permit: permit.number)

    @property
    def size(self) -> int:
        """How much may be in use at once."""
        return self._size

    @property
    def in_use(self) -> int:
        """The weight of all permits; above the size only after a resize."""
        return self._in_use

    @property
    def free(self) -> int:
        """How much can be granted now."""
        free = max(0, self._size - self._in_use)
        return free if self._items is None else min(free, len(self._free_items))

    @property
    def last_number(self) -> int:
        """The number of the youngest permit."""
        return self._last

    def grant(
        self, key: str, weight: int, holder: Holder, *, expires_at: float | None = None,
        chunk: bool = False,
    ) -> Permit | None:  # fmt: skip
        """Return a new permit, or None if there is no room for it."""
        if weight < 1 or (self._items is not None and weight != 1):
            raise InvalidValue(
                f"a permit of weight {weight} is not possible here", pointer="weight"
            )
        if weight > self.free:
            return None
        self._last += 1
        item = None if self._items is None else next(iter(self._free_items))
        permit = Permit(self._last, key, weight, holder, expires_at, item, chunk)
        self._put(permit)
        return permit

    def release(self, number: int) -> Permit | None:
        """Take a permit back; None if it is back already."""
        permit = self._permits.pop(number, None)
        if permit is None:
            return None
        self._in_use -= permit.weight
        if permit.item is not None and permit.item in self._item_names:
            self._free_items[permit.item] = None  # behind the others: each is used in turn
        return permit

    def renew(self, number: int, expires_at: float) -> Permit:
        """Put off the end of a permit with a time; raises `NotFound` if it has ended."""
        permit = self._permits.get(number)
        if permit is None or permit.expires_at is None:
            raise NotFound(f"there is no permit {number} to renew; it was released or has expired")
        renewed = structs.replace(permit, expires_at=max(expires_at, permit.expires_at))
        self._permits[number] = renewed
        return renewed

    def resize_chunk(self, number: int, weight: int) -> Permit | None:
        """Change the weight of a chunk as far as there is room; 0 releases it.

        None if it is not there any more.
        """
        permit = self._permits.get(number)
        if permit is None or not permit.chunk:
            return None
        if weight <= 0:
            self.release(number)
            return structs.replace(permit, weight=0)
        weight = min(weight, permit.weight + self.free)
        changed = structs.replace(permit, weight=weight)
        self._permits[number] = changed
        self._in_use += weight - permit.weight
        return changed

    def expire(self, now: float) -> list[Permit]:
        """Take back permits whose time is over."""
        return self._release_all(
            lambda permit: permit.expires_at is not None and permit.expires_at <= now
        )

    def end_hosts(self, ended: Collection[str]) -> list[Permit]:
        """Take back the permits of lives that have ended and whose lease has passed."""
        return self._release_all(lambda permit: permit.holder.host in ended)

    def hosts(self) -> set[str]:
        """Return the lives of hosts that hold permits."""
        return {one.holder.host for one in self._permits.values() if one.holder.host is not None}

    def resize(self, size: int) -> None:
        """Change how much may be in use; nothing is revoked."""
        if self._items is not None:
            raise InvalidValue("a pool of items has as many permits as items; change its items")
        self._size = _checked_size(size)

    def set_items(self, items: Iterable[str]) -> None:
        """Change the items; one that is left out and in use is not granted again."""
        if self._items is None:
            raise InvalidValue("this pool counts permits and has no items; change its size")
        self._items = _checked_items(items)
        self._item_names = frozenset(self._items)
        self._size = len(self._items)
        used = {permit.item for permit in self._permits.values()}
        self._free_items = dict.fromkeys(item for item in self._items if item not in used)

    def _put(self, permit: Permit) -> None:
        self._permits[permit.number] = permit
        self._in_use += permit.weight
        if permit.item is not None:
            self._free_items.pop(permit.item, None)

    def _release_all(self, ended: Callable[[Permit], bool]) -> list[Permit]:
        found = [permit for permit in self._permits.values() if ended(permit)]
        for permit in found:
            self.release(permit.number)
        return found


def _checked_size(size: int) -> int:
    if isinstance(size, bool) or not 0 <= size <= SIZE_MAX or size != int(size):
        raise InvalidValue(f"size is {size!r}; it must be from 0 to {SIZE_MAX}", pointer="size")
    return size


def _checked_items(items: Iterable[str]) -> tuple[str, ...]:
    found = tuple(items)
    if not found or len(set(found)) < len(found) or len(found) > SIZE_MAX:
        raise InvalidValue(
            f"items are 1 to {SIZE_MAX} different names; give each thing a name of its own",
            pointer="items",
        )
    return found
