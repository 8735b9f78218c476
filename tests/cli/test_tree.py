"""The tree of commands: no option is ignored, and nothing but a creation creates a database."""

from __future__ import annotations

import ast
import inspect
import textwrap
from typing import TYPE_CHECKING

import click
import pytest

from relevo.cli.generic.commands import OperationCommand
from relevo.cli.options import EVERYWHERE, RelevoCommand, SharedOption
from relevo.cli.root import build
from relevo.cli.session import Session
from tests.e2e.conftest import invoke

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PROGRAM = """
import relevo
app = relevo.App(database_url="postgresql://elsewhere/db", home="h", schema="s")
@app.container("orders", partition_key="/city").on_changes("p")
async def p(changes): ...
"""
WHERE = {"--database": "postgresql://here/db", "--home": "other", "--schema": "other"}


def _leaves(group: click.Group, context: click.Context) -> Iterator[tuple[str, click.Command]]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None, f"{context.command_path} {name}"
        below = click.Context(command, info_name=name, parent=context)
        if isinstance(command, click.Group):
            yield from _leaves(command, below)
        else:
            yield below.command_path, command


@pytest.fixture(scope="module")
def commands() -> dict[str, click.Command]:
    root = build()
    return dict(_leaves(root, click.Context(root, info_name="relevo")))


def test_every_shared_option_is_taken_or_refused_by_every_command(
    commands: dict[str, click.Command],
) -> None:
    for path, command in commands.items():
        assert isinstance(command, RelevoCommand), path
        taken = {each.name for each in command.params if isinstance(each, SharedOption)}
        for option in EVERYWHERE:
            if option.name in taken:
                continue
            session = Session({})
            session.given[str(option.name)] = "x"
            with pytest.raises(click.UsageError, match=f"{option.opts[0]} has no effect here"):
                command.invoke(click.Context(command, obj=session))


def test_every_own_option_is_read_by_the_code_of_its_command(
    commands: dict[str, click.Command],
) -> None:
    for path, command in commands.items():
        if isinstance(command, OperationCommand):
            continue  # each of its options is a field of the request
        assert command.callback is not None
        function = inspect.unwrap(command.callback)
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
        read = {
            node.id
            for node in ast.walk(tree)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
        }
        collected = inspect.getfullargspec(function).varkw
        for parameter in command.params:
            if not isinstance(parameter, SharedOption):
                assert parameter.name in read or collected in read, f"{path}: {parameter.name}"


@pytest.mark.parametrize("command", [("run",), ("up",), ("feed", "run"), ("actor", "schema")])
@pytest.mark.parametrize("option", WHERE)
@pytest.mark.parametrize("first", [True, False])
def test_a_program_learns_of_options_before_and_after_the_command(
    command: tuple[str, ...],
    option: str,
    first: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = f"program_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{module}.py").write_text(PROGRAM)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    given = (option, WHERE[option])
    words = (*given, *command) if first else (*command, *given)
    refused = invoke(*words, f"{module}:app")
    assert refused.code == 2, refused
    assert f"the program sets its own {option.removeprefix('--')}" in refused.err


def test_options_without_effect_are_refused(tmp_path: Path) -> None:
    url = ("--url", "http://127.0.0.1:9")
    for arguments, text in (
        (("host", "list", "--key", "abc"), "--key is for a host"),
        (("--ca", "x", "host", "list"), "--ca is for a host"),
        (("host", "list", *url, "--config", "x"), "--config has no effect with --url"),
        (("system", "readyz", "--home", "x"), "--home selects no host"),
        (("--url", "http://127.0.0.1:9", "completion", "bash"), "--url has no effect here"),
    ):
        refused = invoke(*arguments, environment={"RELEVO_HOME": str(tmp_path)})
        assert (refused.code, text in refused.err) == (2, True), refused


def test_a_command_that_creates_nothing_creates_no_database(tmp_path: Path) -> None:
    home = tmp_path / "none"
    for arguments in (
        ("job", "list"), ("top", "--once"), ("job", "cancel", "0" * 32, "--yes"), ("backup", "f"),
        ("migrate", "status"), ("feed", "lag"), ("grants",), ("job", "watch", "--once"),
    ):  # fmt: skip
        refused = invoke(*arguments, environment={"RELEVO_HOME": str(home)})
        assert refused.code == 3, refused
        assert f"there is no database in {home}; start one with: relevo up" in refused.err
    checked = invoke("doctor", environment={"RELEVO_HOME": str(home)})
    assert checked.code == 0
    assert "start a host with: relevo up" in checked.out
    assert not home.exists()
