"""Changes of jobs, workers and offers: as callers give them, and how they are carried out.

A change is a merge patch, with conditions that must hold first. It runs in a group, one transaction
each: load under locks, decide, write, append events, commit, wake. A call names the rows it touches
and brings the decision, a plain function over the `World`; calls of one group see each other.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import msgspec
from msgspec import Struct

from relevo.errors import CallerError, ConditionNotMet, InvalidValue, NotFound, RelevoError
from relevo.kernel import cpu
from relevo.kernel.decoding import json_object
from relevo.kernel.postgres.grouping import Group
from relevo.kernel.telemetry.logs import get_logger
from relevo.router import storage, watching
from relevo.router.core.world import World
from relevo.router.events import OFFERS
from relevo.router.storage import Needs
from relevo.router.wire import documents
from relevo.router.wire.documents import check_id

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Sequence

    from relevo.kernel.events import Event, EventLog
    from relevo.kernel.postgres import Database, Transaction
    from relevo.router.storage import Remembered

_TAG: Final = re.compile(r'(?:W/)?"[^"]*"|[^\s,]+')


class Conditions(Struct, frozen=True, kw_only=True):
    """Conditions on the current state of a resource, checked before its change is read."""

    if_match: str | None = None
    """Entity tags with their quotes, or `*` for any."""
    if_none_match: str | None = None
    """Entity tags with their quotes, or `*`: only if there is none."""
    if_unmodified_since: datetime | None = None

    def check(self, etag: str | None, modified_at: datetime | None) -> None:
        """Raise `ConditionNotMet` unless all hold; both are None if there is no resource."""
        wanted = _tags(self.if_match)
        if wanted is not None and (etag is None or not ({"*", etag} & wanted)):
            there = "there is no resource" if etag is None else f"its tag is {etag}"
            raise ConditionNotMet(f"If-Match does not hold: {there}", pointer="If-Match")
        unwanted = _tags(self.if_none_match)
        if unwanted is not None and etag is not None and {"*", etag} & unwanted:
            raise ConditionNotMet(
                f"If-None-Match does not hold: the resource exists, and its tag is {etag}",
                pointer="If-None-Match",
            )
        since = self.if_unmodified_since
        # The header has whole seconds, and a value sent as Last-Modified must meet it.
        changed = None if modified_at is None else modified_at.replace(microsecond=0)
        if since is not None and changed is not None and changed > since:
            raise ConditionNotMet(
                f"it was modified at {changed.isoformat()}, after {since.isoformat()}",
                pointer="If-Unmodified-Since",
            )


def http_date(text: str | None, header: str) -> datetime | None:
    """Return the time of a header such as `Wed, 15 Nov 2023 10:00:00 GMT`."""
    if text is None:
        return None
    try:
        found = parsedate_to_datetime(text)
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, TypeError, IndexError, OverflowError):
        raise InvalidValue(
            f"{header} is not a date such as `Wed, 15 Nov 2023 10:00:00 GMT`", pointer=header
        ) from None


def _tags(header: str | None) -> set[str] | None:
    return None if header is None else set(_TAG.findall(header))


Change = bytes | Mapping[str, Any]
"""A merge patch, decoded or as JSON."""
ANYTHING = Conditions()


async def given(
    resource_id: str, change: Change, conditions: Conditions
) -> Mapping[str, Any] | CallerError:
    """Return the change, or its error, which is raised only if the conditions hold."""
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


LANES = 2
"""Concurrent transactions of a host; more would mostly wait for each other's rows."""
log = get_logger(__name__)


class RouterCall(Struct, frozen=True):
    """A decision, and the rows that it needs."""

    decide: Callable[[World], Any]
    workers: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()
    offers: tuple[UUID, ...] = ()
    whole: tuple[str, ...] = ()
    lane: str = ""


class RouterCommands:
    """Runs calls in groups."""

    def __init__(self, database: Database, events: EventLog, remembered: Remembered) -> None:
        self._database = database
        self._events = events
        self._remembered = remembered
        self._group: Group[RouterCall, Any] = Group(
            "router", self._run, lane=lambda call: call.lane, lanes=LANES, metrics=database.metrics
        )

    async def call(self, call: RouterCall) -> Any:
        """Return the result of a call once it is committed."""
        return await self._group.call(call)

    async def together(
        self,
        calls: Sequence[RouterCall],
        before: Callable[[Transaction], Awaitable[None]] | None = None,
    ) -> list[Any]:
        """Run calls in one transaction of their own; `before` may refuse it (a fence)."""

        async def work(tx: Transaction) -> tuple[list[Any], bool, list[Event]]:
            world = await storage.load(tx, _needs(calls), self._remembered)
            results = [_decided(call, world) for call in calls]
            if before is not None:
                await before(tx)
            changed = await storage.save(tx, world, self._events)
            for job_id, why in world.skipped:
                log.warning("router.exception_action_skipped", job=job_id, reason=why)
            return results, changed, world.events

        results, changed, events = await self._database.run(work)
        if changed:
            offers = [event for event in events if event.type.startswith(OFFERS)]
            self._events.sent(*(watching.topics(offers) if offers else ()))
            self._count(offers)
        return results

    def _count(self, offers: Sequence[Event]) -> None:
        metrics = self._database.metrics
        for type_, count in Counter(event.type for event in offers).items():
            metrics.router_offers.labels(event=type_.removeprefix(OFFERS)).inc(count)

    async def close(self) -> None:
        """Let calls under way end."""
        await self._group.close()

    async def _run(self, calls: Sequence[RouterCall]) -> list[Any]:
        return await self.together(calls)


def _needs(calls: Sequence[RouterCall]) -> Needs:
    needs = Needs()
    for call in calls:
        needs.workers.update(call.workers)
        needs.jobs.update(call.jobs)
        needs.offers.update(call.offers)
        needs.whole.update(call.whole)
    return needs


def _decided(call: RouterCall, world: World) -> Any:
    """A refusal is the result of its own call; decisions refuse before they change rows."""
    try:
        return call.decide(world)
    except RelevoError as error:
        return error
