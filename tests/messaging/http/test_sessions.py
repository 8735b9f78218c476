"""Sessions over HTTP."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.messaging.http.conftest import Wire

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["queue", "subscription"])
async def talks(wire: Wire, request: pytest.FixtureRequest) -> tuple[str, str]:
    """The route of something with sessions, and of what is sent to."""
    if request.param == "queue":
        await wire.put("queues/talks", {"requires_session": True})
        return "queues/talks", "queues/talks"
    await wire.put("topics/t")
    await wire.put("topics/t/subscriptions/talks", {"requires_session": True})
    return "topics/t/subscriptions/talks", "topics/t"


async def test_a_session_is_accepted_received_and_closed(
    wire: Wire, talks: tuple[str, str]
) -> None:
    source, destination = talks
    for number in range(3):
        await wire.send(destination, number, session_id="ana")
    await wire.send(destination, "other", session_id="bea")
    listed = (await wire.get(f"{source}/sessions"))["items"]
    assert [(one["session_id"], one["held"]) for one in listed] == [("ana", False), ("bea", False)]

    held = await wire.post(f"{source}/sessions/ana:accept")
    assert held["session_id"] == "ana"
    assert held["locked_until"]
    path = f"{source}/sessions/ana:accept"
    await wire.refused("POST", path, {}, 409, "session_taken")
    holder = {"holder": held["holder"]}
    found = await wire.post(f"{source}/sessions/ana/messages:claim", {**holder, "max_messages": 9})
    assert [one["body"] for one in found["items"]] == [0, 1, 2]
    await wire.settle(source, found["items"][0], "complete")
    renewed = await wire.post(f"{source}/sessions/ana:renew", holder)
    assert renewed["locked_until"] >= held["locked_until"]

    state = f"{source}/sessions/ana/state"
    assert await wire.get(f"{state}?holder={held['holder']}") == {"state": None}
    await wire.ask("PUT", state, {**holder, "state": "Zml2ZQ=="}, status=204)
    assert await wire.get(f"{state}?holder={held['holder']}") == {"state": "Zml2ZQ=="}
    await wire.ask("PUT", state, holder, status=204)
    assert await wire.get(f"{state}?holder={held['holder']}") == {"state": None}
    await wire.post(f"{source}/sessions/ana:close", holder, 204)
    await wire.refused("POST", f"{source}/sessions/ana:renew", holder, 410, "session_lock_lost")

    following = (await wire.post(f"{source}/sessions:accept"))["session"]
    assert (following["session_id"], following["holder"]) == ("ana", held["holder"] + 1)
    old = await wire.refused(
        "POST", f"{source}/sessions/ana:close", holder, 410, "session_lock_lost"
    )
    assert "accept it again" in old["detail"]


async def test_the_next_session_is_waited_for(wire: Wire, talks: tuple[str, str]) -> None:
    source, destination = talks
    assert await wire.post(f"{source}/sessions:accept") == {"session": None}
    asking = asyncio.create_task(wire.post(f"{source}/sessions:accept", {"wait_seconds": 60}))
    await wire.send(destination, session_id="late")
    assert (await asking)["session"]["session_id"] == "late"


async def test_sessions_are_where_they_are_required(wire: Wire) -> None:
    await wire.put("queues/plain")
    await wire.refused("POST", "queues/plain/sessions/x:accept", {}, 409, "conflict")
    await wire.refused("POST", "queues/plain/sessions:accept", {}, 409, "conflict")
    await wire.refused("GET", "queues/none/sessions", None, 404, "not_found")
