from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relevo.errors import InvalidValue
from relevo.store.keys import SPACE_MAX, SPACE_MIN, epk
from relevo.store.ranges import WHOLE, Interval, Range, RangeMap, initial

hashes = st.text(max_size=20).map(lambda text: epk((text,)))


def test_four_ranges_are_cut_where_the_reference_cuts() -> None:
    assert [str(one) for one in initial(4)] == ["-10", "10-20", "20-30", "30-FF"]
    assert initial(1) == (WHOLE,)


def tiles(parts: tuple[Interval, ...], whole: Interval) -> bool:
    ends = [part.high for part in parts]
    return [part.low for part in parts] == [whole.low, *ends[:-1]] and ends[-1] == whole.high


@given(st.integers(1, 300), st.integers(1, 5))
def test_cutting_leaves_no_gap_and_no_overlap(count: int, again: int) -> None:  # L4
    parts = initial(count)
    assert tiles(parts, WHOLE)
    assert all(tiles(part.split(again), part) for part in parts)


@given(st.integers(1, 64), hashes)
def test_every_hash_lies_in_exactly_one_range(count: int, where: str) -> None:
    assert sum(where in part for part in initial(count)) == 1


def test_hashes_spread_evenly_over_the_first_ranges() -> None:
    parts = initial(16)
    counts = [0] * 16
    for number in range(16_000):
        where = epk((f"key-{number}",))
        counts[next(i for i, part in enumerate(parts) if where in part)] += 1
    assert min(counts) > 800
    assert max(counts) < 1_200


@pytest.mark.parametrize("parts", [0, -1])
def test_an_interval_is_cut_into_something(parts: int) -> None:
    with pytest.raises(InvalidValue, match="at least 1"):
        WHOLE.split(parts)


def test_an_interval_too_narrow_to_cut_says_so() -> None:
    with pytest.raises(InvalidValue, match="too narrow"):
        Interval("0000000000000001", "0000000000000002").split(2)


def test_an_interval_has_a_width() -> None:
    with pytest.raises(InvalidValue, match="low < high"):
        Interval("20", "20")


def test_overlap_and_intersection() -> None:
    left, right = Interval("10", "30"), Interval("20", "40")
    assert left.overlaps(right)
    assert left.intersect(right) == Interval("20", "30")
    assert not Interval("10", "20").overlaps(Interval("20", "30"))


def split_twice() -> RangeMap:
    """1 became 2 and 3, 3 became 4 and 5."""
    whole = Interval(SPACE_MIN, SPACE_MAX)
    return RangeMap(
        [
            Range(id=1, interval=whole, sealed_lsn=10),
            Range(id=2, interval=Interval("", "20"), parents=(1,)),
            Range(id=3, interval=Interval("20", SPACE_MAX), parents=(1,), sealed_lsn=20),
            Range(id=5, interval=Interval("30", SPACE_MAX), parents=(3,)),
            Range(id=4, interval=Interval("20", "30"), parents=(3,)),
        ]
    )


@given(hashes)
def test_writes_go_to_the_open_range_of_their_hash(where: str) -> None:
    found = split_twice().at(where)
    assert found.open
    assert where in found.interval


def test_a_cut_belongs_to_the_range_above_it() -> None:
    ranges = split_twice()
    assert [ranges.at(where).id for where in ("", "1FFF", "20", "2FFF", "30", "3F")] == [
        2, 2, 4, 4, 5, 5,
    ]  # fmt: skip


def test_the_log_of_a_child_is_that_of_its_ancestors_and_its_own() -> None:  # F9
    ranges = split_twice()
    assert set(ranges.lineage(5)) == {5, 3, 1}
    assert set(ranges.lineage(2)) == {2, 1}


def test_a_sealed_range_goes_on_in_its_open_descendants() -> None:  # F9
    ranges = split_twice()
    assert [one.id for one in ranges.children(1)] == [2, 4, 5]
    assert [one.id for one in ranges.children(3)] == [4, 5]


def test_an_interval_touches_the_open_ranges_it_overlaps() -> None:
    ranges = split_twice()
    assert [one.id for one in ranges.over(WHOLE)] == [2, 4, 5]
    assert [one.id for one in ranges.over(Interval("1F", "21"))] == [2, 4]
