"""Which tests cite which invariants of a specification, in their comments."""

from __future__ import annotations

import ast
import re
import tokenize
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

TESTS = Path(__file__).parent


def citations(letters: str, folders: Iterable[str]) -> dict[str, set[str]]:
    """Invariant to the tests whose comments name it; an invariant is a letter and a number."""
    cited = re.compile(rf"\b([{letters}][1-9][0-9]?)\b")
    found: dict[str, set[str]] = defaultdict(set)
    for folder in folders:
        for path in sorted((TESTS / folder).rglob("test_*.py")):
            if not cited.search(path.read_text("utf-8")):
                continue
            tests = _tests_of(path)
            with path.open("rb") as file:
                tokens = list(tokenize.tokenize(file.readline))
            for comment in (one for one in tokens if one.type == tokenize.COMMENT):
                line = comment.start[0]
                around = [t for t in tests if t.lineno <= line <= (t.end_lineno or t.lineno)]
                for invariant in cited.findall(comment.string):
                    found[invariant].update(f"{path.stem}.{test.name}" for test in around)
    return found


def _tests_of(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    nodes = ast.walk(ast.parse(path.read_text("utf-8")))
    functions = [n for n in nodes if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    return [one for one in functions if one.name.startswith("test_")]
