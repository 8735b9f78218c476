"""Claimed jobs of a host, and the settlements of those that have run."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import msgspec
from msgspec import Struct, structs

from relevo.jobs.core import codes
from relevo.jobs.model import RESULT_BYTES_MAX
from relevo.kernel import error_text
from relevo.kernel.running.verdicts import Fail

if TYPE_CHECKING:
    from collections.abc import Sequence

    import asyncpg


class Particulars(Struct, frozen=True, gc=False, kw_only=True):
    """Rare fields of a job, sent as one JSON text: a column would cost the client more."""

    owner: UUID | None = None
    chain: str | None = None
    series: UUID | None = None
    nominal: datetime | None = None
    saved: str | None = None
    token: str | None = None
    retries: int = 0
    crashes: int = 0
    deferred: float = 0.0
    """Seconds for which no host has known its arguments."""
    depth: int = 1
    root: UUID | None = None
    root_at: datetime | None = None
    regarding_type: str | None = None
    regarding_id: str | None = None
    details: str | None = None
    batch: UUID | None = None
    due: float | None = None
    """When it was to begin, if not at once, in seconds of the epoch."""
    alone: bool = False
    """Whether the host runs nothing else: if it crashes, this job was the cause."""


class JobClaim(Particulars, frozen=True, gc=False):
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
    """When it was claimed, by this host's clock; a claim that waits too long is given back."""

    @classmethod
    def of(cls, row: asyncpg.Record, at: float) -> JobClaim:
        """Return the claim of a row of `relevo.job_notice`."""
        _, id_, _, *fields, particulars, _, _ = row
        common: Any = (id_, *fields, at)
        if particulars is None:
            return cls(*common)
        return cls(*common, **structs.asdict(_DECODER.decode(particulars)))

    @property
    def ids(self) -> tuple[UUID, ...]:
        """The key, as of all claims that are one row."""
        return (self.id,)

    @property
    def label(self) -> str:
        """The id, for logs and traces."""
        return str(self.id)

    @property
    def correlation(self) -> UUID:
        """The job with which its correlation began, which may be itself."""
        return self.root or self.id

    @property
    def correlation_at(self) -> datetime:
        """When that began."""
        return self.root_at or datetime.fromtimestamp(self.created, UTC)


_DECODER: Final = msgspec.json.Decoder(Particulars)


class JobSettlement(Struct, frozen=True, kw_only=True, gc=False):
    """The outcome of a run, written with the next statement."""

    claim: JobClaim
    event: str
    postpone: datetime | None = None
    delay: float | None = None
    error: int | None = None
    message: str | None = None
    friendly: str | None = None
    result: str | None = None
    saved: str | None = None
    seconds: float = 0.0


def encoded_result(value: Any) -> str | None:
    """Return the result of a handler as it is stored, or refuse it."""
    if value is None:
        return None
    try:
        text = msgspec.json.encode(value)
    except Exception as error:  # also of a class that cannot be looked at
        raise Fail(
            codes.HANDLER_FAILED,
            f"the handler returned a {type(value).__name__} that JSON cannot hold:"
            f" {error_text.message(error, 200)}",
        ) from error
    if len(text) > RESULT_BYTES_MAX:
        raise Fail(
            None,
            f"the handler returned {len(text)} bytes; at most {RESULT_BYTES_MAX} are kept. Store it"
            " elsewhere and return where",
        )
    return text.decode()


def returned(claim: JobClaim) -> JobSettlement:
    """Return the settlement that gives a claim back, whether it has begun or not."""
    return JobSettlement(claim=claim, event="return")


def is_plain(settlement: JobSettlement, capped: frozenset[str]) -> bool:
    """Whether only a record and an event follow from it, as for most jobs."""
    claim = settlement.claim
    return settlement.event == "done" and claim.series is None and not gates(claim, capped)


def arguments(
    settlements: Sequence[JobSettlement], capped: frozenset[str]
) -> tuple[list[Any], ...]:
    """Return the arrays of `relevo.serve_jobs` from `ids` on; `capped` are lanes with owner caps.

    A column without values is empty, also that of events if all jobs succeeded and belong to no
    series: then one pass usually locks all rows.
    """
    keys = {key for settlement in settlements for key in gates(settlement.claim, capped)}
    plain = all(
        settlement.event == "done" and settlement.claim.series is None for settlement in settlements
    )
    special: Sequence[JobSettlement] = () if plain else settlements
    columns: list[list[Any]] = [
        [getattr(settlement, name) for settlement in of]
        for of, name in (
            (special, "postpone"), (special, "delay"), (special, "error"), (special, "message"),
            (settlements, "friendly"), (settlements, "result"), (special, "saved"),
            (settlements, "seconds"),
        )
    ]  # fmt: skip
    unsaid = [None] * len(settlements)
    return (
        [settlement.claim.id for settlement in settlements],
        [settlement.event for settlement in special],
        [settlement.claim.number for settlement in settlements],
        *([] if column == unsaid else column for column in columns),
        sorted(keys),
    )


def gates(claim: JobClaim, capped: frozenset[str]) -> Sequence[str]:
    """Return the keys of the gates that a job holds shut for others as long as it is not over."""
    if claim.chain is None and not capped:
        return ()
    found = [] if claim.chain is None else [f"c{claim.chain}"]
    if capped and claim.lane in capped and claim.owner is not None:
        found.append(f"o{claim.lane} {claim.owner}")
    return found
