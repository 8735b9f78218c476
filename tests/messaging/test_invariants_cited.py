"""Every invariant of priority messaging is cited by a test, and none else."""

from __future__ import annotations

from tests.citations import citations

INVARIANTS = {f"M{n}" for n in range(1, 36)}


def test_each_invariant_is_cited_by_a_test_and_nothing_else_is() -> None:
    found = citations("M", ("messaging", "kernel", "http", "e2e"))
    assert {one for one, tests in found.items() if tests} == INVARIANTS
