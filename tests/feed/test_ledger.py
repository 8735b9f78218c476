"""The checker is held against histories that are known to be wrong, and a processor made wrong."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec
import pytest

from relevo import App, settings
from relevo.feed.processing import host as processors
from relevo.feed.reading import log as reading
from relevo.feed.service import FeedPart
from relevo.kernel.leases.hosts import instant
from relevo.testing import trace
from relevo.testing.trace import OwnerChange, Violation
from tests.feed import ledger
from tests.feed.ledger import Call, History, Trouble
from tests.feed.test_processor import AT_ONCE, QUICK
from tests.support.parts import serve

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from relevo.feed import FeedContainer
    from relevo.kernel.postgres import Database
    from tests.feed.ledger import Delivered

pytestmark = pytest.mark.anyio
LEASE = "00-FF"
A, B = UUID(int=1), UUID(int=2)


def moved(epoch: int, owner: UUID, old: UUID | None, *, clean: bool = True) -> OwnerChange:
    return OwnerChange(
        seq=epoch, lease_id=1, unit="u", name=LEASE, strict=False,
        old_owner=old, owner=owner, old_epoch=epoch - 1, epoch=epoch, clean=clean,
    )  # fmt: skip


def call(host: str, epoch: int, began: float, *changes: Delivered, returned: bool = True) -> Call:
    return Call(host, LEASE, epoch, began, list(changes), ended=began + 1, returned=returned)


def a_run() -> History:
    """Host a, then, after a was killed at 35, host b; the last call of a is made again by b."""
    x1, y1, x2 = ("x", 1, 1, 1), ("y", 2, 1, 1), ("x", 3, 1, 2)
    pair = [("x", 4, 1, 3), ("y", 4, 3, 2)]
    y3, x4 = ("y", 5, 1, 3), ("x", 6, 1, 4)
    calls = [
        call("a", 1, 10, x1, y1),
        call("a", 1, 20, x2),
        call("a", 1, 30, *pair),
        call("b", 2, 40, *pair, y3),
        call("b", 2, 50, x4),
    ]
    truth = {change for one in calls for change in one.changes}
    return History(
        mode="all_versions", truth=truth, versions=set(truth),
        acknowledged={(item_id, lsn) for item_id, lsn, _, _ in truth}, calls=calls,
        troubles=[Trouble("a", 31, 35, killed=True)],
        owners=[moved(1, A, None), moved(2, B, A, clean=False)],
    )  # fmt: skip


def test_a_run_in_which_all_went_well_is_believed() -> None:
    ledger.check(a_run())


def test_every_single_loss_is_caught() -> None:
    changes = a_run().truth
    for lost in changes:
        history = a_run()
        for one in history.calls:
            one.changes = [change for change in one.changes if change != lost]
        with pytest.raises(Violation, match=r"P[14]"):
            ledger.check(history)
    for number in (0, 1, 3, 4):  # what call 2 did was done again
        history = a_run()
        history.calls[number].returned = False
        with pytest.raises(Violation, match="P1: never completed"):
            ledger.check(history)


def completed_twice_under_one_epoch(history: History) -> None:
    history.calls.insert(2, call("a", 1, 25, *history.calls[1].changes))


def completed_twice_over_a_move_in_order(history: History) -> None:
    history.owners = [moved(1, A, None), moved(2, B, A)]
    history.troubles = []


def completed_twice_long_after_the_trouble(history: History) -> None:
    history.calls.append(call("b", 2, 60, *history.calls[-1].changes))


def versions_change_places_in_a_call(history: History) -> None:
    history.calls[0].changes = [("x", 3, 1, 2), ("y", 2, 1, 1)]
    history.calls[1].changes = [("x", 1, 1, 1)]


def an_older_version_comes_late(history: History) -> None:
    late = history.calls[0].changes.pop(0)
    history.calls[4].changes.append(late)


def a_group_is_cut(history: History) -> None:
    history.calls[3].changes.remove(("y", 4, 3, 2))
    history.calls[4].changes.insert(0, ("y", 4, 3, 2))


def what_was_undone_is_delivered(history: History) -> None:
    history.calls[4].changes.append(("z", 7, 1, 1))


def an_acknowledged_write_is_gone(history: History) -> None:
    history.acknowledged.add(("z", 7))


def a_call_without_changes(history: History) -> None:
    history.calls.append(call("b", 2, 60))


def two_calls_at_a_time(history: History) -> None:
    history.calls[0].ended = 22


def an_owner_comes_back_under_an_old_epoch(history: History) -> None:
    history.calls[4].epoch = 1
    history.calls[4].host = "c"


def an_owner_without_an_epoch(history: History) -> None:
    second = msgspec.structs.replace(moved(2, B, A, clean=False), old_epoch=2)
    history.owners = [moved(1, A, None), second]


@pytest.mark.parametrize(
    ("mutate", "told"),
    [
        (completed_twice_under_one_epoch, "B4"),
        (completed_twice_over_a_move_in_order, "B4"),
        (completed_twice_long_after_the_trouble, "B4"),
        (versions_change_places_in_a_call, "F4"),
        (an_older_version_comes_late, "F4"),
        (a_group_is_cut, "F5"),
        (what_was_undone_is_delivered, "F3"),
        (an_acknowledged_write_is_gone, "F6"),
        (a_call_without_changes, "P4"),
        (two_calls_at_a_time, "P2"),
        (an_owner_comes_back_under_an_old_epoch, "P2"),
        (an_owner_without_an_epoch, "L1"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_what_must_not_happen_is_caught(mutate: Callable[[History], None], told: str) -> None:
    history = a_run()
    mutate(history)
    with pytest.raises(Violation, match=f"^{told}: "):
        ledger.check(history)


def test_a_zombie_may_end_late_and_counts_for_nothing() -> None:
    history = a_run()
    history.calls[2].ended = 44.2
    history.troubles = [Trouble("a", 31, 44)]
    ledger.check(history)
    history.calls.insert(4, call("a", 1, 44.5, ("x", 3, 1, 2)))
    ledger.check(history)


def test_changes_go_one_by_one_after_crashes() -> None:  # F5
    history = a_run()
    one, two = history.calls[2].changes
    history.calls[3:4] = [
        call("b", 3, 40, one), call("b", 3, 42, two), call("b", 3, 44, ("y", 5, 1, 3)),
    ]  # fmt: skip
    history.calls[-1].epoch = 3
    with pytest.raises(Violation, match=r"^F5: "):
        ledger.check(history)
    history.owners = [*history.owners, moved(3, A, B, clean=False)]
    ledger.check(history)


def test_older_versions_never_show_in_the_latest_feed() -> None:
    history = a_run()
    history.mode = "latest"
    ledger.check(history)
    history.calls.append(call("b", 3, 60, ("x", 4, 1, 3)))
    history.owners = [*history.owners, moved(3, A, B, clean=False)]
    with pytest.raises(Violation, match="F4"):
        ledger.check(history)


def test_wrong_effects_are_caught() -> None:  # P5
    truth = a_run().truth
    applied: list[ledger.Effect] = [
        (f"{lsn}:{ordinal}", item_id, version)
        for item_id, lsn, ordinal, version in sorted(truth, key=lambda change: change[1:3])
    ]
    ledger.check_effects(applied, truth)
    for wrong in ([*applied, applied[0]], applied[1:], [applied[2], *applied[:2], *applied[3:]]):
        with pytest.raises(Violation, match=r"^P5: "):
            ledger.check_effects(wrong, truth)


async def test_a_position_that_goes_back_is_caught(database: Database) -> None:  # L3
    await trace.install(database)
    await database.run(lambda tx: tx.execute(ledger.POSITIONS))
    note = """insert into relevo_trace.position (lease_id, epoch, position)
              values (1, 1, jsonb_build_object('7', $1::int)) returning seq"""
    for lsn in (1, 5, 5):
        await database.write(note, lsn)
    await ledger.check_positions(database)
    await database.write(note, 4)
    with pytest.raises(Violation, match=r"^L3: "):
        await ledger.check_positions(database)


FORGETFUL = """
create function forget() returns trigger language plpgsql as $$
begin
  new.position := old.position;
  return new;
