"""`relevo up`: starting, what it says, and stopping."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from relevo.testing.faults import FaultBoard
from tests.e2e.conftest import PRESET, until
from tests.http.signer import signed
from tests.kernel.postgres.embedded_bench import open_folder

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.conftest import Cli, Host


def _bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def _parts(host: Host) -> tuple[str, int]:
    name, _, port = host.url.removeprefix("http://").partition(":")
    return name, int(port)


def test_it_serves_on_the_embedded_database_from_nothing_and_leaves_nothing_running(
    cli: Cli,
) -> None:
    with open_folder() as folder:
        home = folder / "home"
        told = {"home": str(home), "database_url": ""}
        host = cli.up(**told)
        assert host.told["embedded"]
        assert host.told["database"] == str(home)
        status, ready = host.ask("/readyz")
        assert (status, ready["ready"], ready["reasons"]) == (200, True, [])
        assert 0 <= ready["write_probe_age_seconds"] < 10
        listed = cli("host", "list", "-o", "json", **told).json["items"]
        assert [one["address"] for one in listed] == [host.url]
        healthy = cli("doctor", "-o", "json", **told)
        assert healthy.code == 0, healthy
        found = {one["check"]: one["state"] for one in healthy.json["items"]}
        assert found["durability"] == found["schema"] == found["folder"] == "ok", healthy
        assert not {"fail", "skip"} & set(found.values()), healthy
        assert host.stop().code == 0
        assert not list(home.rglob("postmaster.pid"))


def test_the_first_key_is_shown_once_and_works(cli: Cli) -> None:
    host = cli.spawn("up", "--port", "0")
    assert host.process.stdout is not None
    said = ""
    while "key create" not in said:
        line = host.process.stdout.readline()
        assert line, host.log
        said += line
    (key,) = re.findall(r"^export RELEVO_KEY=(\S+)$", said, re.MULTILINE)
    (url,) = re.findall(r"is up at (\S+)$", said, re.MULTILINE)
    assert f'curl -H "Authorization: Bearer $RELEVO_KEY" {url}/v1/hosts' in said
    for page in ("/readyz", "/metrics", "/openapi.json"):
        assert url + page in said
    host.told = {"url": url}
    assert host.ask("/v1/hosts", _bearer(key))[0] == 200
    first = host.stop()
    assert first.code == 0

    second = cli.up()
    assert second.told["first_key"] is None
    ended = second.stop()
    for text in (first.out, first.err, ended.out, ended.err):
        assert key not in text


def test_a_preset_key_works_as_bearer_and_as_signature_and_is_never_said(cli: Cli) -> None:
    host = cli.up(access_key=PRESET, log_level="debug")
    assert host.told["preset_key"]
    assert host.told["first_key"] is None
    assert host.ask("/v1/keys", _bearer(PRESET))[0] == 200
    name, port = _parts(host)
    headers = signed(PRESET, "GET", "/v1/keys", f"{name}:{port}")
    status, keys = host.ask("/v1/keys", headers)
    assert status == 200
    assert [key["name"] for key in keys["items"]] == ["preset"]
    ended = host.stop()
    assert PRESET not in ended.out + ended.err + str(host.told)


def test_a_preset_key_that_is_none_is_refused_without_repeating_it(cli: Cli) -> None:
    refused = cli("up", "--port", "0", access_key="bm90IGxvbmc=")
    assert refused.code == 2
    assert "RELEVO_ACCESS_KEY" in refused.err
    assert "bm90IGxvbmc=" not in refused.out + refused.err


def test_sigterm_drains_and_exits_0(cli: Cli) -> None:
    host = cli.up("--name", "alpha")
    ended = host.stop()
    assert ended.code == 0, ended
    hosts = cli("host", "list", "-o", "json").json["items"]
    assert [(one["end_reason"], one["leases"]) for one in hosts] in ([], [("stopped", 0)])
    leases = cli("lease", "list", "-o", "json").json["items"]
    (lease,) = (one for one in leases if one["kind"] == "housekeeping")
    assert lease["owner"] is None
    assert lease["clean"]


def test_a_service_manager_hears_that_it_serves_lives_and_stops(cli: Cli, tmp_path: Path) -> None:
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(address)
        manager.settimeout(60)
        cli.environment |= {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "200000"}
        host = cli.up()
        assert [manager.recv(100) for _ in range(3)] == [b"READY=1", b"WATCHDOG=1", b"WATCHDOG=1"]
        assert host.stop().code == 0
        said = b""
        while said != b"STOPPING=1":
            said = manager.recv(100)


def test_ctrl_c_stops_it_as_well(cli: Cli) -> None:
    host = cli.up()
    host.send(signal.SIGINT)
    assert host.end().code == 0


def test_sigterm_while_it_starts_stops_it_and_what_it_began_did_not_happen(
    empty_cli: Cli, tmp_path: Path
) -> None:
    board = FaultBoard(tmp_path / "faults")
    board.arm("before_migration", "wait")
    faults = {key.removeprefix("RELEVO_").lower(): value for key, value in board.env().items()}
    host = empty_cli.spawn("up", "--port", "0", **faults)
    until(lambda: board.hits("before_migration") == 1, "the migration is about to begin")
    ended = host.stop()
    assert (ended.code, ended.out) == (0, ""), ended
    states = {one["state"] for one in empty_cli("migrate", "status", "-o", "json").json["items"]}
    assert states == {"pending"}


def test_a_second_sigterm_ends_at_once_while_a_request_hangs(cli: Cli) -> None:
    host = cli.up(access_key=PRESET)
    with socket.create_connection(_parts(host)) as hanging:
        hanging.sendall(
            b"POST /v1/keys HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n"
            b"expect: 100-continue\r\nauthorization: Bearer %s\r\n\r\n" % PRESET.encode()
        )
        # Sent when the body is waited for: from then on the request is in flight.
        assert hanging.recv(100).startswith(b"HTTP/1.1 100 ")
        host.send(signal.SIGTERM)
        until(lambda: host.ask("/livez")[0] == 0, "no new connections are taken")
        host.send(signal.SIGTERM)
        assert host.end().code == 128 + signal.SIGTERM


def test_a_second_sigterm_ends_at_once_while_the_heartbeat_hangs(cli: Cli, tmp_path: Path) -> None:
    board = FaultBoard(tmp_path / "faults")
    board.arm("before_heartbeat", "wait")
    faults = {key.removeprefix("RELEVO_").lower(): value for key, value in board.env().items()}
    host = cli.up(**faults)
    until(lambda: board.hits("before_heartbeat") == 1, "the heartbeat hangs")
    host.send(signal.SIGTERM)
    until(lambda: host.ask("/livez")[0] == 0, "no new connections are taken")
    host.send(signal.SIGINT)
    assert host.end().code == 128 + signal.SIGINT


BLOCKED = """
import asyncio, time
from relevo.cli.hosts.signals import StopSignals

