"""Histories of actors are linearizable, while their hosts are killed and frozen and slots move."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.actors.hosts.histories import Histories, Operation, fault_of

if TYPE_CHECKING:
    from tests.actors.hosts.site import Site

ACTORS = 24
CALLERS = 12
CALLS_PER_FAULT = 500


@pytest.mark.anyio
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("operations", [1_500, pytest.param(100_000, marks=pytest.mark.soak)])
async def test_histories_are_linearizable(
    site: Site, operations: int
) -> None:  # I22, I24, I27, I31
    seed = random.randrange(2**32)
    print("seed", seed)
    dice = random.Random(seed)
    await site.start("a", "b", "c")
    histories = Histories(site.app, ACTORS)
    site.ledgers.append(histories)
    histories.start(CALLERS)
    while histories.calls < operations:
        wanted = histories.calls + CALLS_PER_FAULT
        await site.cluster.until(lambda n=wanted: histories.calls >= n, "there is load")  # type: ignore[misc]
        name = dice.choice("abc")
        if dice.random() < 0.3:
            await site.bring(dice.choice(histories.keys), name)
        elif dice.random() < 0.3:
            site.cluster.nodes[name].freeze()
            await site.until_shared(*{"a", "b", "c"} - {name})
            site.cluster.nodes[name].thaw()
        else:
            site.cluster.nodes[name].kill()
            await site.cluster.start(name)
    await histories.stop()
    await histories.check()
    assert histories.outcomes["ok"]
    print(dict(histories.outcomes))


@given(st.data(), st.lists(st.booleans(), min_size=1, max_size=30))
def test_what_runs_one_after_the_other_is_linearizable(
    data: st.DataObject, appends: list[bool]
) -> None:
    tags: list[str] = []
    history = []
    for number, is_append in enumerate(appends):
        early, late = data.draw(st.integers(0, 5)), data.draw(st.integers(0, 5))
        one = Operation(number - early / 2, f"t{number}" if is_append else None, number + late / 2)
        if is_append:
            tags.append(f"t{number}")
        one.count, one.outcome = len(tags), data.draw(st.sampled_from(["ok", "unknown"]))
        if one.outcome == "unknown":
            one.returned = float("inf")
        history.append(one)
    data.draw(st.randoms()).shuffle(history)
    assert fault_of(history, tags) is None


@pytest.mark.parametrize(
    ("history", "tags"),
    [
        ([Operation(0, "a", 1, "ok", 1), Operation(2, None, 3, "ok", 0)], ["a"]),  # a stale read
        ([Operation(0, "a", 1, "ok", 1)], []),  # a lost append
        ([Operation(0, "a", 1, "ok", 1)], ["a", "a"]),  # a doubled one
        ([Operation(0, "a", outcome="not run")], ["a"]),
        ([Operation(0, "a", 1, "ok", 1)], ["a", "b"]),  # one that nobody made
        ([Operation(0, "a", 1, "ok", 2), Operation(2, "b", 3, "ok", 1)], ["b", "a"]),
        ([Operation(0, None, 1, "ok", 1), Operation(2, "a")], ["a"]),  # a read of the future
    ],
)
def test_other_histories_are_not(history: list[Operation], tags: list[str]) -> None:
    assert fault_of(history, tags) is not None
