"""Topics: each subscription gets its own copy of what its rules select."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from relevo.errors import Conflict, InvalidExpression, InvalidValue
from relevo.messaging import CorrelationRule, Message, SqlRule

if TYPE_CHECKING:
    from relevo import App
    from relevo.testing import Clock
    from tests.messaging.conftest import Post

pytestmark = pytest.mark.anyio


async def bodies(source: Any) -> list[Any]:
    return [one.body for one in await source.receive(100)]


async def test_the_pattern_two_subscriptions_by_priority(app: App) -> None:
    orders = app.topic("orders")
    high = orders.subscription("high", rules={"high": "Priority = 'high'"})
    low = orders.subscription("low", rules={"low": "Priority = 'low'"})
    await high.ensure()
    await low.ensure()
    for level in ("low", "high"):
        await orders.send_many(
            [Message(body=f"{level} {n}", properties={"Priority": level}) for n in range(10)]
        )
    await orders.send("nobody", properties={"Priority": "other"})
    found = await app.receive([high, low], 20)
    assert [one.body for one in found] == [
        f"{level} {n}" for level in ("high", "low") for n in range(10)
    ]
    assert {one.priority_class for one in found[:10]} == {"high"}
    assert (await orders.describe()).messages.unrouted == 1


async def test_copies_follow_from_plain_rules_and_from_actions(app: App) -> None:  # M21
    topic = app.topic("t")
    subscription = topic.subscription(
        "s",
        rules={
            "a": "n > 0", "b": "n > 1",
            "act": SqlRule("n > 2", "SET extra = n * 2; SET sys.Label = 'big'"),
            "same": CorrelationRule(properties={"n": 3}, action="REMOVE n"),
        },
    )  # fmt: skip
    await subscription.ensure()
    await topic.send_many([Message(body=n, properties={"n": n}) for n in range(4)])
    found = sorted(await subscription.receive(10), key=lambda one: (one.body, one.subject or ""))
    assert [(one.body, dict(one.properties), one.subject) for one in found] == [
        (1, {"n": 1}, None), (2, {"n": 2}, None), (3, {"n": 3}, None),
        (3, {"RuleName": "same"}, None), (3, {"n": 3, "extra": 6, "RuleName": "act"}, "big"),
    ] or [(one.body, one.properties.get("RuleName")) for one in found] == [
        (1, None), (2, None), (3, None), (3, "same"), (3, "act"),
    ]  # fmt: skip


async def test_a_failing_filter_affects_its_own_rule_alone(app: App) -> None:  # M22
    topic = app.topic("t")
    strict = topic.subscription("strict", rules={"bad": "1 / n > 0", "good": "n = 0"})
    lax = topic.subscription("lax", rules={"bad": "1 / n > 0"}, dead_letter_on_filter_error=False)
    await strict.ensure()
    await lax.ensure()
    await topic.send("zero", properties={"n": 0})
    assert await bodies(strict) == ["zero"]
    (dead,) = await strict.dead_letters.receive()
    assert dead.body == "zero"
    assert dead.dead_letter_reason
    assert await bodies(lax) == []
    assert (await lax.describe()).messages.filter_errors == 1


async def test_a_rule_counts_for_what_is_sent_after_it(app: App) -> None:  # 18
    topic = app.topic("t")
    subscription = topic.subscription("s", rules={"none": "FALSE"})
    await subscription.ensure()
    await topic.send(1)
    await subscription.set_rule("all", "TRUE")
    await topic.send(2)
    await subscription.remove_rule("all")
    await topic.send(3)
    assert await bodies(subscription) == [2]
    assert set(await subscription.rules()) == {"none"}


async def test_sends_that_overlap_changes_of_rules_are_routed_whole(app: App) -> None:  # 4.1
    topic = app.topic("t")
    left = topic.subscription("left", rules={"r": "TRUE"})
    right = topic.subscription("right", rules={"r": "TRUE"})
    await left.ensure()
    await right.ensure()

    async def change() -> None:
        for n in range(10):
            wanted = "TRUE" if n % 2 else "FALSE"
            await left.set_rule("r", wanted)

    async def send() -> None:
        for n in range(40):
            await topic.send(n)

    await asyncio.gather(change(), send(), send())
    assert len(await right.receive(100)) == 80
    assert len(await left.receive(100)) <= 80


async def test_classes_without_a_word_of_priority(app: App) -> None:  # 7.2, M32
    queue = app.queue("q", classifier=[("tier = 'paying'", "high"), ("tier = 'free'", "low")])
    for tier in ("free", "none", "paying"):
        await queue.send(tier, properties={"tier": tier})
    await queue.update(classifier=[])
    found = await queue.receive(3)
    assert [(one.body, one.priority_class) for one in found] == [
        ("paying", "high"), ("none", "normal"), ("free", "low"),
    ]  # fmt: skip


async def test_a_handle_may_not_send_above_its_class(app: App) -> None:  # M33
    guarded = app.queue("q", max_class="normal")
    await guarded.send(b"x", priority=9)
    (message,) = await guarded.receive()
    assert message.priority_class == "normal"
    assert message.properties == {"RelevoRequestedClass": "high"}


async def test_a_scheduled_message_of_a_topic_is_routed_when_due(
    app: App, post: Post, clock: Clock
) -> None:  # 6.5, 13
    topic = app.topic("t")
    subscription = topic.subscription("s", rules={"r": "FALSE"})
    await subscription.ensure()
    await topic.schedule(Message(b"x"), await app.now() + timedelta(minutes=1))
    await subscription.set_rule("r", "TRUE")
    await clock.advance(timedelta(minutes=2))
    await post.tend()
    await post.accept()
    assert await bodies(subscription) == [b"x"]


async def test_a_priority_topic_has_a_subscription_per_class(app: App) -> None:  # 2
    orders = app.priority_topic("orders", {"high": 8, "low": 2})
    await orders.send("a", properties={"Priority": "high"})
    await orders.send("b", properties={"Priority": "low"})
    assert await bodies(orders["high"]) == ["a"]
    assert await bodies(orders["low"]) == ["b"]
    written = await app.database.fetch("select distinct xmin::text from relevo.message_entity")
    assert len(written) == 1  # by one transaction


@pytest.mark.parametrize(
    ("rule", "error"),
    [
        ("Priority = ", InvalidExpression),
        ("a +", InvalidExpression),
        ("sys.Nothing = 1", InvalidExpression),
        ("5", InvalidExpression),
        (SqlRule("TRUE", "SET a = 1, b = 2"), InvalidExpression),
        (CorrelationRule(), InvalidValue),
    ],
)
async def test_a_bad_rule_is_refused_and_makes_nothing(app: App, rule: Any, error: Any) -> None:
    topic = app.topic("t")
    await topic.ensure()
    with pytest.raises(error):
        await topic.subscription("s", rules={"r": rule}).ensure()
    with pytest.raises(Exception, match="no"):
        await app.messaging.tools.entities.get("t/subscriptions/s")


async def test_circles_of_forwards_are_refused(app: App) -> None:  # 16
    for name in ("a", "b", "c"):
        await app.queue(name).ensure()
    await app.queue("a").update(forward_to="b")
    await app.queue("b").update(forward_to="c")
    with pytest.raises(InvalidValue, match="circle"):
        await app.queue("c").update(forward_to="a")
    with pytest.raises(InvalidValue):
        await app.queue("c").update(forward_to="nowhere")
    with pytest.raises(Conflict):
        await app.queue("a").update(requires_session=True)
