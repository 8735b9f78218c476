"""Every invariant of actors and governance is cited by a test, and none else."""

from __future__ import annotations

from tests.citations import citations

INVARIANTS = {f"I{n}" for n in range(1, 48)}


def test_each_invariant_is_cited_by_a_test_and_nothing_else_is() -> None:
    found = citations("I", ("actors", "governance"))
    assert {one for one, tests in found.items() if tests} == INVARIANTS
