"""Changes that a handler raises on: found, dead-lettered, redriven."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from math import ceil, log2
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from relevo import App, settings
from relevo.errors import Conflict, HandlerError, InvalidValue, NotFound
from relevo.feed.operating.dead_letters import DeadLetters
from relevo.feed.processing import host as processors
from relevo.feed.processing.processor import Processor
from relevo.kernel.leases import Directory
from tests.feed.diner import UNIT, Diner
from tests.feed.test_processor import AT_ONCE, QUICK

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from relevo.feed.model import Change
    from relevo.feed.operating.dead_letters import DeadLetter
    from relevo.feed.processing.context import ChangeContext
    from relevo.kernel.postgres import Database, Wakeups
    from relevo.store import Store

pytestmark = pytest.mark.anyio


@pytest.fixture
async def diner(
    relevo_url: str, database: Database, store: Store, wakeups: Wakeups
) -> AsyncIterator[Diner]:
    async with AsyncExitStack() as stack:
        diner = Diner(relevo_url, store, database, stack)
        await diner.orders.describe()
        yield diner


@pytest.mark.parametrize("grouped", [False, True])
async def test_bad_changes_are_given_up_alone_and_all_others_are_processed(
    diner: Diner, grouped: bool
) -> None:  # P8, P1
    diner.bad = {"5", "13"}
    await (diner.write_as_one_group if grouped else diner.write_one_by_one)(*range(20))
    await diner.open(dead_letter=True, max_attempts=3)
    good = [str(n) for n in range(20) if str(n) not in diner.bad]
    await diner.until(lambda: len(diner.heard("dead_lettered")) == 2, "both are given up")
    await diner.until_delivered(*map(int, good))
    assert sorted(diner.delivered, key=int) == good  # none twice
    letters = await diner.letters.list()
    assert [letter.item_id for letter in letters] == ["5", "13"]
    assert diner.heard("dead_lettered") == letters
    in_isolation = [call for call in diner.calls if len(call) < 20]
    assert len(diner.calls) - len(in_isolation) == 3
    assert len(in_isolation) <= 2 * (2 * ceil(log2(20)) + 3)
    _check_letter(letters[0])


def _check_letter(letter: DeadLetter) -> None:
    assert (letter.reason, letter.error_type, letter.message) == (
        "failed", "ValueError", "cannot take it",
    )  # fmt: skip
    assert letter.attempts == 3
    assert "cannot take it" in letter.traceback
    assert letter.first_failed_at <= letter.last_failed_at
    assert (letter.instance, letter.pk) == ("a", '["x"]')
    assert msgspec.json.decode(letter.body or "")["id"] == letter.item_id
    assert "picky" in letter.handler


async def test_a_change_that_comes_alone_is_given_up_after_max_attempts(diner: Diner) -> None:  # P8
    diner.bad = {"1"}
    await diner.write_one_by_one(1)
    await diner.open(dead_letter=True)
    await diner.until(lambda: bool(diner.heard("dead_lettered")), "given up")
    assert diner.calls == [["1"]] * 5
    assert {type(error) for error in diner.heard("error")} == {HandlerError}  # U5
    await diner.write_one_by_one(2)
    await diner.until_delivered(2)


async def test_the_next_owner_goes_on_where_isolation_was(diner: Diner) -> None:  # P3, P8
    diner.bad = {"3"}
    await diner.write_as_one_group(*range(8))
    reached = asyncio.Event()

    async def until_alone(ctx: ChangeContext, changes: list[Change[Any]]) -> None:
        if [change.id for change in changes] == ["3"]:
            reached.set()
        await diner.picky(ctx, changes)

    first = await diner.open(handler=until_alone, dead_letter=True, max_attempts=50)
    await reached.wait()
    await processors.stop(first)
    before = len(diner.calls)
    await diner.open("b", dead_letter=True, max_attempts=2)
    await diner.until_delivered(0, 1, 2, 4, 5, 6, 7)
    assert diner.calls[before] == ["3"]  # neither the whole batch nor what was done before
    assert sorted(diner.delivered) == ["0", "1", "2", "4", "5", "6", "7"]
    assert [letter.item_id for letter in await diner.letters.list()] == ["3"]


async def test_a_stale_owner_neither_writes_a_letter_nor_moves_on(diner: Diner) -> None:  # P9, L2
    await diner.write_one_by_one(1)
    found: list[tuple[int, Any]] = []

    async def fail(ctx: ChangeContext, changes: list[Change[Any]]) -> None:
        lease_id = ctx.fence.lease_id
        letters = await diner.database.fetchval("select count(*) from relevo.dead_letter")
        position = await diner.database.fetchval(
            "select position from relevo.lease where id = $1", lease_id
        )
        found.append((letters, position))
        if len(found) == 2:  # the failure that condemns it, under an epoch that has passed
            await diner.database.write(
                "update relevo.lease set epoch = epoch + 1 where id = $1", lease_id
            )
        raise ValueError("no")

    await diner.open(handler=fail, dead_letter=True, max_attempts=2)
    await diner.until(lambda: bool(diner.heard("dead_lettered")), "given up by the next owner")
    assert len(found) >= 3
    assert {letters for letters, _ in found} == {0}
    assert len({position for _, position in found}) == 1


async def test_halt_stops_the_lease_behind_the_letter_until_it_is_resumed(diner: Diner) -> None:
    diner.bad = {"2"}
    await diner.write_one_by_one(1, 2, 3)
    processor = await diner.open(dead_letter=True, max_attempts=2, on_poison="halt")
    await diner.until(lambda: "blocked" in diner.heard("released"), "the lease is let go")
    letter = (await diner.letters.list())[0]
    assert (letter.item_id, diner.delivered) == ("2", ["1"])
    assert processor.health().state == "degraded"
    directory = Directory(diner.database, processor._now.poller._wakeups)
    states = {lease.name: lease.state for lease in await directory.leases(unit=UNIT)}
    assert states[letter.token] == "blocked"
    await directory.set_state("feed", UNIT, letter.token, "active")
    await diner.until_delivered(3)
    assert diner.delivered == ["1", "3"]
    assert processor.health().ok


async def test_a_part_that_is_not_confirmed_has_failed(diner: Diner) -> None:  # 10.3
    await diner.write_one_by_one(1, 2, 3)

    async def forgetful(ctx: ChangeContext, changes: list[Change[Any]]) -> None:
        ids = [change.id for change in changes]
        if len(ids) > 1:
            raise ValueError("too many")
        diner.delivered += ids
        if ids != ["2"]:
            await ctx.confirm()

    await diner.open(handler=forgetful, checkpoint="manual", dead_letter=True, max_attempts=2)
    await diner.until_delivered(1, 2, 3)
    await diner.until(lambda: bool(diner.heard("dead_lettered")), "given up")
    assert [letter.item_id for letter in await diner.letters.list()] == ["2"]


async def test_options_that_do_not_fit_are_refused_by_name() -> None:
    async def handler(changes: Any) -> None: ...

    for options, word in [
        ({"dead_letter": True, "on_poison": "explode"}, "explode"),
        ({"max_attempts": 3}, "dead_letter"),
        ({"on_poison": "halt"}, "dead_letter"),
        ({"on_poison": "block_key"}, "dead_letter"),
        ({"dead_letter": True, "max_attempts": 0}, "max_attempts"),
        ({"stall_after": 0.0}, "stall_after"),
        ({"delegate_timeout": -1.0}, "delegate_timeout"),
    ]:
        with pytest.raises(InvalidValue, match=word):
            Processor("orders", "kitchen", handler, **options)  # type: ignore[arg-type]


class Counter:
    """An app whose container has dead letters, and a handler that can be mended."""

    def __init__(self, app: App) -> None:
        self.orders = app.container("orders", "/city", ranges=4)
        self.broken = True
        self.effects: str | None = None
        self.seen: list[tuple[bool, str, int]] = []
        self.orders.processor(
            "kitchen", self.handle, start="beginning", dead_letter=True, max_attempts=1,
            poll_interval=0.05, backoff=AT_ONCE,
        )  # fmt: skip
        self.letters = self.orders.dead_letters

    async def handle(self, ctx: ChangeContext, changes: list[Change[Any]]) -> None:
        if self.broken:
            raise ValueError("broken")
        if ctx.redrive and self.effects:
            async with ctx.transaction() as tx:
                await tx.execute("insert into dishes values ('1')")
                if self.effects == "fail":
                    raise ValueError("after the effect")
        self.seen += [(ctx.redrive, change.id, change.item["n"]) for change in changes]

    async def until_letters(self, count: int) -> list[DeadLetter]:
        async with asyncio.timeout(30):
            while len(found := await self.letters("kitchen").list()) < count:
                await asyncio.sleep(0.01)
        return found


@pytest.fixture
async def counter(relevo_url: str, database: Database) -> AsyncIterator[Counter]:
    app = App(settings=settings.load({**QUICK, "database_url": relevo_url}, environ={}))
    counter = Counter(app)
    async with app.host(name="a"):
        yield counter


async def test_letters_are_redriven_in_order_per_key(counter: Counter) -> None:  # 10.5
    letters = counter.letters("kitchen")
    for n in (1, 2):
        await counter.orders.create({"id": str(n), "city": "x", "n": n})
    first, second = await counter.until_letters(2)
    with pytest.raises(HandlerError, match="failed again"):
        await letters.redrive(first.id)
    assert (await letters.get(first.id)).attempts == first.attempts + 1
    counter.broken = False
    with pytest.raises(Conflict, match="comes first"):
        await letters.redrive(second.id)
    await letters.redrive(first.id)
    await letters.redrive(second.id)
    assert counter.seen == [(True, "1", 1), (True, "2", 2)]
    assert await letters.list() == []
    with pytest.raises(NotFound):
        await letters.get(first.id)
    with pytest.raises(NotFound):
        await letters.redrive(first.id)


async def test_a_redrive_brings_the_current_version_or_the_stored_one(counter: Counter) -> None:
    letters = counter.letters("kitchen")
    for city in ("x", "y"):
        await counter.orders.create({"id": "1", "city": city, "n": 1})
    old = await counter.until_letters(2)
    counter.broken = False
    for city in ("x", "y"):
        await counter.orders.upsert({"id": "1", "city": city, "n": 2})
    await letters.redrive(old[0].id)
    await letters.redrive(old[1].id, image="stored")
    assert [n for redrive, _, n in counter.seen if redrive] == [2, 1]


async def test_a_letter_is_discarded_or_paged_through(counter: Counter) -> None:
    letters = counter.letters("kitchen")
    for n in range(3):
        await counter.orders.create({"id": str(n), "city": "x", "n": n})
    found = await counter.until_letters(3)
    assert await letters.list(limit=1) == found[:1]
    assert await letters.list(found[0].id, 2) == found[1:]
    await letters.discard(found[0].id)
    assert await letters.list() == found[1:]
    with pytest.raises(NotFound):
        await letters.discard(found[0].id)
    with pytest.raises(NotFound, match="nobody"):
        await counter.letters("nobody").list()


async def test_effects_of_a_redrive_and_the_end_of_its_letter_are_one_transaction(
    counter: Counter, database: Database
) -> None:  # 10.5, P5
    await database.run(lambda tx: tx.execute("create table dishes (id text)"))
    await counter.orders.create({"id": "1", "city": "x", "n": 1})
    letter = (await counter.until_letters(1))[0]
    counter.broken = False
    counter.effects = "fail"
    with pytest.raises(HandlerError, match="after the effect"):
        await counter.letters("kitchen").redrive(letter.id)
    assert await database.fetchval("select count(*) from dishes") == 0
    counter.effects = "keep"
    await counter.letters("kitchen").redrive(letter.id)
    assert await database.fetchval("select count(*) from dishes") == 1
    assert await counter.letters("kitchen").list() == []


async def test_a_late_confirmation_leaves_the_trouble_of_a_later_batch_alone(
    diner: Diner,
) -> None:  # P6, P8
    opened: list[ChangeContext] = []

    async def handle(ctx: ChangeContext, changes: list[Change[Any]]) -> None:
        diner.calls.append([change.id for change in changes])
        if "2" in diner.calls[-1]:
            if len(diner.calls) == 3:
                await opened[0].confirm()
            raise ValueError("no")
        opened.append(ctx)

    await diner.write_one_by_one(1, 2)
    await diner.open(
        handler=handle, checkpoint="manual", max_items=1, dead_letter=True, max_attempts=4
    )
    await diner.until(lambda: bool(diner.heard("dead_lettered")), "given up")
    assert diner.calls == [["1"], *[["2"]] * 4]


async def test_a_redrive_needs_an_app_that_has_the_handler(
    counter: Counter, database: Database
) -> None:
    await counter.orders.create({"id": "1", "city": "x", "n": 1})
    letter = (await counter.until_letters(1))[0]
    with pytest.raises(Conflict, match="no processor"):
        await DeadLetters(database, UNIT, None).redrive(letter.id)
