"""The page of faults names tests that exist, at least one for each row."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_every_fault_has_tests_that_exist() -> None:
    texts = [path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py")]
    known = {name for text in texts for name in re.findall(r"def (test_\w+)\(", text)}
    page = (ROOT / "docs/spec/faults.md").read_text("utf-8")
    rows = re.findall(r"^\| (?!fault|---)(.+)$", page, re.MULTILINE)
    assert len(rows) > 40
    for row in rows:
        named = set(re.findall(r"`(test_\w+)`", row))
        assert named, row
        assert named <= known, named - known
