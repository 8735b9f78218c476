"""What a `Group` promises, one behaviour at a time (DESIGN D4)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from relevo.errors import Closed, InternalError, OutcomeUnknown, Unavailable
from relevo.kernel.postgres.grouping import Group
from relevo.kernel.telemetry.metrics import Metrics
from tests.kernel.postgres.unit.groups import Call, Gate, Store

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.anyio


def started(
    group: Group[int, int], *calls: int, order: int | None = None
) -> list[asyncio.Task[int]]:
    return [asyncio.ensure_future(group.call(call, order=order)) for call in calls]


async def settled() -> None:
    """Lets every task run that can."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_an_idle_group_sends_a_call_at_once_and_alone() -> None:
    store = Store()
    group: Group[Call, str] = Group("test", store.statement)
    assert await group.call(Call(1, 0, None)) == "done 1"
    assert [len(wave) for wave in store.waves] == [1]


async def test_what_arrives_while_a_statement_is_under_way_is_the_next_group() -> None:
    gate = Gate()
    group: Group[int, int] = Group("test", gate.statement)
    first = started(group, 1)
    await gate.under_way()
    others = started(group, *range(2, 30))
    await settled()
    gate.let_through(2)
    assert await asyncio.gather(*first, *others) == [2 * n for n in range(1, 30)]
    assert gate.waves == [[1], list(range(2, 30))]
    assert (group.calls, group.statements) == (29, 2)


async def test_overlapping_groups_do_not_wait_for_each_other_and_are_all_answered() -> None:
    open_ = {1: asyncio.Event(), 4: asyncio.Event()}
    sent: list[list[int]] = []

    async def statement(calls: Sequence[int]) -> list[int]:
        sent.append(list(calls))
        await open_[calls[0]].wait()
        return [2 * call for call in calls]

    group: Group[int, int] = Group("test", statement, overlapping=True, calls_max=3)
    tasks = started(group, 1, 2, 3, 4, 5)
    await settled()
    assert sent == [[1, 2, 3], [4, 5]]
    tasks[0].cancel()
    open_[4].set()
    assert await asyncio.gather(*tasks[3:]) == [8, 10]
    closing = asyncio.ensure_future(group.close())
    await settled()
    assert not closing.done()
    open_[1].set()
    await closing
    assert await asyncio.gather(*tasks[1:3]) == [4, 6]
    with pytest.raises(Closed):
        await group.call(6)


async def test_two_calls_on_one_key_go_in_successive_waves_and_others_do_not_wait_for_them() -> (
    None
):
    gate = Gate()
    group: Group[int, int] = Group("test", gate.statement, key=lambda call: call % 10)
    tasks = started(group, 1, 11, 2, 21, 3)
    gate.let_through(3)
    await asyncio.gather(*tasks)
    assert gate.waves == [[1, 2, 3], [11], [21]]


async def test_a_call_held_back_by_its_key_holds_back_later_ones_of_its_order() -> None:
    gate = Gate()
    group: Group[int, int] = Group("test", gate.statement, key=lambda call: call % 10)
    tasks = [*started(group, 1), *started(group, 11, 2, order=7), *started(group, 3)]
    gate.let_through(2)
    await asyncio.gather(*tasks)
    assert gate.waves == [[1, 3], [11, 2]]


async def test_thousands_of_calls_on_one_key_are_done_in_order() -> None:
    done: list[int] = []

    async def statement(calls: Sequence[int]) -> list[None]:
        done.extend(calls)
        return [None] * len(calls)

    group: Group[int, None] = Group("test", statement, key=lambda _: 0, calls_max=50)
    await asyncio.gather(*(group.call(number) for number in range(3_000)))
    assert done == list(range(3_000))


async def test_lanes_work_side_by_side_and_keep_the_order_within_each() -> None:
    gate = Gate()
    group: Group[int, int] = Group("test", gate.statement, lane=lambda call: call % 2, lanes=2)
    tasks = started(group, 1, 2)
    await settled()
    assert gate.waves == [[1], [2]]  # both under way
    tasks += started(group, 3, 4, 5, 6)
    await settled()
    gate.let_through(4)
    assert await asyncio.gather(*tasks) == [2, 4, 6, 8, 10, 12]
    assert sorted(gate.waves[2:]) == [[3, 5], [4, 6]]


async def test_a_full_group_lets_callers_wait_outside_and_takes_them_in_turn() -> None:
    gate = Gate()
    group: Group[int, int] = Group("test", gate.statement, calls_max=2, waiting_max=3)
    tasks = started(group, 0)
    await gate.under_way()
    tasks += started(group, *range(1, 9))
    await settled()
    assert group.waiting == 3
    tasks[5].cancel()  # outside
    tasks[2].cancel()  # inside
    latecomer = started(group, 9)
    gate.let_through(6)
    await asyncio.wait([*tasks, *latecomer])
    assert gate.waves == [[0], [1, 3], [4, 6], [7, 8], [9]]


