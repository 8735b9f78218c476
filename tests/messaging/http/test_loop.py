"""The event loop under the largest requests about messages: none of them holds up the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from tests.http.test_loop import send

if TYPE_CHECKING:
    from tests.http.conftest import Site

pytestmark = pytest.mark.anyio


async def test_no_batch_and_no_page_of_messages_holds_up_the_others(site: Site) -> None:
    queue = "/v1/queues/q"
    await send(site, "PUT", queue, b"{}")
    batches: tuple[tuple[int, dict[str, Any]], ...] = (
        (4_000, {"body": "x" * 150}),
        (4_000, {"body": "x", "properties": {"a": 1, "b": "text", "c": 2.5}, "priority": 3}),
        (1_500, {"body": {"a": [1] * 200}}),
        (5, {"body": "x" * 200_000}),
    )
    for count, message in batches:
        body = msgspec.json.encode({"messages": [message] * count})
        assert (await send(site, "POST", f"{queue}/messages:batch", body)).status == 201
    claimed = await send(site, "POST", f"{queue}/messages:claim", b'{"max_messages": 100}')
    assert len(claimed.json["items"]) == 100
    assert (await send(site, "GET", f"{queue}/messages?limit=500")).status == 200
    assert (await send(site, "GET", f"{queue}/messages?order=service")).status == 200
    assert (await send(site, "GET", "/v1/messages:figures")).status == 200
