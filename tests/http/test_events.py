"""The event log over HTTP: pages, filters, and streams that go on exactly where they were."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from relevo.http import event_pages
from tests.http.routing import Wire
from tests.http.test_routing_workers import listening
from tests.webhooks.receiver import COOKED, Kitchen

if TYPE_CHECKING:
    from tests.http.conftest import Site

pytestmark = pytest.mark.anyio
KITCHEN = "/v1/events?types=kitchen.*"


def kitchen(site: Site) -> Kitchen:
    site.services.app.events.catalogue.register(COOKED)
    return Kitchen(site.services.app, None)  # type: ignore[arg-type]


def numbers(items: list[Any]) -> list[int]:
    return [one["data"]["number"] for one in items]


async def test_events_are_read_in_pages_by_type_and_condition(site: Site) -> None:
    shop = kitchen(site)
    await shop.cook(*range(6))
    await shop.cook(6, lane="cold", pipeline=1)
    first = (await site.ask("GET", f"{KITCHEN}&limit=4", key="viewer")).json
    assert numbers(first["items"]) == [0, 1, 2, 3]
    target = f"{KITCHEN}&continuation={first['continuation']}"
    rest = (await site.ask("GET", target, key="viewer")).json
    assert numbers(rest["items"]) == [4, 5, 6]
    assert {one["specversion"] for one in rest["items"]} == {"1.0"}
    cold = "/v1/events?format=eventgrid&filter=data.lane%20=%20'cold'"
    (found,) = (await site.ask("GET", cold, key="viewer")).json["items"]
    assert (found["eventType"], found["data"]["number"]) == ("kitchen.dish.cooked", 6)
    none = (await site.ask("GET", "/v1/events?types=relevo.job.*", key="viewer")).json
    assert (none["items"], none["caught_up"]) == ([], True)
    for query, key, status in (
        ("filter=lane%20=%201", "viewer", 400),
        ("filter=" + "(" * 400, "viewer", 400),
        ("start=yesterday", "viewer", 400),
        ("continuation=x", "viewer", 400),
        ("limit=0", "viewer", 400),
        ("", "producer", 403),
    ):
        reply = await site.ask("GET", f"/v1/events?{query}", key=key)
        assert reply.status == status, (query, reply.body)


async def test_a_stream_goes_on_exactly_where_it_was_cut_off(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop, wire = kitchen(site), Wire(site)
    await shop.cook(0, 1, 2)
    await shop.cook(100, pipeline=3)
    async with listening(wire, f"{KITCHEN}&limit=500") as stream:
        seen = [await stream.next() for _ in range(2)]
    await shop.cook(3, dish="tea")
    # In the middle of a page that was read at once: the next ones come, and none twice.
    async with listening(wire, KITCHEN, Last_Event_ID=seen[-1]["id"]) as stream:
        seen += [await stream.next() for _ in range(3)]
        await shop.cook(4)
        seen.append(await stream.next())
    shown = [msgspec.json.decode(one["data"])["data"]["number"] for one in seen]
    assert shown[:3] == [0, 1, 2]
    assert sorted(shown) == [0, 1, 2, 3, 4, 100]
    assert {one["event"] for one in seen} == {"event"}
    # A filter that takes nothing still tells the client where it is.
    monkeypatch.setattr(event_pages, "SIGN_OF_LIFE_SECONDS", 0.0)
    async with listening(wire, "/v1/events?types=relevo.job.*") as stream:
        told = await stream.next()
    assert (told["event"], told["data"]) == ("position", "{}")
    async with listening(wire, KITCHEN, Last_Event_ID=told["id"]) as stream:
        await shop.cook(5)
        assert msgspec.json.decode((await stream.next())["data"])["data"]["number"] == 5
