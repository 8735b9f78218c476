from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from relevo.kernel.leases.holdings import Owned, compare

epochs = st.dictionaries(st.integers(1, 6), st.integers(1, 4))


def owned(of: dict[int, int]) -> list[Owned]:
    return [Owned(lease_id, epoch) for lease_id, epoch in of.items()]


@given(epochs)
def test_an_answer_that_agrees_changes_nothing(held: dict[int, int]) -> None:
    changes = compare(held, held, owned(held))
    assert (changes.gained, changes.lost, changes.asked) == ((), (), ())


@given(epochs, epochs)
def test_a_quiet_host_believes_the_store(held: dict[int, int], store: dict[int, int]) -> None:
    changes = compare(held, held, owned(store))
    kept = {i for i, epoch in held.items() if store.get(i, 0) == epoch}
    # An epoch below the believed one can only be an older snapshot: epochs never fall (L1).
    stale = {i for i, epoch in held.items() if i in store and store[i] < epoch}
    assert set(changes.lost) == set(held) - kept - stale
    assert set(changes.gained) == {i for i, e in store.items() if i not in kept and i not in stale}


@given(epochs, st.integers(1, 6), st.integers(1, 4))
def test_what_was_taken_after_the_question_is_not_lost(
    then: dict[int, int], lease: int, epoch: int
) -> None:
    now = {**then, lease: then.get(lease, 0) + epoch}
    changes = compare(now, then, owned(then))
    assert lease not in changes.lost
    assert lease not in changes.gained


@given(epochs.filter(bool))
def test_what_was_given_up_after_the_question_is_not_gained_again(then: dict[int, int]) -> None:
    lease = min(then)
    now = {i: e for i, e in then.items() if i != lease}
    assert lease not in compare(now, then, owned(then)).gained


def test_a_hand_off_or_a_pause_asks_and_its_withdrawal_recalls() -> None:
    held = {1: 1, 2: 1, 3: 1}
    store = [Owned(1, 1, handoff=True, handoff_left=3.0), Owned(2, 1, "paused"), Owned(3, 1)]
    changes = compare(held, held, store)
    assert [one.id for one in changes.asked] == [1, 2]
    assert changes.recalled == (3,)


def test_a_lease_lost_and_given_back_starts_anew() -> None:
    changes = compare({1: 1}, {1: 1}, [Owned(1, 3)])
    assert (changes.lost, changes.gained) == ((1,), (1,))
