"""Fills the places of the documentation that are made from the code, and writes the made pages.

    python docs/generate.py            write what has changed
    python docs/generate.py --check    only name what is out of date; exits with 1 if anything is

A place is whatever stands between `<!-- made: name -->` and `<!-- /made -->`; `PLACES` in
`making/places.py` says what is made for a name. Whole pages, such as those of errors, come from
`making/error_pages.py` and `making/llms.py`. `tests/docs` runs the check, so that no page differs
from what the program does.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Final

from making import error_pages, llms
from making.places import PLACES
from making.writing import ROOT

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

PLACE: Final = re.compile(r"(<!-- made: ([a-z ]+) -->\n).*?(<!-- /made -->)", re.DOTALL)


def main(arguments: Sequence[str]) -> int:
    """Write the pages, or say which are out of date."""
    made = error_pages.pages() | llms.pages()
    old = [page for page in error_pages.FOLDER.glob("*.md") if page not in made]
    pages = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
    texts = {page: filled(page) for page in pages if page not in made and page not in old} | made
    stale = {page: text for page, text in texts.items() if text != _present(page)}
    for page in [*stale, *old]:
        if "--check" in arguments:
            sys.stderr.write(f"{page.relative_to(ROOT)} is out of date; run docs/generate.py\n")
        elif page in stale:
            page.parent.mkdir(exist_ok=True)
            page.write_text(stale[page], "utf-8")
        else:
            page.unlink()
    return int("--check" in arguments and bool(stale or old))


def filled(page: Path) -> str:
    """Return a page with its places as they should be."""
    return PLACE.sub(
        lambda place: f"{place[1]}{PLACES[place[2]]()}{place[3]}", page.read_text("utf-8")
    )


def _present(page: Path) -> str | None:
    return page.read_text("utf-8") if page.exists() else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