async def main():
    with StopSignals() as signals:
        signals.starting = False
        signals.farewell = lambda: print("farewell", flush=True)
        print("blocked", flush=True)
        while signals.number is None:
            time.sleep(0.01)
        print("asked", flush=True)
        while True:
            time.sleep(60)

asyncio.run(main())
"""


def test_a_second_signal_ends_a_process_whose_event_loop_hangs() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", BLOCKED], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for word in ("blocked", "asked", "farewell"):
            assert process.stdout.readline() == f"{word}\n"
            if word != "farewell":
                process.send_signal(signal.SIGTERM)
    assert process.returncode == 128 + signal.SIGTERM


def test_readyz_says_why_a_host_is_not_ready(cli: Cli) -> None:
    host = cli.up("--name", "alpha")
    assert cli("system", "readyz", "--url", host.url).code == 0
    assert cli("host", "drain", "alpha").code == 0
    until(
        lambda: host.ask("/readyz")[1]["reasons"] == ["host is draining"],
        "the host says that it drains",
    )
    assert host.ask("/readyz")[0] == 503
    shown = cli("system", "readyz", "--url", host.url)
    assert shown.code == 4
    assert "host is draining" in shown.out


def test_a_namesake_takes_over_and_the_first_says_so(cli: Cli) -> None:
    first = cli.up("--name", "alpha")
    second = cli.up("--name", "alpha")
    ended = first.end()
    assert ended.code == 4
    assert "error: another process took over as host 'alpha'" in ended.err
    assert second.ask("/readyz")[0] == 200


def test_a_busy_port_is_told_in_one_line(cli: Cli) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = cli("up", "--port", str(port))
    assert refused.code == 2
    assert refused.err.splitlines()[-1].startswith(f"error: cannot listen on 127.0.0.1 port {port}")
    assert "--port" in refused.err
    assert "Traceback" not in refused.err


@pytest.mark.parametrize("given", [(), ("--address", "http://front:80")])
def test_the_address_of_a_host_is_where_it_listens_unless_told(
    cli: Cli, given: tuple[str, ...]
) -> None:
    host = cli.up(*given)
    (listed,) = cli("host", "list", "-o", "json").json["items"]
    assert listed["address"] == (given[1] if given else host.url)
