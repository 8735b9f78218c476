"""Every invariant of the asynchronous service (spec 14) is cited by a test, and none else."""

from __future__ import annotations

from tests.citations import citations

INVARIANTS = {f"A{n}" for n in range(1, 34)}
OWN_FOLDERS = (
    "jobs", "kernel", "pipeline", "workflows", "dataverse", "store", "http", "e2e",
)  # fmt: skip


def test_each_invariant_is_cited_by_a_test_and_nothing_else_is() -> None:
    found = citations("A", OWN_FOLDERS)
    assert {one for one, tests in found.items() if tests} == INVARIANTS
