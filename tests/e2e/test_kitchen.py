"""`make demo` on real processes: the tour, the open kitchen, a rush hour with killed hosts."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

KITCHEN = Path(__file__).parents[2] / "examples" / "kitchen"
CLEAN_SECONDS_MAX = 60


@contextmanager
def started(program: str, *arguments: str, folder: Path, **files: Any) -> Iterator[Any]:
    """A program of the kitchen, whose folder for temporary files is `folder`."""
    folder.chmod(0o755)  # the account of a PostgreSQL started by root passes through
    with subprocess.Popen(
        [sys.executable, str(KITCHEN / program), *arguments],
        env={
            **{name: text for name, text in os.environ.items() if name != "CI"},
            "TMPDIR": str(folder), "TERM": "xterm", "COLUMNS": "120", "LINES": "50",
        },
        **{"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, **files},
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            process.kill()


def test_without_a_terminal_the_tour_runs_to_the_last_receipt_and_ends(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        with started("tour.py", "--port", port, folder=tmp_path) as tour:
            said = tour.stdout.read().decode()
    assert tour.returncode == 0, said
    assert f"Port {port} is taken" in said
    cooked = re.findall(r"cooked .*\(order (\d+)\)", said)
    assert sorted(map(int, cooked)) == list(range(1, 17))
    assert len(re.findall(r"Bo +declined", said)) == 1
    assert len(re.findall(r"Carla +expired", said)) == 1
    assert "Leases of the change feed: north 16." in said
    assert re.search(r"Dora +cooked +paella for Ferrol \(order 10\)", said)  # Microsoft's client
    assert len(re.findall(r"[56] receipts: ", said)) == 3
    assert "16 orders delivered, each once" in said
    assert "The ledger has 16 lines" in said
    assert "/sign-in?code=" in said
    assert "The nightly report is due at" in said
    assert "removed the records of 16 receipts" in said
    assert not list(tmp_path.iterdir())


def test_on_a_terminal_a_key_kills_a_host_and_another_checks_the_books(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    files = dict.fromkeys(("stdin", "stdout", "stderr"), theirs)
    with started("tour.py", "--port", "0", "--live", folder=tmp_path, **files) as kitchen:
        os.close(theirs)
        shown = _until(ours, r"k .*kills a host")
        link = re.search(r"http://127\.0\.0\.1:\d+/sign-in\?code=\S+", shown)
        assert link is not None
        os.write(ours, b"k")
        shown = _until(ours, r"south is gone: another host is about to take over")
        shown = _until(ours, r"north took over everything that south owned")
        os.write(ours, b"q")
        shown = _until(ours, r"The kitchen is closed")
        with suppress(OSError):
            while os.read(ours, 65_536):
                pass
        assert kitchen.wait() == 0, shown
    os.close(ours)
    assert re.search(r"\n\d+ orders, each with exactly one of: deliveries, completed router", shown)
    assert not list(tmp_path.iterdir())


def test_a_killed_kitchen_leaves_no_host_no_server_and_no_file_behind(tmp_path: Path) -> None:
    with started("rush.py", "--orders", "1000", "--kills", "0", folder=tmp_path) as rush:
        log = _found(tmp_path, "*/hosts.log")
        while log.read_text().count("host.started") < 2:
            assert rush.poll() is None
            time.sleep(0.1)
        rush.send_signal(signal.SIGKILL)
    # The folder is removed by a process that waits for the end of every host.
    until = time.monotonic() + CLEAN_SECONDS_MAX
    while left := list(tmp_path.iterdir()):
        assert time.monotonic() < until, left
        time.sleep(0.1)


def test_every_order_ends_exactly_once_although_hosts_are_killed(
    tmp_path: Path, relevo_url: str
) -> None:
    _check_rush(24, 2, tmp_path, relevo_url)


@pytest.mark.soak
@pytest.mark.timeout(1_800)
def test_a_thousand_orders_end_exactly_once_with_thirty_kills(
    tmp_path: Path, relevo_url: str
) -> None:
    _check_rush(1_000, 30, tmp_path, relevo_url)


def _check_rush(orders: int, kills: int, folder: Path, url: str) -> None:
    """Each order is found once by its id, and nothing else is found."""
    words = ("--orders", str(orders), "--kills", str(kills), "--database", url)
    with started("rush.py", *words, folder=folder, stderr=None) as rush:
        found = json.loads(rush.stdout.read())
    assert rush.returncode == 0
    expected = {str(number): 1 for number in range(1, orders + 1)}
    assert dict.fromkeys(found["orders"], 1) == expected
    kinds = ("deliveries", "completed router jobs", "receipts", "ledger lines", "charges")
    assert found["evidence"] == dict.fromkeys(kinds, expected)
    assert not list(folder.iterdir())


def _until(terminal: int, pattern: str) -> str:
    """Read what a terminal shows until a pattern comes, without colours and movements."""
    raw = b""
    while True:
        try:
            part = os.read(terminal, 65_536)
        except OSError:
            part = b""
        raw += part
        shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", raw.decode(errors="replace"))
        if re.search(pattern, shown):
            return shown
        assert part, f"never shown: {pattern}\n{shown}"


def _found(folder: Path, pattern: str) -> Path:
    while True:
        if (path := next(folder.glob(pattern), None)) is not None:
            return path
        time.sleep(0.05)
