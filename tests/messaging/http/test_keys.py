"""Keys that are bound to queues, topics and classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.messaging.http.conftest import Wire

if TYPE_CHECKING:
    from tests.http.conftest import Site

pytestmark = pytest.mark.anyio


async def key(wire: Wire, **fields: Any) -> Wire:
    made = await wire.post("keys", {"name": "k", "roles": ["admin"], **fields}, 201)
    return Wire(wire.site, made["secret"])


async def test_a_scoped_key_reaches_its_queues_and_topics_only(wire: Wire) -> None:
    await wire.put("queues/mail-1")
    await wire.put("queues/pay")
    await wire.put("topics/orders")
    await wire.put("topics/orders/subscriptions/all")
    bound = await key(wire, scopes=["queue:mail-*", "topic:orders"])
    await bound.send("queues/mail-1")
    await bound.send("topics/orders")
    assert len(await bound.claim("topics/orders/subscriptions/all")) == 1
    for method, path, body in (
        ("POST", "queues/pay/messages", {"body": "x"}),
        ("POST", "queues/pay/messages:claim", {}),
        ("GET", "queues", None),
        ("PUT", "queues/new", {}),
        ("POST", "messages:claim", {"sources": ["mail-1", "pay"]}),
        ("POST", "messages:claim", {"sources": ["mail/subscriptions/x"]}),
        ("POST", "messages:claim", {"sources": ["pay/$DeadLetterQueue"]}),
    ):
        await bound.refused(method, path, body, 403, "forbidden")
    found = await bound.post(
        "messages:claim", {"sources": ["mail-1", "orders/subscriptions/all"], "max_messages": 9}
    )
    assert [one["source"] for one in found["items"]] == ["mail-1"]


async def test_a_key_with_a_highest_class_sends_no_higher(wire: Wire, site: Site) -> None:
    await wire.put("queues/q")
    lowered = await key(wire, max_class="normal")
    await lowered.send("queues/q", "a", priority=9, priority_class="high")
    await lowered.send("queues/q", "b", priority=1)
    found = await wire.claim("queues/q", max_messages=9)
    assert {one["body"]: one["priority_class"] for one in found} == {"a": "normal", "b": "low"}
    (high,) = [one for one in found if one["body"] == "a"]
    assert high["properties"] == {"RelevoRequestedClass": "high"}
    strict = await key(wire, max_class="normal", max_class_mode="reject")
    problem = await strict.refused(
        "POST", "queues/q/messages", {"body": "x", "priority": 9}, 403, "forbidden"
    )
    assert "normal" in problem["detail"]
    batch = {"messages": [{"body": "x"}, {"body": "x", "priority": 9}]}
    await strict.refused("POST", "queues/q/messages:batch", batch, 403, "forbidden")
    await strict.send("queues/q", "c", priority=6)
    assert (await wire.get("queues/q"))["messages"]["sent"] == 3


async def test_a_bound_key_makes_only_keys_with_its_bound(wire: Wire) -> None:
    bound = await key(wire, max_class="low")
    new = {"name": "n", "roles": ["producer"]}
    await bound.refused("POST", "keys", new, 403, "forbidden")
    made = await bound.post("keys", {**new, "max_class": "low"}, 201)
    assert (made["key"]["max_class"], made["key"]["max_class_mode"]) == ("low", "downgrade")
    mode = {**new, "max_class_mode": "reject"}
    await wire.refused("POST", "keys", mode, 400, "invalid_value")
