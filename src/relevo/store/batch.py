"""Batches: several steps on items of one partition key, in one transaction, with one LSN.

Writes of different items are one statement. Otherwise steps go in waves, each with different items,
that share the LSN; a patch or a read sees what the steps before it left.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, assert_never

import msgspec
from msgspec import Struct

from relevo import cpu
from relevo.errors import InvalidValue, RelevoError
from relevo.store import items, patch
from relevo.store.items import Key, Row, Stored
from relevo.store.lifecycle import SQL
from relevo.store.model import Create, Delete, Patch, Read, Replace, Upsert
from relevo.store.opened import stored

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator, Sequence

    from relevo.postgres import Transaction
    from relevo.store.epk import Component
    from relevo.store.model import ContainerInfo, Kind, Step
    from relevo.store.opened import OpenContainer
    from relevo.store.ranges import RangeMap


class Change(Struct, frozen=True):
    """A patch whose operations were checked."""

    key: Key
    operations: list[patch.Operation]
    condition: str | None


class Look(Struct, frozen=True):
    """A read inside a batch."""

    key: Key


Check = Callable[[str], object]
"""Raises if an item does not fit the caller's model; asked before the commit, so none is left."""
Ready = Row | Change | Look
"""A step that was checked; only what is stored can still refuse it."""


class Refused(Exception):
    """A step could not be done, so nothing was."""

    def __init__(self, index: int, error: RelevoError) -> None:
        super().__init__(index, error)
        self.index = index
        self.error = error


def ready(step: Step, components: tuple[Component, ...], info: ContainerInfo) -> Ready:
    """Check a step on items of one partition key."""
    match step:
        case Create():
            return _row("create", step.item, None, components, info)
        case Upsert():
            return _row("upsert", step.item, step.if_match, components, info)
        case Replace():
            return _row("replace", step.item, step.if_match, components, info)
        case Patch():
            return Change(
                _key(step.id, components),
                patch.checked(step.operations),
                items.checked_etag(step.if_match),
            )
        case Delete():
            condition = items.checked_etag(step.if_match)
            return Row(kind="delete", key=_key(step.id, components), condition=condition)
        case Read():
            return Look(_key(step.id, components))
        case _:
            assert_never(step)


def all_ready(
    steps: Sequence[Step], components: tuple[Component, ...], info: ContainerInfo
) -> list[Ready]:
    """Check all steps; raises `Refused` for the first that cannot be."""
    found = []
    for index, step in enumerate(steps):
        try:
            found.append(ready(step, components, info))
        except RelevoError as error:
            raise Refused(index, error) from error
    return found


async def run(opened: OpenContainer, steps: Sequence[Ready], check: Check) -> list[Stored]:
    """Do all steps or none; return what each left or saw, in order. Raises `Refused`."""
    for index, step in enumerate(steps):
        if isinstance(step, Row) and step.text is not None:
            _pass(index, check, step.text)
    rows = {index: step for index, step in enumerate(steps) if isinstance(step, Row)}
    simple = len(rows) == len(steps) == len({step.key for step in steps})

    async def at_once(ranges: RangeMap) -> list[Stored]:
        done = await _write(opened, opened.database.write, ranges, rows)
        return list(done.values())

    async def in_waves(ranges: RangeMap) -> list[Stored]:
        return await opened.database.run(lambda tx: _Waves(opened, ranges, tx, check).run(steps))

    results = await opened.with_ranges(at_once if simple else in_waves)
    if not all(isinstance(step, Look) for step in steps):
        opened.wake()
    return results


