"""Consumers on real hosts: what becomes of messages, slots, sources, hours and pauses."""

from __future__ import annotations

import pytest

from tests.messaging.depot import Depot, Handler

pytestmark = pytest.mark.anyio


async def test_return_completes(depot: Depot) -> None:
    await depot.queue()
    handler = Handler()
    numbers = await depot.send(b"one", b"two", b"three")
    await depot.serve(handler)
    await depot.until_gone(*numbers)
    assert sorted(handler.bodies) == [b"one", b"three", b"two"]
    first = next(msg for msg in handler.seen if msg.body == b"one")
    assert first.sequence_number == numbers[0]
    assert first.delivery_count == first.preempt_count == 0
    assert first.priority_class == "normal"
    assert first.source == "render"
