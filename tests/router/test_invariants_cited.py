"""Every invariant of the job router (spec 24) is cited by a test, and none that is not there."""

from __future__ import annotations

from tests.citations import citations

INVARIANTS = {f"J{n}" for n in range(1, 24)}
OWN_FOLDERS = ("router", "kernel", "http", "e2e")


def test_each_invariant_is_cited_by_a_test_and_nothing_else_is() -> None:
    found = citations("J", OWN_FOLDERS)
    assert {one for one, tests in found.items() if tests} == INVARIANTS
