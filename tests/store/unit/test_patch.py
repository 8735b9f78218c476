from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from relevo.errors import InvalidValue
from relevo.store import patch

leaf = st.none() | st.booleans() | st.integers(-100, 100) | st.text("abc~/", max_size=3)
name = st.text("ab~/0", min_size=1, max_size=2)
document = st.dictionaries(
    name,
    st.recursive(
        leaf,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(name, inner, max_size=3),
        max_leaves=8,
    ),
    min_size=1,
    max_size=4,
)


def apply(before: dict[str, Any], *operations: dict[str, Any]) -> dict[str, Any]:
    return patch.apply(before, patch.checked(operations))


def pointer(*names: str) -> str:
    return "".join("/" + one.replace("~", "~0").replace("/", "~1") for one in names)


def places(value: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Every path that leads to something."""
    found = [path] if path else []
    if isinstance(value, dict):
        children = list(value.items())
    elif isinstance(value, list):
        children = [(str(n), one) for n, one in enumerate(value)]
    else:
        children = []
    return found + [place for key, child in children for place in places(child, (*path, key))]


@pytest.mark.parametrize(
    ("before", "operation", "after"),
    [
        ({"a": 1}, {"op": "add", "path": "/b", "value": 2}, {"a": 1, "b": 2}),
        ({"a": 1}, {"op": "add", "path": "/a", "value": 2}, {"a": 2}),
        ({"a": [1, 3]}, {"op": "add", "path": "/a/1", "value": 2}, {"a": [1, 2, 3]}),
        ({"a": [1]}, {"op": "add", "path": "/a/-", "value": 2}, {"a": [1, 2]}),
        ({"a": [1]}, {"op": "add", "path": "/a/1", "value": 2}, {"a": [1, 2]}),
        ({"a": {"b": 1}}, {"op": "set", "path": "/a/c", "value": 2}, {"a": {"b": 1, "c": 2}}),
        ({"a": [1, 2]}, {"op": "set", "path": "/a/0", "value": 9}, {"a": [9, 2]}),
        ({"a": [1]}, {"op": "set", "path": "/a/-", "value": 2}, {"a": [1, 2]}),
        ({"a": 1}, {"op": "replace", "path": "/a", "value": None}, {"a": None}),
        ({"a": [1, 2]}, {"op": "replace", "path": "/a/1", "value": 9}, {"a": [1, 9]}),
        ({"a": 1, "b": 2}, {"op": "remove", "path": "/a"}, {"b": 2}),
        ({"a": [1, 2, 3]}, {"op": "remove", "path": "/a/1"}, {"a": [1, 3]}),
        ({"a": 1}, {"op": "incr", "path": "/a", "value": 2}, {"a": 3}),
        ({"a": 1}, {"op": "incr", "path": "/a", "value": -0.5}, {"a": 0.5}),
        ({}, {"op": "incr", "path": "/a", "value": 2}, {"a": 2}),
        ({"a": 1}, {"op": "move", "from": "/a", "path": "/b"}, {"b": 1}),
        ({"a": [1, 2]}, {"op": "move", "from": "/a/0", "path": "/a/1"}, {"a": [2, 1]}),
        ({"a": 1, "b": 2}, {"op": "move", "from": "/a", "path": "/b"}, {"b": 1}),
        ({"a/b": {"~": 1}}, {"op": "replace", "path": "/a~1b/~0", "value": 2}, {"a/b": {"~": 2}}),
    ],
)
def test_an_operation_does_what_the_reference_does(
    before: dict[str, Any], operation: dict[str, Any], after: dict[str, Any]
) -> None:
    assert apply(before, operation) == after


@pytest.mark.parametrize(
    ("operation", "words"),
    [
        ({"op": "add", "path": "/x/y", "value": 1}, "nothing at '/x/y'"),
        ({"op": "add", "path": "/list/3", "value": 1}, "nothing at"),
        ({"op": "add", "path": "/text/a", "value": 1}, "nothing at"),
        ({"op": "set", "path": "/list/2", "value": 1}, "nothing at"),
        ({"op": "set", "path": "/list/-1", "value": 1}, "nothing at"),
        ({"op": "set", "path": "/list/00", "value": 1}, "nothing at"),
        ({"op": "replace", "path": "/x", "value": 1}, "nothing at '/x'"),
        ({"op": "replace", "path": "/list/-", "value": 1}, "nothing at"),
        ({"op": "remove", "path": "/x"}, "nothing at '/x'"),
        ({"op": "remove", "path": "/list/2"}, "nothing at"),
        ({"op": "incr", "path": "/text", "value": 1}, "str, not a number"),
        ({"op": "incr", "path": "/yes", "value": 1}, "bool, not a number"),
        ({"op": "incr", "path": "/huge", "value": 0.5}, "too large"),
        ({"op": "move", "from": "/x", "path": "/y"}, "nothing at '/x'"),
        ({"op": "move", "from": "/list", "path": "/list/0"}, "into itself"),
        ({"op": "set", "path": "/_etag", "value": 1}, "belongs to the store"),
        ({"op": "set", "path": "", "value": 1}, "a path looks like"),
        ({"op": "set", "path": "text", "value": 1}, "a path looks like"),
    ],
)
def test_what_cannot_be_applied_is_refused_with_its_number(
    operation: dict[str, Any], words: str
) -> None:
    before = {"text": "a", "list": [1, 2], "yes": True, "huge": 10**400}
    kept = copy.deepcopy(before)
    with pytest.raises(InvalidValue, match=words) as caught:
        apply(before, {"op": "set", "path": "/text", "value": "b"}, operation)
    assert caught.value.pointer == "/operations/1"
    assert before == kept


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "copy", "path": "/a"},
        {"op": "add", "path": "/a"},
        {"op": "remove", "path": "/a", "value": 1},
        {"op": "incr", "path": "/a", "value": "1"},
        {"op": "incr", "path": "/a", "value": True},
        {"op": "move", "path": "/a"},
        {"op": "set", "path": "/a", "value": object()},
        "remove",
    ],
)
def test_what_is_no_operation_is_refused_with_its_number(operation: Any) -> None:
    with pytest.raises(InvalidValue) as caught:
        patch.checked([{"op": "remove", "path": "/a"}, operation])
    assert caught.value.pointer == "/operations/1"


@pytest.mark.parametrize("count", [0, patch.OPERATIONS_MAX + 1])
def test_a_patch_has_a_bounded_number_of_operations(count: int) -> None:
    with pytest.raises(InvalidValue, match="operations"):
        patch.checked([patch.Remove("/a")] * count)


def test_structs_and_json_are_the_same_operations() -> None:
    structs: list[patch.Operation] = [
        patch.Add("/a", 1),
        patch.Set("/a", 1),
        patch.Replace("/a", 1),
        patch.Remove("/a"),
        patch.Incr("/a", 1),
        patch.Move("/a", "/b"),
    ]
    assert patch.checked(structs) == structs
    assert patch.checked([{"op": "move", "from": "/a", "path": "/b"}]) == [structs[-1]]


def test_a_value_that_was_put_in_two_places_is_two_values() -> None:
    shared = [1]
    after = apply(
        {},
        {"op": "set", "path": "/a", "value": shared},
        {"op": "set", "path": "/b", "value": shared},
        {"op": "add", "path": "/a/-", "value": 2},
    )
    assert (after, shared) == ({"a": [1, 2], "b": [1]}, [1])


@given(document, st.data())
def test_remove_takes_back_an_add(before: dict[str, Any], data: st.DataObject) -> None:
    holder = data.draw(st.sampled_from([(), *places(before)]))
    value: Any = before
    for step in holder:
        value = value[int(step) if isinstance(value, list) else step]
    assume(isinstance(value, dict | list))
    if isinstance(value, list):
        last = str(data.draw(st.integers(0, len(value))))
    else:
        last = data.draw(name.filter(lambda one: one not in value))
    path = pointer(*holder, last)
    added = apply(before, {"op": "add", "path": path, "value": {"x": 1}})
    assert added != before
    assert apply(added, {"op": "remove", "path": path}) == before


@given(document, st.data())
def test_a_move_is_a_remove_and_an_add(before: dict[str, Any], data: st.DataObject) -> None:
    source = pointer(*data.draw(st.sampled_from(places(before))))
    value: Any = before
    for step in patch.parse_pointer(source):
        value = value[int(step) if isinstance(value, list) else step]
    moved = apply(before, {"op": "move", "from": source, "path": "/new"})
    by_hand = apply(
        before,
        {"op": "remove", "path": source},
        {"op": "add", "path": "/new", "value": value},
    )
    assert moved == by_hand


@given(document, st.data())
def test_replace_sets_what_is_there_and_the_given_document_stays(
    before: dict[str, Any], data: st.DataObject
) -> None:
    kept = copy.deepcopy(before)
    path = pointer(*data.draw(st.sampled_from(places(before))))
    after = apply(before, {"op": "replace", "path": path, "value": "new"})
    assert before == kept
    assert after == apply(before, {"op": "set", "path": path, "value": "new"})
    assert apply(after, {"op": "set", "path": path, "value": "new"}) == after
