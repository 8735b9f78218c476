from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from relevo.feed.progress import Delivery, Progress


@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.data())
def test_the_position_never_passes_an_unconfirmed_change(
    sizes: list[int], data: st.DataObject
) -> None:  # P6
    progress, open_ = Progress({1: 0}), []
    for size in sizes:
        open_.append(progress.deliver(1, progress.read[1] + size))
    confirmed: list[Delivery] = []
    before = 0
    for delivery in data.draw(st.permutations(open_)):
        progress.confirm(delivery)
        confirmed.append(delivery)
        missing = [one.start for one in open_ if one not in confirmed]
        assert progress.positions[1] == min(missing, default=open_[-1].end)
        assert progress.positions[1] >= before  # never backwards
        before = progress.positions[1]
    assert progress.unconfirmed == 0


def test_a_part_of_a_batch_can_be_confirmed() -> None:  # 9.3
    progress = Progress({1: 0})
    first, second = progress.deliver(1, 10), progress.deliver(1, 20)
    progress.confirm(second)
    progress.confirm(first, 4)
    assert progress.positions == {1: 4}
    progress.confirm(first, 2)
    assert progress.positions == {1: 4}
    progress.confirm(first)
    assert progress.positions == {1: 20}


def test_a_failed_batch_is_read_again_from_its_unconfirmed_part() -> None:  # P3
    progress = Progress({1: 5})
    delivery = progress.deliver(1, 9)
    progress.confirm(delivery, 7)
    progress.withdraw(delivery)
    assert progress.read == {1: 7} == progress.positions


def test_foreign_changes_are_passed_over_only_when_nothing_is_open() -> None:
    progress = Progress({1: 0, 2: 0})
    progress.deliver(1, 3)
    progress.skip(1, 8)
    progress.skip(2, 8)
    assert progress.positions == {1: 0, 2: 8}
