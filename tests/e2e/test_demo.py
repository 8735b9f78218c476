"""`relevo demo`: the whole walk, on real processes."""

from __future__ import annotations

import re
import signal
import socket
from typing import TYPE_CHECKING

from relevo.cli.demo.command import COOKS
from relevo.cli.demo.hosts import KIND

if TYPE_CHECKING:
    from tests.e2e.conftest import Cli


def _nothing_is_left(cli: Cli) -> bool:
    hosts = cli("host", "list", "--all", "-o", "json").json["items"]
    leases = cli("lease", "list", "--kind", KIND, "-o", "json").json["items"]
    keys = cli("key", "list", "--all", "-o", "json").json["items"]
    jobs = cli("job", "list", "-o", "json").json["items"]
    return (
        not [host for host in hosts if host["live"] and host["name"] in COOKS]
        and not leases
        and not jobs
        and all(key["state"] == "revoked" for key in keys if key["name"] == "demo")
    )


def test_the_demo_walks_through_everything_and_takes_its_things_along(cli: Cli) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        walked = cli("demo", "--once", "--port", port)
    assert walked.code == 0, walked
    assert f"Port {port} is taken" in walked.out
    pictures = re.findall(r"^ +(\w+) +live +((?:■ )+)", walked.out, re.MULTILINE)
    counts = [(name, len(bar.split())) for name, bar in pictures]
    assert counts == [
        ("ana", 12),
        ("ana", 4), ("bo", 4), ("carla", 4),
        ("ana", 6), ("carla", 6),
    ]  # fmt: skip
    assert walked.out.count("3 receipts, written by") == 3
    assert "The nightly report waits for its time" in walked.out
    assert "GET /v1/hosts answers: 2 are live" in walked.out
    assert "It may look, not touch" in walked.out
    assert "Without a key" in walked.out
    assert "first access key" in walked.out
    assert _nothing_is_left(cli)


def test_on_a_terminal_it_serves_until_ctrl_c(cli: Cli) -> None:
    terminal = cli.on_terminal("demo", "--port", "0")
    terminal.read_until("It serves until Ctrl-C.")
    assert "lease list --kind demo" in terminal.said
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.end() == 0
    assert _nothing_is_left(cli)
