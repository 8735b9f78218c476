"""Every invariant of the change feed is cited by a test, and no test cites what is none."""

from __future__ import annotations

from tests.citations import citations

NUMBERS = {"F": 9, "L": 9, "B": 5, "P": 12, "U": 7, "E": 5}
"""Feed, leases, balancing, processing, units, estimator and pull."""
INVARIANTS = {f"{part}{n}" for part, last in NUMBERS.items() for n in range(1, last + 1)}
OWN_FOLDERS = ("feed", "kernel", "store")
"""Elsewhere letters with numbers may mean something else."""


def test_each_invariant_is_cited_by_a_test_and_nothing_else_is() -> None:
    found = citations("".join(NUMBERS), OWN_FOLDERS)
    assert {one for one, tests in found.items() if tests} == INVARIANTS