class _Waves:
    """A batch in a transaction of its own."""

    def __init__(
        self, opened: OpenContainer, ranges: RangeMap, tx: Transaction, check: Check
    ) -> None:
        self._opened = opened
        self._check = check
        self._ranges = ranges
        self._tx = tx
        self._now: dict[Key, Stored | int] = {}
        """Each item at this point: as it was found, or the number of the step that leaves it."""
        self._texts: dict[Key, str] = {}

    async def run(self, steps: Sequence[Ready]) -> list[Stored]:
        await self._lock([step.key for step in steps])
        rows: dict[int, Row] = {}
        looks: dict[int, Stored | int] = {}
        for index, step in enumerate(steps):
            if isinstance(step, Look):
                looks[index] = self._found(index, step.key)
                _pass(index, self._check, self._texts[step.key])
                continue
            rows[index] = await self._patched(index, step) if isinstance(step, Change) else step
            self._note(index, rows[index])
        done: dict[int, Stored] = {}
        for wave in _waves(rows):
            lsn = next(iter(done.values())).lsn if done else None
            first = (lsn, 2 * len(done))
            done |= await _write(self._opened, self._tx.fetch, self._ranges, wave, first)
        for index, seen in looks.items():
            done[index] = done[seen] if isinstance(seen, int) else seen
        return [done[index] for index in range(len(steps))]

    async def _lock(self, keys: Sequence[Key]) -> None:
        """Take every lock on items before the first stamp lock (change-feed 4.2)."""
        by_id = {key.id: key for key in keys}
        ids, pk = sorted(by_id), keys[0].pk
        home = self._ranges.at(keys[0].epk).id
        await self._tx.execute(SQL.lock_keys, [pk] * len(ids), ids, [home] * len(ids))
        for record in await self._tx.fetch(SQL.lock_items, self._opened.info.id, pk, ids):
            if record["live"]:
                key = by_id[record["id"]]
                self._now[key] = stored(key, record)
                self._texts[key] = record["body"]

    def _found(self, index: int, key: Key) -> Stored | int:
        if key not in self._now:
            raise Refused(index, self._opened.missing(key))
        return self._now[key]

    async def _patched(self, index: int, step: Change) -> Row:
        before = self._found(index, step.key)
        etag = before.etag if isinstance(before, Stored) else None
        if step.condition not in (None, "*", etag):
            raise Refused(index, self._opened.mismatch(step.key, step.condition))
        try:
            text = self._texts[step.key]
            row = await cpu.decoded(len(text), _patched, text, step, self._opened.info)
        except RelevoError as error:
            raise Refused(index, error) from error
        _pass(index, self._check, row.text or "")
        return row

    def _note(self, index: int, row: Row) -> None:
        if row.text is None:
            self._now.pop(row.key, None)
        else:
            self._now[row.key], self._texts[row.key] = index, row.text


def _pass(index: int, check: Check, text: str) -> None:
    try:
        check(text)
    except RelevoError as error:
        raise Refused(index, error) from error


async def _write(
    opened: OpenContainer,
    execute: Callable[..., Awaitable[list[Any]]],
    ranges: RangeMap,
    rows: dict[int, Row],
    first: tuple[int | None, int] = (None, 0),
) -> dict[int, Stored]:
    """Write different items as one call; by the numbers of their steps."""
    given = list(rows.values())
    records = await execute(
        SQL.write_items, *opened.arguments(ranges, given, [1] * len(given), first)
    )
    done = {}
    for (index, row), record in zip(rows.items(), records, strict=True):
        result = opened.result(row, record)
        if isinstance(result, Stored):
            done[index] = result
        elif record["outcome"] != "skipped":  # for the sake of another one, which is named
            raise Refused(index, result)
    return done


def _waves(rows: dict[int, Row]) -> Iterator[dict[int, Row]]:
    """Cut the writes, in order, so that no wave holds an item twice."""
    wave: dict[int, Row] = {}
    held: set[Key] = set()
    for index, row in rows.items():
        if row.key in held:
            yield wave
            wave, held = {}, set()
        wave[index] = row
        held.add(row.key)
    if wave:
        yield wave


def _patched(text: str, step: Change, info: ContainerInfo) -> Row:
    """Return the write that a patch comes to; id and partition key stay as they are."""
    after = items.document(patch.apply(msgspec.json.decode(text), step.operations), info)
    if after.key != step.key:
        raise InvalidValue(
            "a patch cannot change an item's id or partition key; create a new item and delete"
            " the old one",
            pointer="/operations",
        )
    return after.row("replace", step.condition)


def _row(
    kind: Kind,
    item: Any,
    condition: str | None,
    components: tuple[Component, ...],
    info: ContainerInfo,
) -> Row:
    found = items.document(item, info)
    if found.key != _key(found.key.id, components):
        raise InvalidValue(
            f"a batch is about one partition key, and this item has {found.key.pk}",
            pointer=info.partition_key[0],
        )
    return found.row(kind, items.checked_etag(condition))


def _key(item_id: Any, components: tuple[Component, ...]) -> Key:
    return items.key(items.checked_id(item_id, pointer="id"), components)
