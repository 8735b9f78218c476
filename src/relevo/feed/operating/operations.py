"""Operations on a unit: pause, resume, rewind, snapshots, splitting, repair.

Every operation is one short transaction that locks the unit. One that moves positions or leases
under an owner needs them paused, or `force`, which fences the owner.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import Struct

from relevo import limits
from relevo.errors import Conflict, ContainerRecreated, InvalidValue, ModeMismatch
from relevo.feed.model import Mode
from relevo.feed.operating import lease_splitting, states, unit
from relevo.feed.operating.locked_unit import LockedUnit, UnitLease, check_idle, find, read_leases
from relevo.feed.operating.states import UnitPhase
from relevo.feed.reading import bounds, tokens
from relevo.feed.reading.tokens import Token, TokenPlace
from relevo.kernel.leases import Directory
from relevo.kernel.leases.units import host_topic
from relevo.kernel.postgres import catalog

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping

    from relevo.feed.reading.start import Start
    from relevo.kernel.postgres import Database, Transaction, Wakeups

__all__ = ["Export", "Snapshot", "UnitHandle", "UnitLease", "UnitState"]
SQL = catalog.load("relevo.feed")
LEASES = catalog.load("relevo.kernel.leases")
PAUSE_POLL_SECONDS = 0.25
T = TypeVar("T")


class UnitState(Struct, frozen=True, kw_only=True):
    """A unit as it is; "pausing" until nothing runs any more."""

    name: str
    state: UnitPhase
    mode: Mode
    generation: int
    """Grows with every rewind."""
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
    places: tuple[TokenPlace, ...]


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
        row = await find(self._database, self.name)
        leases = await read_leases(self._database, row["id"])
        completed = await bounds.completed(self._database, row["id"], self._container)
        return UnitState(
            name=self.name,
            state=states.phase(leases, completed=completed),
            mode=row["mode"],
            generation=row["generation"],
            leases=tuple(leases),
        )

    async def pause(self, tokens: Collection[str] | None = None) -> None:
        """Stop all work, or that on some leases; returns when nothing of it runs any more.

        Owners finish their batch, checkpoint and let go, so it may take as long as a handler does;
        put a time limit around it if that is too long: the pause stands all the same.
        """

        async def work(locked: LockedUnit) -> tuple[int, set[int]]:
            chosen = locked.chosen(tokens)
            await locked.set_state([one for one in chosen if one.state == "active"], "paused")
            return locked.id, {one.id for one in chosen}

        unit_id, paused = await self._change(work)
        with self._wakeups.signal(f"unit:{unit_id}") as woken:
            while True:
                # With no host left, no other process records that a dead owner has ended.
                await self._database.write(LEASES.end_lapsed_hosts, idempotent=True)
                leases = await read_leases(self._database, unit_id)
                if not any(lease.running for lease in leases if lease.id in paused):
                    return
                await woken.wait(PAUSE_POLL_SECONDS)

    async def resume(self, tokens: Collection[str] | None = None) -> None:
        """Let the work go on; a blocked lease goes on only if it is named."""
        resting = ("paused",) if tokens is None else ("paused", "blocked")

        async def work(locked: LockedUnit) -> None:
            chosen = [one for one in locked.chosen(tokens) if one.state in resting]
            await locked.set_state(chosen, "active")

        await self._change(work)

    async def rewind(
        self, to: Start, tokens: Collection[str] | None = None, *, force: bool = False
    ) -> None:
        """Set positions, backwards or forwards, and forget earlier failures.

        `to` is a `start` of a processor: "now", "beginning", an instant, the name of a
        snapshot, one or several tokens, or LSNs by range. The leases must be paused; `force=True`
        takes them from their owners instead, whose batches cannot move the position any more.
        """

        async def work(locked: LockedUnit) -> None:
            chosen = locked.chosen(tokens)
            check_idle(chosen, force=force)
            await locked.rewind(chosen, await locked.target(to))

        await self._change(work)

    async def snapshot(self, name: str) -> Snapshot:
        """Keep where the unit stands, for `rewind(name)`; one of that name is replaced."""
        if not name or len(name) > limits.NAME_LENGTH_MAX or name in ("now", "beginning"):
            raise InvalidValue(
                f"a snapshot has a name of 1 to {limits.NAME_LENGTH_MAX} characters other than"
                f" 'now' and 'beginning', not {name[:40]!r}"
            )

        async def work(locked: LockedUnit) -> Snapshot:
            places = msgspec.json.encode(await locked.places(locked.leases)).decode()
            row = await locked.tx.fetchrow(
                SQL.save_snapshot, locked.id, name, locked.generation, places
            )
            assert row is not None
            return Snapshot(**row)

        return await self._change(work)

    async def snapshots(self) -> list[Snapshot]:
        """Return the snapshots of the unit, oldest first."""
        row = await find(self._database, self.name)
        rows = await self._database.fetch(SQL.list_snapshots, row["id"])
        return [Snapshot(**one) for one in rows]

    async def export(self) -> str:
        """Return all positions as JSON, for `import_` into a unit over the same container."""
        return msgspec.json.encode(await self.exported()).decode()

    async def exported(self) -> Export:
        """Return what `export` returns, as a value."""

        async def work(locked: LockedUnit) -> Export:
            places = await locked.places(locked.leases)
            return Export(
                container=self._container,
                incarnation=locked.incarnation,
                mode=locked.mode,
                places=places,
            )

        return await self._change(work)

    async def import_(self, exported: str | Export, *, force: bool = False) -> None:
        """Go on at the position of an exported unit, even with other leases; else as `rewind`."""
        given = _checked_export(exported)

        async def work(locked: LockedUnit) -> None:
            if given.incarnation != locked.incarnation:
                raise ContainerRecreated(
                    f"the export is of another container, or of an earlier {self._container!r}"
                )
            if given.mode != locked.mode:
                raise ModeMismatch(f"the export is for mode {given.mode!r}, not {locked.mode!r}")
            check_idle(locked.leases, force=force)
            await locked.rewind(locked.leases, given.places)

        await self._change(work)

    async def tokens(self) -> dict[str, str]:
        """Return a pull token for every lease, to read on from where it stands.

        They are read with the unit's filter; a list of them is a `start` of another unit.
        """

        async def work(locked: LockedUnit) -> dict[str, str]:
            found = {}
            for lease in locked.leases:
                places = await locked.places([lease])
                token = Token(
                    incarnation=locked.incarnation, mode=locked.mode, places=places,
                    filter=locked.filter.digest if locked.filter else None,
                )  # fmt: skip
                found[lease.token] = tokens.encode(token)
            return found

        return await self._change(work)

    async def set_properties(self, token: str, properties: Mapping[str, str]) -> None:
        """Keep a map of texts with a lease, in the place of the one it had.

        `state()` and estimators show it; leases that take the place of this one get it, too.
        """
        _check_properties(properties)
        text = msgspec.json.encode(properties).decode()

        async def work(locked: LockedUnit) -> None:
            (lease,) = locked.chosen([token])
            await locked.tx.execute(SQL.set_properties, lease.id, text)

        await self._change(work)

    async def split_leases(self, n: int, *, force: bool = False) -> None:
        """Halve the leases until there are at least `n`, so that more hosts can share the work.

        They must be paused, or `force=True` takes them from their owners.
        """
        if not 1 <= n <= limits.LEASES_PER_UNIT_MAX:
            raise InvalidValue(f"a unit has 1 to {limits.LEASES_PER_UNIT_MAX} leases, not {n}")

        async def work(locked: LockedUnit) -> None:
            ranges = (await locked.source()).ranges
            pieces = 1
            while pieces * len(locked.leases) < n:
                pieces *= 2
            if pieces == 1:
                return
            check_idle(locked.leases, force=force)
            for lease in locked.leases:
                parts = lease.interval.split(pieces)
                places = [unit.places_of(ranges, part, lease.positions) for part in parts]
                positions = [{place.range_id: place.lsn for place in found} for found in places]
                children = list(zip(parts, positions, strict=True))
                await lease_splitting.replace(locked.tx, lease.id, children)

        await self._change(work)

    async def move(self, token: str, host: str) -> None:
        """Ask for one lease to go to the host of that name, which must serve the unit."""
        await Directory(self._database, self._wakeups).move("feed", self.name, token, to=host)

    async def repair(self, start: Start) -> list[str]:
        """Put leases into the gaps of a unit whose leases do not cover everything; return them.

        They begin at `start`: only the operator can know which changes of the gap were processed.
        """

        async def work(locked: LockedUnit) -> list[str]:
            ranges = (await locked.source()).ranges
            missing = unit.gaps([lease.interval for lease in locked.leases])
            parts = [r.interval.intersect(gap) for gap in missing for r in ranges.over(gap)]
            positions = await locked.positions(parts, await locked.target(start))
            await locked.tx.execute(
                SQL.insert_feed_leases, locked.id,
                [part.low for part in parts], [part.high for part in parts],
                [lease_splitting.position_text(found) for found in positions],
            )  # fmt: skip
            if locked.leases and all(lease.state == "paused" for lease in locked.leases):
                await locked.set_state(await read_leases(locked.tx, locked.id), "paused")
            return [str(part) for part in parts]

        return await self._change(work)

    async def delete(self) -> None:
        """Forget the unit with all its positions; no host may serve it any more."""

        async def work(locked: LockedUnit) -> None:
            serving = [row["name"] for row in await locked.tx.fetch(SQL.live_members, locked.id)]
            if serving:
                raise Conflict(
                    f"unit {self.name} is served by {', '.join(serving)}; stop its processors first"
                )
            await locked.tx.execute(SQL.delete_unit, locked.id)

        await self._change(work, idempotent=False)

    async def _change(
        self, work: Callable[[LockedUnit], Awaitable[T]], *, idempotent: bool = True
    ) -> T:
        """Run `work` in one transaction on the locked unit, then wake whom it concerns."""

        async def locked_work(tx: Transaction) -> tuple[T, LockedUnit]:
            locked = await LockedUnit.lock(tx, self._container, self.name)
            return await work(locked), locked

        result, locked = await self._database.run(locked_work, idempotent=idempotent)
        self._wakeups.send(f"unit:{locked.id}", *(host_topic(owner) for owner in locked.woken))
        return result


def _checked_export(exported: str | Export) -> Export:
    given = exported
    if isinstance(given, str):
        try:
            given = msgspec.json.decode(given, type=Export)
        except (msgspec.DecodeError, UnicodeError) as error:
            raise InvalidValue(f"this is not an export of a unit: {error}") from error
    if given.version != 1:
        raise InvalidValue(f"exports of version {given.version} are not supported")
    if any(place.lsn < 0 for place in given.places):
        raise InvalidValue("an export has positions of 0 and above")
    return given


def _check_properties(properties: Mapping[str, str]) -> None:
    texts: list[Any] = [*properties, *properties.values()]
    if len(properties) > limits.LABELS_MAX or not all(
        isinstance(text, str)
        and "\x00" not in text
        and len(text.encode()) <= limits.LABEL_BYTES_MAX
        for text in texts
    ):
        raise InvalidValue(
            f"properties are at most {limits.LABELS_MAX} texts by name, each of at most"
            f" {limits.LABEL_BYTES_MAX} bytes",
            pointer="/properties",
        )
