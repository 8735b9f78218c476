"""What somebody without a key can do to a host: not keep it from the others."""

from __future__ import annotations

import contextlib
import socket
import statistics
import threading
import time
from typing import TYPE_CHECKING

import msgspec

from tests.e2e.conftest import PRESET, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.conftest import Cli, Host

DESCRIPTORS = 320


def _connect(host: Host) -> socket.socket:
    name, _, port = host.url.removeprefix("http://").partition(":")
    return socket.create_connection((name, int(port)), timeout=30)


@contextlib.contextmanager
def _endless_headers(host: Host, connections: int) -> Iterator[list[int]]:
    """Keep connections that never stop to send a header; gives how often each was closed."""
    over = threading.Event()
    closed = [0] * connections

    def send(number: int) -> None:
        while not over.is_set():
            with contextlib.suppress(OSError), _connect(host) as peer:
                peer.sendall(b"GET / HTTP/1.1\r\nHost: h\r\nX-Endless: ")
                while not over.is_set():
                    peer.sendall(b"x" * 65_536)
            closed[number] += 1

    threads = [threading.Thread(target=send, args=(number,)) for number in range(connections)]
    for thread in threads:
        thread.start()
    try:
        yield closed
    finally:
        over.set()
        for thread in threads:
            thread.join()


def test_endless_headers_hold_nobody_up(cli: Cli) -> None:
    host = cli.up()
    with _endless_headers(host, 16) as closed:
        until(lambda: any(closed), "one of them was closed")
        seconds = []
        for _ in range(9):
            begun = time.monotonic()
            assert host.ask("/livez")[0] == 200
            seconds.append(time.monotonic() - begun)
        assert statistics.median(seconds) < 1.0
    assert "Traceback" not in host.log


def test_strangers_do_not_take_the_descriptors_of_probes_and_leases(cli: Cli) -> None:
    cli.within = ("sh", "-c", f'ulimit -n {DESCRIPTORS}; exec "$@"', "sh")
    host = cli.up(access_key=PRESET)
    with contextlib.ExitStack() as stack:
        for _ in range(2 * DESCRIPTORS):
            with contextlib.suppress(OSError):
                stack.enter_context(_connect(host))
        # The host lives on: it renews its leases, connects anew, and says so.
        renewed = time.monotonic() + 2 * float(cli.environment["RELEVO_LEASE_EXPIRATION"])
        while time.monotonic() < renewed:
            assert host.ask("/livez") == (200, {"alive": True})
            status, body = host.ask("/readyz")
            assert (status, body["ready"]) == (200, True)
            time.sleep(0.1)
        status, body = host.ask("/v1/hosts", {"Authorization": f"Bearer {PRESET}"})
        assert status == 503
        assert "connections of one address" in body["detail"]
    key = {"Authorization": f"Bearer {PRESET}"}
    until(lambda: host.ask("/v1/hosts", key)[0] == 200, "the others left and their place is free")
    lines = [msgspec.json.decode(line) for line in host.log.splitlines() if line.startswith("{")]
    assert len([line for line in lines if line["event"] == "http.crowded"]) < 30
    assert "Traceback" not in host.log


def test_a_host_that_may_open_too_few_files_says_so(cli: Cli) -> None:
    cli.within = ("sh", "-c", 'ulimit -n 64; exec "$@"', "sh")
    ended = cli.spawn("up", "--port", "0").end()
    assert ended.code != 0
    assert "may open 64 files" in ended.err
    assert "ulimit -n" in ended.err


def test_garbage_makes_no_flood_of_logs(cli: Cli) -> None:
    host = cli.up()
    begun = time.monotonic()
    for _ in range(200):
        with _connect(host) as peer:
            peer.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: h\r\n\r\n\x00\x01garbage\r\n\r\n")
        with _connect(host) as peer:
            peer.sendall(b"\x16\x03\x01 not http\r\n\r\n")
            while peer.recv(65_536):
                pass
    seconds = time.monotonic() - begun
    assert host.ask("/livez")[0] == 200
    assert "Traceback" not in host.log
    assert "exception" not in host.log
    lines = [line for line in host.log.splitlines() if "http.refused" in line]
    assert 1 <= len(lines) <= seconds + 2
