"""Batches: several steps on items of one partition key, in one transaction, with one LSN.

Writes of different items are one statement. Otherwise steps go in waves, each with different items,
that share the LSN; a patch or a read sees what the steps before it left. A batch first tries not to
wait for any item; if another transaction holds one, the batch waits for it apart (`waiting`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, assert_never

import msgspec
from msgspec import Struct

from relevo.errors import InvalidValue, RelevoError, TooLarge
from relevo.kernel import cpu
from relevo.kernel.pages import fitting
from relevo.kernel.postgres import pages
from relevo.kernel.postgres.foreign import naming_remedy
from relevo.store import items, patch
from relevo.store.items import ItemKey, ItemWrite, StoredItem
from relevo.store.lifecycle import SQL
from relevo.store.model import Create, Delete, Patch, Read, Replace, Upsert
from relevo.store.writes import (
    DeferredWrites,
    ItemBusy,
    StampedWrites,
    StepRefused,
    stored,
    wait_apart,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import asyncpg

    from relevo.kernel.postgres import Transaction
    from relevo.store.keys import Component
    from relevo.store.model import ContainerInfo, Kind, Step
    from relevo.store.open_container import OpenContainer
    from relevo.store.ranges import RangeMap
    from relevo.store.writes import Writes


class CheckedPatch(Struct, frozen=True):
    """A patch whose operations were checked."""

    key: ItemKey
    operations: list[patch.Operation]
    condition: str | None


class CheckedRead(Struct, frozen=True):
    """A read inside a batch."""

    key: ItemKey


Check = Callable[[str], object]
"""Raises if an item does not fit the caller's model; asked before the commit, so none is left."""
CheckedStep = ItemWrite | CheckedPatch | CheckedRead
"""A step after its checks; only the stored items can still refuse it."""


def ready(step: Step, components: tuple[Component, ...], info: ContainerInfo) -> CheckedStep:
    """Check a step on items of one partition key."""
    match step:
        case Create():
            return _row("create", step.item, None, components, info)
        case Upsert():
            return _row("upsert", step.item, step.if_match, components, info)
        case Replace():
            return _row("replace", step.item, step.if_match, components, info)
        case Patch():
            return CheckedPatch(
                _key(step.id, components),
                patch.checked(step.operations),
                items.checked_etag(step.if_match),
            )
        case Delete():
            condition = items.checked_etag(step.if_match)
            return ItemWrite(kind="delete", key=_key(step.id, components), condition=condition)
        case Read():
            return CheckedRead(_key(step.id, components))
        case _:
            assert_never(step)


def all_ready(
    steps: Sequence[Step], components: tuple[Component, ...], info: ContainerInfo
) -> list[CheckedStep]:
    """Check all steps; raises `StepRefused` for the first that cannot be."""
    found = []
    for index, step in enumerate(steps):
        try:
            found.append(ready(step, components, info))
        except RelevoError as error:
            raise StepRefused(index, error) from error
    return found


async def run(
    opened: OpenContainer,
    steps: Sequence[CheckedStep],
    check: Check,
    tx: Transaction | None = None,
    bytes_max: int | None = None,
) -> list[StoredItem]:
    """Do all steps or none; return the items that they wrote or read, in order.

    Raises `StepRefused`.

    In a transaction of the caller, `tx`, they have no LSN before it commits. `bytes_max` bounds
    the items that steps read or patch, all together.
    """
    for index, step in enumerate(steps):
        if isinstance(step, ItemWrite) and step.text is not None:
            _pass(index, check, step.text)
    if tx is not None:
        return await _join(opened, tx, steps, check)
    try:
        results = await opened.with_ranges(
            lambda ranges: _try(opened, ranges, steps, check, bytes_max)
        )
    except ItemBusy:
        results = await opened.room.wait(
            opened.named(steps[0].key),
            lambda seconds: _wait(opened, steps, check, bytes_max, seconds),
        )
    if not all(isinstance(step, CheckedRead) for step in steps):
        opened.wake()
    return results


async def _try(
    opened: OpenContainer,
    ranges: RangeMap,
    steps: Sequence[CheckedStep],
    check: Check,
    bytes_max: int | None,
) -> list[StoredItem]:
    """Do all steps, unless another transaction holds one of the items: then raises `ItemBusy`."""
    rows = {index: step for index, step in enumerate(steps) if isinstance(step, ItemWrite)}
    if len(rows) == len(steps) == len({step.key for step in steps}):
        done = await StampedWrites(opened, ranges, opened.database.write).write(rows)
        return list(done.values())

    async def work(tx: Transaction) -> list[StoredItem]:
        locked = await _locked(SQL.try_lock_items, opened, tx, steps, bytes_max)
        if any(record["busy"] for record in locked):
            raise ItemBusy
        writes = StampedWrites(opened, ranges, tx.fetch)
        return await _Waves(opened, writes, check, locked, bytes_max).run(steps)

    return await opened.database.run(work)


async def _wait(
    opened: OpenContainer,
    steps: Sequence[CheckedStep],
    check: Check,
    bytes_max: int | None,
    seconds: float,
) -> list[StoredItem]:
    """Do all steps; waits so long for each item that another transaction holds, then `ItemBusy`."""

    async def work(writes: DeferredWrites) -> list[StoredItem]:
        locked = await _locked(SQL.lock_items, opened, writes.tx, steps, bytes_max)
        return await _Waves(opened, writes, check, locked, bytes_max).run(steps)

    return await wait_apart(opened, work, seconds)


