"""The site of the documentation: every page is reachable, each error is explained, it builds."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from relevo import errors

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
LINK = re.compile(r"\]\(([^)#\s:]+\.md)")
QUESTIONS = ("What happened", "Whose fault", "Is it safe to repeat", "What to do")


def linked(page: Path) -> set[Path]:
    return {(page.parent / target).resolve() for target in LINK.findall(page.read_text("utf-8"))}


def test_the_index_leads_to_every_page() -> None:
    reached = linked(DOCS / "index.md") | linked(DOCS / "reference" / "errors.md")
    assert set(DOCS.rglob("*.md")) - reached == {DOCS / "index.md"}


def test_each_error_has_a_page_that_says_what_to_do() -> None:
    folder = DOCS / "reference" / "errors"
    codes = {getattr(errors, name).code for name in errors.__all__}
    for code in codes - {errors.SystemFault.code}:
        page = (folder / f"{code}.md").read_text("utf-8")
        answered = dict(re.findall(r"^\*\*(.+?)[.?]\*\* (.+)$", page, re.MULTILINE))
        assert tuple(answered) == QUESTIONS, code
        assert answered["What to do"].endswith("."), code


@pytest.mark.soak
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    if importlib.util.find_spec("material") is None:
        pytest.skip("mkdocs-material is not installed: run `make docs` once")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(tmp_path)],
        cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (built.returncode, built.stderr) == (0, "")
    for page in ("index", "reference/errors/lease_lost", "reference/api/system-jobs"):
        assert "Relevo" in (tmp_path / f"{page}.html").read_text("utf-8")
    assert (tmp_path / "llms.txt").exists()