end $$;
create trigger forget before update of position on relevo.lease
  for each row execute function forget();
"""


class Mill:
    """A host in this process, whose calls are kept as a cluster's hosts keep theirs."""

    def __init__(self, app: App, orders: FeedContainer[Any], database: Database) -> None:
        self._app = app
        self.orders = orders
        self.database = database
        self.calls: list[Call] = []
        self.processor = orders.processor(
            "mill", self.grind, mode="all_versions", start="beginning", max_items=4,
            poll_interval=0.02, backoff=AT_ONCE,
        )  # fmt: skip

    async def grind(self, ctx: Any, changes: list[Any]) -> None:
        kept = [(c.id, c.lsn, c.ordinal, c.item["version"]) for c in changes]
        one = Call("a", ctx.lease_token, ctx.epoch, instant(), kept)
        self.calls.append(one)
        await asyncio.sleep(0)
        one.ended, one.returned = instant(), True

    async def run(self, until: Callable[[set[Delivered]], bool]) -> History:
        """Deliver until told, and return what the witnesses say."""
        await serve(self._app, FeedPart)
        truth = await ledger.committed(self.orders, "all_versions")
        done: set[Delivered] = set()
        while not until(done):
            await asyncio.sleep(0.01)
            done = {c for one in self.calls if one.returned for c in one.changes}
        await processors.stop(self.processor)
        return History(
            mode="all_versions", truth=truth, versions=truth, acknowledged=set(),
            calls=list(self.calls), troubles=[],
            owners=await trace.owner_changes(self.database),
        )  # fmt: skip


