"""`on_poison="block_key"`: later changes of a key wait behind its dead letter, in order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from relevo.errors import Conflict, HandlerError
from relevo.feed.operating.dead_letters import DeadLetters
from tests.feed.diner import UNIT, Diner
from tests.feed.test_poison import diner

if TYPE_CHECKING:
    from relevo.feed.operating.dead_letters import DeadLetter
    from relevo.feed.processing.processor import Processor

__all__ = ["diner"]
pytestmark = pytest.mark.anyio
BLOCK: dict[str, Any] = {"dead_letter": True, "max_attempts": 2, "on_poison": "block_key"}


async def write(diner: Diner, city: str, *numbers: int) -> None:
    for n in numbers:
        await diner.orders.upsert({"id": str(n), "city": city})


async def parked(diner: Diner) -> list[DeadLetter]:
    return sorted(await diner.letters.list(), key=lambda one: (one.lsn, one.ordinal))


async def blocked(diner: Diner, **options: Any) -> tuple[Processor, DeadLetters]:
    """A unit in which 1 of x is given up, and 2 and 3 of x wait behind it."""
    diner.bad = {"1"}
    processor = await diner.open(**BLOCK, **options)
    await write(diner, "x", 1)
    await diner.until(lambda: bool(diner.heard("dead_lettered")), "1 is given up")
    await write(diner, "x", 2, 3)
    await write(diner, "y", 10, 11)
    await diner.until_delivered(10, 11)
    letters: list[DeadLetter] = []
    while len(letters) < 3:
        letters = await parked(diner)
    assert [(one.item_id, one.reason) for one in letters] == [
        ("1", "failed"), ("2", "parked"), ("3", "parked"),
    ]  # fmt: skip
    return processor, DeadLetters(diner.database, UNIT, processor)


async def test_later_changes_of_the_key_wait_in_order_and_others_go_on(
    diner: Diner,
) -> None:  # P8, F4
    _, letters = await blocked(diner)
    assert not {"1", "2", "3"} & set(diner.delivered)
    first, second, _ = await parked(diner)
    with pytest.raises(Conflict, match="comes first"):
        await letters.redrive(second.id)
    diner.bad.clear()
    await letters.redrive(first.id)  # those behind it follow
    assert diner.delivered[-3:] == ["1", "2", "3"]
    assert await diner.letters.list() == []
    await write(diner, "x", 4)
    await diner.until_delivered(4)  # the key is free again
    assert diner.delivered.count("2") == 1


async def test_a_redrive_that_fails_on_the_way_leaves_the_rest_parked(diner: Diner) -> None:
    _, letters = await blocked(diner)
    diner.bad = {"2"}
    first, *_ = await parked(diner)
    with pytest.raises(HandlerError):
        await letters.redrive(first.id)
    left = await parked(diner)
    assert [(one.item_id, one.reason) for one in left] == [("2", "failed"), ("3", "parked")]
    await write(diner, "x", 4)
    while len(left) < 3:
        left = await parked(diner)
    diner.bad.clear()
    await letters.redrive(left[0].id)
    assert diner.delivered[-3:] == ["2", "3", "4"]
    assert await diner.letters.list() == []


async def test_what_waits_behind_a_discarded_letter_is_redriven_from_its_first(
    diner: Diner,
) -> None:
    _, letters = await blocked(diner)
    first, second, _ = await parked(diner)
    await letters.discard(first.id)
    assert len(await parked(diner)) == 2
    await letters.redrive(second.id)
    assert diner.delivered[-2:] == ["2", "3"]
    assert "1" not in diner.delivered
    await write(diner, "x", 4)
    await diner.until_delivered(4)


async def test_the_next_owner_goes_on_parking(diner: Diner) -> None:  # P1, L2
    await blocked(diner)
    await diner.hosts["a"].aclose()
    await diner.open("b", **BLOCK)
    await write(diner, "x", 4)
    await write(diner, "y", 12)
    await diner.until_delivered(12)
    left = await parked(diner)
    while len(left) < 4:
        left = await parked(diner)
    assert [one.item_id for one in left] == ["1", "2", "3", "4"]
    assert not {"1", "2", "3", "4"} & set(diner.delivered)


async def test_keys_are_blocked_in_lanes_and_with_transactions_too(diner: Diner) -> None:  # P7
    async def effect(ctx: Any, changes: Any) -> None:
        async with ctx.transaction():
            await diner.picky(ctx, changes)

    processor, letters = await blocked(diner, lanes=4, handler=effect)
    diner.bad.clear()
    await letters.redrive((await parked(diner))[0].id)
    assert [one for one in diner.delivered if one in "123"] == ["1", "2", "3"]
    assert processor.health().ok


async def test_without_the_policy_later_changes_of_the_key_go_on(diner: Diner) -> None:
    diner.bad = {"1"}
    await diner.open(dead_letter=True, max_attempts=2)
    await write(diner, "x", 1, 2, 3)
    await diner.until_delivered(2, 3)
    assert [one.reason for one in await diner.letters.list()] == ["failed"]
