"""Merge patch as the specification has it (section 5.1), and what stays hidden."""

from __future__ import annotations

import copy
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relevo import limits
from relevo.errors import InvalidValue
from relevo.router.core.selectors import WorkerSelector
from relevo.router.wire.documents import merged, secrets_in, settled, shown, with_secrets

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inside: (
        st.lists(inside, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "b", "kind", "labels"]), inside, max_size=3)
    ),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.sampled_from(["a", "b", "c", "labels"]), JSON, max_size=4)
FUNCTION = {"kind": "function", "functionUri": "https://f", "credential": {"functionKey": "k"}}


def rfc7396(target: Any, patch: Any) -> Any:
    """The algorithm of the RFC, word for word."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = rfc7396(result.get(name), value)
    return result


def plain(value: Any) -> bool:
    """Whether a value has nothing in which the router differs from the RFC."""
    match value:
        case dict():
            return "kind" not in value and "labels" not in value and all(map(plain, value.values()))
        case list():
            return not any(isinstance(each, dict | list) for each in value)
        case _:
            return True


@given(OBJECTS, OBJECTS)
def test_the_rfc_holds_where_the_router_adds_nothing(old: Any, new: Any) -> None:
    old = {name: value for name, value in old.items() if plain(value) and name != "labels"}
    new = {name: value for name, value in new.items() if plain(value) and name != "labels"}
    stored = rfc7396({}, old)
    assert merged("queues", stored, new) == rfc7396(stored, new)


@given(OBJECTS, OBJECTS)
def test_neither_document_is_touched_and_nothing_is_shared_that_could_be(
    old: Any, new: Any
) -> None:
    before = copy.deepcopy((old, new))
    merged("jobs", old, new)
    assert (old, new) == before


@given(OBJECTS, OBJECTS)
def test_the_same_patch_again_changes_nothing(old: Any, new: Any) -> None:
    # J15
    once = merged("workers", old, new)
    assert merged("workers", once, new) == once


def test_null_takes_away_and_absent_leaves() -> None:
    assert merged(
        "queues", {"name": "a", "x": {"y": 1, "z": 2}}, {"name": None, "x": {"y": None}}
    ) == {"x": {"z": 2}}


def test_maps_merge_by_key_whatever_their_keys_are_called() -> None:
    old = {"labels": {"kind": "static", "a": 1}, "tags": {"x": 1}}
    new = {"labels": {"kind": "dynamic", "b": None}, "tags": {"x": None}}
    assert merged("jobs", old, new) == {"labels": {"kind": "dynamic", "a": 1}, "tags": {}}


@pytest.mark.parametrize("kind", ["queues", "workers"])
@pytest.mark.parametrize("value", ["other", None, 7])
def test_the_label_id_of_queues_and_workers_belongs_to_the_service(kind: str, value: Any) -> None:
    assert merged(kind, {"labels": {"a": 1}}, {"labels": {"Id": value}}) == {"labels": {"a": 1}}


def test_a_job_may_have_a_label_id() -> None:
    assert merged("jobs", None, {"labels": {"Id": "x"}}) == {"labels": {"Id": "x"}}


def test_another_kind_replaces_and_the_same_or_none_merges() -> None:
    old = {
        "mode": {"kind": "bestWorker", "scoringRule": {"kind": "static"}, "bypassSelectors": True}
    }
    other = merged("distributionPolicies", old, {"mode": {"kind": "roundRobin"}})
    assert other == {"mode": {"kind": "roundRobin"}}
    same = merged("distributionPolicies", old, {"mode": {"kind": "BESTWORKER"}})
    assert same["mode"]["bypassSelectors"] is True
    missing = merged("distributionPolicies", old, {"mode": {"minConcurrentOffers": 2}})
    assert missing["mode"] == {**old["mode"], "minConcurrentOffers": 2}


def test_arrays_are_replaced_as_a_whole() -> None:
    old = {"queues": ["a", "b"], "channels": [{"channelId": "x", "capacityCostPerJob": 1}]}
    new = {"queues": ["c"], "channels": [{"channelId": "y", "maxNumberOfJobs": None}]}
    assert merged("workers", old, new) == {"queues": ["c"], "channels": [{"channelId": "y"}]}


def test_a_label_to_upsert_may_be_null() -> None:
    action = {"kind": "reclassify", "id": None, "labelsToUpsert": {"a": None}}
    rules = [{"id": "r", "actions": [action]}]
    found = merged("exceptionPolicies", None, {"exceptionRules": rules})
    assert found["exceptionRules"][0]["actions"] == [
        {"kind": "reclassify", "labelsToUpsert": {"a": None}}
    ]


def test_what_the_service_wrote_into_a_selector_outlives_being_sent_back() -> None:
    at = datetime(2030, 1, 1, tzinfo=UTC)
    ticking = WorkerSelector("a", "equal", 1, expires_after_seconds=5.0, expires_at=at)
    current = {"requestedWorkerSelectors": [ticking], "notes": None}
    shown_to_caller = {
        "key": "a", "labelOperator": "equal", "value": 1, "expiresAfterSeconds": 5.0,
        "status": "expired", "expiresAt": "2040-01-01T00:00:00Z",
    }  # fmt: skip
    back = merged("jobs", current, {"requestedWorkerSelectors": [shown_to_caller]})
    kept = msgspec.convert(back["requestedWorkerSelectors"], tuple[WorkerSelector, ...])
    assert kept == (ticking,)
    other = merged("jobs", current, {"requestedWorkerSelectors": [{**shown_to_caller, "value": 2}]})
    assert other["requestedWorkerSelectors"][0].keys().isdisjoint({"status", "expiresAt"})


def test_secrets_in_arrays_outlive_being_sent_back_but_not_a_change_beside_them() -> None:
    # J23: with another address the old secret must not travel there.
    old: Any = {"queueSelectorAttachments": [{"kind": "ruleEngine", "rule": FUNCTION}]}
    same = merged("classificationPolicies", old, shown(old))
    assert same == old
    moved = copy.deepcopy(shown(old))
    moved["queueSelectorAttachments"][0]["rule"]["functionUri"] = "https://g"
    assert not secrets_in(merged("classificationPolicies", old, moved))
    fresh = copy.deepcopy(old)
    fresh["queueSelectorAttachments"][0]["rule"]["credential"] = {"functionKey": "new"}
    assert merged("classificationPolicies", old, fresh) == fresh


def test_secrets_outside_of_arrays_are_kept_when_absent() -> None:
    old = {"prioritizationRule": FUNCTION}
    assert merged("classificationPolicies", old, shown(old)) == old
    gone = {"prioritizationRule": {"credential": {"functionKey": None}}}
    assert not secrets_in(merged("classificationPolicies", old, gone))


def test_secrets_are_found_everywhere_but_in_the_callers_own_words() -> None:
    document = {
        "labels": {"functionKey": "not one"},
        "rule": {"value": {"appKey": "nor this"}, "credential": {"appKey": "one"}},
        "list": [{"clientSecret": "two"}],
    }
    seen: list[str] = []
    with_secrets(document, seen.append)
    assert sorted(seen) == ["one", "two"]
    assert shown(document) == {
        "labels": {"functionKey": "not one"},
        "rule": {"value": {"appKey": "nor this"}, "credential": {}},
        "list": [{}],
    }


def test_what_is_nested_too_deeply_is_refused() -> None:
    deep: Any = 1
    for _ in range(limits.ROUTER_DOCUMENT_DEPTH_MAX + 1):
        deep = {"a": deep}
    with pytest.raises(InvalidValue, match="deep"):
        merged("queues", None, deep)


def test_numbers_are_as_the_database_gives_them_back() -> None:
    assert settled({"a": [1e22, 7, 7.5, 2**70, True]}) == {"a": [10**22, 7, 7.5, 2**70, True]}
    assert isinstance(settled(1e22), int)
