"""Live pages: what viewers share, and that a slow page holds up no other."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from relevo.dashboard.live import Rendered, Samplers

if TYPE_CHECKING:
    from relevo.kernel.operation import Sent

pytestmark = pytest.mark.anyio


async def first(samplers: Samplers, key: str, render: object) -> Sent:
    async for sent in samplers.follow(key, render):  # type: ignore[arg-type]
        if sent is not None:
            return sent
    raise AssertionError("the stream has ended")


async def test_a_page_that_does_not_answer_holds_up_no_other_and_is_tried_again() -> None:
    samplers = Samplers(seconds_per_statement=0.0, render_seconds=0.05)
    tries = 0

    async def slow() -> Rendered:
        nonlocal tries
        tries += 1
        if tries != 3:
            await asyncio.Event().wait()
        return Rendered({"live_a": "late"}, 1)

    async def quick() -> Rendered:
        return Rendered({"live_a": "soon"}, 1)

    waiting = [asyncio.create_task(first(samplers, "slow", slow)) for _ in range(2)]
    async with asyncio.timeout(20):
        assert (await first(samplers, "quick", quick)).data == {"live_a": "soon"}
        assert [(await each).data for each in waiting] == [{"live_a": "late"}] * 2
    assert tries <= 4  # the two viewers shared their renderings


async def test_a_page_that_fails_is_tried_again() -> None:
    samplers = Samplers(seconds_per_statement=0.0)
    tries = 0

    async def failing() -> Rendered:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise RuntimeError("once")
        return Rendered({"live_a": "now"}, 1)

    async with asyncio.timeout(20):
        assert (await first(samplers, "a", failing)).data == {"live_a": "now"}
