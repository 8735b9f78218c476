"""Messages over HTTP: sent, received, settled and looked at."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from relevo.testing.clock import Clock
from tests.messaging.http.conftest import Wire

if TYPE_CHECKING:
    from tests.http.conftest import Opens, Site

pytestmark = pytest.mark.anyio

QUEUE = "queues/q"


@pytest.fixture
async def queue(wire: Wire) -> str:
    await wire.put(QUEUE)
    return QUEUE


async def test_a_message_comes_back_as_it_was_sent(wire: Wire, queue: str) -> None:
    sent = {
        "body": {"order": 7},
        "properties": {
            "tier": "paying", "n": 2, "real": 2.0, "none": None,
            "id": {"$uuid": "00000000-0000-0000-0000-000000000005"}, "raw": {"$bytes": "AP8="},
            "at": {"$time": "2026-01-02T03:04:05.000006+00:00"}, "span": {"$span": 1500000},
        },
        "priority": 8, "message_id": "m1", "subject": "order", "correlation_id": "c",
        "to": "kitchen", "reply_to": "desk", "content_type": "application/json",
        "fairness_key": "acme", "session_id": "s",
    }  # fmt: skip
    receipt = await wire.post(f"{queue}/messages", sent, 201)
    assert (receipt["message_id"], receipt["duplicate"]) == ("m1", False)
    (message,) = await wire.claim(queue)
    assert {name: message[name] for name in sent} == sent
    assert (message["sequence_number"], message["priority_class"]) == (
        receipt["sequence_number"], "high",
    )  # fmt: skip
    assert message["lock_token"]
    assert message["locked_until"]
    assert message["source"] == "q"


@pytest.mark.parametrize(
    "body", [{"body": "text"}, {"body": ""}, {"body": None}, {"body": [1]}, {"body_base64": "AP8="}]
)
async def test_bodies_are_text_json_or_bytes(wire: Wire, queue: str, body: Any) -> None:
    await wire.post(f"{queue}/messages", body, 201)
    (message,) = await wire.claim(queue)
    assert {name: one for name, one in message.items() if name.startswith("body")} == body


async def test_each_verb_settles(wire: Wire, queue: str) -> None:
    await wire.send(queue, "a")
    (message,) = await wire.claim(queue)
    await wire.settle(queue, message, "renew")
    await wire.settle(queue, message, "abandon")
    (message,) = await wire.claim(queue)
    assert message["delivery_count"] == 1
    await wire.settle(queue, message, "release")
    (message,) = await wire.claim(queue)
    await wire.settle(queue, message, "suspend", checkpoint="Zml2ZQ==")
    (message,) = await wire.claim(queue)
    assert (message["checkpoint"], message["preempt_count"]) == ("Zml2ZQ==", 1)
    await wire.settle(queue, message, "defer")
    assert await wire.claim(queue) == []
    (message,) = await wire.claim(queue, sequence_numbers=[message["sequence_number"]])
    await wire.settle(queue, message, "dead-letter", reason="bad", description="very")
    (message,) = await wire.claim(f"{queue}/dead-letters")
    assert (message["dead_letter_reason"], message["dead_letter_description"]) == ("bad", "very")
    await wire.settle(f"{queue}/dead-letters", message, "complete")
    assert (await wire.get(f"{queue}/dead-letters/messages"))["items"] == []
    await wire.send(queue, "b")
    (message,) = await wire.claim(queue)
    await wire.settle(queue, message, "complete")
    await wire.settle(queue, message, "complete")  # again, over a broken connection
    gone = f"{queue}/locks/{message['lock_token']}:abandon"
    await wire.refused("POST", gone, {}, 410, "message_lock_lost")
    unknown = f"{queue}/locks/00000000-0000-0000-0000-000000000001:complete"
    await wire.refused("POST", unknown, {}, 410, "message_lock_lost")
    await wire.refused("POST", f"{queue}/locks/nonsense:complete", {}, 400, "invalid_value")


async def test_an_abandoned_message_is_invisible_for_its_delay(wire: Wire, queue: str) -> None:
    await wire.send(queue)
    (message,) = await wire.claim(queue)
    await wire.settle(queue, message, "abandon", delay=3600)
    assert await wire.claim(queue) == []
    (waiting,) = (await wire.get(f"{queue}/messages"))["items"]
    assert waiting["visible_at"] > waiting["enqueued_at"]
    both = {"delay": 1, "until": "2031-01-01T00:00:00Z"}
    path = f"{queue}/locks/{message['lock_token']}:abandon"
    await wire.refused("POST", path, both, 400, "invalid_value")


async def test_a_received_and_deleted_message_is_gone(wire: Wire, queue: str) -> None:
    await wire.send(queue)
    (message,) = await wire.claim(queue, mode="receive_and_delete")
    assert "lock_token" not in message
    assert (await wire.get(f"{queue}/messages"))["items"] == []


async def test_one_request_receives_of_several_sources_in_their_order(wire: Wire) -> None:
    for name in ("low", "high"):
        await wire.put(f"queues/{name}")
        await wire.send(f"queues/{name}", name)
    await wire.put("topics/t")
    await wire.put("topics/t/subscriptions/s")
    await wire.send("topics/t", "copy")
    asked = {"sources": ["high", "t/subscriptions/s", "low"], "max_messages": 3}
    found = (await wire.post("messages:claim", asked))["items"]
    assert [one["body"] for one in found] == ["high", "copy", "low"]
    await wire.refused("POST", "messages:claim", {"sources": ["none"]}, 404, "not_found")
    await wire.refused("POST", "messages:claim", {"sources": []}, 400, "invalid_value")


async def test_a_claim_waits_for_the_first_message(wire: Wire, queue: str) -> None:
    asking = asyncio.create_task(wire.claim(queue, wait_seconds=60))
    await _waiting(wire)
    await wire.send(queue, "late")
    (message,) = await asking
    assert message["body"] == "late"


async def test_a_client_that_leaves_takes_no_message_with_it(wire: Wire, queue: str) -> None:
    asking = asyncio.create_task(wire.claim(queue, wait_seconds=60))
    await _waiting(wire)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    while wire.site.services.app.messaging.tools.receiving.waiting:
        await asyncio.sleep(0.005)
    await wire.send(queue, "kept")
    (message,) = await wire.claim(queue)
    assert (message["body"], message["delivery_count"]) == ("kept", 0)


async def test_a_claim_that_is_canceled_on_its_way_leaves_nothing_locked(
    wire: Wire, queue: str
) -> None:
    source = wire.site.services.app.queue("q")
    await wire.send(queue, "kept")
    for turns in range(5):  # canceled before, while and after the statement runs
        claim = asyncio.create_task(source.receive())
        for _ in range(turns):
            await asyncio.sleep(0)
        claim.cancel()
        (found,) = await asyncio.gather(claim, return_exceptions=True)
        for message in found if isinstance(found, list) else ():
            await message.release()
        (waiting,) = (await wire.get(f"{queue}/messages"))["items"]
        assert (waiting["state"], waiting["delivery_count"]) == ("active", 0)


async def _waiting(wire: Wire) -> None:
    """Wait until a claim waits."""
    while not wire.site.services.app.messaging.tools.receiving.waiting:
        await asyncio.sleep(0.005)


async def test_one_bad_message_refuses_the_whole_batch(wire: Wire, queue: str) -> None:
    good = {"body": "x"}
    for bad, pointer in (
        ({"body": "x", "priority": 12}, "messages/1/priority"),
        ({"body": "x", "priority_class": "urgent"}, None),
        ({"body": "x", "properties": {"p": {"nested": 1}}}, "messages/1/properties/p"),
        ({"body": "x", "properties": {"p": {"$uuid": "none"}}}, "messages/1/properties/p"),
        ({"body": "x", "body_base64": ""}, "messages/1/body"),
        ({}, "messages/1/body"),
        ({"body": "x", "session_id": "a", "partition_key": "b"}, "messages/1/partition_key"),
        ({"body": "x", "nonsense": 1}, "messages/1/nonsense"),
    ):
        asked = {"messages": [good, bad]}
        path = f"{queue}/messages:batch"
        problem = await wire.refused("POST", path, asked, 400, "invalid_value")
        assert pointer is None or problem["pointer"].strip("/") == pointer, problem
    assert (await wire.get(queue))["messages"]["sent"] == 0


async def test_what_is_too_large_is_refused(wire: Wire, queue: str) -> None:
    large = {"body": "x" * 300_000}
    await wire.refused("POST", f"{queue}/messages", large, 413, "too_large")
    many = {"messages": [{"body": "x" * 200_000}] * 6}
    await wire.refused("POST", f"{queue}/messages:batch", many, 413, "too_large")
    headers = {"body": "", "properties": {f"p{n}": "x" * 30_000 for n in range(3)}}
    await wire.refused("POST", f"{queue}/messages", headers, 413, "too_large")
    assert (await wire.get(queue))["messages"]["sent"] == 0


async def test_a_full_queue_refuses_more(wire: Wire) -> None:
    await wire.put("queues/small", {"max_size_bytes": 1_048_576})
    batch = {"messages": [{"body": "x" * 250_000}] * 4}
    await wire.post("queues/small/messages:batch", batch, 201)
    await wire.send("queues/small", "x" * 100_000)
    await wire.site.services.app.database.write("select relevo.fold_message_counts()")
    more = {"body": "x" * 100_000}
    await wire.refused("POST", "queues/small/messages", more, 507, "quota_exceeded")


async def test_what_is_missing_or_disabled_is_refused(wire: Wire, queue: str) -> None:
    for method, path, body in (
        ("POST", "queues/none/messages", {"body": "x"}),
        ("POST", "queues/none/messages:batch", {"messages": [{"body": "x"}]}),
        ("POST", "queues/none/messages:claim", {}),
        ("GET", "queues/none/messages", None),
        ("POST", "queues/none/dead-letters:purge", {}),
        ("POST", "queues/none/dead-letters:redrive", {}),
        ("POST", "topics/none/messages", {"body": "x"}),
        ("POST", "topics/none/subscriptions/s/messages:claim", {}),
        ("POST", f"{queue}/messages/77:cancel", {}),
    ):
        problem = (await wire.ask(method, path, body, status=404)).json
        assert problem["code"] in ("not_found", "message_not_found")
    assert (await wire.get("queues"))["items"][0]["name"] == "q"
    await wire.ask("PATCH", queue, {"status": "disabled"})
    await wire.refused("POST", f"{queue}/messages", {"body": "x"}, 409, "entity_disabled")
    await wire.refused("POST", f"{queue}/messages:claim", {}, 409, "entity_disabled")
    await wire.put("queues/s", {"requires_session": True})
    await wire.refused("POST", "queues/s/messages:claim", {}, 409, "conflict")
    await wire.refused("POST", "queues/s/messages", {"body": "x"}, 400, "invalid_value")


async def test_peek_shows_messages_page_by_page_and_in_either_order(wire: Wire, queue: str) -> None:
    for number in range(4):
        await wire.send(queue, number, priority=number * 3)
    await wire.send(queue, "later", at="2099-01-01T00:00:00Z")
    first = await wire.get(f"{queue}/messages?limit=3")
    assert [one["body"] for one in first["items"]] == [0, 1, 2]
    last = await wire.get(f"{queue}/messages?limit=3&cursor={first['next']}")
    assert [(one["body"], one["state"]) for one in last["items"]] == [
        (3, "active"), ("later", "scheduled"),
    ]  # fmt: skip
    assert last["next"] is None
    start = first["items"][1]["sequence_number"]
    assert (await wire.get(f"{queue}/messages?from={start}&limit=1"))["items"][0]["body"] == 1
    ordered = await wire.get(f"{queue}/messages?order=service")
    assert [one["body"] for one in ordered["items"]] == [3, 2, 1, 0]


async def test_a_scheduled_message_is_canceled(wire: Wire, queue: str) -> None:
    receipt = await wire.send(queue, at="2099-01-01T00:00:00Z")
    path = f"{queue}/messages/{receipt['sequence_number']}:cancel"
    await wire.post(path, {}, 204)
    await wire.refused("POST", path, {}, 404, "message_not_found")


async def test_dead_letters_are_redriven_and_purged(wire: Wire, queue: str) -> None:
    for name in ("a", "b"):
        await wire.send(queue, name, properties={"tier": name})
    for message in await wire.claim(queue, max_messages=2):
        await wire.settle(queue, message, "dead-letter", reason="bad")
    moved = await wire.post(f"{queue}/dead-letters:redrive", {"filter": "tier = 'a'", "rate": 100})
    assert moved == {"count": 1}
    assert [one["body"] for one in await wire.claim(queue, max_messages=9)] == ["a"]
    assert await wire.post(f"{queue}/dead-letters:purge") == {"count": 1}
    bad = {"filter": "tier = = 1"}
    await wire.refused("POST", f"{queue}/dead-letters:redrive", bad, 400, "invalid_expression")


@pytest.mark.parametrize("of_subscription", [False, True])
async def test_dead_letters_of_transfers_are_seen_redriven_and_purged(
    wire: Wire, of_subscription: bool
) -> None:
    await wire.put("queues/last")
    source = target = "queues/first"
    if of_subscription:
        target, source = "topics/t", "topics/t/subscriptions/s"
        await wire.put(target)
    await wire.put(source, {"forward_to": "last"})
    await wire.ask("PATCH", "queues/last", {"status": "disabled"})
    for name in ("a", "b"):
        await wire.send(target, name, properties={"tier": name})
    transfers = f"{source}/transfer-dead-letters"
    letters = (await wire.get(f"{transfers}/messages"))["items"]
    assert [(one["body"], one["dead_letter_reason"]) for one in letters] == [
        ("a", "TransferFailed"), ("b", "TransferFailed"),
    ]  # fmt: skip
    number = letters[0]["sequence_number"]
    explained = await wire.post(f"{transfers}/messages/{number}:explain")
    assert explained["reason"] == "dead_lettered"
    await wire.ask("PATCH", "queues/last", {"status": "active"})
    assert await wire.post(f"{source}/dead-letters:redrive") == {"count": 0}
    assert await wire.post(f"{transfers}:redrive", {"filter": "tier = 'a'"}) == {"count": 1}
    assert await wire.post(f"{transfers}:purge") == {"count": 1}
    assert (await wire.claim("queues/last", wait_seconds=20))[0]["body"] == "a"


async def test_waiting_messages_are_reprioritised_explained_and_purged(
    wire: Wire, queue: str
) -> None:
    await wire.ask("PATCH", queue, {"ordering": {"policy": "strict"}})
    for number in range(3):
        await wire.send(queue, number)
    last = (await wire.get(f"{queue}/messages"))["items"][-1]["sequence_number"]
    await wire.post(f"{queue}/messages/{last}:reprioritize", {"priority_class": "high"}, 204)
    path = f"{queue}/messages/{last}:reprioritize"
    await wire.refused("POST", path, {}, 400, "invalid_value")
    (message,) = await wire.claim(queue)
    assert (message["body"], message["priority_class"]) == (2, "high")
    assert await wire.post(f"{queue}/messages:purge", {}) == {"count": 2}


async def test_duplicates_are_told(wire: Wire) -> None:
    await wire.put("queues/once", {"requires_duplicate_detection": True})
    first = await wire.send("queues/once", message_id="m")
    again = await wire.send("queues/once", message_id="m")
    assert (first["duplicate"], again["duplicate"]) == (False, True)


async def test_a_claim_ends_at_the_bytes_of_a_page_and_releases_the_rest(
    open_site: Opens,
) -> None:
    async with open_site(page_bytes=1_024) as site:
        wire = Wire(site)
        await wire.put(QUEUE)
        for _ in range(4):
            await wire.send(QUEUE, "x" * 400)
        for mode in ("peek_lock", "receive_and_delete"):
            found = await wire.claim(QUEUE, max_messages=4, mode=mode)
            assert len(found) == 1
            after = found[0]["sequence_number"] + 1
            (other, *_) = (await wire.get(f"{QUEUE}/messages?from={after}"))["items"]
            assert (other["state"], other.get("delivery_count", 0)) == ("active", 0)


async def test_a_lock_expires(wire: Wire, site: Site) -> None:
    await wire.put(QUEUE, {"lock_duration": 5})
    await wire.send(QUEUE)
    (message,) = await wire.claim(QUEUE)
    await Clock(site.services.app.database).advance(6)
    path = f"{QUEUE}/locks/{message['lock_token']}:complete"
    await wire.refused("POST", path, {}, 410, "message_lock_lost")
