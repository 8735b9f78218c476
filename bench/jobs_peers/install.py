"""Installs peers into a folder outside the repository, with npm and pip as they are set up."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final, Literal

from msgspec import Struct

HERE: Final = Path(__file__).parent
INSTALL_SECONDS_MAX: Final = 600
NODE: Final = "node@24"
"""The peers need Node 22; this one comes from where they come from, whatever the machine has."""


class Unavailable(Exception):
    """A peer cannot be measured here; the text says why."""


class Peer(Struct, frozen=True, kw_only=True):
    """What there is to know about a peer."""

    name: str
    language: Literal["node", "python"]
    packages: tuple[str, ...]
    program: Path | None = None
    """What is run, of a peer in Python."""
    unfinished: str = ""
    """Counts the jobs that are not recorded as done."""
    clear: str = ""
    """Removes all jobs."""


PEERS: Final = {
    peer.name: peer
    for peer in (
        Peer(
            name="graphile-worker",
            language="node",
            packages=("graphile-worker@0.18.0", NODE),
            unfinished="select count(*) from graphile_worker._private_jobs",
            clear="truncate graphile_worker._private_jobs",
        ),
        Peer(
            name="pg-boss",
            language="node",
            packages=("pg-boss@12.35.0", NODE),
            unfinished="select count(*) from pgboss.job where state < 'completed'",
            clear="truncate pgboss.job",
        ),
        Peer(
            name="pgqueuer",
            language="python",
            packages=("pgqueuer[asyncpg]==1.6.0", "uvloop"),
            program=HERE / "pgqueuer_side.py",
            unfinished="select count(*) from pgqueuer",
            clear="truncate pgqueuer, pgqueuer_log",
        ),
    )
}


def default_folder() -> Path:
    """Return BENCH_PEERS_FOLDER, or a folder in the user's cache."""
    if named := os.environ.get("BENCH_PEERS_FOLDER"):
        return Path(named)
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "relevo-bench-peers"


def installed(peer: Peer, folder: Path) -> list[str]:
    """Install a peer if it is not there yet; return how its program is started.

    Raises `Unavailable` if that cannot be done here.
    """
    place = folder / peer.name
    place.mkdir(parents=True, exist_ok=True)
    note = place / "installed.txt"
    wanted = "\n".join(peer.packages)
    if not note.exists() or note.read_text("utf-8") != wanted:
        for command in _commands(peer, place):
            _run(peer, command, place)
        note.write_text(wanted, "utf-8")
    if peer.language == "python":
        return [str(place / "bin" / "python"), str(peer.program)]
    for script in HERE.glob("*.mjs"):  # Node looks for packages from where the script is
        shutil.copy(script, place)
    node = str(place / "node_modules" / ".bin" / "node")
    _run(peer, [node, "--version"], place)
    return [node, str(place / "harness.mjs"), peer.name.replace("-", "_")]


def _commands(peer: Peer, place: Path) -> list[list[str]]:
    if peer.language == "python":
        pip = [str(place / "bin" / "python"), "-m", "pip", "install", "--quiet"]
        return [[sys.executable, "-m", "venv", str(place)], [*pip, *peer.packages]]
    if not (place / "package.json").exists():  # else npm might look for one further up
        (place / "package.json").write_text('{"private": true}', "utf-8")
    return [["npm", "install", "--no-audit", "--no-fund", *peer.packages]]


def _run(peer: Peer, command: list[str], place: Path) -> None:
    try:
        done = subprocess.run(
            command, cwd=place, capture_output=True, text=True, timeout=INSTALL_SECONDS_MAX,
            check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{peer.name} cannot be installed: {error}") from None
    if done.returncode:
        said = (done.stderr or done.stdout).strip()
        raise Unavailable(f"{peer.name} cannot be installed: {Path(command[0]).name} says\n{said}")
