"""Documents as their structs: defaults, spelling, bounds and what is wrong where (section 8)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from relevo import limits
from relevo.errors import InvalidExpression, InvalidValue, MissingField, RelevoError, TooLarge
from relevo.router import model
from relevo.router.model import checked, document_of
from relevo.router.wire.documents import merged

NOW = datetime(2031, 5, 30, 12, tzinfo=UTC)
JOB = {"channelId": "c", "queueId": "q"}
SELECTOR = {"key": "a", "labelOperator": "equal", "value": 1}


def refused(kind: Any, document: dict[str, Any]) -> RelevoError:
    with pytest.raises(RelevoError) as caught:
        checked(kind, document)
    assert caught.value.fault == "caller"
    return caught.value


def test_a_distribution_policy_has_its_defaults() -> None:
    assert document_of(checked("distributionPolicies", {})) == {
        "mode": {
            "kind": "longestIdle",
            "minConcurrentOffers": 1,
            "maxConcurrentOffers": 1,
            "bypassSelectors": False,
        }
    }


def test_a_minimum_alone_raises_the_maximum() -> None:
    mode = checked(
        "distributionPolicies", {"mode": {"kind": "roundRobin", "minConcurrentOffers": 3}}
    ).mode
    assert (mode.min_concurrent_offers, mode.max_concurrent_offers) == (3, 3)


def test_scoring_options_have_their_defaults() -> None:
    mode = {"kind": "bestWorker", "scoringRuleOptions": {}, "scoringRule": {"kind": "directMap"}}
    found = document_of(checked("distributionPolicies", {"mode": mode}))["mode"]
    assert found["scoringRuleOptions"] == {
        "batchSize": 20,
        "isBatchScoringEnabled": False,
        "scoringParameters": ["jobLabels", "workerSelectors"],
        "descendingOrder": True,
    }


def test_an_empty_classification_policy_is_legal() -> None:
    assert document_of(checked("classificationPolicies", {})) == {
        "queueSelectorAttachments": [],
        "workerSelectorAttachments": [],
    }


def test_job_and_worker_have_their_defaults() -> None:
    job = checked("jobs", JOB)
    assert (job.priority, job.matching_mode.kind, job.notes, job.labels) == (
        1,
        "queueAndMatch",
        (),
        {},
    )
    worker = checked("workers", {})
    assert (worker.capacity, worker.available_for_offers, worker.queues) == (1, False, ())
    assert worker.max_concurrent_offers is None


def test_enumerations_are_taken_in_any_case_and_answered_in_one() -> None:
    policy = {
        "queueSelectorAttachments": [
            {"kind": "PASSTHROUGH", "key": "k", "labelOperator": "GreaterThanOrEqual"}
        ],
        "prioritizationRule": {"kind": "Expression", "expression": "1", "language": "powerfx"},
    }
    found = document_of(checked("classificationPolicies", policy))
    assert found["queueSelectorAttachments"][0] == {
        "kind": "passThrough",
        "key": "k",
        "labelOperator": "greaterThanOrEqual",
    }
    assert found["prioritizationRule"] == {
        "kind": "expression",
        "expression": "1",
        "language": "powerFx",
    }


def test_the_callers_own_words_keep_their_case() -> None:
    found = checked("queues", {"distributionPolicyId": "d", "labels": {"kind": "STATIC"}})
    assert found.labels == {"kind": "STATIC"}


def test_every_kind_of_attachment_goes_in_and_out() -> None:
    rule = {"kind": "static", "value": True}
    for word, selectors in (("queue", [SELECTOR]), ("worker", [{**SELECTOR, "expedite": False}])):
        attachments = [
            {"kind": "static", f"{word}Selector": selectors[0]},
            {"kind": "conditional", "condition": rule, f"{word}Selectors": selectors},
            {"kind": "passThrough", "key": "k", "labelOperator": "equal"},
            {"kind": "ruleEngine", "rule": {"kind": "directMap"}},
            {
                "kind": "weightedAllocation",
                "allocations": [{"weight": 0.3, f"{word}Selectors": selectors}],
            },
        ]
        name = f"{word}SelectorAttachments"
        found = document_of(checked("classificationPolicies", {name: attachments}))
        assert found[name] == attachments


def test_every_kind_of_rule_goes_in_and_out() -> None:
    for rule in (
        {"kind": "static", "value": [SELECTOR]},
        {"kind": "expression", "expression": "If(job.A > 1, 2, 3)", "language": "powerFx"},
        {"kind": "directMap"},
        {"kind": "function", "functionUri": "https://f/x", "credential": {"functionKey": "k"}},
        {
            "kind": "webhook",
            "webhookUri": "https://w",
            "authorizationServerUri": "https://a",
            "clientCredential": {"clientId": "c", "clientSecret": "s"},
        },
    ):
        found = document_of(checked("classificationPolicies", {"prioritizationRule": rule}))
        assert found["prioritizationRule"] == rule


def test_actions_get_ids_that_stay_when_the_rules_are_sent_again() -> None:
    # J15
    rules = [
        {
            "id": "r",
            "trigger": {"kind": "queueLength", "threshold": 0},
            "actions": [{"kind": "cancel"}, {"kind": "manualReclassify", "id": "mine"}],
        }
    ]
    first = checked("exceptionPolicies", {"exceptionRules": rules})
    again = checked("exceptionPolicies", {"exceptionRules": rules})
    assert first == again
    ids = [one.id for one in first.exception_rules[0].actions]
    assert ids[1] == "mine"
    assert len(ids[0]) == 36
    actions = document_of(first)["exceptionRules"][0]["actions"]
    assert actions[0]["dispositionCode"] == "Cancelled"
    assert actions[1]["workerSelectors"] == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # A column takes the very first instant for minus infinity: it is a microsecond off.
        ("0001-01-01T00:00:00Z", datetime(1, 1, 1, 0, 0, 0, 1, tzinfo=UTC)),
        ("2100-01-01T00:00:00.1234567Z", datetime(2100, 1, 1, 0, 0, 0, 123457, tzinfo=UTC)),
        ("2031-05-30T12:00:00", NOW),
        ("2031-05-30T14:00:00+02:00", NOW),
    ],
)
def test_dates_as_clients_send_them(text: str, expected: datetime) -> None:
    mode = {"kind": "scheduleAndSuspend", "scheduleAt": text}
    assert checked("jobs", {**JOB, "matchingMode": mode}).matching_mode.schedule_at == expected


def test_notes_without_a_time_are_of_now() -> None:
    notes = [{"message": "a"}, {"message": "b", "addedAt": "2020-01-01T00:00:00Z"}]
    found = checked("jobs", {**JOB, "notes": notes}, now=NOW).notes
    assert [one.added_at for one in found] == [NOW, datetime(2020, 1, 1, tzinfo=UTC)]


def test_read_only_and_unknown_properties_are_ignored() -> None:
    sent = {**JOB, "id": 5, "etag": [], "status": {}, "enqueuedAt": "never", "fromTomorrow": 1}
    assert checked("jobs", sent) == checked("jobs", JOB)


def test_queues_of_a_worker_collapse_and_numbers_stay_exact() -> None:
    worker = checked("workers", {"queues": ["a", "b", "a"], "labels": {"n": 2**70, "x": 0.1}})
    assert worker.queues == ("a", "b")
    assert worker.labels == {"n": 2**70, "x": 0.1}


TOO_EARLY = {"kind": "scheduleAndSuspend", "scheduleAt": "0001-01-01T00:00:00+05:00"}
REFUSED: list[tuple[str, dict[str, Any], type[RelevoError], str]] = [
    ("queues", {}, MissingField, "/distributionPolicyId"),
    ("queues", {"distributionPolicyId": 5}, InvalidValue, "/distributionPolicyId"),
    ("queues", {"distributionPolicyId": "d", "labels": {"a": []}}, InvalidValue, "/labels/a"),
    ("queues", {"distributionPolicyId": "d", "labels": {"a/b": {}}}, InvalidValue, "/labels/a~1b"),
    ("queues", {"distributionPolicyId": "d", "labels": []}, InvalidValue, "/labels"),
    ("distributionPolicies", {"mode": {}}, MissingField, "/mode/kind"),
    ("distributionPolicies", {"mode": {"kind": "random"}}, InvalidValue, "/mode/kind"),
    ("distributionPolicies", {"mode": {"kind": "static"}}, InvalidValue, "/mode/kind"),
    (
        "distributionPolicies",
        {"offerExpiresAfterSeconds": 0},
        InvalidValue,
        "/offerExpiresAfterSeconds",
    ),
    (
        "distributionPolicies",
        {"mode": {"kind": "roundRobin", "minConcurrentOffers": 3, "maxConcurrentOffers": 2}},
        InvalidValue,
        "/mode/minConcurrentOffers",
    ),
    (
        "distributionPolicies",
        {"mode": {"kind": "roundRobin", "minConcurrentOffers": 0}},
        InvalidValue,
        "/mode/minConcurrentOffers",
    ),
    (
        "classificationPolicies",
        {"prioritizationRule": {"kind": "expression", "expression": "1 +"}},
        InvalidExpression,
        "/prioritizationRule/expression",
    ),
    (
        "classificationPolicies",
        {"prioritizationRule": {"kind": "expression"}},
        MissingField,
        "/prioritizationRule/expression",
    ),
    (
        "classificationPolicies",
        {"prioritizationRule": {"kind": "function", "functionUri": "ftp://x"}},
        InvalidValue,
        "/prioritizationRule/functionUri",
    ),
    (
        "classificationPolicies",
        {"workerSelectorAttachments": [{"kind": "static", "workerSelector": {"key": "a"}}]},
        MissingField,
        "/workerSelectorAttachments/0/workerSelector/labelOperator",
    ),
    (
        "classificationPolicies",
        {
            "queueSelectorAttachments": [
                {"kind": "static", "queueSelector": {**SELECTOR, "labelOperator": "like"}}
            ]
        },
        InvalidValue,
        "/queueSelectorAttachments/0/queueSelector/labelOperator",
    ),
    (
        "classificationPolicies",
        {
            "queueSelectorAttachments": [
                {
                    "kind": "weightedAllocation",
                    "allocations": [{"weight": 0, "queueSelectors": []}],
                }
            ]
        },
        InvalidValue,
        "/queueSelectorAttachments/0/allocations",
    ),
    (
        "exceptionPolicies",
        {
            "exceptionRules": [
                {"id": "r", "trigger": {"kind": "waitTime", "thresholdSeconds": 0}, "actions": []}
            ]
        },
        InvalidValue,
        "/exceptionRules/0/trigger/thresholdSeconds",
    ),
    (
        "exceptionPolicies",
        {
            "exceptionRules": [
                {"id": "r", "trigger": {"kind": "queueLength", "threshold": 1}, "actions": []},
                {"id": "r", "trigger": {"kind": "queueLength", "threshold": 2}, "actions": []},
            ]
        },
        InvalidValue,
        "/exceptionRules/1/id",
    ),
    ("jobs", {"queueId": "q"}, MissingField, "/channelId"),
    ("jobs", {"channelId": "c"}, MissingField, "/queueId"),
    ("jobs", {**JOB, "priority": 101}, InvalidValue, "/priority"),
    ("jobs", {**JOB, "priority": 1.5}, InvalidValue, "/priority"),
    (
        "jobs",
        {**JOB, "matchingMode": {"kind": "scheduleAndSuspend"}},
        MissingField,
        "/matchingMode/scheduleAt",
    ),
    ("jobs", {**JOB, "notes": [{"addedAt": None}]}, MissingField, "/notes/0/message"),
    (
        "jobs",
        {**JOB, "notes": [{"message": "x", "addedAt": "soon"}]},
        InvalidValue,
        "/notes/0/addedAt",
    ),
    (
        "jobs",
        {**JOB, "matchingMode": TOO_EARLY},
        InvalidValue,
        "/matchingMode",
    ),
    (
        "jobs",
        {**JOB, "requestedWorkerSelectors": [{**SELECTOR, "expiresAfterSeconds": -1}]},
        InvalidValue,
        "/requestedWorkerSelectors/0/expiresAfterSeconds",
    ),
    ("workers", {"capacity": 0}, InvalidValue, "/capacity"),
    ("workers", {"capacity": 2**31}, InvalidValue, "/capacity"),
    ("workers", {"queues": ["a\nb"]}, InvalidValue, "/queues/0"),
    (
        "workers",
        {"channels": [{"channelId": "a", "capacityCostPerJob": 1}] * 2},
        InvalidValue,
        "/channels/1/channelId",
    ),
    (
        "workers",
        {"channels": [{"channelId": "a", "capacityCostPerJob": -1}]},
        InvalidValue,
        "/channels/0/capacityCostPerJob",
    ),
]


@pytest.mark.parametrize(("kind", "document", "error", "pointer"), REFUSED)
def test_what_is_wrong_is_told_with_its_place(
    kind: Any, document: dict[str, Any], error: type[RelevoError], pointer: str
) -> None:
    found = refused(kind, merged(kind, None, document) if kind != "jobs" else document)
    assert (type(found), found.pointer) == (error, pointer)


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("requestedWorkerSelectors", limits.ROUTER_SELECTORS_MAX),
        ("notes", limits.ROUTER_NOTES_MAX),
    ],
)
def test_lists_of_a_job_are_bounded(name: str, most: int) -> None:
    element = SELECTOR if name != "notes" else {"message": "x"}
    checked("jobs", {**JOB, name: [element] * most})
    assert refused("jobs", {**JOB, name: [element] * (most + 1)}).pointer == f"/{name}"


def test_labels_are_bounded_in_number_key_value_and_size() -> None:
    most = limits.ROUTER_LABELS_MAX
    checked("jobs", {**JOB, "labels": {str(n): n for n in range(most)}})
    assert (
        refused("jobs", {**JOB, "labels": {str(n): n for n in range(most + 1)}}).pointer
        == "/labels"
    )
    assert isinstance(refused("jobs", {**JOB, "tags": {"k" * 257: 1}}), InvalidValue)
    assert isinstance(refused("jobs", {**JOB, "tags": {"k": "v" * 4097}}), InvalidValue)
    heavy = {str(n): "v" * 4000 for n in range(9)}
    checked("jobs", {**JOB, "labels": heavy})
    assert isinstance(refused("jobs", {**JOB, "labels": heavy, "tags": heavy}), TooLarge)


def test_what_was_checked_is_read_back_without_a_check() -> None:
    policy = checked("exceptionPolicies", {"exceptionRules": [
        {
            "id": "r",
            "trigger": {"kind": "waitTime", "thresholdSeconds": 5},
            "actions": [{"kind": "reclassify", "labelsToUpsert": {"a": None, "b": 1}}],
        }
    ]})  # fmt: skip
    stored = msgspec.json.decode(msgspec.json.encode(document_of(policy)))
    assert model.stored("exceptionPolicies", stored) == policy


def test_credentials_do_not_show_in_a_representation_for_people() -> None:
    # J23
    rule = {"kind": "function", "functionUri": "https://f", "credential": {"functionKey": "hush"}}
    assert "hush" not in repr(checked("classificationPolicies", {"prioritizationRule": rule}))
    hook = {"kind": "webhook", "clientCredential": {"clientSecret": "hush"}}
    assert "hush" not in repr(checked("classificationPolicies", {"prioritizationRule": hook}))


def test_options_of_actions() -> None:
    close = model.read(model.CloseJobOptions, {"closeAt": "2031-05-30T12:00:00", "more": 1})
    assert (close.close_at, close.note) == (NOW, None)
    with pytest.raises(InvalidValue) as caught:
        model.read(model.UnassignJobOptions, {"suspendMatching": "yes"})
    assert caught.value.pointer == "/suspendMatching"