async def test_a_cancelled_caller_whose_group_is_on_the_way_does_not_disturb_its_neighbours() -> (
    None
):
    store = Store(ticks=[3])
    group: Group[Call, str] = Group("test", store.statement)
    tasks = [asyncio.ensure_future(group.call(Call(n, n, None))) for n in range(3)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(store.waves) == 1
    tasks[1].cancel()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert [answers[0], answers[2]] == ["done 0", "done 2"]
    assert isinstance(answers[1], asyncio.CancelledError)
    assert [call.number for call in store.applied] == [0, 1, 2]  # whole, not half


async def test_close_finishes_what_was_accepted_and_refuses_the_rest() -> None:
    gate = Gate()
    group: Group[int, int] = Group("test", gate.statement, waiting_max=2)
    inside = started(group, 0)
    await gate.under_way()
    inside += started(group, 1, 2)
    outside = started(group, 3)
    await settled()
    closing = asyncio.ensure_future(group.close())
    await settled()
    assert not closing.done()
    gate.let_through(2)
    await closing
    assert [task.result() for task in inside] == [0, 2, 4]
    assert isinstance(outside[0].exception(), Closed)
    with pytest.raises(Closed):
        await group.call(4)
    await group.close()  # again is fine


@pytest.mark.parametrize("ticks", [0, 1, 4])
async def test_a_group_that_is_cut_off_leaves_nobody_waiting(ticks: int) -> None:
    gate = Gate()
    group: Group[int, int] = Group("test", gate.statement, calls_max=2, waiting_max=3)
    tasks = started(group, *range(7))
    await asyncio.sleep(0)
    for _ in range(ticks):
        await asyncio.sleep(0)
    pumps = [task for task in asyncio.all_tasks() if task.get_name() == "group test"]
    assert len(pumps) == 1
    pumps[0].cancel()
    await group.close()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    unknown = [isinstance(answer, OutcomeUnknown) for answer in answers]
    assert unknown == [ticks > 0] * 2 + [False] * 5  # only those whose statement was under way
    assert all(isinstance(answer, Closed | OutcomeUnknown) for answer in answers)


async def test_a_group_that_is_cut_off_while_it_is_split_leaves_nobody_waiting() -> None:
    async def statement(calls: Sequence[int]) -> list[int]:
        if len(calls) > 2:
            raise ValueError("too many at once")
        await asyncio.Event().wait()
        return []

    group: Group[int, int] = Group("test", statement)
    tasks = started(group, *range(8))
    await settled()
    for task in asyncio.all_tasks():
        if task.get_name() == "group test":
            task.cancel()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(answer) for answer in answers] == [OutcomeUnknown] * 2 + [Closed] * 6


async def test_when_the_store_is_away_nobody_is_blamed_and_nothing_is_split() -> None:
    store = Store(fates=["unavailable"])
    group: Group[Call, str] = Group("test", store.statement)
    answers = await asyncio.gather(
        *(group.call(Call(n, n, None)) for n in range(9)), return_exceptions=True
    )
    assert [type(answer) for answer in answers] == [Unavailable] * 9
    assert len({id(answer) for answer in answers}) == 9  # each its own
    assert len(store.waves) == 1


class Stubborn(Exception):
    """Cannot be copied: it is not made from its `args`."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} and {second}")


async def test_an_error_that_cannot_be_copied_still_reaches_its_callers() -> None:
    async def statement(_: Sequence[int]) -> list[int]:
        raise Stubborn(1, 2)

    group: Group[int, int] = Group("test", statement)
    answers = await asyncio.gather(*(group.call(n) for n in range(3)), return_exceptions=True)
    assert [str(answer) for answer in answers] == ["1 and 2"] * 3


async def test_a_statement_that_answers_too_few_is_our_own_fault() -> None:
    async def statement(calls: Sequence[int]) -> list[int]:
        return list(calls)[:-1]

    group: Group[int, int] = Group("test", statement)
    with pytest.raises(InternalError, match="0 results to 1 calls"):
        await group.call(1)


async def test_a_key_that_cannot_be_hashed_fails_its_own_call_only() -> None:
    gate = Gate()
    keys: list[Any] = [0, []]
    group: Group[int, int] = Group("test", gate.statement, key=lambda call: keys[call])
    good = started(group, 0)
    with pytest.raises(TypeError):
        await group.call(1)
    gate.let_through()
    assert await asyncio.gather(*good) == [0]


async def test_calls_and_statements_are_counted() -> None:
    metrics, store = Metrics(), Store()
    group: Group[Call, str] = Group("orders", store.statement, metrics=metrics)
    await asyncio.gather(*(group.call(Call(n, n, None)) for n in range(5)))
    text = metrics.render().decode()
    assert 'relevo_group_calls_total{group="orders"} 5.0' in text
    assert 'relevo_group_statements_total{group="orders"} 1.0' in text


async def test_a_group_serves_one_event_loop_after_the_other() -> None:
    store = Store()
    group: Group[Call, str] = Group("test", store.statement)
    await group.call(Call(0, 0, None))
    answer = await asyncio.to_thread(lambda: asyncio.run(group.call(Call(1, 0, None))))
    assert answer == "done 1"
