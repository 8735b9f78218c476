"""Calls reach their actors on other hosts, also while slots move."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.actors.hosts.site import Site

pytestmark = pytest.mark.anyio


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("moves", [12, pytest.param(10_000, marks=pytest.mark.soak)])
async def test_moves_under_load_cost_no_caller_an_error(
    site: Site, moves: int
) -> None:  # I2, I3, I7, I9
    await site.start("a", "b")
    ledger = site.ledger(actors=4)
    ledger.start(callers=12, kinds=("add", "add", "id"))
    for number in range(moves):
        key = ledger.keys[number % len(ledger.keys)]
        owner = await site.app.actors.owner(site.ref(key))
        target = "b" if owner == "a" else "a"
        await site.bring(key, target)
    await ledger.stop()
    assert not ledger.errors
    await ledger.check()
    await site.check()
    print(f"{moves} moves, {ledger.calls} calls, 0 errors")
