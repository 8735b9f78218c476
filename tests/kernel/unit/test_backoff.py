from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from relevo.kernel.backoff import Backoff


class Highest(Random):
    def random(self) -> float:
        return 1.0


def test_waits_double_up_to_the_longest() -> None:
    backoff = Backoff(first=0.1, factor=2.0, longest=1.0)
    assert [backoff.delay(n, Highest()) for n in range(6)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


@given(attempt=st.integers(0, 10**9), seed=st.integers())
def test_a_wait_lies_between_nothing_and_the_longest(attempt: int, seed: int) -> None:
    assert 0 <= Backoff(longest=5.0).delay(attempt, Random(seed)) <= 5.0


def test_those_who_failed_together_do_not_come_back_together() -> None:
    waits = {Backoff().delay(5, Random(seed)) for seed in range(100)}
    assert len(waits) == 100
    assert max(waits) - min(waits) > 1.0  # spread over the whole time, not around its end
