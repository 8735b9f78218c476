"""What a command imports: the start of a program is felt each time, so it is kept short.

These tests count modules rather than time, which depends on the machine.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest
from msgspec import Struct

from relevo.cli import tree
from relevo.cli.output.columns import COLUMNS
from relevo.cli.root import build
from relevo.http.operations import OPERATIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

HEAVY: Final = {
    "aiohttp", "argon2", "asyncio", "asyncpg", "cryptography", "jinja2", "joserfc", "lark",
    "prometheus_client", "rich", "starlette", "structlog", "uvicorn", "yarl",
}  # fmt: skip
PARTS: Final = {
    "actors", "app", "dataverse", "exports", "feed", "governance", "http", "jobs",
    "messaging", "pipeline", "router", "settings", "store", "workflows",
}  # fmt: skip
SHOW: Final = "import json, sys; print(json.dumps(sorted(sys.modules)))"


def _imported(program: str) -> set[str]:
    """Return the modules that a program has imported at its end."""
    script = f"import contextlib, io\nwith contextlib.redirect_stdout(io.StringIO()):\n {program}"
    done = subprocess.run(
        [sys.executable, "-c", f"{script}\n{SHOW}"], check=True, capture_output=True, text=True
    )
    return set(json.loads(done.stdout))


@pytest.mark.parametrize(
    "program", ["import relevo", "import relevo.cli.root as root; root.run(['--help'])"]
)
def test_relevo_and_its_help_import_no_part_and_no_heavy_library(program: str) -> None:
    modules = _imported(program)
    assert "relevo" in modules
    assert {name for name in HEAVY if name in modules} == set()
    assert {name for name in PARTS if f"relevo.{name}" in modules} == set()
    assert {n for n in modules if n.startswith("relevo.kernel.")} <= {"relevo.kernel.command_words"}


def test_a_command_for_a_running_host_imports_its_part_but_no_app() -> None:
    modules = _imported(
        "import relevo.cli.calling.remote_calls, relevo.cli.root as root;"
        " root.run(['host', 'list', '--url', 'http://127.0.0.1:9'])"
    )
    assert "aiohttp" in modules  # else this test would see nothing
    absent = {"relevo.app", "relevo.actors", "relevo.router", "relevo.feed", "relevo.jobs"}
    absent |= {"relevo.messaging", "relevo.store", "relevo.dataverse.bulk"}
    assert absent & modules == set()
    assert {"uvicorn", "argon2"} & modules == set()


def test_the_tree_has_every_operation_under_its_noun() -> None:
    assert [each for each in OPERATIONS if tree.operation(each.name) is not each] == []


def test_every_command_of_the_tree_exists_under_its_own_name() -> None:
    root = build()
    for path, target in tree.COMMANDS.items():
        command = tree.imported(target)
        assert command.name == path.split()[-1]
        assert path.split()[0] in tree.NOUNS
        assert root.get_command(None, path.split()[0]) is not None  # type: ignore[arg-type]
        if " " not in path and path not in ("context", "migrate"):
            assert command.get_short_help_str(100).startswith(tree.NOUNS[path].help[:20])


def _fields(kind: type[Struct]) -> Iterator[tuple[str, set[str]]]:
    yield kind.__name__, {*kind.__struct_encode_fields__}
    for below in kind.__subclasses__():
        yield from _fields(below)


def test_every_set_of_columns_belongs_to_a_type_with_such_fields() -> None:
    types = [*_fields(Struct)]
    for name, columns in COLUMNS.items():
        assert any(name == known and fields >= {*columns} for known, fields in types), name
