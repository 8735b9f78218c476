"""https of Relevo's own: certificates, what is refused at the start, and both ends of the wire."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from relevo import settings
from relevo.errors import SettingsError
from relevo.http.admission import ConnectionBounds
from relevo.http.server import serving
from relevo.http.tls import client_tls, server_tls
from tests.e2e.conftest import PRESET, Cli
from tests.http.authority import Authority
from tests.http.test_server import application

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from relevo.settings import Settings
    from tests.http.conftest import Opens

pytestmark = pytest.mark.anyio


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    folder = tmp_path / "certificates"
    folder.mkdir()
    return Authority(folder)


@pytest.fixture
def cli(relevo_url: str, tmp_path: Path) -> Iterator[Cli]:
    with contextlib.ExitStack() as stack:
        yield Cli(tmp_path, stack, database_url=relevo_url)


def told(cert: Path | None, key: Path | None) -> Settings:
    return settings.load({"tls_cert": cert, "tls_key": key}, environ={})


def trusting(authority: Authority) -> aiohttp.ClientSession:
    connector = aiohttp.TCPConnector(ssl=client_tls(authority.ca))
    return aiohttp.ClientSession(connector=connector)


async def body(session: aiohttp.ClientSession, url: str) -> bytes:
    async with session.get(url) as response:
        return await response.read()


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"RELEVO_TLS_CERT": "a.pem"}, "tls_cert is set but tls_key is not"),
        ({"RELEVO_TLS_KEY": "a.key"}, "tls_key is set but tls_cert is not"),
    ],
)
def test_half_of_what_tls_needs_is_refused(given: dict[str, str], text: str) -> None:
    with pytest.raises(SettingsError, match=text):
        settings.load(environ=given)


def test_without_a_certificate_there_is_no_tls() -> None:
    assert server_tls(told(None, None)) is None


def test_a_file_that_cannot_be_read_is_refused_by_name(authority: Authority) -> None:
    cert, key = authority.make_out("a")
    missing = cert.with_name("missing.pem")
    with pytest.raises(SettingsError, match=r"tls_cert .*missing\.pem cannot be read: No such"):
        server_tls(told(missing, key))
    with pytest.raises(SettingsError, match=r"tls_key .*missing\.pem cannot be read: No such"):
        server_tls(told(cert, missing))
    with pytest.raises(SettingsError, match=r"tls_key .*certificates cannot be read: Is a dir"):
        server_tls(told(cert, cert.parent))


def test_a_file_that_holds_something_else_is_refused_by_name(authority: Authority) -> None:
    cert, key = authority.make_out("a")
    with pytest.raises(SettingsError, match=r"tls_cert .*a\.key holds no certificate in PEM"):
        server_tls(told(key, cert))
    with pytest.raises(SettingsError, match=r"tls_key .*a\.pem holds no private key in PEM"):
        server_tls(told(cert, cert))
    with pytest.raises(SettingsError, match=r"--ca or RELEVO_CA, .*a\.key holds no certificate"):
        client_tls(key)
    damaged = cert.with_name("damaged.pem")
    damaged.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    with pytest.raises(SettingsError, match=r"tls_cert .*damaged\.pem and tls_key .*a\.key"):
        server_tls(told(damaged, key))
    with pytest.raises(SettingsError, match=r"certificates in .*damaged\.pem"):
        client_tls(damaged)


@pytest.mark.parametrize("mode", [0o604, 0o644, 0o602])
def test_a_key_that_everybody_can_read_or_change_is_refused(
    authority: Authority, mode: int
) -> None:
    cert, key = authority.make_out("a")
    key.chmod(mode)
    expected = rf"tls_key .*a\.key can be read .*\(mode {mode:04o}\).*chmod o-rwx .*a\.key"
    with pytest.raises(SettingsError, match=expected):
        server_tls(told(cert, key))
    key.chmod(0o640)
    assert server_tls(told(cert, key)) is not None


def test_the_key_of_another_certificate_is_refused_by_name(authority: Authority) -> None:
    cert, _ = authority.make_out("a")
    _, other = authority.make_out("b")
    with pytest.raises(SettingsError, match=r"a\.pem and tls_key .*b\.key \(KEY_VALUES_MISMATCH"):
        server_tls(told(cert, other))


def test_an_encrypted_key_is_refused_and_nobody_is_asked_for_its_password(
    authority: Authority,
) -> None:
    with pytest.raises(SettingsError, match=r"tls_key .*a\.key is encrypted"):
        server_tls(told(*authority.make_out("a", password=b"geheim")))


async def test_requests_and_answers_are_those_of_http(authority: Authority) -> None:
    app, api = application()
    tls = server_tls(told(*authority.make_out("a")))
    assert tls is not None
    assert tls.minimum_version is ssl.TLSVersion.TLSv1_2
    async with serving(api, "127.0.0.1", 0, tls=tls) as address, trusting(authority) as session:
        assert address.url == f"https://127.0.0.1:{address.port}"
        assert await body(session, f"{address.url}/a%2Fb") == b"done"
    assert app.scopes[0]["scheme"] == "https"
    assert app.scopes[0]["target"] == b"/a%2Fb"


async def test_who_does_not_know_the_authority_does_not_believe_the_host(
    authority: Authority,
) -> None:
    app, api = application()
    tls = server_tls(told(*authority.make_out("a")))
    async with serving(api, "127.0.0.1", 0, tls=tls) as address, aiohttp.ClientSession() as client:
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await body(client, address.url)
    assert app.scopes == []


async def test_plain_http_is_not_answered_and_disturbs_nobody(authority: Authority) -> None:
    app, api = application()
    tls = server_tls(told(*authority.make_out("a")))
    async with serving(api, "127.0.0.1", 0, tls=tls) as address, trusting(authority) as session:
        with pytest.raises(aiohttp.ClientError):
            await body(session, f"http://127.0.0.1:{address.port}/")
        assert app.scopes == []
        assert await body(session, address.url) == b"done"


async def test_what_is_no_http_is_refused_inside_tls_as_well(authority: Authority) -> None:
    _, api = application()
    tls = server_tls(told(*authority.make_out("a")))
    async with serving(api, "127.0.0.1", 0, tls=tls) as address:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", address.port, ssl=client_tls(authority.ca)
        )
        writer.write(b"this is no request\r\n\r\n")
        assert b" 400 " in await reader.readline()
        await reader.read()  # ends only because the server closes
        writer.close()


async def test_a_peer_that_does_not_say_goodbye_is_dropped_when_the_server_stops(
    authority: Authority,
) -> None:
    _, api = application()
    context = client_tls(authority.ca)

    def connect(port: int) -> ssl.SSLSocket:
        plain = socket.create_connection(("127.0.0.1", port), timeout=30)
        return context.wrap_socket(plain, server_hostname="127.0.0.1")

    def ask(peer: ssl.SSLSocket) -> bytes:
        peer.sendall(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        return peer.recv(100)

    tls = server_tls(told(*authority.make_out("a")))
    async with serving(api, "127.0.0.1", 0, tls=tls, grace_seconds=0) as address:
        peer = await asyncio.to_thread(connect, address.port)
        assert b" 200 " in await asyncio.to_thread(ask, peer)
    with socket.socket(fileno=peer.detach()) as wire:  # which answers nothing of TLS
        wire.settimeout(5)
        while await asyncio.to_thread(wire.recv, 1_000):
            """Read until the server has closed the connection itself."""


async def test_connections_count_before_their_handshake(authority: Authority) -> None:
    _, api = application()
    tls = server_tls(told(*authority.make_out("a")))
    bounds = ConnectionBounds(most=2, per_address=2, probes=1, backlog=16)
    async with serving(api, "127.0.0.1", 0, tls=tls, bounds=bounds) as address:
        silent = [socket.create_connection(("127.0.0.1", address.port)) for _ in range(5)]
        # Two are admitted, one is held for a probe; each of the others makes the one before go.
        for peer in silent[2:4]:
            peer.settimeout(30)
            with contextlib.suppress(ConnectionResetError):
                assert await asyncio.to_thread(peer.recv, 1) == b""
        for peer in silent:
            peer.close()
        async with trusting(authority) as session, asyncio.timeout(30):
            while await body(session, address.url) != b"done":
                """The host has not seen yet that they are gone."""


async def test_links_in_answers_lead_back_over_https(
    authority: Authority, open_site: Opens
) -> None:
    cert, key = authority.make_out("a")
    version = "api-version=2023-11-01"
    async with open_site(tls_cert=cert, tls_key=key) as site, trusting(authority) as session:
        await site.session.close()
        site.session = session
        for name in ("d0", "d1"):
            target = f"/routing/distributionPolicies/{name}?{version}"
            assert (await site.ask("PATCH", target, key="admin", json={})).status == 201
        target = f"/routing/distributionPolicies?{version}&maxpagesize=1"
        reply = await site.ask("GET", target, key="viewer")
        assert reply.json["nextLink"].startswith(f"{site.address.url}/routing/")


def test_a_host_serves_https_and_commands_reach_it(cli: Cli, authority: Authority) -> None:
    cert, key = authority.make_out("a")
    secret = key.read_text().splitlines()[1]
    files = ("--tls-cert", str(cert), "--tls-key", str(key))
    host = cli.up("--name", "alpha", *files, access_key=PRESET, log_level="debug")
    assert host.url.startswith("https://127.0.0.1:")
    remote: dict[str, Any] = {"database_url": "", "key": PRESET, "url": host.url}
    listed = cli("host", "list", "-o", "json", "--ca", str(authority.ca), **remote)
    assert [one["address"] for one in listed.json["items"]] == [host.url]
    assert cli("system", "health", ca=str(authority.ca), **remote).code == 0
    stranger = cli("host", "list", **remote)
    assert stranger.code == 2
    assert "--ca or RELEVO_CA" in stranger.err
    ended = host.stop()
    assert ended.code == 0
    assert secret not in ended.out + ended.err


def test_commands_about_one_host_know_that_it_serves_https(cli: Cli, authority: Authority) -> None:
    cert, key = authority.make_out("a")
    files = {"tls_cert": str(cert), "tls_key": str(key)}
    host = cli.up(access_key=PRESET, **files)
    port = host.url.rpartition(":")[2]
    seen = cli("system", "readyz", "-o", "json", ca=str(authority.ca), port=port, **files)
    assert seen.json["ready"] is True


def test_a_host_with_the_wrong_key_does_not_start(cli: Cli, authority: Authority) -> None:
    (cert, _), (_, other) = authority.make_out("a"), authority.make_out("b")
    refused = cli("up", "--port", "0", "--tls-cert", str(cert), "--tls-key", str(other))
    assert refused.code == 2
    assert str(other) in refused.err
    assert refused.out == ""