async def _join(
    opened: OpenContainer, tx: Transaction, steps: Sequence[CheckedStep], check: Check
) -> list[StoredItem]:
    """Do all steps in the caller's transaction, which can go on if they are refused."""
    async with naming_remedy(), nullcontext() if len(steps) == 1 else tx.transaction():
        writes = DeferredWrites(opened, tx)
        if len(steps) == 1 and isinstance(steps[0], ItemWrite):
            return list((await writes.write({0: steps[0]})).values())
        locked = await _locked(SQL.lock_items, opened, tx, steps, None)
        return await _Waves(opened, writes, check, locked, None).run(steps)


async def _locked(
    sql: str,
    opened: OpenContainer,
    tx: Transaction,
    steps: Sequence[CheckedStep],
    bytes_max: int | None,
) -> list[asyncpg.Record]:
    """Lock the items of a batch; return them, with the bodies that steps read or patch.

    Raises `StepRefused` if these bodies have too many bytes; one alone may be larger.
    """
    ids = sorted({step.key.id for step in steps})
    needed = sorted({step.key.id for step in steps if not isinstance(step, ItemWrite)})
    arguments = opened.info.id, steps[0].key.pk, ids, needed
    if bytes_max is None:
        return await tx.fetch(sql, *arguments)
    found = await pages.read(tx, (sql, *arguments), rows=len(ids), bytes_max=bytes_max)
    if found.more:
        read = {record["id"] for record in found.items}
        beyond = next(index for index, step in enumerate(steps) if step.key.id not in read)
        raise _too_large(beyond, bytes_max)
    return found.items


def _too_large(index: int, bytes_max: int) -> StepRefused:
    return StepRefused(
        index,
        TooLarge(
            f"the items that a batch reads or patches have at most {bytes_max} bytes together, and"
            " these have more; nothing was changed. Send several batches"
        ),
    )


class _Waves:
    """The steps of a batch inside a transaction that has locked their items."""

    def __init__(
        self,
        opened: OpenContainer,
        writes: Writes,
        check: Check,
        locked: Sequence[asyncpg.Record],
        bytes_max: int | None,
    ) -> None:
        self._bytes_max = bytes_max
        self._opened = opened
        self._writes = writes
        self._check = check
        self._locked = {record["id"]: record for record in locked if record["live"]}
        self._now: dict[ItemKey, StoredItem | int] = {}
        """Each item at this point: as it was found, or the number of the step that leaves it."""
        self._texts: dict[ItemKey, str] = {}

    async def run(self, steps: Sequence[CheckedStep]) -> list[StoredItem]:
        for key in {step.key for step in steps}:
            if record := self._locked.get(key.id):
                self._now[key] = stored(key, record)
                self._texts[key] = record["body"]  # none where no step needs it
        rows: dict[int, ItemWrite] = {}
        looks: dict[int, StoredItem | int] = {}
        shown: list[int] = []
        for index, step in enumerate(steps):
            if isinstance(step, CheckedRead):
                looks[index] = self._found(index, step.key)
                _pass(index, self._check, self._texts[step.key])
                shown.append(len(self._texts[step.key]))
                if self._bytes_max and fitting(shown, self._bytes_max) < len(shown):
                    raise _too_large(index, self._bytes_max)
                continue
            rows[index] = (
                await self._patched(index, step) if isinstance(step, CheckedPatch) else step
            )
            self._note(index, rows[index])
        done: dict[int, StoredItem] = {}
        for wave in _waves(rows):
            done |= await self._writes.write(wave)
        for index, seen in looks.items():
            done[index] = done[seen] if isinstance(seen, int) else seen
        return [done[index] for index in range(len(steps))]

    def _found(self, index: int, key: ItemKey) -> StoredItem | int:
        if key not in self._now:
            raise StepRefused(index, self._opened.missing(key))
        return self._now[key]

    async def _patched(self, index: int, step: CheckedPatch) -> ItemWrite:
        before = self._found(index, step.key)
        etag = before.etag if isinstance(before, StoredItem) else None
        if step.condition not in (None, "*", etag):
            raise StepRefused(index, self._opened.mismatch(step.key, step.condition))
        try:
            text = self._texts[step.key]
            row = await cpu.decoded(len(text), _patched, text, step, self._opened.info)
        except RelevoError as error:
            raise StepRefused(index, error) from error
        _pass(index, self._check, row.text or "")
        return row

    def _note(self, index: int, row: ItemWrite) -> None:
        if row.text is None:
            self._now.pop(row.key, None)
        else:
            self._now[row.key], self._texts[row.key] = index, row.text


def _pass(index: int, check: Check, text: str) -> None:
    try:
        check(text)
    except RelevoError as error:
        raise StepRefused(index, error) from error


def _waves(rows: dict[int, ItemWrite]) -> Iterator[dict[int, ItemWrite]]:
    """Cut the writes, in order, so that no wave holds an item twice."""
    wave: dict[int, ItemWrite] = {}
    held: set[ItemKey] = set()
    for index, row in rows.items():
        if row.key in held:
            yield wave
            wave, held = {}, set()
        wave[index] = row
        held.add(row.key)
    if wave:
        yield wave


def _patched(text: str, step: CheckedPatch, info: ContainerInfo) -> ItemWrite:
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
) -> ItemWrite:
    found = items.document(item, info)
    if found.key != _key(found.key.id, components):
        raise InvalidValue(
            f"a batch has one partition key, and this item has another: {found.key.pk}",
            pointer=info.partition_key[0],
        )
    return found.row(kind, items.checked_etag(condition))


def _key(item_id: Any, components: tuple[Component, ...]) -> ItemKey:
    return items.key(items.checked_id(item_id, pointer="id"), components)
