"""A policy applied to a job (job-router 11): queue, selectors, priority, or why there is none."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relevo import limits
from relevo.router import model
from relevo.router.core.classification import (
    Classified,
    QueueCandidate,
    Subject,
    Unclassifiable,
    classify,
    needed,
)
from relevo.router.core.rules import RuleAnswer
from relevo.router.core.selectors import WorkerSelector
from relevo.router.wire.policies import ClassificationPolicy

FUNCTION = {"kind": "function", "functionUri": "https://f.example/api"}
WEBHOOK = {"kind": "webhook", "webhookUri": "https://w.example/hook"}


def policy(**fields: Any) -> ClassificationPolicy:
    found = model.checked("classificationPolicies", fields)
    assert isinstance(found, ClassificationPolicy)
    return found


def queues(**labels: dict[str, Any]) -> dict[str, QueueCandidate]:
    return {name: QueueCandidate(name, {**given, "Id": name}) for name, given in labels.items()}


QUEUES = queues(west={"Region": "west", "Level": 3}, east={"Region": "east"}, spare={})


def outcome(
    document: dict[str, Any],
    *,
    queue: str | None = None,
    answers: dict[str, Any] | None = None,
    among: dict[str, QueueCandidate] = QUEUES,
    seed: int = 0,
    **labels: Any,
) -> Classified | Unclassifiable:
    return classify(
        Subject(version=4, labels=labels, queue_id=queue),
        policy(**document),
        among,
        Random(seed),
        policy_version=9,
        answers={place: RuleAnswer(value) for place, value in (answers or {}).items()},
    )


def succeeded(document: dict[str, Any], **given_: Any) -> Classified:
    found = outcome(document, **given_)
    assert isinstance(found, Classified), found
    return found


def failed(document: dict[str, Any], **given_: Any) -> Unclassifiable:
    found = outcome(document, **given_)
    assert isinstance(found, Unclassifiable), found
    return found


def equal(key: str, value: Any) -> dict[str, Any]:
    return {"key": key, "labelOperator": "equal", "value": value}


def to_queue(*attachments: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"queueSelectorAttachments": list(attachments), **more}


def to_workers(*attachments: dict[str, Any]) -> dict[str, Any]:
    return {"workerSelectorAttachments": list(attachments), "fallbackQueueId": "spare"}


def static(key: str, value: Any) -> dict[str, Any]:
    return {"kind": "static", "queueSelector": equal(key, value)}


# Which queue: matching selectors, then the queue on the job, then the fallback.


def test_queues_whose_labels_match_come_first() -> None:
    found = succeeded(to_queue(static("Region", "west"), fallbackQueueId="spare"), queue="east")
    assert (found.queue_id, found.queue_by) == ("west", "selectors")


def test_without_a_match_the_job_stays_in_its_queue() -> None:
    found = succeeded(to_queue(static("Region", "north"), fallbackQueueId="spare"), queue="east")
    assert (found.queue_id, found.queue_by) == ("east", "job")


def test_without_selectors_the_job_stays_in_its_queue() -> None:
    assert succeeded({"fallbackQueueId": "spare"}, queue="east").queue_id == "east"
    assert succeeded({}, queue="east").queue_by == "job"


def test_the_fallback_comes_last() -> None:
    found = succeeded(to_queue(static("Region", "north"), fallbackQueueId="spare"))
    assert (found.queue_id, found.queue_by) == ("spare", "fallback")


def test_without_any_of_them_there_is_no_queue() -> None:
    (error,) = failed(to_queue(static("Region", "north"))).errors
    assert error.code == "QueueNotFound"
    assert "no queue has the labels" in error.message
    (error,) = failed({}).errors
    assert "attaches no queue selectors" in error.message


def test_all_selectors_must_hold() -> None:
    both = to_queue(static("Region", "west"), static("Level", 9), fallbackQueueId="spare")
    assert succeeded(both).queue_id == "spare"


def test_a_queue_is_named_by_its_id() -> None:
    assert succeeded(to_queue(static("Id", "east"))).queue_id == "east"
    both = to_queue(static("Id", "east"), static("Region", "west"), fallbackQueueId="spare")
    assert succeeded(both).queue_id == "spare"
    assert succeeded(to_queue(static("Id", 7), fallbackQueueId="spare")).queue_id == "spare"
    assert succeeded(to_queue(static("Id", "none"), fallbackQueueId="spare")).queue_id == "spare"


def test_of_several_queues_the_one_with_the_fewest_waiting_is_taken() -> None:
    among = {
        name: QueueCandidate(name, {"x": 1, "Id": name}, waiting)
        for name, waiting in (("d", 5), ("b", 2), ("c", 2), ("a", 3))
    }
    assert succeeded(to_queue(static("x", 1)), among=among).queue_id == "b"


# What attachments yield.


def test_a_condition_decides_whether_selectors_are_attached() -> None:
    attachment = {
        "kind": "conditional",
        "condition": {"kind": "expression", "expression": 'job.Region = "west"'},
        "workerSelectors": [equal("Skill", "x"), equal("Level", 3)],
    }
    found = succeeded(to_workers(attachment), Region="west")
    assert [one.key for one in found.attached] == ["Skill", "Level"]
    assert succeeded(to_workers(attachment), Region="east").attached == ()
    assert succeeded(to_workers(attachment)).attached == ()


@pytest.mark.parametrize(
    "rule",
    [
        {"kind": "static", "value": 1},
        {"kind": "static"},
        {"kind": "expression", "expression": "1 / 0"},
        {"kind": "expression", "expression": "job.Missing"},
        {"kind": "directMap"},
    ],
)
def test_a_condition_that_is_neither_true_nor_false_fails(rule: dict[str, Any]) -> None:
    attachment = {"kind": "conditional", "condition": rule, "workerSelectors": []}
    (error,) = failed(to_workers(attachment)).errors
    assert (error.code, error.target) == ("RuleFailed", "/workerSelectorAttachments/0")


def test_a_label_is_passed_through_if_the_job_has_it() -> None:
    attachment = {"kind": "passThrough", "key": "Region", "labelOperator": "equal"}
    assert (
        succeeded(to_queue(attachment, fallbackQueueId="spare"), Region="east").queue_id == "east"
    )
    assert succeeded(to_queue(attachment, fallbackQueueId="spare")).queue_id == "spare"
    expiring = {**attachment, "labelOperator": "notEqual", "expiresAfterSeconds": 30}
    assert succeeded(to_workers(expiring), Region="east").attached == (
        WorkerSelector("Region", "notEqual", "east", expires_after_seconds=30.0),
    )


@pytest.mark.parametrize("value", [0, "", False])
def test_a_label_that_counts_for_nothing_is_still_one(value: Any) -> None:
    attachment = {"kind": "passThrough", "key": "x", "labelOperator": "equal"}
    assert succeeded(to_workers(attachment), x=value).attached[0].value is value


def test_a_rule_engine_yields_what_its_rule_gives() -> None:
    rules: list[dict[str, Any]] = [
        {"kind": "static", "value": [equal("Skill", "x")]},
        {"kind": "expression", "expression": '[{key: "Skill", operator: "equal", value: "x"}]'},
        {"kind": "directMap"},
    ]
    for rule in rules:
        attachment = {"kind": "ruleEngine", "rule": rule}
        assert succeeded(to_workers(attachment), Skill="x").attached == (
            WorkerSelector("Skill", "equal", "x"),
        )
    by_labels = to_queue({"kind": "ruleEngine", "rule": {"kind": "directMap"}})
    assert succeeded(by_labels, Region="west", Level=3).queue_id == "west"


def allocation(weight: float, queue: str) -> dict[str, Any]:
    return {"weight": weight, "queueSelectors": [equal("Id", queue)]}


def test_allocations_are_drawn_by_weight_and_never_at_zero() -> None:
    weighted = {
        "kind": "weightedAllocation",
        "allocations": [allocation(0, "spare"), allocation(0.3, "west"), allocation(0.9, "east")],
    }
    document = to_queue(weighted)
    drawn = Counter(succeeded(document, seed=seed).queue_id for seed in range(2_000))
    assert set(drawn) == {"west", "east"}
    assert 400 < drawn["west"] < 600  # a quarter: weights are shares of their sum


def test_each_attachment_draws_for_itself_and_the_draw_can_be_repeated() -> None:
    weighted = {
        "kind": "weightedAllocation",
        "allocations": [
            {"weight": 1, "workerSelectors": [equal("x", number)]} for number in (1, 2)
        ],
    }
    seen = set()
    for seed in range(50):
        found = succeeded(to_workers(weighted, weighted), seed=seed)
        assert found == succeeded(to_workers(weighted, weighted), seed=seed)
        seen.add(tuple(one.value for one in found.attached))
    assert seen == {(1, 1), (1, 2), (2, 1), (2, 2)}


def test_attachments_are_bounded_together() -> None:
    many = {"kind": "static", "workerSelector": equal("x", 1)}
    assert len(succeeded(to_workers(*[many] * 100)).attached) == 100
    engine = {"kind": "ruleEngine", "rule": {"kind": "static", "value": [equal("x", 1)] * 60}}
    (error,) = failed(to_workers(engine, engine)).errors
    assert error.target == "/workerSelectorAttachments/1"
    assert "more than 100 selectors" in error.message


# Priority.


def test_the_priority_is_that_of_the_rule_or_stays() -> None:
    document = {"prioritizationRule": {"kind": "expression", "expression": "If(job.x > 1, 20, 2)"}}
    assert succeeded(document, queue="east", x=5).priority == 20
    assert succeeded(document, queue="east").priority == 2
    found = classify(
        Subject(version=1, labels={}, queue_id="east", priority=33), policy(), QUEUES, Random(0)
    )
    assert isinstance(found, Classified)
    assert found.priority == 33


def test_a_priority_that_is_no_number_fails() -> None:
    document = {"prioritizationRule": {"kind": "static", "value": "high"}}
    (error,) = failed(document, queue="east").errors
    assert error.target == "/prioritizationRule"


# Calls to the outside.

EXTERNAL = {
    "queueSelectorAttachments": [
        static("Region", "west"),
        {"kind": "ruleEngine", "rule": FUNCTION},
    ],
    "workerSelectorAttachments": [
        {"kind": "conditional", "condition": WEBHOOK, "workerSelectors": [equal("x", 1)]},
        {"kind": "ruleEngine", "rule": {"kind": "directMap"}},
    ],
    "prioritizationRule": FUNCTION,
}
PLACES = ["/queueSelectorAttachments/1", "/workerSelectorAttachments/0", "/prioritizationRule"]


def test_the_calls_that_are_needed_are_those_of_external_rules() -> None:
    calls = needed(policy(**EXTERNAL), {"Total": 7})
    assert [one.place for one in calls] == PLACES
    assert all(one.payload == {"job": {"Total": 7}} for one in calls)
    assert needed(policy(**to_queue(static("x", 1))), {}) == ()


def test_their_answers_are_the_values_of_the_rules() -> None:
    answers = dict(zip(PLACES, [[equal("Level", 3)], True, 50], strict=True))
    found = succeeded(EXTERNAL, answers=answers)
    assert (found.queue_id, found.priority) == ("west", 50)
    assert found.attached == (WorkerSelector("x", "equal", 1),)


def test_every_call_that_failed_is_told() -> None:
    found = failed(EXTERNAL, answers={PLACES[1]: "maybe"}, queue="east")
    assert [one.target for one in found.errors] == PLACES
    assert "true or false was expected" in found.errors[1].message


# What is told.


def test_an_outcome_names_the_versions_it_was_made_for() -> None:
    for found in (outcome({}, queue="east"), outcome({})):
        assert (found.job_version, found.policy_version) == (4, 9)  # J17


def test_the_trail_says_what_each_attachment_gave() -> None:
    conditional = {
        "kind": "conditional",
        "condition": {"kind": "static", "value": False},
        "queueSelectors": [equal("x", 1)],
    }
    weighted = {"kind": "weightedAllocation", "allocations": [allocation(1, "west")]}
    broken = {"kind": "ruleEngine", "rule": {"kind": "static", "value": 3}}
    found = failed(
        {
            **to_queue(conditional, weighted),
            "workerSelectorAttachments": [broken],
            "prioritizationRule": {"kind": "static", "value": 7},
        }
    )
    told = [(one.place, one.kind, one.value, len(one.selectors)) for one in found.trail]
    assert told == [
        ("/queueSelectorAttachments/0", "conditional", False, 0),
        ("/queueSelectorAttachments/1", "weightedAllocation", 0, 1),
        ("/workerSelectorAttachments/0", "ruleEngine", None, 0),
        ("/prioritizationRule", "static", 7, 0),
    ]
    assert found.trail[2].failure is not None
    assert msgspec.json.decode(msgspec.json.encode(found.trail))[1]["selectors"] == [
        {"key": "Id", "labelOperator": "equal", "value": "west"}
    ]


# Whatever is in labels, policies and answers.

keys = st.sampled_from(["Region", "Level", "Id", "x", "\0", ""])
plain_values = (
    st.booleans()
    | st.integers(-5, 5)
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["west", "east", "3", "true", "\0"])
)
selectors = st.fixed_dictionaries(
    {
        "key": st.sampled_from(["Region", "Level", "Id", "x"]),
        "labelOperator": st.sampled_from(
            [
                "equal",
                "notEqual",
                "lessThan",
                "lessThanOrEqual",
                "greaterThan",
                "greaterThanOrEqual",
            ]
        ),
    },
    optional={"value": plain_values.filter(lambda one: one != "\0")},
)
answers_ = st.recursive(
    st.none() | plain_values | selectors,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=6,
)
rules_ = st.one_of(
    st.builds(lambda value: {"kind": "static", "value": value}, answers_),
    st.sampled_from(
        ["job.Level + 1", "job.x", "1 / job.Level", 'job.Region = "west"', "job.Level > 2", "[]"]
    ).map(lambda text: {"kind": "expression", "expression": text}),
    st.just({"kind": "directMap"}),
    st.just(FUNCTION),
    st.just(WEBHOOK),
)


def attachments(flavour: str) -> st.SearchStrategy[dict[str, Any]]:
    one, some = f"{flavour}Selector", st.lists(selectors, max_size=2)
    return st.one_of(
        st.builds(lambda it: {"kind": "static", one: it}, selectors),
        st.builds(lambda it: {"kind": "ruleEngine", "rule": it}, rules_),
        st.builds(
            lambda it, those: {"kind": "conditional", "condition": it, f"{one}s": those},
            rules_, some,
        ),
        st.builds(
            lambda key: {"kind": "passThrough", "key": key, "labelOperator": "equal"},
            st.sampled_from(["Region", "Level", "Id", "x"]),
        ),
        st.builds(
            lambda weights, those: {
                "kind": "weightedAllocation",
                "allocations": [{"weight": it, f"{one}s": those} for it in [*weights, 1e-9]],
            },
            st.lists(st.floats(0, 1e6), max_size=3), some,
        ),
    )  # fmt: skip


policies = st.fixed_dictionaries(
    {
        "queueSelectorAttachments": st.lists(attachments("queue"), max_size=3),
        "workerSelectorAttachments": st.lists(attachments("worker"), max_size=3),
    },
    optional={"prioritizationRule": rules_, "fallbackQueueId": st.just("spare")},
)


@given(
    document=policies,
    labels=st.dictionaries(keys, plain_values, max_size=4),
    queue=st.none() | st.just("east"),
    given_answers=st.lists(answers_, max_size=7),
    seed=st.integers(),
)
def test_whatever_is_asked_the_outcome_keeps_the_rules(
    document: dict[str, Any],
    labels: dict[str, Any],
    queue: str | None,
    given_answers: list[Any],
    seed: int,
) -> None:
    known = policy(**document)
    calls = needed(known, labels)
    answers = {call.place: RuleAnswer(it) for call, it in zip(calls, given_answers, strict=False)}
    job = Subject(version=4, labels=labels, queue_id=queue, priority=5)
    found = classify(job, known, QUEUES, Random(seed), answers=answers)
    assert found == classify(job, known, QUEUES, Random(seed), answers=answers)
    msgspec.json.encode(found)
    if isinstance(found, Unclassifiable):
        assert found.errors
        assert all("\0" not in error.message for error in found.errors)
        return
    assert limits.ROUTER_PRIORITY_MIN <= found.priority <= limits.ROUTER_PRIORITY_MAX
    asked = [
        one for step in found.trail if step.place.startswith("/queue") for one in step.selectors
    ]
    matching = [one.id for one in QUEUES.values() if asked and _all_hold(asked, one)]
    expected = (min(matching) if matching else None) or queue or known.fallback_queue_id
    assert found.queue_id == expected  # the precedence of section 11


def _all_hold(asked: list[Any], queue: QueueCandidate) -> bool:
    """Section 9 once more, for the labels that the queues of this file have."""

    def holds(one: Any) -> bool:
        label, value = queue.labels.get(one.key), one.value
        alike = (
            isinstance(label, str) == isinstance(value, str)
            and isinstance(label, bool) == isinstance(value, bool)
            and (label is None) == (value is None)
        )
        if one.label_operator in ("equal", "notEqual"):
            wanted: bool = one.label_operator == "equal"
            return bool(alike and label == value) is wanted
        if not alike or label is None or isinstance(label, bool):
            return False
        if "OrEqual" in one.label_operator and label == value:
            return True
        return bool(label < value if "less" in one.label_operator else label > value)

    return all(holds(one) for one in asked)
