"""`make demo`: the whole tour of the kitchen, on real processes and its own database."""

from __future__ import annotations

import os
import pty
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

TOUR = Path(__file__).parents[2] / "examples" / "kitchen" / "tour.py"


def test_the_tour_runs_to_the_last_receipt_and_stays_open_until_ctrl_c(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()  # on a terminal it stays open
    said = ""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        with subprocess.Popen(
            [sys.executable, str(TOUR), "--port", port],
            env={**{k: v for k, v in os.environ.items() if k != "CI"}, "TMPDIR": str(tmp_path)},
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as tour:
            assert tour.stdout is not None
            for line in tour.stdout:
                said += line
                if "The kitchen is open until Ctrl-C." in line:
                    tour.send_signal(signal.SIGINT)
    os.close(ours)
    os.close(theirs)
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
