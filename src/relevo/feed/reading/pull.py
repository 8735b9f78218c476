"""The pull model: the caller reads pages at its own pace and keeps its place in a token (16)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import msgspec

from relevo import limits
from relevo.errors import BadContinuation, InvalidValue, Unavailable
from relevo.feed.model import ChangePage
from relevo.feed.reading import filters, tokens
from relevo.feed.reading import log as reading
from relevo.feed.reading import start as starts
from relevo.feed.reading.tokens import Token, TokenPlace
from relevo.kernel.events.model import LOG_ID
from relevo.store.ranges import WHOLE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from relevo.feed.model import Change, Mode
    from relevo.feed.reading.filters import Filter, Given
    from relevo.feed.reading.log import FeedSource
    from relevo.feed.reading.start import Start
    from relevo.kernel.postgres import Database, Wakeups
    from relevo.store.ranges import Interval

MODES = ("latest", "all_versions")
LOOK_SECONDS: Final = 0.5
"""How often a reader looks that hears no wake-ups, as in a client that is no host."""


def check_mode(mode: str, source: FeedSource) -> None:
    """Refuse a mode that does not exist, or that the container does not keep."""
    if source.container_id == LOG_ID:
        if mode != "events":
            raise InvalidValue(f"the event log is read in mode 'events', not {mode!r}")
        return
    if mode not in MODES:
        raise InvalidValue(f"mode is 'latest' or 'all_versions', not {mode!r}")
    if mode == "all_versions" and not source.versions:
        raise InvalidValue(
            f"container {source.name!r} keeps no versions; make it with versions=timedelta(…)"
        )


class Reader:
    """Reads one container's feed page by page, and knows where it is."""

    def __init__(
        self, database: Database, wakeups: Wakeups, source: FeedSource, token: Token, model: Any,
        wanted: Filter | None = None,
    ) -> None:  # fmt: skip
        self._database = database
        self._wakeups = wakeups
        self._source = source
        self._token = tokens.follow_splits(token, source.ranges)
        self._model = model
        self._wanted = wanted

    @classmethod
    async def open(
        cls,
        database: Database,
        wakeups: Wakeups,
        container: str,
        *,
        start: Start = "beginning",
        mode: Mode = "latest",
        interval: Interval = WHOLE,
        continuation: str | None = None,
        model: Any = Any,
        filter: Given | None = None,  # noqa: A002
    ) -> Reader:
        """Begin at `continuation`, else at `start`."""
        source = await reading.look(database, container)
        check_mode(mode, source)
        wanted = filters.check(filter, mode)
        digest = wanted.digest if wanted else None
        if continuation is not None:
            token = tokens.decode(continuation, incarnation=source.incarnation, mode=mode)
            if token.filter != digest:
                raise BadContinuation("the continuation token is of a reader with another filter")
            await reading.check_positions(
                database, source, token.incarnation, mode,
                ((place.range_id, place.lsn) for place in token.places),
            )  # fmt: skip
        else:
            found = await starts.resolve(database, source, mode, starts.check(start), wanted=wanted)
            places = _within(await starts.current(database, source, mode, found), interval)
            token = Token(incarnation=source.incarnation, mode=mode, places=places, filter=digest)
        return cls(database, wakeups, source, token, model, wanted)

    @property
    def continuation(self) -> str:
        """Where the next reader goes on."""
        return tokens.encode(self._token)

    async def page(
        self,
        max_items: int = limits.FEED_ITEMS_DEFAULT,
        max_bytes: int = limits.FEED_BYTES_MAX,
    ) -> ChangePage[Any]:
        """Read the next page: ranges in turn, caught up after a full round without changes.

        The round begins with this call, so nothing that was committed before it is pending then.
        With a filter, a page may be empty before the end: no change so far matched.
        """
        quiet = 0
        while True:
            token = self._token
            place = token.places[token.next]
            batch = await reading.read(
                self._database, self._source, token.mode, place.range_id, place.interval, place.lsn,
                max_items=max_items, max_bytes=max_bytes, model=self._model,
                wanted=self._wanted, frugal=True,
            )  # fmt: skip
            self._advance(place, batch.position)
            if batch.changes or (batch.more and batch.position > place.lsn):
                return self._page(batch.changes, caught_up=False)
            quiet += 1
            if quiet == len(token.places):
                if not await self._was_split():
                    return self._page((), caught_up=True)
                quiet = 0

    def _page(self, changes: tuple[Change[Any], ...], *, caught_up: bool) -> ChangePage[Any]:
        return ChangePage(changes=changes, continuation=self.continuation, caught_up=caught_up)

    async def follow(
        self,
        max_items: int = limits.FEED_ITEMS_DEFAULT,
        max_bytes: int = limits.FEED_BYTES_MAX,
        *,
        wait: float | None = None,
    ) -> AsyncIterator[ChangePage[Any]]:
        """Yield pages until caught up, or until `wait` seconds have passed since the last change.

        A page that is caught up comes once, after those with changes.
        """
        clock = asyncio.get_running_loop().time
        until, was_caught_up = clock() + (wait or 0.0), False
        with self._wakeups.signal(f"feed:{self._source.container_id}") as woken:
            while True:
                page = await self.page(max_items, max_bytes)
                if not (page.caught_up and was_caught_up):
                    yield page
                was_caught_up = page.caught_up
                if not page.caught_up:
                    until = clock() + (wait or 0.0)
                    continue
                left = until - clock()
                if left <= 0:
                    return
                await woken.wait(min(left, LOOK_SECONDS))

    def _advance(self, place: TokenPlace, position: int) -> None:
        token = self._token
        places = list(token.places)
        places[token.next] = msgspec.structs.replace(place, lsn=position)
        self._token = msgspec.structs.replace(
            token, places=tuple(places), next=(token.next + 1) % len(places)
        )

    async def _was_split(self) -> bool:
        """Look at the ranges again before saying "caught up"; go on with the children."""
        source = await reading.look(self._database, self._source.name)
        if source.incarnation != self._source.incarnation:
            raise Unavailable(f"container {source.name!r} was dropped and created again")
        self._source = source
        before, self._token = self._token, tokens.follow_splits(self._token, source.ranges)
        return self._token is not before


def _within(places: tuple[TokenPlace, ...], interval: Interval) -> tuple[TokenPlace, ...]:
    near = [(place, place.interval.intersect(interval)) for place in places
            if place.interval.overlaps(interval)]  # fmt: skip
    if not near:
        raise InvalidValue(f"the start does not cover {interval}; give one that does")
    return tuple(TokenPlace(one.range_id, part.low, part.high, one.lsn) for one, part in near)
