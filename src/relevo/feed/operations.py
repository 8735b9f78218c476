"""What operators do with a unit: pause, resume, rewind, snapshots, cutting, repair (14).

Every verb is one short transaction that holds the unit's lock and the locks of all its leases, so
that no plan is made, no lease is cut and no fenced transaction is under way beside it. What moves
positions or leases under an owner needs a paused unit, or `force`, which fences the owner.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Literal, TypeVar

import msgspec
from msgspec import Struct

from relevo import limits
from relevo.errors import (
    BadContinuation,
    Conflict,
    ContainerRecreated,
    InvalidValue,
    ModeMismatch,
    NotFound,
)
from relevo.feed import lease_splitting, reading, tokens, unit
from relevo.feed import start as starts
from relevo.feed.model import Mode
from relevo.feed.tokens import Place, Token
from relevo.leases import Directory
from relevo.leases.keeper import host_topic
from relevo.leases.model import LeaseState
from relevo.postgres import catalog, locks
from relevo.store.ranges import Interval

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
    from uuid import UUID

    import asyncpg

    from relevo.feed.reading import Source
    from relevo.feed.start import Start
    from relevo.postgres import Database, Transaction, Wakeups

    Target = Start | str | Mapping[int, int]
    """Now, beginning, an instant; a snapshot's name or a pull token; positions by range."""

SQL = catalog.load(__package__)
LEASES = catalog.load("relevo.leases")
PAUSE_POLL_SECONDS = 0.25
T = TypeVar("T")


class UnitLease(Struct, frozen=True, kw_only=True):
    """One lease of a unit, as it is."""

    token: str
    interval: Interval
    positions: dict[int, int]
    """LSN by range."""
    state: LeaseState
    owner: str | None
    running: bool
    """Whether its owner may still be at work on it."""
    epoch: int
    attempts: int
    checkpoint_at: datetime | None
    position_ts: datetime | None


class UnitState(Struct, frozen=True, kw_only=True):
    """A unit as it is: "pausing" until nothing runs any more."""

    name: str
    state: Literal["running", "pausing", "paused"]
    mode: Mode
    generation: int
    leases: tuple[UnitLease, ...]


class Snapshot(Struct, frozen=True, kw_only=True):
    """Positions of a unit that were kept under a name."""

    name: str
    taken_at: datetime
    generation: int


class Export(Struct, frozen=True, kw_only=True):
    """All positions of a unit in a form that travels."""

    version: int = 1
    container: str
    incarnation: str
    mode: Mode
    places: tuple[Place, ...]


class _Locked(Struct, frozen=True, kw_only=True):
    """A unit whose leases nobody else can change now."""

    id: int
    mode: Mode
    generation: int
    incarnation: str
    source: Source
    leases: tuple[UnitLease, ...]
    ids: dict[str, int]

    def chosen(self, wanted: Collection[str] | None) -> list[UnitLease]:
        """The leases of these tokens, or all."""
        if unknown := set(wanted or ()) - set(self.ids):
            raise NotFound(f"the unit has no lease {min(unknown)!r}; state() shows those it has")
        return [one for one in self.leases if wanted is None or one.token in wanted]

    def numbers(self, leases: Collection[UnitLease]) -> list[int]:
        """Their ids in the database."""
        return [self.ids[one.token] for one in leases]

    def places(self, leases: Collection[UnitLease]) -> tuple[Place, ...]:
        """Where leases stand."""
        return tuple(
            place
            for one in leases
            for place in unit.places_of(self.source.ranges, one.interval, one.positions)
        )


