"""The offers of a worker: read once, waited for, or followed.

Rows say which offers are open; the log says what has happened since, for the stripe that the
worker's events are in. A position in it is all that a reader carries, so it may go on anywhere.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import zlib
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal
from uuid import UUID

import msgspec
from msgspec import Struct

from relevo.errors import BadContinuation
from relevo.kernel.pages import Fetched
from relevo.kernel.postgres import catalog
from relevo.router.events import OFFERS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    import asyncpg

    from relevo.kernel.events import Event
    from relevo.kernel.postgres import Database, Wakeups

SQL = catalog.load(__package__)
EVENTS_MAX: Final = 500
"""Events that are read at once."""
OFFERS_MAX: Final = 500
"""Open offers that are read at once."""
POLL_SECONDS: Final = 1.0
"""How often a reader looks without a wake-up."""
SIGN_OF_LIFE_SECONDS: Final = 15.0
_TOPICS: Final = 256


class OpenOffer(Struct, frozen=True, kw_only=True):
    """An open offer, with its job."""

    offer_id: UUID
    worker_id: str
    job_id: str
    queue_id: str
    channel_id: str
    channel_reference: str | None
    capacity_cost: int
    offered_at: datetime
    expires_at: datetime | None
    job_priority: int
    job_labels: dict[str, Any]
    job_tags: dict[str, Any]


class OfferEnded(Struct, frozen=True, kw_only=True):
    """An offer that has ended."""

    offer_id: UUID
    job_id: str
    outcome: Literal["accepted", "declined", "revoked", "expired"]
    reason: str | None = None
    """Why it was revoked."""


class OfferPage(Struct, frozen=True):
    """Offers that are open, and where to go on."""

    items: list[OpenOffer]
    continuation: str


class OfferPosition(Struct, frozen=True, array_like=True, omit_defaults=True):
    """Where a reader of a worker's offers is."""

    log: str
    lsn: int
    offered_at: datetime | None = None
    """With `offer_id`: the last open offer that was given of those as of that place; there are
    more of them."""
    offer_id: UUID | None = None

    def __str__(self) -> str:
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).rstrip(b"=").decode()


class _Step(Struct, frozen=True):
    """The result of a look, in order, and the position of the next one."""

    happened: list[OpenOffer | OfferEnded]
    at: OfferPosition


def topics(offers: Iterable[Event]) -> set[str]:
    """Return the topics to wake after these events of offers were committed."""
    return {_topic(event.subject) for event in offers}


def _topic(subject: str) -> str:
    # Not one per worker: a notification holds a limited number, and is only a hint.
    return f"offers:{zlib.crc32(subject.encode()) % _TOPICS}"


