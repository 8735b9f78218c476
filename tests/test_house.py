"""The bounds of the house: short files and functions, folders whose files fit on a page.

Each table names what is above its bound today, with the size that it must not exceed. Shorten an
entry when the code becomes shorter, and remove it when it fits.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
SOURCE: Final = ROOT / "src" / "relevo"
LINES_MAX: Final = 400
FUNCTION_LINES_MAX: Final = 50
FOLDER_FILES_MAX: Final = 20

LONG_FILES: Final[dict[str, int]] = {}
LONG_FUNCTIONS: Final[dict[str, int]] = {
    "app.py:__init__": 53,
    "kernel/telemetry/metrics.py:__init__": 51,
    "pipeline/app_methods.py:step": 54,
}
FULL_FOLDERS: Final[dict[str, int]] = {}


def name(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def beyond(sizes: dict[str, int], bound: int, allowed: dict[str, int]) -> dict[str, int]:
    """What is above its bound, and entries of the table that are out of date."""
    over = {thing: size for thing, size in sizes.items() if size > allowed.get(thing, bound)}
    return over | {thing: 0 for thing in allowed if sizes.get(thing, 0) <= bound}


def test_files_are_short() -> None:
    sizes = {name(path): len(path.read_text("utf-8").splitlines()) for path in SOURCE.rglob("*.py")}
    assert beyond(sizes, LINES_MAX, LONG_FILES) == {}


def test_functions_are_short() -> None:
    sizes = {
        f"{name(path)}:{node.name}": (node.end_lineno or 0) - node.lineno + 1
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    }
    assert beyond(sizes, FUNCTION_LINES_MAX, LONG_FUNCTIONS) == {}


def test_folders_hold_few_files() -> None:
    sizes = Counter(name(path.parent) for path in SOURCE.rglob("*.py"))
    assert beyond(dict(sizes), FOLDER_FILES_MAX, FULL_FOLDERS) == {}


def test_the_way_in_names_files_that_exist() -> None:
    """Every file and folder that ARCHITECTURE.md sends a reader to."""
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    table = text[text.index("| to change | look in |") :]
    paths = re.findall(r"`([a-z_]+/[a-z_/]*(?:\.py|\.sql|/))`", table[: table.index("\n\n")])
    assert len(paths) > 20
    assert [path for path in paths if not (SOURCE / path).exists()] == []
