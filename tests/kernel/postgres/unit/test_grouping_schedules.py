"""Whatever the schedule: random calls, keys, orders, cancellations and failures (DESIGN D4)."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct

from relevo.errors import Conflict, InvalidValue, OutcomeUnknown, Unavailable
from relevo.kernel.postgres.grouping import Group
from tests.conftest import examples
from tests.kernel.postgres.unit.groups import Call, Fate, Kind, Store

Plan = list[tuple[str, Call | int]]
"""Calls that are made, ticks of the event loop that pass, cancellations of an earlier call."""


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    steps: Plan = []
    made = 0
    for what in draw(st.lists(st.sampled_from("ccccctx"), min_size=1, max_size=60)):
        if what == "c":
            call = Call(
                made,
                draw(st.integers(0, 5)),
                draw(st.none() | st.integers(0, 2)),
                draw(st.sampled_from(["good"] * 6 + ["refused", "bad"])),
            )
            steps.append(("call", call))
            made += 1
        elif what == "t":
            steps.append(("tick", draw(st.integers(1, 4))))
        elif made:
            steps.append(("cancel", draw(st.integers(0, made - 1))))
    return steps


fates = st.lists(
    st.sampled_from(["commits"] * 6 + ["unavailable", "lost_done", "lost_undone"]), max_size=30
)


class History(Struct):
    store: Store
    calls: list[Call]
    tasks: list[asyncio.Task[str]]
    sent_when_cancelled: dict[int, bool]
    most_waiting: int = 0


async def played(
    plan: Plan,
    store: Store,
    *,
    keyed: bool,
    calls_max: int,
    waiting_max: int,
) -> History:
    group: Group[Call, str] = Group(
        "test",
        store.statement,
        key=(lambda call: call.key) if keyed else None,
        calls_max=calls_max,
        waiting_max=waiting_max,
    )
    seen = History(store, [], [], {})
    for what, value in plan:
        if isinstance(value, Call):
            seen.calls.append(value)
            seen.tasks.append(asyncio.ensure_future(group.call(value, order=value.order)))
        elif what == "cancel":
            if seen.tasks[value].cancel():
                sent = any(seen.calls[value] in wave for wave in store.waves)
                seen.sent_when_cancelled.setdefault(value, sent)
        else:
            for _ in range(value):
                await asyncio.sleep(0)
        seen.most_waiting = max(seen.most_waiting, group.waiting)
    await asyncio.sleep(0)  # who called has been heard
    await asyncio.wait_for(group.close(), timeout=30)
    if seen.tasks:
        await asyncio.wait(seen.tasks, timeout=30)
    return seen


def check_answers(seen: History) -> None:
    applied = Counter(call.number for call in seen.store.applied)
    assert all(count == 1 for count in applied.values())  # nothing twice
    for call, task in zip(seen.calls, seen.tasks, strict=True):
        assert task.done()  # nobody is forgotten
        if task.cancelled():
            if not seen.sent_when_cancelled.get(call.number, True):
                assert not any(call in wave for wave in seen.store.waves)
            continue
        match task.exception():
            case None:
                assert task.result() == f"done {call.number}"
                assert call.number in applied  # acknowledged means done
            case Conflict() as error:
                assert (call.kind, str(error)) == ("refused", f"refused {call.number}")
            case InvalidValue():
                assert call.kind == "bad"
            case OutcomeUnknown():
                pass
            case Unavailable():  # and Closed
                assert call.number not in applied  # known not to have happened
            case error:
                pytest.fail(f"call {call} ended in {error!r}")


def check_order(seen: History, *, keyed: bool) -> None:
    by_key, by_order = defaultdict(list), defaultdict(list)
    for call in seen.store.applied:
        by_key[call.key].append(call.number)
        if call.order is not None:
            by_order[call.order].append(call.number)
    assert all(numbers == sorted(numbers) for numbers in by_order.values())
    if keyed:
        assert all(numbers == sorted(numbers) for numbers in by_key.values())
        for wave in seen.store.waves:
            assert len({call.key for call in wave}) == len(wave)  # each key once


@settings(max_examples=examples(400), deadline=None)
@given(
    plan=plans(),
    fates=fates,
    ticks=st.lists(st.integers(0, 4), max_size=30),
    keyed=st.booleans(),
    calls_max=st.integers(1, 8),
    waiting_max=st.integers(1, 12),
)
def test_any_schedule_gives_each_caller_its_own_answer_once_and_in_order(
    plan: Plan,
    fates: list[Fate],
    ticks: list[int],
    keyed: bool,
    calls_max: int,
    waiting_max: int,
) -> None:
    store = Store(fates, ticks)
    seen = asyncio.run(
        played(plan, store, keyed=keyed, calls_max=calls_max, waiting_max=waiting_max)
    )
    check_answers(seen)
    check_order(seen, keyed=keyed)
    assert all(1 <= len(wave) <= calls_max for wave in store.waves)
    assert seen.most_waiting <= waiting_max


@settings(max_examples=examples(200), deadline=None)
@given(kinds=st.lists(st.sampled_from(["good", "good", "good", "refused", "bad"]), max_size=40))
def test_a_split_isolates_exactly_the_bad_ones(kinds: list[Kind]) -> None:
    async def play() -> tuple[Store, list[str | BaseException]]:
        store = Store()
        group: Group[Call, str] = Group("test", store.statement)
        calls = [group.call(Call(n, n, None, kind)) for n, kind in enumerate(kinds)]
        return store, await asyncio.gather(*calls, return_exceptions=True)

    store, answers = asyncio.run(play())
    expected = {"good": str, "refused": Conflict, "bad": InvalidValue}
    assert [type(answer) for answer in answers] == [expected[kind] for kind in kinds]
    assert [call.number for call in store.applied] == [
        number for number, kind in enumerate(kinds) if kind == "good"
    ]
    bad = kinds.count("bad")
    if not bad:
        assert len(store.waves) == min(1, len(kinds))  # a refusal alone splits nothing
    else:  # each bad one costs its way down a binary tree, never more than the whole tree
        assert len(store.waves) <= min(2 * len(kinds) - 1, 1 + bad * 2 * len(kinds).bit_length())
