"""`llms.txt`: the pages of the documentation with a sentence each, for language models."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from .writing import ROOT

if TYPE_CHECKING:
    from pathlib import Path

PATH: Final = ROOT / "docs" / "llms.txt"
INDEX: Final = ROOT / "docs" / "index.md"
LINK: Final = re.compile(r"\[([^\]]+)\]\(([^)#\s]+\.md)(?:#[^)]*)?\)")
HEADER: Final = """\
# Relevo

> Relevo is a self-hosted system on one PostgreSQL that gets every piece of work to whoever should
> do it: system jobs, priority queues, a job router, virtual actors, governance of scarce resources,
> and an item store with a change feed. It needs Python 3.11 or newer.
"""


def pages() -> dict[Path, str]:
    """Return the text of `llms.txt`, made from the index of the documentation."""
    lines = [HEADER]
    within = False
    for line in INDEX.read_text("utf-8").splitlines():
        if line.startswith("## "):
            within = True
            lines += ["", line, ""]
        elif within and (links := LINK.findall(line)):
            about = LINK.sub(r"\1", line).lstrip("-0123456789. ")
            for title, target in links:
                rest = about.removeprefix(title).lstrip(":. ") if len(links) == 1 else ""
                lines.append(f"- [{title}]({target})" + (f": {rest}" if rest else ""))
    return {PATH: "\n".join(lines) + "\n"}


def entries() -> dict[str, dict[str, list[str]]]:
    """Return the pages that the index leads to, by its headings and those below them."""
    found: dict[str, dict[str, list[str]]] = {}
    below = ""
    for line in INDEX.read_text("utf-8").splitlines():
        if line.startswith("## "):
            found[line.removeprefix("## ")] = pages_below = {}
            below = ""
        elif line.startswith("### "):
            below = line.removeprefix("### ")
        elif found:
            pages_below.setdefault(below, []).extend(path for _, path in LINK.findall(line))
    return {heading: groups for heading, groups in found.items() if any(groups.values())}
