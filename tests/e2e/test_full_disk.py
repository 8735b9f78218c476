"""A host whose disk is full says that it is not ready, and that it is when there is room again."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.e2e.conftest import until
from tests.kernel.postgres.embedded_bench import open_folder

if TYPE_CHECKING:
    from tests.e2e.conftest import Cli

MOUNT = 'mount -t tmpfs -o size=250m,mode=711 tmpfs "$0" && exec "$@"'
"""A small disk of its own, that only the host and its database see."""


def can_mount(folder: Path) -> bool:
    tried = subprocess.run(
        ["unshare", "--mount", "sh", "-c", MOUNT, str(folder), "true"],
        capture_output=True,
        check=False,
    )
    return tried.returncode == 0


def fill(folder: Path) -> Path:
    """Write until there is no room for anything."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12):
            with pytest.raises(OSError, match="No space left"):
                while True:
                    file.write(b"\0" * size)
    return ballast


def test_a_host_whose_disk_is_full_is_not_ready(cli: Cli) -> None:
    with open_folder() as folder:
        if not can_mount(folder):
            pytest.skip("only root can mount a small disk here")
        cli.within = ("unshare", "--mount", "sh", "-c", MOUNT, str(folder))
        host = cli.up(home=str(folder / "home"), database_url="")
        assert host.ask("/readyz")[0] == 200
        disk = Path(f"/proc/{host.process.pid}/root{folder}")
        ballast = fill(disk)
        until(lambda: host.ask("/readyz")[0] == 503, "the host says that it is not ready")
        status, ready = host.ask("/readyz")
        assert (status, ready["reasons"]) == (503, ["database does not take writes"])
        assert ready["write_probe_age_seconds"] < 30
        assert host.ask("/livez")[0] == 200
        ballast.unlink()
        until(lambda: host.ask("/readyz")[0] == 200, "the host is ready again")
        host.stop()