class Watching:
    """Reads the offers of workers."""

    def __init__(self, database: Database, wakeups: Wakeups) -> None:
        self._database = database
        self._wakeups = wakeups

    async def read(self, worker_id: str, continuation: str | None, wait: float) -> OfferPage:
        """Return open offers: all of them, or those issued since a continuation.

        With `wait`, waits up to so many seconds for one. A continuation that the log does not go
        back to begins anew with all that are open; nothing that can still be answered is lost.
        """
        clock = asyncio.get_running_loop().time
        until = clock() + wait
        at = _position(continuation)
        with self._wakeups.signal(_topic(f"worker/{worker_id}")) as woken:
            while True:
                step = await self._look(worker_id, at)
                items = [one for one in step.happened if isinstance(one, OpenOffer)]
                left = until - clock()
                if items or left <= 0:
                    return OfferPage(items, str(step.at))
                at = step.at
                await woken.wait(min(left, POLL_SECONDS))

    def follow(
        self, worker_id: str, continuation: str | None
    ) -> AsyncIterator[tuple[OpenOffer | OfferEnded, str | None] | None]:
        """Yield events from a continuation on, or all open offers first; None while idle.

        The last of those that were read together comes with the continuation behind them all.
        """
        return self._follow(worker_id, _position(continuation))

    async def _follow(
        self, worker_id: str, at: OfferPosition | None
    ) -> AsyncIterator[tuple[OpenOffer | OfferEnded, str | None] | None]:
        clock = asyncio.get_running_loop().time
        said = clock()
        with self._wakeups.signal(_topic(f"worker/{worker_id}")) as woken:
            while True:
                step = await self._look(worker_id, at)
                for one in step.happened:
                    # A client that is cut off within a step reads all of it again.
                    yield one, str(step.at) if one is step.happened[-1] else None
                at = step.at
                if step.happened:
                    said = clock()
                elif clock() - said >= SIGN_OF_LIFE_SECONDS:
                    said = clock()
                    yield None
                await woken.wait(POLL_SECONDS)

    async def _look(self, worker_id: str, at: OfferPosition | None) -> _Step:
        rows = await self._database.fetch(
            SQL.offer_events, f"worker/{worker_id}", -1 if at is None else at.lsn, EVENTS_MAX
        )
        first = rows[0]
        log, found = str(first["incarnation"]), [row for row in rows if row["lsn"] is not None]
        gone = at is not None and (at.log != log or at.lsn < first["trimmed_lsn"])
        if at is None or gone:
            return await self._all_open(worker_id, OfferPosition(log, first["head"]))
        if at.offer_id is not None:
            return await self._all_open(worker_id, at)
        whole = len(found) < EVENTS_MAX
        issued = [_offer_id(row) for row in found if row["type"] == OFFERS + "issued"]
        opened = await self._open(worker_id, issued) if issued else Fetched([], more=False)
        if opened.more:  # later events are for the next look
            last = opened.items[-1].offer_id
            end = next(n for n, row in enumerate(found, 1) if _issues(row, last))
            found, whole = found[:end], False
        by_id = {item.offer_id: item for item in opened.items}
        happened = [_happened(row, by_id) for row in found]
        lsn = first["head"] if whole else found[-1]["lsn"]
        return _Step([one for one in happened if one is not None], OfferPosition(log, lsn))

    async def _all_open(self, worker_id: str, at: OfferPosition) -> _Step:
        """Return open offers, and go on behind them, or with what happens from that place on."""
        opened = await self._open(worker_id, None, at.offered_at, at.offer_id)
        then = OfferPosition(at.log, at.lsn)
        if opened.more:
            last = opened.items[-1]
            then = OfferPosition(at.log, at.lsn, last.offered_at, last.offer_id)
        return _Step(list(opened.items), then)

    async def _open(
        self,
        worker_id: str,
        ids: list[UUID] | None,
        offered_at: datetime | None = None,
        offer_id: UUID | None = None,
    ) -> Fetched[OpenOffer]:
        found = await self._database.fetch_page(
            SQL.open_offers, worker_id, ids, offered_at, offer_id, OFFERS_MAX + 1, rows=OFFERS_MAX
        )
        return found.each(_open)


def _happened(row: asyncpg.Record, opened: dict[UUID, OpenOffer]) -> OpenOffer | OfferEnded | None:
    """Return the entry for an event; None for an offer that has ended since."""
    outcome: Any = row["type"].removeprefix(OFFERS)
    if outcome == "issued":
        return opened.get(_offer_id(row))
    data = msgspec.json.decode(row["data"])
    return OfferEnded(
        offer_id=_offer_id(row), job_id=data["jobId"], outcome=outcome, reason=data.get("reason")
    )


def _issues(row: asyncpg.Record, offer: UUID) -> bool:
    return bool(row["type"] == OFFERS + "issued") and _offer_id(row) == offer


def _offer_id(row: asyncpg.Record) -> UUID:
    return UUID(msgspec.json.decode(row["data"])["offerId"])


def _open(row: asyncpg.Record) -> OpenOffer:
    return OpenOffer(
        offer_id=row["id"], worker_id=row["worker_id"], job_id=row["job_id"],
        queue_id=row["queue_id"], channel_id=row["channel_id"],
        channel_reference=row["channel_reference"], capacity_cost=row["cost"],
        offered_at=row["offered_at"], expires_at=row["expires_at"],
        job_priority=row["priority"], job_labels=msgspec.json.decode(row["labels"]),
        job_tags=msgspec.json.decode(row["tags"]),
    )  # fmt: skip


def _position(continuation: str | None) -> OfferPosition | None:
    if continuation is None:
        return None
    try:
        text = base64.b64decode(
            continuation + "=" * (-len(continuation) % 4), altchars=b"-_", validate=True
        )
        found = msgspec.json.decode(text, type=OfferPosition)
    except (binascii.Error, ValueError):
        found = None
    if found is None or not 0 <= found.lsn < 2**63:
        raise BadContinuation("the continuation cannot be read; pass it as it was given")
    return found
