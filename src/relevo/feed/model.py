"""Changes of a feed, in order, in pages or batches."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Generic, Literal, TypeVar

import msgspec
from msgspec import Struct

from relevo import limits
from relevo.errors import InvalidValue
from relevo.store import keys
from relevo.store.keys import epk, parse
from relevo.store.ranges import WHOLE, Interval, under

T = TypeVar("T")
Mode = Literal["latest", "all_versions", "events"]
"""`events` is the mode of the event log, and of nothing else."""
Operation = Literal["create", "replace", "delete"]


class FeedRange(Struct, frozen=True, order=True):
    """A part of a container's feed: every item whose key hashes into the interval."""

    interval: Interval = WHOLE

    def split(self, parts: int = 2) -> tuple[FeedRange, ...]:
        """Cut into `parts` feed ranges that together cover this one, without overlap."""
        return tuple(FeedRange(one) for one in self.interval.split(parts))

    @staticmethod
    def of(token: str) -> TokenRange:
        """Return the ranges of a continuation token, to be cut into several tokens."""
        return TokenRange(token)

    @classmethod
    def of_key(cls, partition_key: Any) -> FeedRange:
        """Return the feed range of one partition key: a value, or as many as there are paths.

        The first parts of a hierarchical key give the range of all keys that begin with them.
        """
        return cls(under(_hash(partition_key)))

    @classmethod
    def parse(cls, text: str) -> FeedRange:
        """Return the feed range of its JSON form."""
        try:
            found = msgspec.json.decode(text)["Range"]
            return cls(Interval(found["min"], found["max"]))
        except (msgspec.DecodeError, KeyError, TypeError) as error:
            raise InvalidValue(f"this is not a feed range in JSON: {text[:80]!r}") from error

    def contains(self, partition_key: Any) -> bool:
        """Whether items with this partition key are part of it."""
        return _hash(partition_key) in self.interval

    def __contains__(self, epk: str) -> bool:
        return epk in self.interval

    def __str__(self) -> str:
        """The JSON form, as the reference writes it."""
        return msgspec.json.encode(
            {"Range": {"min": self.interval.low, "max": self.interval.high}}
        ).decode()


class TokenRange(Struct, frozen=True):
    """The ranges and positions of a continuation token."""

    token: str

    def split(self, parts: int = 2) -> tuple[str, ...]:
        """Cut into `parts` tokens that together go on where this one was, without overlap."""
        from relevo.feed.reading import tokens  # tokens are made of what this module defines

        if not 1 <= parts <= limits.RANGES_PER_CONTAINER_MAX:
            raise InvalidValue(
                f"a token is cut into 1 to {limits.RANGES_PER_CONTAINER_MAX} parts, not {parts}"
            )
        return tuple(map(tokens.encode, tokens.split(tokens.opened(self.token), parts)))


class Metadata(Struct, frozen=True, kw_only=True):
    """The metadata of a change in all-versions mode."""

    lsn: int
    crts: datetime
    operation_type: Operation
    previous_image_lsn: int | None = None
    time_to_live_expired: bool = False
    id: str
    partition_key: tuple[Any, ...]


class Change(Struct, Generic[T], frozen=True, gc=False):
    """One change of one item; bodies are decoded when they are looked at."""

    incarnation: str
    origin: int
    """The range that stamped it, also after splits."""
    lsn: int
    ordinal: int
    stamp: float
    """When it was written, in seconds of the epoch: made an instant when it is looked at."""
    id: str
    key: str
    """Canonical partition key."""
    raw: str | None
    """The item's JSON, or None for a delete."""
    raw_previous: str | None = None
    operation: Operation | None = None
    """Known in all-versions mode only."""
    previous_lsn: int | None = None
    ttl_expired: bool = False
    model: Any = Any

    @property
    def ts(self) -> datetime:
        """When it was written."""
        return datetime.fromtimestamp(self.stamp, UTC)

    @property
    def change_id(self) -> str:
        """Stable over retries, replays and owners: fits as an idempotency key."""
        return f"{self.incarnation}:{self.origin}:{self.lsn}:{self.ordinal}"

    @property
    def item(self) -> T:
        """The item as it is after the change."""
        value: T = msgspec.json.decode(self.raw or "null", type=self.model)
        return value

    @property
    def current(self) -> T | None:
        """The item after the change; None for a delete."""
        return None if self.raw is None else self.item

    @property
    def previous(self) -> T | None:
        """The item before the change, where the container keeps previous images."""
        if self.raw_previous is None:
            return None
        value: T = msgspec.json.decode(self.raw_previous, type=self.model)
        return value

    @property
    def partition_key(self) -> tuple[Any, ...]:
        """The item's partition key."""
        return parse(self.key)

    @property
    def etag(self) -> str:
        """The entity tag of the version that this change made."""
        return f'"{self.lsn:x}-{self.ordinal}"'

    @property
    def metadata(self) -> Metadata:
        """The reference's metadata, for all-versions mode."""
        return Metadata(
            lsn=self.lsn,
            crts=self.ts,
            operation_type=self.operation or "replace",
            previous_image_lsn=self.previous_lsn,
            time_to_live_expired=self.ttl_expired,
            id=self.id,
            partition_key=self.partition_key,
        )


def _hash(partition_key: Any) -> str:
    count = len(partition_key) if isinstance(partition_key, list | tuple) else 1
    return epk(keys.of_caller(partition_key, [f"/{n}" for n in range(count)]))


class ChangePage(Struct, Generic[T], frozen=True, kw_only=True):
    """Some changes and where to go on."""

    changes: tuple[Change[T], ...]
    continuation: str
    caught_up: bool
    """True when nothing that was committed before this round is pending."""