@pytest.fixture
async def mill(database: Database, relevo_url: str) -> AsyncIterator[Mill]:
    await trace.install(database)
    async with AsyncExitStack() as stack:
        app = App(settings=settings.load({**QUICK, "database_url": relevo_url}, environ={}))
        await stack.enter_async_context(app.host(name="a"))
        orders = app.container("orders", "/key", ranges=1, versions=timedelta(days=1))
        await orders.describe()
        for version in range(1, 9):
            for number in range(3):
                await orders.upsert({"id": f"i{number}", "key": "k", "version": version})
        yield Mill(app, orders, database)


def last_is_done(done: set[Delivered]) -> bool:
    """The end was delivered; whoever misses something by now will miss it for ever."""
    return any(version == 8 for _, _, _, version in done)


def mutate_reading(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[tuple[Any, ...]], tuple[Any, ...]]
) -> None:
    """Have every batch of several changes go through `change`, between the store and the worker."""
    right = reading.read

    async def wrong(*args: Any, **options: Any) -> Any:
        batch = await right(*args, **options)
        if len(batch.changes) < 2:
            return batch
        return msgspec.structs.replace(batch, changes=change(batch.changes))

    monkeypatch.setattr(reading, "read", wrong)


async def test_a_sound_processor_passes(mill: Mill) -> None:
    ledger.check(await mill.run(lambda done: len(done) == 24))


async def test_a_processor_that_skips_a_change_is_caught(
    mill: Mill, monkeypatch: pytest.MonkeyPatch
) -> None:  # P1
    mutate_reading(monkeypatch, lambda changes: changes[1:])
    with pytest.raises(Violation, match=r"^P1: "):
        ledger.check(await mill.run(last_is_done))


async def test_a_processor_that_turns_changes_round_is_caught(
    mill: Mill, monkeypatch: pytest.MonkeyPatch
) -> None:  # F4
    mutate_reading(monkeypatch, lambda changes: changes[::-1])
    with pytest.raises(Violation, match=r"^F4: "):
        ledger.check(await mill.run(lambda done: len(done) == 24))


async def test_a_processor_that_forgets_its_position_is_caught(mill: Mill) -> None:  # B4
    await mill.database.run(lambda tx: tx.execute(FORGETFUL))
    await mill.run(lambda done: len(done) == 24)
    made = len(mill.calls)
    with pytest.raises(Violation, match=r"^B4: "):
        ledger.check(await mill.run(lambda done: len(mill.calls) > made))
