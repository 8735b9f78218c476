"""What a host holds: claimed jobs, and what became of those it has run."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Sequence

    import asyncpg


class Claim(Struct, frozen=True, kw_only=True):
    """A job that this host may run, until it settles it or its life ends; `number` is the fence."""

    id: UUID
    number: int
    lane: str
    handler: str
    name: str
    data: str | None
    attempt: int
    retries: int
    crashes: int
    operation_type: int
    chain: str | None
    token: str | None
    owner: UUID | None
    saved: str | None
    depth: int
    correlation: UUID | None
    correlation_at: datetime | None
    created_at: datetime
    series: UUID | None
    nominal: datetime | None
    regarding_type: str | None
    regarding_id: str | None
    message_name: str | None
    details: str | None
    taken_at: float
    """When, by this host's clock: what waits here for long is given back."""

    @classmethod
    def of(cls, row: asyncpg.Record, at: float) -> Claim:
        """Return the claim that a row of the statement tells."""
        return cls(number=row["claim"], taken_at=at, **{name: row[name] for name in _FIELDS})


_FIELDS: Final = tuple(
    name for name in Claim.__struct_fields__ if name not in ("number", "taken_at")
)


class Settlement(Struct, frozen=True, kw_only=True):
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
    seconds: float | None = None


def arguments(settlements: Sequence[Settlement], capped: frozenset[str]) -> tuple[list[Any], ...]:
    """Return the arrays of `relevo.work_jobs` from `ids` on; `capped` are lanes with owner caps."""

    def column(name: str) -> list[Any]:
        values = [getattr(one, name) for one in settlements]
        return values if any(value is not None for value in values) else []

    keys = {key for one in settlements for key in gates(one.claim, capped)}
    return (
        [one.claim.id for one in settlements], [one.event for one in settlements],
        [one.claim.number for one in settlements],
        *(column(name) for name in (
            "postpone", "delay", "error", "message", "friendly", "result", "saved", "seconds",
        )),
        sorted(keys),
    )  # fmt: skip


def gates(claim: Claim, capped: frozenset[str]) -> list[str]:
    """Return the keys of the gates that a job holds shut for others as long as it is not over."""
    found = [] if claim.chain is None else [f"c{claim.chain}"]
    if capped and claim.lane in capped and claim.owner is not None:
        found.append(f"o{claim.lane} {claim.owner}")
    return found
