"""What `pip install relevo` gives: the wheel has every file, and runs the README's program."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.kernel.postgres.embedded_bench import open_folder

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT: Final = Path(__file__).resolve().parents[2]
SOURCE: Final = ROOT / "src" / "relevo"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this tree, built outside it."""
    folder = tmp_path_factory.mktemp("wheel")
    options = ["--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-q", *options, "-w", folder, ROOT],
        check=True, cwd=folder,
    )  # fmt: skip
    [built] = folder.glob("relevo-*.whl")
    return built


def test_the_wheel_has_every_file_of_the_package_and_nothing_else(wheel: Path) -> None:
    files = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "."],
        cwd=SOURCE, check=True, capture_output=True, text=True,
    ).stdout.splitlines()  # fmt: skip
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        entries = archive.read(f"{wheel.name.rsplit('-', 3)[0]}.dist-info/entry_points.txt")
    assert names == {f"relevo/{name}" for name in files if (SOURCE / name).exists()}
    kinds = {Path(name).suffix for name in names}
    assert {".sql", ".html", ".toml", ".css", ".js", ".svg"} <= kinds
    assert b"relevo = relevo.cli" in entries


@pytest.mark.soak
def test_a_fresh_environment_runs_the_first_program_and_survives_a_kill(wheel: Path) -> None:
    program = re.search(
        r"^```python file=invoices.py\n(.*?)^```",
        (ROOT / "README.md").read_text("utf-8"),
        re.M | re.S,
    )
    assert program is not None
    environment = {name: text for name, text in os.environ.items() if "RELEVO_" not in name}
    with open_folder() as folder:
        subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
        programs = folder / "venv" / "bin"
        install: list[str | Path] = [
            programs / "python",
            "-m",
            "pip",
            "install",
            "-q",
            "--disable-pip-version-check",
        ]
        lock = ROOT / "requirements.lock"
        subprocess.run([*install, "--require-hashes", "-r", lock], check=True, cwd=folder)
        subprocess.run([*install, "--no-deps", wheel], check=True, cwd=folder)
        (folder / "invoices.py").write_text(program[1])
        assert _run(folder, environment, kill_after=3) == [1, 2, 3]
        rest = _run(folder, environment)
        assert rest[0] in (3, 4)
        assert rest == list(range(rest[0], 11))
        shown = subprocess.run(
            [programs / "relevo", "job", "list", "--output", "csv"], env=environment, cwd=folder,
            check=True, capture_output=True, text=True,
        ).stdout  # fmt: skip
        assert shown.count("succeeded") == 1, shown


def _run(folder: Path, environment: Mapping[str, str], kill_after: int | None = None) -> list[int]:
    """Run the program and return the numbers it has printed."""
    numbers = []
    with subprocess.Popen(
        [folder / "venv" / "bin" / "python", "invoices.py"], cwd=folder, env=environment,
        stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        for line in process.stdout:
            numbers.append(int(line.removeprefix("invoice ")))
            if numbers[-1] == kill_after:
                process.kill()
                break
    assert process.returncode == (0 if kill_after is None else -signal.SIGKILL)
    return numbers
