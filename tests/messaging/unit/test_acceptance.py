"""Which copies a message becomes, of which class, and how long each lives."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relevo.errors import EntityDisabled, Forbidden, InvalidValue
from relevo.messaging.core.acceptance import (
    Acceptance,
    Definition,
    Outgoing,
    accepted,
    predicate,
)
from relevo.messaging.core.content import check_message
from relevo.messaging.core.entities import defined
from relevo.messaging.core.heads import Asked, decoded_head
from relevo.messaging.core.rules import TopicRules, compiled
from relevo.messaging.model import EntityKind, Message, PriorityClass, SqlRule

Rules = dict[str, str | SqlRule]
NOW = datetime(2026, 1, 1, tzinfo=UTC)
HIGH, NORMAL, LOW = 1, 2, 3
BASES = {HIGH: 8, NORMAL: 4, LOW: 1}


def entity(kind: EntityKind = "queue", *, id: int = 1, path: str = "q", **given: Any) -> Definition:  # noqa: A002
    properties = defined(kind, given)
    return Definition(
        id=id,
        kind=kind,
        name=path.rpartition("/")[2],
        path=path,
        version=10 * id,
        properties=properties,
        numbers={one.name.lower(): n for n, one in enumerate(properties.classes, 1)},
        classifier=tuple((predicate(text), name) for text, name in properties.classifier),
    )


def topic(
    rules: dict[str, Rules], options: dict[str, dict[str, Any]] | None = None, **given: Any
) -> Definition:
    compiled_rules = TopicRules()
    subscriptions = {}
    for number, (name, each) in enumerate(rules.items(), 100):
        path = f"t/subscriptions/{name}"
        subscriptions[name] = entity(
            "subscription", id=number, path=path, **(options or {}).get(name, {})
        )
        for rule_name, rule in each.items():
            compiled_rules.set(name, rule_name, compiled(rule))
    whole = entity("topic", id=5, path="t", **given)
    return msgspec.structs.replace(whole, subscriptions=subscriptions, rules=compiled_rules)


def outgoing(message: Message | None = None, **fields: Any) -> Outgoing:
    message = message or Message(b"body")
    return Outgoing(message, check_message(message), message.message_id or "m", **fields)


def sent(place: Definition, message: Message | None = None, **fields: Any) -> Acceptance:
    return accepted([(place, outgoing(message, **fields))], now=NOW)


def dead(found: Acceptance, n: int = 0) -> dict[str, str]:
    text = found.deads[n]
    assert text is not None
    return dict(msgspec.json.decode(text))


def test_columns_stand_in_the_order_of_the_statement() -> None:
    queue = entity()
    found = accepted(
        [
            (queue, outgoing(Message("text", message_id="a", priority=9))),
            (queue, outgoing(Message({"n": 1}, message_id="b", ttl=5, fairness_key="acme"))),
        ]
    )
    columns = found.columns()
    assert len(columns) == len(Acceptance.__struct_fields__)
    assert columns[:13] == (
        [1], [10], [1], ["a", "b"], [b"text", b'{"n":1}'], [1, 2], [], [1, 2], [1], [0],
        [HIGH, NORMAL], [9, 4], [5, 12],
    )  # fmt: skip
    ttls, expires, keys, sessions, *others = columns[13:]
    assert (ttls, keys) == ([None, 5.0], [None, "acme"])
    assert [expires, sessions, *others] == [[]] * 8


def test_every_definition_is_named_once_with_its_version() -> None:
    other = entity(id=2, path="other")
    queue = entity()
    newer = msgspec.structs.replace(queue, version=11)
    found = accepted([(one, outgoing()) for one in (queue, other, queue, newer)])
    assert (found.entities, found.versions) == ([1, 2, 1], [10, 20, 11])


# what rules give


@given(
    st.lists(st.sampled_from(["plain", "other", "action", "failing"]), max_size=5),
    st.lists(st.sampled_from(["plain", "other", "action", "failing"]), max_size=5),
)
def test_copies_follow_from_matching_rules(first: list[str], second: list[str]) -> None:
    # M21, M22
    kinds: dict[str, str | SqlRule] = {
        "plain": "n = 1",
        "other": "n = 2",
        "action": SqlRule("TRUE", "SET extra = 1"),
        "failing": "1 / (n - 1) = 1",
    }
    rules: dict[str, Rules] = {
        name: {f"{kind}{n}": kinds[kind] for n, kind in enumerate(each)}
        for name, each in (("first", first), ("second", second))
    }
    place = topic(rules, {"second": {"dead_letter_on_filter_error": False}})
    found = sent(place, Message(b"", properties={"n": 1}))
    copies = list(zip(found.places, found.sub_queues, strict=True))
    for id_, each in ((100, first), (101, second)):
        assert copies.count((id_, 0)) == ("plain" in each) + each.count("action")
    assert copies.count((100, 1)) == ("failing" in first)
    assert found.failures == [101] * second.count("failing")
    assert set(found.of) <= {1}
    assert (found.entities, found.origins) == ([5], [5])


def test_a_copy_that_an_action_changed_says_so_and_leaves_the_others_alone() -> None:
    place = topic(
        {
            "plain": {"all": "TRUE"},
            "changed": {
                "one": SqlRule(
                    "TRUE",
                    "SET region = 'eu'; SET sys.MessageId = 'new'; SET sys.Priority = 9;"
                    " SET sys.Label = 'label'; REMOVE n",
                )
            },
        }
    )
    found = sent(place, Message(b"", message_id="m", properties={"n": 1}, priority=2))
    assert (found.classes, found.priorities) == ([LOW, HIGH], [2, 9])
    assert found.copy_ids == [None, "new"]
    plain, changed = (decoded_head(text) for text in found.heads)
    assert plain.properties == {"n": 1}
    assert (changed.properties, changed.subject) == ({"region": "eu", "RuleName": "one"}, "label")


def test_a_failed_rule_dead_letters_one_copy_with_its_reason() -> None:
    place = topic({"s": {"a": "1 / n = 1", "b": "2 / n = 1"}})
    found = sent(place, Message(b"", properties={"n": 0}))
    assert (found.places, found.sub_queues, found.classes) == ([100], [1], [NORMAL])
    assert dead(found)["reason"] == "ExpressionFailed"
    assert dead(found)["source"] == "t/subscriptions/s"
    assert dead(found)["description"].startswith("rule a: ")


def test_headers_that_an_action_makes_too_large_have_a_reason_of_their_own() -> None:
    place = topic({"s": {"a": SqlRule("TRUE", "SET a = text + text; SET b = text + text")}})
    found = sent(place, Message(b"", properties={"text": "x" * 16_000, "b": "x" * 32_000}))
    assert (found.sub_queues, dead(found)["reason"]) == ([1], "HeaderSizeExceeded")


def test_filters_see_values_of_subclasses_and_the_time_of_arrival() -> None:
    class Region(str):
        pass

    place = topic(
        {"s": {"a": "region = 'eu' AND sys.EnqueuedTimeUtc IS NOT NULL AND sys.TimeToLive IS NULL"}}
    )
    assert sent(place, Message(b"", properties={"region": Region("eu")})).places == [100]


# classes


def test_a_class_is_decided_per_subscription() -> None:
    classes = [
        PriorityClass(name="only", priorities=(0, 9), base=5),
    ]
    place = topic(
        {"a": {"r": "TRUE"}, "b": {"r": "TRUE"}, "c": {"r": "TRUE"}},
        {"b": {"classes": classes}, "c": {"classifier": [("tier = 'paying'", "low")]}},
    )
    found = sent(place, Message(b"", properties={"tier": "paying"}))
    assert (found.classes, found.priorities) == ([NORMAL, 1, LOW], [4, 5, 1])
    found = sent(place, Message(b"", priority_class="HIGH"))
    assert (found.classes, found.priorities) == ([HIGH, 1, HIGH], [8, 8, 8])
    with pytest.raises(InvalidValue, match="no class 'none'"):
        sent(place, Message(b"", priority_class="none"))
    with pytest.raises(InvalidValue, match="priority is 10"):
        sent(topic({}), Message(b"", priority=10))


@given(
    priority=st.none() | st.integers(0, 9),
    name=st.none() | st.sampled_from(["high", "normal", "low"]),
    word=st.none() | st.sampled_from(["high", "low"]),
    bound=st.sampled_from(["high", "normal", "low", "unknown"]),
    forwards=st.booleans(),
)
def test_no_copy_is_above_the_bound_of_its_sender(
    priority: int | None, name: str | None, word: str | None, bound: str, forwards: bool
) -> None:
    # M33
    properties = {} if word is None else {"Priority": word}
    message = Message(b"", priority=priority, priority_class=name, properties=properties)
    onward: dict[str, Any] = {"forward_to": "next"} if forwards else {}
    classifier: dict[str, Any] = {"classifier": [("TRUE", "high")]}
    most = {"high": 8, "normal": 4, "low": 1, "unknown": 1}[bound]
    unchanged: Rules = {"a": "TRUE", "b": SqlRule("TRUE", "SET sys.Priority = 0")}
    for place in (
        entity(**onward),
        entity(**classifier),
        topic({"s": unchanged}, {"s": classifier}),
    ):
        found = sent(place, message, max_class=bound)
        assert all(BASES[number] <= most for number in found.classes)
        for number, head in zip(found.classes, map(decoded_head, found.heads), strict=True):
            asked = head.properties.get("RelevoRequestedClass")
            assert asked is None or BASES[number] < {"high": 8, "normal": 4}[asked]
            assert head.asked is None or (head.asked.priority or 0) <= {8: 9, 4: 6, 1: 2}[most]


def test_an_action_raises_a_copy_above_the_bound_of_its_sender() -> None:
    # M33
    rules: Rules = {"plain": "TRUE", "raised": SqlRule("TRUE", "SET sys.Priority = 9")}
    found = sent(topic({"s": rules}), Message(b"", priority=5), max_class="low")
    assert found.classes == [LOW, HIGH]
    assert decoded_head(found.heads[0]).properties == {"RelevoRequestedClass": "normal"}
    with pytest.raises(Forbidden):
        sent(entity(), Message(b"", priority=9), max_class="low", inflation="reject")


# time to live, sessions, schedules, forwards


@pytest.mark.parametrize(
    ("own", "entity_ttl", "topic_ttl", "wanted"),
    [
        (None, None, None, None),
        (5, None, None, 5),
        (5, 3, None, 3),
        (timedelta(seconds=5), 8, 4, 4),
        (1e300, None, None, None),
        (None, 8, None, 8),
    ],
)
def test_the_shortest_time_to_live_counts(
    own: Any, entity_ttl: float | None, topic_ttl: float | None, wanted: float | None
) -> None:
    message = Message(b"", ttl=own)
    place = topic(
        {"s": {"r": "TRUE"}},
        {"s": {"default_message_ttl": entity_ttl}},
        default_message_ttl=topic_ttl,
    )
    assert sent(place, message).ttls == [wanted]
    if topic_ttl is None:
        assert sent(entity(default_message_ttl=entity_ttl), message).ttls == [wanted]


def test_a_message_without_a_session_is_refused_or_dead_lettered() -> None:
    queue = entity(requires_session=True)
    assert sent(queue, Message(b"", session_id="s")).sessions == ["s"]
    with pytest.raises(InvalidValue, match="no session_id"):
        sent(queue)
    for found in (
        sent(queue, arrived=True),
        sent(topic({"s": {"r": "TRUE"}}, {"s": {"requires_session": True}})),
    ):
        assert (found.sub_queues, dead(found)["reason"]) == ([1], "Session id is null.")
        assert found.columns()[16] == []
    assert sent(entity(), Message(b"", session_id="s")).columns()[16] == []


def test_what_has_arrived_is_never_refused() -> None:
    disabled = entity(status="disabled")
    with pytest.raises(EntityDisabled):
        sent(disabled)
    assert sent(disabled, arrived=True).sub_queues == [0]
    message = Message(b"", priority_class="gone", at=NOW)
    found = sent(entity(), message, arrived=True)
    assert (found.sub_queues, found.dues, found.classes) == ([1], [None], [NORMAL])
    assert dead(found)["reason"] == "InvalidValue"
    found = sent(topic({"s": {"r": "TRUE"}}), Message(b"", priority_class="gone"), arrived=True)
    assert (found.sub_queues, found.classes) == ([0], [NORMAL])


def test_a_scheduled_message_waits_at_its_topic_with_what_was_asked() -> None:
    place = topic({"s": {"r": "TRUE"}}, classifier=[("TRUE", "low")])
    found = sent(place, Message(b"", at=NOW, priority_class="high"))
    assert (found.places, found.dues, found.classes) == ([5], [NOW], [HIGH])
    assert decoded_head(found.heads[0]).asked == Asked(None, "high")
    found = sent(place, Message(b"", at=NOW))
    assert decoded_head(found.heads[0]).asked == Asked()


def test_a_copy_that_is_forwarded_keeps_what_was_asked() -> None:
    queue = entity(forward_to="other", classifier=[("TRUE", "low")])
    found = sent(queue, hops=2, enqueued=7, expires=NOW, dead='{"reason":"x"}')
    assert (found.places, found.classes) == ([1], [LOW])
    assert decoded_head(found.heads[0]).asked == Asked()
    assert (found.hops, found.enqueued, found.expires) == ([2], [7], [NOW])
    assert dead(found) == {"reason": "x"}
    place = topic({"s": {"r": SqlRule("TRUE", "SET sys.Priority = 9")}}, {"s": {"forward_to": "q"}})
    assert decoded_head(sent(place).heads[0]).asked == Asked(9)
