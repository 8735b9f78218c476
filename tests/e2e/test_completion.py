"""Shell completion, and the reference that is made from the commands."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from relevo.cli import reference
from relevo.cli.completion import SHELLS
from tests.e2e.conftest import Cli, invoke

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"


@pytest.mark.parametrize("shell", SHELLS)
def test_the_completion_script_of_every_shell_is_valid(shell: str) -> None:
    script = invoke("completion", shell)
    assert script.code == 0
    assert "_RELEVO_COMPLETE" in script.out
    if shutil.which(shell):
        command = [shell, "--no-execute" if shell == "fish" else "-n"]
        checked = subprocess.run(command, input=script.out, text=True, capture_output=True)
        assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("relevo ke", "key"),
        ("relevo key cr", "create"),
        ("relevo key create --ro", "--role"),
        ("relevo host list --output j", "json"),
    ],
)
def test_words_are_completed(cli: Cli, words: str, expected: str) -> None:
    position = str(len(words.split()) - 1)
    cli.environment |= {
        "_RELEVO_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": position,
    }
    completed = cli()
    assert completed.code == 0
    assert f"plain,{expected}" in completed.out.splitlines()


def test_the_reference_is_current() -> None:
    assert PAGE.read_text("utf-8") == reference.page(), (
        "run: python -m relevo.cli.reference > docs/reference/cli.md"
    )


def test_the_version_is_said() -> None:
    assert invoke("--version").out.startswith("relevo 0.")


def test_no_command_at_all_shows_the_help_and_is_no_success() -> None:
    shown = invoke()
    assert shown.code == 2
    assert "Start and operate:" in shown.err
