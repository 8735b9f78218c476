"""Keys take turns: each gets its share whatever the others ask for, and nobody starves."""

from __future__ import annotations

from collections import defaultdict

from hypothesis import given, settings
from hypothesis import strategies as st

from relevo.governance.core.fairness import AGEING_SECONDS, FairQueue, Waiter
from tests.conftest import examples

KEYS = "abcde"
ADDS = st.tuples(st.just("add"), st.sampled_from(KEYS), st.integers(1, 4), st.integers(0, 9))
STEPS = st.lists(
    st.one_of(
        ADDS,
        st.tuples(st.just("next"), st.integers(1, 3)),
        st.tuples(st.just("cancel"), st.integers(1, 40)),
        st.tuples(st.just("release"), st.sampled_from(KEYS)),
    ),
    max_size=60,
)


@settings(max_examples=examples(300))
@given(STEPS, st.sampled_from([None, 1, 2, 3]), st.booleans())
def test_a_key_waits_for_two_grants_of_each_waiting_key_at_most(
    steps: list[tuple[object, ...]], per_key: int | None, burst: bool
) -> None:
    queue, number, waiting = FairQueue(per_key=per_key, burst=burst), 0, dict[int, str]()
    held: dict[str, int] = defaultdict(int)
    since: dict[str, int] = {}  # grants to others since the key waits and may be served
    for now, step in enumerate(steps):
        match step:
            case ("add", str(key), int(count), int(priority)):
                for _ in range(count):
                    number += 1
                    queue.add(Waiter(number, key, float(now), priority=priority))
                    waiting[number] = key
            case ("cancel", int(gone)):
                assert queue.cancel(gone) is (gone in waiting)
                waiting.pop(gone, None)
            case ("release", str(key)) if held[key]:
                held[key] -= 1
                queue.release(key, 1)
            case ("next", int(count)):
                for _ in range(count):
                    keys = set(waiting.values())
                    capped = {
                        key for key in keys
                        if per_key is not None and held[key] >= per_key
                        and not (burst and len(keys) == 1)
                    }  # fmt: skip
                    since = {key: since.get(key, 0) for key in keys - capped}
                    served = queue.next(1, float(now))
                    assert (served is None) == (not since)  # nothing idles that fits
                    if served is None:
                        break
                    assert served.key in since
                    del waiting[served.number]
                    held[served.key] += 1
                    for key in since:
                        since[key] = 0 if key == served.key else since[key] + 1
                        assert since[key] < 2 * len(KEYS)  # I45
        assert len(queue) == len(waiting)
        assert queue.waiting_keys == len(set(waiting.values()))


@given(st.integers(2, 20), st.lists(st.integers(0, 9), min_size=1, max_size=5))
def test_with_k_keys_waiting_each_is_served_within_2k_grants(k: int, late: list[int]) -> None:
    queue, number = FairQueue(), 0
    for key in range(k):
        for _ in range(4 * k):
            number += 1
            queue.add(Waiter(number, str(key), 0.0))
    for turns in late:  # a key that comes later waits no longer
        for _ in range(turns):
            queue.next(1, 0.0)
        number += 1
        queue.add(Waiter(number, f"late {number}", 0.0))
        order = [served.number for _ in range(2 * (k + 1)) if (served := queue.next(1, 0.0))]
        assert number in order  # I45


def test_within_a_key_the_urgent_goes_first_and_equals_in_order() -> None:
    queue = FairQueue()
    for number, priority in enumerate([4, 9, 4, 0], 1):
        queue.add(Waiter(number, "", 0.0, priority=priority))
    assert [queue.next(1, 0.0).number for _ in range(4)] == [2, 1, 3, 4]  # type: ignore[union-attr]


def test_who_waits_becomes_urgent() -> None:
    queue = FairQueue()
    queue.add(Waiter(1, "", 0.0, priority=0))
    now = 9 * AGEING_SECONDS
    queue.add(Waiter(2, "", now, priority=9))
    served = queue.next(1, now)
    assert served is not None
    assert served.number == 1


@given(st.lists(st.integers(1, 5), min_size=1, max_size=30), st.integers(5, 8))
def test_a_heavy_waiter_is_passed_but_does_not_starve(lights: list[int], weight: int) -> None:
    queue, size, in_use = FairQueue(), 8, list[tuple[str, int]]()
    queue.add(Waiter(1, "heavy", 0.0, weight))
    in_use.append(("light", 4))
    queue.take("light", 4)
    passed, number = 0, 1
    for light in [*lights, *[1] * 100]:
        number += 1
        queue.add(Waiter(number, "light", 0.0, light))
        free = size - sum(held for _, held in in_use)
        while (served := queue.next(free, 0.0)) is not None:
            free -= served.weight
            in_use.append((served.key, served.weight))
            if served.number == 1:
                return
            passed += served.weight
            assert passed < weight + 5  # so much and no more: then all is kept for it
        key, held = in_use.pop(0)
        queue.release(key, held)
    raise AssertionError("the heavy waiter was never served")


def test_idle_keys_are_forgotten() -> None:
    queue = FairQueue()
    for number in range(5_000):
        queue.add(Waiter(number, str(number), 0.0))
        assert queue.next(1, 0.0) is not None
        queue.release(str(number), 1)
    assert len(queue._keys) < 2_000
