"""How many replicas of consumers there should be, from what their sources have to do now."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from relevo.kernel.postgres import catalog
from relevo.messaging.core import scaling
from relevo.messaging.core.scaling import ClassLoad, ConsumersLoad, Measure, Recent
from relevo.messaging.operating import consumers

if TYPE_CHECKING:
    from relevo.kernel.postgres import Database
    from relevo.messaging.model import Scaling
    from relevo.messaging.operating.consumers import ConsumersView

SQL = catalog.load("relevo.messaging")
HOLD_SECONDS: Final = 1.0
"""How long a handler has a message, where nobody has measured it yet."""
RATE_SECONDS: Final = 60.0
"""Over how long the rate of arrivals is taken."""


class Desired(Struct, frozen=True, kw_only=True):
    """How many replicas there should be, and why."""

    value: int
    by: Measure
    replicas: int
    slots: int
    """Of all replicas together."""


class _History(Struct):
    """What was seen of consumers before: a measure of its own, per process."""

    recent: tuple[Recent, ...] = ()
    seen: tuple[tuple[float, int, int], ...] = ()
    """When, with how many messages sent and completed in all."""
    busy_at: float | None = None


class Scaler:
    """Proposes replicas; remembers what it has seen, since some measures need two looks."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._histories: dict[str, _History] = {}

    async def desired(self, name: str, rules: Scaling | None = None) -> Desired:
        """Return how many replicas consumers should have; raises `NotFound`.

        `rules` count instead of those that the consumers are defined with.
        """
        view = await consumers.found(self._database, name)
        return await self._desired(view, rules or view.definition.scaling)

    async def all(self) -> dict[str, Desired]:
        """Return the same for all consumers."""
        found: dict[str, Desired] = {}
        after: str | None = ""
        while after is not None:
            page = await consumers.listed(self._database, after=after, limit=consumers.PAGE)
            for view in page:
                found[view.name] = await self._desired(view, view.definition.scaling)
            after = page[-1].name if len(page) >= consumers.PAGE else None
        return found

    async def _desired(self, view: ConsumersView, rules: Scaling) -> Desired:
        now = time.monotonic()
        history = self._histories.setdefault(view.name, _History())
        load = await self._load(view, history, now)
        proposal, history.recent = scaling.desired(load, rules, history.recent, now)
        slots = sum(host.slots for host in view.hosts)
        return Desired(value=proposal.value, by=proposal.by, replicas=len(view.hosts), slots=slots)

    async def _load(self, view: ConsumersView, history: _History, now: float) -> ConsumersLoad:
        keys = [source.lower() for source in view.sources]
        rows = await self._database.fetch(SQL.load, keys)
        active = sum(row["active"] for row in rows)
        locked = sum(row["locked"] for row in rows)
        sent, completed = sum(row["sent"] for row in rows), sum(row["completed"] for row in rows)
        history.seen = (
            *(one for one in history.seen if one[0] > now - RATE_SECONDS), (now, sent, completed),
        )  # fmt: skip
        if active + locked > 0 or history.busy_at is None:
            history.busy_at = now
        since, first_sent, first_completed = history.seen[0]
        span = now - since
        done = completed - first_completed
        hold = locked * span / done if done > 0 and span > 0 else HOLD_SECONDS
        return ConsumersLoad(
            active=active, locked=locked, hold=hold, concurrency=view.definition.concurrency,
            arrivals_per_second=(sent - first_sent) / span if span > 0 else 0.0,
            classes=tuple(
                ClassLoad(
                    slo=row["slo"], waiting=row["active"], oldest_age=row["oldest"] or 0.0,
                    hold=hold,
                )
                for row in rows
                if row["slo"] is not None
            ),
            idle_for=now - history.busy_at,
        )  # fmt: skip
