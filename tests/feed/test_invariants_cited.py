"""Every invariant of the change feed is cited by a test, and no test cites what is none."""

from __future__ import annotations

import ast
import functools
import re
import tokenize
from collections import defaultdict
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
NUMBERS = {"F": 9, "L": 9, "B": 5, "P": 12, "U": 7, "E": 5}
"""Feed, leases, balancing, processing, units, estimator and pull."""
INVARIANTS = [f"{part}{n}" for part, last in NUMBERS.items() for n in range(1, last + 1)]
CITED = re.compile(rf"\b([{''.join(NUMBERS)}][1-9][0-9]?)\b")
OWN_FOLDERS = ("feed", "leases", "store", "events", "unit")
"""Elsewhere letters with numbers may mean something else."""


def _tests_of(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    nodes = ast.walk(ast.parse(path.read_text("utf-8")))
    functions = [n for n in nodes if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    return [one for one in functions if one.name.startswith("test_")]


@functools.cache
def citations() -> dict[str, set[str]]:
    """Invariant to the tests whose comments name it."""
    found: dict[str, set[str]] = defaultdict(set)
    for folder in OWN_FOLDERS:
        for path in sorted((TESTS / folder).glob("test_*.py")):
            tests = _tests_of(path)
            with path.open("rb") as file:
                comments = [
                    t for t in tokenize.tokenize(file.readline) if t.type == tokenize.COMMENT
                ]
            for comment in comments:
                line = comment.start[0]
                around = [t for t in tests if t.lineno <= line <= (t.end_lineno or t.lineno)]
                for invariant in CITED.findall(comment.string):
                    found[invariant].update(f"{path.stem}.{test.name}" for test in around)
    return found


@pytest.mark.parametrize("invariant", INVARIANTS)
def test_each_invariant_is_cited_by_a_test(invariant: str) -> None:
    assert citations().get(invariant), f"no test cites {invariant} of the change feed"


def test_nothing_is_cited_that_is_no_invariant() -> None:
    assert set(citations()) <= set(INVARIANTS)