class UnitHandle:
    """A unit in the hands of an operator; needs no host of its own.

    >>> billing = orders.unit("billing")  # doctest: +SKIP
    >>> await billing.pause()  # doctest: +SKIP
    >>> await billing.rewind("beginning")  # doctest: +SKIP
    >>> await billing.resume()  # doctest: +SKIP
    """

    def __init__(
        self, database: Database, wakeups: Wakeups, container: str, name: str, leases_in: str
    ) -> None:
        self._database = database
        self._wakeups = wakeups
        self._container = container
        self.name = f"{leases_in}/{container}/{name}"

    async def state(self) -> UnitState:
        """Return the unit and its leases; `NotFound` if no processor was ever started for it."""
        row = await self._find(self._database)
        leases = [_lease(one) for one in await self._database.fetch(SQL.unit_leases, row["id"])]
        paused = all(one.state != "active" for one in leases)
        running = any(one.running for one in leases)
        return UnitState(
            name=self.name,
            state="running" if not paused else "pausing" if running else "paused",
            mode=row["mode"],
            generation=row["generation"],
            leases=tuple(leases),
        )

    async def pause(self, tokens: Collection[str] | None = None) -> None:
        """Stop all work, or that on some leases; returns when nothing runs any more.

        Owners finish their batch, checkpoint and let go, so it may take as long as a handler does;
        put a time limit around it if that is too long: the pause stands all the same.
        """

        async def work(tx: Transaction, locked: _Locked) -> tuple[int, list[str]]:
            chosen = locked.chosen(tokens)
            active = [one for one in chosen if one.state == "active"]
            await self._set_state(tx, locked, active, "paused")
            return locked.id, [one.token for one in chosen]

        unit_id, paused = await self._change(work)
        with self._wakeups.signal(f"unit:{unit_id}") as woken:
            while True:
                await self._database.write(LEASES.end_lapsed_hosts, idempotent=True)
                rows = await self._database.fetch(SQL.unit_leases, unit_id)
                if not any(row["running"] for row in rows if row["name"] in paused):
                    return
                await woken.wait(PAUSE_POLL_SECONDS)

    async def resume(self, tokens: Collection[str] | None = None) -> None:
        """Let the work go on; a blocked lease goes on only if it is named."""

        async def work(tx: Transaction, locked: _Locked) -> None:
            resting = ("paused",) if tokens is None else ("paused", "blocked")
            chosen = [one for one in locked.chosen(tokens) if one.state in resting]
            await self._set_state(tx, locked, chosen, "active")

        await self._change(work)

    async def rewind(
        self, to: Target, tokens: Collection[str] | None = None, *, force: bool = False
    ) -> None:
        """Set positions, backwards or forwards, and forget earlier failures.

        The leases must be paused; `force=True` takes them from their owners instead, whose batches
        then cannot move the position any more and are delivered again as the new one says.
        """

        async def work(tx: Transaction, locked: _Locked) -> None:
            await self._rewind(tx, locked, await self._places(tx, locked, to), tokens, force)

        await self._change(work)

    async def snapshot(self, name: str) -> Snapshot:
        """Keep where the unit stands, for `rewind(name)`; one of that name is replaced."""
        if not name or len(name) > limits.NAME_LENGTH_MAX or name in ("now", "beginning"):
            raise InvalidValue(
                f"a snapshot has a name of 1 to {limits.NAME_LENGTH_MAX} characters that is not"
                f" 'now' or 'beginning', unlike {name[:40]!r}"
            )

        async def work(tx: Transaction, locked: _Locked) -> Snapshot:
            places = msgspec.json.encode(locked.places(locked.leases)).decode()
            row = await tx.fetchrow(SQL.save_snapshot, locked.id, name, locked.generation, places)
            assert row is not None
            return Snapshot(**row)

        return await self._change(work)

    async def snapshots(self) -> list[Snapshot]:
        """Return the snapshots of the unit, oldest first."""
        row = await self._find(self._database)
        return [
            Snapshot(**one) for one in await self._database.fetch(SQL.list_snapshots, row["id"])
        ]

    async def export(self) -> str:
        """Return all positions as JSON, for `import_` into a unit over the same container."""

        async def work(tx: Transaction, locked: _Locked) -> str:
            export = Export(
                container=self._container, incarnation=locked.incarnation, mode=locked.mode,
                places=locked.places(locked.leases),
            )  # fmt: skip
            return msgspec.json.encode(export).decode()

        return await self._change(work)

    async def import_(self, text: str, *, force: bool = False) -> None:
        """Go on where an exported unit stood, whatever leases it had; otherwise as `rewind`."""
        try:
            given = msgspec.json.decode(text, type=Export)
        except (msgspec.DecodeError, UnicodeError) as error:
            raise InvalidValue(f"this is no export of a unit: {error}") from error
        if given.version != 1:
            raise InvalidValue(f"exports of version {given.version} are not known here")

        async def work(tx: Transaction, locked: _Locked) -> None:
            if given.incarnation != locked.incarnation:
                raise ContainerRecreated(
                    f"the export is of another container than {self._container!r} is now"
                )
            if given.mode != locked.mode:
                raise ModeMismatch(
                    f"the export is of a unit in mode {given.mode!r}, not {locked.mode!r}"
                )
            await self._rewind(tx, locked, given.places, None, force)

        await self._change(work)

    async def tokens(self) -> dict[str, str]:
        """Return a pull token for every lease, to read on from where it stands."""

        async def work(tx: Transaction, locked: _Locked) -> dict[str, str]:
            return {
                one.token: tokens.encode(
                    Token(
                        incarnation=locked.incarnation,
                        mode=locked.mode,
                        places=locked.places([one]),
                    )
                )
                for one in locked.leases
            }

        return await self._change(work)

    async def split_leases(self, n: int, *, force: bool = False) -> None:
        """Cut the widest leases until there are `n`, so that more hosts can share the work.

        The unit must be paused, or `force=True` takes the leases from their owners.
        """
        if not 1 <= n <= limits.LEASES_PER_UNIT_MAX:
            raise InvalidValue(f"a unit has 1 to {limits.LEASES_PER_UNIT_MAX} leases, not {n}")

        async def work(tx: Transaction, locked: _Locked) -> None:
            for lease, parts in cut(locked.leases, n).items():
                whole = locked.leases[lease]
                _check_idle([whole], force=force)
                places = [unit.places_of(locked.source.ranges, p, whole.positions) for p in parts]
                children = [
                    (part, {place.range_id: place.lsn for place in found})
                    for part, found in zip(parts, places, strict=True)
                ]
                await lease_splitting.replace(tx, locked.ids[whole.token], children)

        await self._change(work)

    async def move(self, token: str, host: str) -> None:
        """Ask for one lease to go to the host of that name, which must serve the unit."""
        await Directory(self._database, self._wakeups).move("feed", self.name, token, to=host)

    async def repair(self, start: Target) -> list[str]:
        """Put leases into the gaps of a unit whose leases do not cover everything; return them.

        They begin at `start`: only who knows how the gap came about can say what was processed.
        """

        async def work(tx: Transaction, locked: _Locked) -> list[str]:
            missing = unit.gaps([one.interval for one in locked.leases])
            places = await self._places(tx, locked, start)
            ranges = locked.source.ranges
            parts = [r.interval.intersect(gap) for gap in missing for r in ranges.over(gap)]
            positions = [unit.positions_in(ranges, part, places) for part in parts]
            self._check(locked, positions)
            await tx.execute(
                SQL.insert_feed_leases, locked.id, [p.low for p in parts], [p.high for p in parts],
                [lease_splitting.position_text(found) for found in positions],
            )  # fmt: skip
            if locked.leases and all(one.state == "paused" for one in locked.leases):
                rows = await tx.fetch(SQL.unit_leases, locked.id)
                made = [row["id"] for row in rows if row["name"] not in locked.ids]
                await tx.fetch(SQL.set_lease_states, made, "paused")
            return [str(part) for part in parts]

        return await self._change(work)

    async def delete(self) -> None:
        """Forget the unit with all its positions; no host may serve it any more."""

        async def work(tx: Transaction, locked: _Locked) -> None:
            serving = [row["name"] for row in await tx.fetch(SQL.live_members, locked.id)]
            if serving:
                raise Conflict(
                    f"unit {self.name} is served by {', '.join(serving)}; stop its processors first"
                )
            await tx.execute(SQL.delete_unit, locked.id)

        await self._change(work, whole=False)

    async def _find(self, connection: Database | Transaction) -> asyncpg.Record:
        row = await connection.fetchrow(SQL.find_unit, self.name)
        if row is None:
            raise NotFound(f"no processor was ever started for {self.name}")
        return row
