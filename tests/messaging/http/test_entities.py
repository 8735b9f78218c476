"""Queues, topics, subscriptions and rules over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.messaging.http.conftest import Wire

pytestmark = pytest.mark.anyio


async def test_a_queue_is_made_shown_replaced_changed_listed_and_dropped(wire: Wire) -> None:
    made = await wire.put("queues/render", {"lock_duration": 30, "ordering": {"policy": "fifo"}})
    assert (made["name"], made["lock_duration"], made["version"]) == ("render", 30.0, 1)
    shown = await wire.ask("GET", "queues/RENDER")
    assert shown.headers["ETag"] == '"1"'
    assert shown.json["ordering"] == {"policy": "fifo"}
    assert shown.json["messages"]["active"] == 0
    assert set(shown.json["messages_by_class"]) == {"high", "normal", "low"}
    assert "dead_letter_on_filter_error" not in shown.json

    replaced = await wire.put("queues/render", {"max_delivery_count": 3}, 200)
    assert (replaced["lock_duration"], replaced["max_delivery_count"]) == (60.0, 3)
    changed = await wire.ask("PATCH", "queues/render", {"default_message_ttl": 5})
    assert (changed.json["default_message_ttl"], changed.json["max_delivery_count"]) == (5.0, 3)
    changed = await wire.ask("PATCH", "queues/render", {"default_message_ttl": None})
    assert changed.json["default_message_ttl"] is None
    assert [one["name"] for one in (await wire.get("queues"))["items"]] == ["render"]
    await wire.ask("DELETE", "queues/render", status=204)
    await wire.refused("GET", "queues/render", None, 404, "not_found")


async def test_a_change_needs_the_current_etag_if_it_names_one(wire: Wire) -> None:
    await wire.put("queues/q")
    await wire.ask("PATCH", "queues/q", {"lock_duration": 5}, If_Match='"1"')
    for method in ("PATCH", "PUT"):
        reply = await wire.ask(method, "queues/q", {"lock_duration": 9}, status=412, If_Match='"1"')
        assert reply.json["code"] == "condition_not_met"
    assert (await wire.get("queues/q"))["lock_duration"] == 5.0
    await wire.put("queues/q", {"lock_duration": 9}, 200, If_Match='"2"')
    await wire.put("queues/q", {}, 200, If_Match="*")
    await wire.put("queues/none", {}, 404, If_Match="*")
    await wire.put("queues/q", {}, 409, If_None_Match="*")
    await wire.put("queues/q", {}, 400, If_Match="seven")


async def test_lists_go_by_page(wire: Wire) -> None:
    for number in range(5):
        await wire.put(f"queues/q{number}")
        await wire.put(f"topics/t{number}")
        await wire.put(f"topics/t0/subscriptions/s{number}")
    for path in ("queues", "topics", "topics/t0/subscriptions"):
        first = await wire.get(f"{path}?limit=3")
        last = await wire.get(f"{path}?limit=3&cursor={first['next']}")
        assert (len(first["items"]), len(last["items"]), last["next"]) == (3, 2, None)
    await wire.refused("GET", "topics/none/subscriptions", None, 404, "not_found")


async def test_a_name_with_a_slash_is_one_segment(wire: Wire) -> None:
    await wire.put("queues/mail%2Fout")
    await wire.send("queues/mail%2Fout", "hello")
    (message,) = await wire.claim("queues/mail%2Fout")
    assert message["body"] == "hello"
    assert (await wire.get("queues/mail%2Fout"))["name"] == "mail/out"
    await wire.put("topics/a%2Fb")
    await wire.put("topics/a%2Fb/subscriptions/c%2Fd")
    shown = await wire.get("topics/a%2Fb/subscriptions/c%2Fd")
    assert (shown["name"], shown["topic"]) == ("c/d", "a/b")
    await wire.refused("PUT", "queues/t%2Fsubscriptions%2Fs", {}, 400, "invalid_value")


async def test_kinds_are_told_apart(wire: Wire) -> None:
    await wire.put("topics/orders")
    for method, path, body in (
        ("GET", "queues/orders", None),
        ("DELETE", "queues/orders", None),
        ("PATCH", "queues/orders", {}),
        ("POST", "queues/orders/messages", {"body": "x"}),
        ("POST", "queues/orders/messages:claim", {}),
        ("POST", "queues/orders/messages:purge", {}),
        ("GET", "queues/orders/messages", None),
    ):
        await wire.refused(method, path, body, 404, "not_found")


async def test_bad_properties_are_refused_by_name(wire: Wire) -> None:
    for body, pointer in (
        ({"lock_duration": 0}, "lock_duration"),
        ({"forward_to": "q"}, "forward_to"),
        ({"ordering": {"policy": "magic"}}, "ordering/policy"),
        ({"ordering": {"policy": "aging", "floor": 1}}, "ordering/floor"),
        ({"lock_durations": 3}, "lock_durations"),
        ({"dead_letter_on_filter_error": True}, "dead_letter_on_filter_error"),
    ):
        problem = await wire.refused("PUT", "queues/q", body, 400, "invalid_value")
        assert problem["pointer"].strip("/") == pointer, problem
    await wire.refused("GET", "queues/q", None, 404, "not_found")
    await wire.put("queues/q", {"requires_session": True})
    await wire.refused("PATCH", "queues/q", {"requires_session": False}, 409, "conflict")


async def test_rules_select_and_change_what_a_subscription_gets(wire: Wire) -> None:
    await wire.put("topics/orders")
    at = "topics/orders/subscriptions/high"
    await wire.put(at, {"rules": {"high": {"filter": "Priority = 'high'"}}})
    assert (await wire.get(f"{at}/rules"))["items"] == [
        {"name": "high", "filter": "Priority = 'high'"}
    ]
    made = await wire.put(
        f"{at}/rules/paying",
        {"correlation": {"properties": {"tier": "paying"}}, "action": "SET seen = 1"}, 200,
    )  # fmt: skip
    assert made["correlation"] == {"properties": {"tier": "paying"}}
    assert (await wire.get(f"{at}/rules/PAYING"))["action"] == "SET seen = 1"
    await wire.post(
        "topics/orders/messages:batch",
        {
            "messages": [
                {"body": "a", "properties": {"Priority": "low"}},
                {"body": "b", "properties": {"Priority": "high"}},
                {"body": "c", "properties": {"tier": "paying"}},
            ]
        },
        201,
    )
    found = await wire.claim(at, max_messages=10)
    assert [(one["body"], one["properties"].get("seen")) for one in found] == [
        ("b", None), ("c", 1),
    ]  # fmt: skip
    await wire.ask("DELETE", f"{at}/rules/high", status=204)
    assert [one["name"] for one in (await wire.get(f"{at}/rules"))["items"]] == ["paying"]
    await wire.refused("DELETE", f"{at}/rules/high", None, 404, "not_found")
    await wire.refused("GET", f"{at}/rules/high", None, 404, "not_found")


async def test_a_bad_filter_is_refused_with_its_place(wire: Wire) -> None:
    await wire.put("topics/t")
    await wire.put("topics/t/subscriptions/s")
    path = "topics/t/subscriptions/s/rules/r"
    problem = await wire.refused("PUT", path, {"filter": "a =\n= 1"}, 400, "invalid_expression")
    assert "line 2, column 1" in problem["detail"], problem
    await wire.refused("PUT", path, {"filter": "sys.Nothing = 1"}, 400, "invalid_expression")
    await wire.refused("PUT", path, {}, 400, "invalid_value")
    bad = {"classifier": [["a = = 1", "high"]]}
    await wire.refused("PUT", "queues/q", bad, 400, "invalid_expression")
    await wire.refused("GET", "queues/q", None, 404, "not_found")
