"""The pictures of the README show what the commands show today; so does its first program.

The scene `survives-kill.svg` runs the README's program, kills it with SIGKILL and starts it again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from docs import recordings
from tests.docs.test_snippets import environment, folder, free_port, programs
from tests.e2e.conftest import QUICK
from tests.support import forks

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["folder", "programs"]
PAGE = recordings.ROOT / "docs" / "index.md"


@pytest.mark.parametrize("name", recordings.SCENES)
def test_a_recording_shows_what_its_commands_show(
    name: str, folder: Path, relevo_url: str, programs: Path
) -> None:
    settings = environment(PAGE, relevo_url, str(free_port()), programs) | QUICK
    drawn = recordings.record(name, folder, settings, (forks.requests().fileno(),))
    stored = (recordings.FOLDER / name).read_text("utf-8")
    shown = recordings.words(drawn)
    assert shown == recordings.words(stored), "stale: run python docs/recordings.py"
