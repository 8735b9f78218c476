"""What a host holds: claimed jobs, and what became of those it has run."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import msgspec
from msgspec import Struct, structs

if TYPE_CHECKING:
    from collections.abc import Sequence

    import asyncpg


class Particulars(Struct, frozen=True, gc=False, kw_only=True):
    """What few jobs have; it comes as one text, for a column costs a client more than a job."""

    owner: UUID | None = None
    chain: str | None = None
    series: UUID | None = None
    nominal: datetime | None = None
    saved: str | None = None
    token: str | None = None
    retries: int = 0
    crashes: int = 0
    deferred: float = 0.0
    """For how many seconds hosts have not known its arguments."""
    depth: int = 1
    root: UUID | None = None
    root_at: datetime | None = None
    regarding_type: str | None = None
    regarding_id: str | None = None
    details: str | None = None
    alone: bool = False
    """Whether the host has nothing else in hand: if it ends, this job was the reason."""


class Claim(Particulars, frozen=True, gc=False):
    """A job that this host may run, until it settles it or its life ends; `number` is the fence.

    The fields stand in the order of `relevo.job_notice`, from which they are filled.
    """

    id: UUID
    number: int
    lane: str
    handler: str
    name: str
    data: str | None
    attempt: int
    operation_type: int
    created: float
    """When, in seconds of the epoch."""
    taken_at: float
    """When, by this host's clock: what waits here for long is given back."""

    @classmethod
    def of(cls, row: asyncpg.Record, at: float) -> Claim:
        """Return the claim that a row of `relevo.job_notice` tells."""
        _, id_, _, *told, particulars, _, _ = row
        common: Any = (id_, *told, at)
        if particulars is None:
            return cls(*common)
        return cls(*common, **structs.asdict(_DECODER.decode(particulars)))

    @classmethod
    def of_parcel(cls, row: asyncpg.Record, at: float) -> list[Claim]:
        """Return the claims of such a row that tells of many jobs at once."""
        _, _, _, number, lane, handler, name, _, attempt, type_, created, _, ids, datas = row
        return [
            cls(id_, number, lane, handler, name, data, attempt, type_, created, at)
            for id_, data in zip(ids, datas, strict=True)
        ]

    @property
    def correlation(self) -> UUID:
        """What it belongs to: the job with which it began, which may be itself."""
        return self.root or self.id

    @property
    def correlation_at(self) -> datetime:
        """When that began."""
        return self.root_at or datetime.fromtimestamp(self.created, UTC)


_DECODER: Final = msgspec.json.Decoder(Particulars)


class Settlement(Struct, frozen=True, kw_only=True, gc=False):
    """What became of a run, to be written with the next statement."""

    claim: Claim
    event: str
    postpone: datetime | None = None
    delay: float | None = None
    error: int | None = None
    message: str | None = None
    friendly: str | None = None
    result: str | None = None
    saved: str | None = None
    seconds: float = 0.0


def returned(claim: Claim) -> Settlement:
    """Give back a claim that was not begun, or not to its end."""
    return Settlement(claim=claim, event="return")


def is_plain(settlement: Settlement, capped: frozenset[str]) -> bool:
    """Whether nothing follows from it but a record and an event: so for most jobs."""
    claim = settlement.claim
    return settlement.event == "done" and claim.series is None and not gates(claim, capped)


def arguments(settlements: Sequence[Settlement], capped: frozenset[str]) -> tuple[list[Any], ...]:
    """Return the arrays of `relevo.serve_jobs` from `ids` on; `capped` are lanes with owner caps.

    A column of which nothing is said is empty, also that of events if all jobs are done and of no
    series: then rows are locked in one pass, as a rule.
    """
    keys = {key for one in settlements for key in gates(one.claim, capped)}
    plain = all(one.event == "done" and one.claim.series is None for one in settlements)
    special: Sequence[Settlement] = () if plain else settlements
    columns: list[list[Any]] = [
        [one.postpone for one in special], [one.delay for one in special],
        [one.error for one in special], [one.message for one in special],
        [one.friendly for one in settlements], [one.result for one in settlements],
        [one.saved for one in special], [one.seconds for one in settlements],
    ]  # fmt: skip
    unsaid = [None] * len(settlements)
    return (
        [one.claim.id for one in settlements],
        [one.event for one in special],
        [one.claim.number for one in settlements],
        *([] if column == unsaid else column for column in columns),
        sorted(keys),
    )


def gates(claim: Claim, capped: frozenset[str]) -> Sequence[str]:
    """Return the keys of the gates that a job holds shut for others as long as it is not over."""
    if claim.chain is None and not capped:
        return ()
    found = [] if claim.chain is None else [f"c{claim.chain}"]
    if capped and claim.lane in capped and claim.owner is not None:
        found.append(f"o{claim.lane} {claim.owner}")
    return found
