"""Addresses: what may be listened on, and what is advertised."""

from __future__ import annotations

import pytest

from relevo.actors.transport.addresses import PeerAddress, is_loopback
from relevo.actors.transport.listener import checked_place
from relevo.errors import SettingsError


@pytest.mark.parametrize(
    "text",
    ["unix:/run/relevo/a.sock", "tcp://127.0.0.1:7400", "tls://[::1]:1", "tls://db.lan:65535"],
)
def test_an_address_reads_as_it_is_written(text: str) -> None:
    assert str(PeerAddress.read(text)) == text


@pytest.mark.parametrize(
    "text",
    ["", "unix:a.sock", "http://a:1", "tcp://a", "tcp://:1", "tcp://a:65536", "tls://::1:5", "tls://a:-1"],
)  # fmt: skip
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(SettingsError):
        PeerAddress.read(text)


def test_loopback_is_known_by_its_address() -> None:
    assert all(is_loopback(host) for host in ("127.0.0.1", "127.8.9.1", "::1", "localhost"))
    assert not any(is_loopback(host) for host in ("0.0.0.0", "::", "10.0.0.1", "db.lan"))


@pytest.mark.parametrize("listen", ["0.0.0.0:7400", "10.0.0.1:7400", "[::]:7400", "db.lan:7400"])
def test_plain_tcp_beyond_loopback_is_refused_at_the_start(listen: str) -> None:
    with pytest.raises(SettingsError, match="tls_cert"):
        checked_place(listen, None, has_tls=False)


def test_with_tls_a_host_says_where_others_reach_it() -> None:
    assert checked_place("10.0.0.1:7400", None, has_tls=True) == ("10.0.0.1", 7400, "10.0.0.1", 0)
    with pytest.raises(SettingsError, match="actors_address"):
        checked_place("0.0.0.0:7400", None, has_tls=True)
    found = checked_place("0.0.0.0:7400", "pod-1.lan:7401", has_tls=True)
    assert found == ("0.0.0.0", 7400, "pod-1.lan", 7401)
    with pytest.raises(SettingsError, match="actors_listen"):
        checked_place(None, "pod-1.lan:7401", has_tls=True)
