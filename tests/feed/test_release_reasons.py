"""Why a lease is let go, as `on_released` tells it."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from relevo.feed.processing import host as processors
from tests.feed.shop import Shop, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from relevo import App

pytestmark = pytest.mark.anyio


@pytest.fixture
async def shop(relevo_url: str, app: App) -> AsyncIterator[Shop]:
    async with AsyncExitStack() as stack:
        shop = Shop(relevo_url, app, stack)
        await shop.orders.describe()
        yield shop


class Reasons:
    def __init__(self) -> None:
        self.told: list[str] = []
        self.acquired = 0

    @property
    def listeners(self) -> dict[str, Any]:
        return {"on_released": self._released, "on_acquired": self._acquired}

    def _released(self, token: str, reason: str) -> None:
        self.told.append(reason)

    def _acquired(self, token: str, epoch: int) -> None:
        self.acquired += 1


async def test_a_host_that_stops_lets_go_because_of_its_shutdown(shop: Shop) -> None:
    reasons = Reasons()
    async with shop.hosting("a", listeners=reasons.listeners):
        await until(lambda: reasons.acquired == 4, "it has all")
    assert reasons.told == ["shutdown"] * 4


async def test_a_processor_that_stops_lets_go_because_of_its_shutdown(shop: Shop) -> None:
    reasons = Reasons()
    async with shop.hosting("a", listeners=reasons.listeners) as processor:
        await until(lambda: reasons.acquired == 4, "it has all")
        await processors.stop(processor)
        assert reasons.told == ["shutdown"] * 4


@pytest.mark.parametrize("way", ["rewind", "import"])
async def test_a_unit_that_is_rewound_under_its_owners_lets_go_because_of_that(
    shop: Shop, way: str
) -> None:  # 14.2
    reasons = Reasons()
    unit = shop.orders.unit("kitchen")
    async with shop.hosting("a", listeners=reasons.listeners):
        await until(lambda: reasons.acquired == 4, "it has all")
        if way == "rewind":
            await unit.rewind("beginning", force=True)
        else:
            await unit.import_(await unit.export(), force=True)
        await until(lambda: reasons.acquired == 8, "it goes on with all")
        assert reasons.told == ["rewind"] * 4


async def test_other_reasons_stay_what_they_are(shop: Shop) -> None:
    reasons = Reasons()
    unit = shop.orders.unit("kitchen")
    async with shop.hosting("a", listeners=reasons.listeners):
        await until(lambda: reasons.acquired == 4, "it has all")
        await unit.pause()
        assert reasons.told == ["paused"] * 4
        await unit.resume()
        await until(lambda: reasons.acquired == 8, "it has all again")
        await shop.host("b")
        await until(lambda: len(reasons.told) == 6, "the other host has its share")
        assert reasons.told[4:] == ["handoff"] * 2
