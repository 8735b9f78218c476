"""The ids of costs that a limit has charged: a repeat of one is admitted, and charged nothing.

An id is kept for ten to twenty minutes, in a period of ten: it is looked for in the present period
and in the one before. Older periods are deleted a few ids at a time.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from relevo.errors import InvalidValue, Overloaded
from relevo.governance.calls.limit_calls import Admission
from relevo.limits import LIMIT_IDS_MAX

if TYPE_CHECKING:
    from relevo.actors import ActorMap
    from relevo.governance.calls.limit_calls import CostAsk

PERIOD_SECONDS: Final = 600.0
FORGOTTEN_AT_ONCE: Final = 500


class ChargedCost(Struct, frozen=True):
    """What was charged under an id."""

    cost: float
    key: str


class ChargedIds:
    """The charged ids of one limit, kept in a map of its actor."""

    def __init__(self, entries: ActorMap[ChargedCost]) -> None:
        self._entries = entries
        self._period = 0
        self._count = 0
        """Ids charged in the period, as far as this activation knows."""

    async def admitted(self, ask: CostAsk, now: float) -> Admission | None:
        """Return the answer to a cost that was charged under its id; None if it was not.

        Raises `InvalidValue` if the id came with another cost or key.
        """
        if ask.id is None:
            return None
        period = _period(now)
        for each in (period, period - 1):
            charged = await self._entries.get(_entry(each, ask.id))
            if charged is None:
                continue
            if (charged.cost, charged.key) != (ask.cost, ask.key):
                raise InvalidValue(
                    f"id {ask.id!r} was charged a cost of {charged.cost:g} for key"
                    f" {charged.key!r}; a repeat has the same, and another request another id",
                    pointer="id",
                )
            return Admission(charged.cost)
        return None

    def check_room(self, ask: CostAsk, now: float) -> None:
        """Raise `Overloaded` if no further id can be kept."""
        if self._period != _period(now):
            self._period, self._count = _period(now), 0
        if ask.id is not None and self._count >= LIMIT_IDS_MAX:
            raise Overloaded(
                f"the limit keeps {LIMIT_IDS_MAX:,} ids of ten minutes, which is its bound; leave"
                " out the id, or try later"
            )

    async def note(self, ask: CostAsk, now: float) -> None:
        """Keep the id of a cost that is charged in this turn."""
        if ask.id is not None:
            self._count += 1
            await self._entries.set(_entry(_period(now), ask.id), ChargedCost(ask.cost, ask.key))

    async def forget(self, now: float) -> bool:
        """Delete some ids that are too old; whether there may be more."""
        oldest, count = _prefix(_period(now) - 1), 0
        async for entry, _ in self._entries.scan(limit=FORGOTTEN_AT_ONCE):
            if entry >= oldest:
                return False
            await self._entries.delete(entry)
            count += 1
        return count == FORGOTTEN_AT_ONCE


def _period(now: float) -> int:
    return int(now // PERIOD_SECONDS)


def _prefix(period: int) -> str:
    return f"{period:012d}"


def _entry(period: int, id_: str) -> str:
    return f"{_prefix(period)} {blake2b(id_.encode(), digest_size=16).hexdigest()}"
