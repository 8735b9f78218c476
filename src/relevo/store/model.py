"""The nouns of the store: items, containers, steps of a batch, outcomes of a bulk write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Generic, Literal, TypeVar

from msgspec import Struct

from relevo import limits
from relevo.errors import Conflict, InvalidValue, RelevoError
from relevo.store import keys
from relevo.store.patch import Operation

T = TypeVar("T")
Kind = Literal["create", "upsert", "replace", "delete"]
TTL_ON = -1
"""Items never expire unless they have a `ttl` of their own."""
TTL_MAX = 2**31 - 1


class Item(Struct, Generic[T], frozen=True, kw_only=True):
    """One version of an item."""

    id: str
    partition_key: Any
    """The value at the partition key path, or a tuple where the container has several paths."""
    body: T
    """The item as JSON values, or as the container's model."""
    etag: str
    """Names this version; `if_match=item.etag` makes a write fail if there is a newer one."""
    ts: datetime
    lsn: int
    """Position of the write in the feed of its range."""


class ContainerInfo(Struct, frozen=True, kw_only=True):
    """The properties of a container."""

    id: int
    name: str
    incarnation: str
    """New when the container is dropped and made again."""
    partition_key: tuple[str, ...]
    ttl: int | None
    """Seconds until items expire by default; -1: only items with a `ttl`; None: never."""
    versions: timedelta | None
    """How long all versions and deletes are kept for the feed; None keeps the latest only."""
    previous_images: bool
    created_at: datetime


class ContainerOptions(Struct, frozen=True, kw_only=True):
    """The properties that a caller wants a container to have; None accepts any value."""

    partition_key: tuple[str, ...] | None = None
    ttl: int | None = None
    versions: timedelta | None = None
    previous_images: bool = False
    ranges: int = limits.RANGES_PER_CONTAINER

    def check(self, info: ContainerInfo) -> None:
        """Refuse a container that exists and is something else."""
        for name in ("partition_key", "ttl", "versions", "previous_images"):
            wanted, found = getattr(self, name), getattr(info, name)
            if wanted not in (None, False, found):
                raise Conflict(
                    f"container {info.name!r} exists with {name}={found!r}, not {wanted!r}; leave"
                    " the option out, or drop the container and create it again",
                    pointer=name,
                )


def options(
    partition_key: str | Sequence[str] | None,
    *,
    ttl: float | timedelta | None,
    versions: timedelta | None,
    previous_images: bool,
    ranges: int,
) -> ContainerOptions:
    """Return a caller's options, or refuse an invalid one by name."""
    if versions is not None and versions <= timedelta(0):
        raise InvalidValue(f"versions must be a time above 0, not {versions}", pointer="versions")
    if previous_images and versions is None:
        raise InvalidValue(
            "previous images are part of the versions; set how long to keep them with"
            " versions=timedelta(days=7)",
            pointer="previous_images",
        )
    if not 1 <= ranges <= limits.RANGES_PER_CONTAINER_MAX:
        raise InvalidValue(
            f"a container starts with 1 to {limits.RANGES_PER_CONTAINER_MAX} ranges, not {ranges}",
            pointer="ranges",
        )
    return ContainerOptions(
        partition_key=None if partition_key is None else keys.checked_paths(partition_key),
        ttl=_seconds(ttl),
        versions=versions,
        previous_images=previous_images,
        ranges=ranges,
    )


def _seconds(ttl: float | timedelta | None) -> int | None:
    if ttl is None:
        return None
    seconds = ttl.total_seconds() if isinstance(ttl, timedelta) else ttl
    if not (seconds == TTL_ON or 1 <= seconds <= TTL_MAX) or seconds != int(seconds):
        raise InvalidValue(
            f"ttl is 1 to {TTL_MAX} whole seconds, or -1 for items that never expire unless they"
            f" have their own ttl, not {ttl!r}",
            pointer="ttl",
        )
    return int(seconds)


class Create(Struct, frozen=True):
    """A step of a batch: the item must not exist."""

    item: Any


class Upsert(Struct, frozen=True):
    """A step of a batch: create the item or replace it."""

    item: Any
    if_match: str | None = None


class Replace(Struct, frozen=True):
    """A step of a batch: the item must exist."""

    item: Any
    if_match: str | None = None


class Patch(Struct, frozen=True):
    """A step of a batch: change parts of an item."""

    id: str
    operations: Sequence[Operation | Mapping[str, Any]]
    if_match: str | None = None


class Delete(Struct, frozen=True):
    """A step of a batch: remove the item."""

    id: str
    if_match: str | None = None


class Read(Struct, frozen=True):
    """A step of a batch: the item as it is at this point of the batch."""

    id: str


Step = Create | Upsert | Replace | Patch | Delete | Read


class Outcome(Struct, frozen=True, kw_only=True):
    """The outcome of one item of a bulk write: an etag, or an error."""

    id: str | None
    etag: str | None = None
    lsn: int | None = None
    created: bool = False
    error: RelevoError | None = None

    @property
    def ok(self) -> bool:
        """Whether the item was written."""
        return self.error is None


class BulkResult(Struct, frozen=True):
    """The outcomes of a bulk write, item by item, in their order."""

    outcomes: tuple[Outcome, ...]

    @property
    def failures(self) -> dict[int, RelevoError]:
        """The errors, by the position of their item."""
        return {n: one.error for n, one in enumerate(self.outcomes) if one.error is not None}

    @property
    def written(self) -> int:
        """How many items were written."""
        return sum(outcome.ok for outcome in self.outcomes)
