"""Traces of messages: from the send to the handler, in properties that any program can read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from relevo import RetryLater
from relevo.errors import InvalidValue
from relevo.messaging import Message
from tests.jobs.office import until
from tests.support.spans import ids, is_child, linked

if TYPE_CHECKING:
    from relevo.messaging.running.context import Received
    from tests.messaging.consumers.depot import Depot
    from tests.support.spans import Spans

pytestmark = pytest.mark.anyio
FOREIGN = f"00-{'a' * 32}-{'b' * 16}-01"


async def test_a_message_is_processed_in_the_trace_of_its_send(depot: Depot, spans: Spans) -> None:
    seen: list[Any] = []

    async def draw(message: Received) -> None:
        seen.append(message.properties)
        if message.delivery_count == 0:
            raise RetryLater(0)

    await depot.queue()
    receipt = await depot.client.queue("render").send("x", properties={"tier": 1})
    await depot.serve(draw)
    await until(lambda: len(spans.named("process render")) == 2, "two deliveries")
    send, (first, second) = spans.one("send render"), spans.named("process render")
    assert send.attributes is not None
    assert first.attributes is not None
    assert send.attributes["messaging.message.id"] == receipt.message_id
    assert first.attributes["messaging.message.id"] == receipt.message_id
    assert first.attributes["relevo.consumers"] == "drawers"
    assert is_child(first, of=send)
    assert (second.parent, linked(second)) == (None, {ids(send)})
    assert seen[0] == {
        "tier": 1,
        "traceparent": "00-{:032x}-{:016x}-03".format(*ids(send)),
    }


async def test_a_batch_is_linked_to_its_messages_and_keeps_what_its_sender_says(
    depot: Depot, spans: Spans
) -> None:
    async def draw(messages: list[Received]) -> None: ...

    await depot.queue()
    own = [Message(body="a", properties={"traceparent": FOREIGN}), Message(body="b")]
    await depot.client.queue("render").send_many(own)
    await depot.serve(draw, batch=2)
    await until(lambda: bool(spans.named("process render")), "it has run")
    run, send = spans.one("process render"), spans.one("send render")
    assert run.parent is None
    assert linked(run) == {ids(send), (int("a" * 32, 16), int("b" * 16, 16))}
    assert run.attributes is not None
    assert run.attributes["messaging.batch.message_count"] == 2
    assert own[1].properties == {}


async def test_bad_messages_are_refused_as_ever(depot: Depot, spans: Spans) -> None:
    await depot.queue()
    bad: Any = [Message(body="a", properties=["x"])]  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match="properties"):
        await depot.client.queue("render").send_many(bad)
    assert spans.one("send render").attributes is not None


async def test_nothing_is_added_where_nothing_is_collected(depot: Depot) -> None:
    await depot.queue()
    await depot.send("x")
    assert [row["head"] for row in await depot.rows()] == [None]
