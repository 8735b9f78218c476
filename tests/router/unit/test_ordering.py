"""The sorted collections and the numbering of selectors that matching stands on."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from relevo.router.core.selectors import WorkerSelector
from relevo.router.matching import ordering, vocabulary
from relevo.router.matching.ordering import Groups, Ordered, choose, numbers
from relevo.router.matching.vocabulary import Vocabulary
from tests.conftest import examples

operations = st.lists(st.tuples(st.booleans(), st.integers(0, 40)), max_size=120)


@given(operations, st.integers(-1, 41), st.integers(2, 6))
def test_an_ordered_list_is_a_sorted_list(changes: Any, bound: int, block: int) -> None:
    before, ordering.BLOCK = ordering.BLOCK, block  # type: ignore[misc]
    try:
        keys: dict[int, tuple[int]] = {}
        ordered = Ordered()
        for adds, number in changes:
            if adds and number not in keys:
                keys[number] = (number,)
                ordered.add(keys[number])
            elif not adds and number in keys:
                ordered.remove(keys.pop(number))
        assert list(ordered) == sorted(keys.values())
        assert list(ordered.after((bound,))) == sorted(k for k in keys.values() if k > (bound,))
        assert bool(ordered) == bool(keys)
    finally:
        ordering.BLOCK = before  # type: ignore[misc]


@settings(max_examples=examples(200))
@given(operations, st.integers(0, 2**40), st.integers(1, 40))
def test_groups_know_their_first_members(changes: Any, bits: int, count: int) -> None:
    groups = Groups()
    members: dict[int, tuple[int, int, str]] = {}
    for adds, number in changes:
        if adds and number not in members:
            members[number] = (number, number % count, "member")
            groups.add(members[number])
        elif not adds and number in members:
            groups.remove(members.pop(number))
    firsts: dict[int, tuple[int, int, str]] = {}
    for key in sorted(members.values()):
        firsts.setdefault(key[1], key)
    assert sorted(numbers(groups.occupied)) == sorted(firsts)
    for chosen in (bits, bits & 7, -1):
        wanted = sorted(key for group, key in firsts.items() if chosen >> group & 1)
        assert list(groups.firsts(choose(chosen))) == wanted
        assert groups.first(choose(chosen)) == (wanted[0] if wanted else None)
        later = [key for key in wanted if key > (count, 99)]
        assert groups.first_after((count, 99), chosen) == (later[0] if later else None)


def test_what_no_job_asks_for_any_more_is_forgotten_in_time() -> None:
    words = Vocabulary()
    kept = words.shape([WorkerSelector("kept", "equal", 1)])
    for number in range(5 * vocabulary.SPARE):
        words.release(words.shape([WorkerSelector("passing", "equal", number)]))
    assert len(words.shapes) <= vocabulary.SPARE + 2
    assert len(words.selectors) <= vocabulary.SPARE + 2
    assert words.shape([WorkerSelector("kept", "equal", 1.0)]) is kept
    assert words.shape([WorkerSelector("kept", "equal", True)]) is not kept
    numbered = [one.number for one in words.shapes]
    assert len(set(numbered)) == len(numbered)
