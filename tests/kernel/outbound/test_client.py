"""Calls to the outside reach only what they may (J23), and end soon whatever happens there."""

from __future__ import annotations

import asyncio
import gzip
import ssl
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from relevo import limits
from relevo.errors import OutboundFailed, OutboundRefused
from relevo.kernel.outbound.addresses import Allowed
from relevo.kernel.outbound.client import Client, OutboundAnswer
from tests.kernel.outbound.outside import Names, Outside, Status, outside

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.anyio

LOOPBACK = Allowed.parse(["127.0.0.1"])


@pytest.fixture
async def host() -> AsyncIterator[Outside]:
    async with outside() as running:
        yield running


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with Client(LOOPBACK) as ready:
        yield ready


async def post(client: Client, url: str) -> OutboundAnswer:
    return await client.post(url, b"{}", {"content-type": "application/json"})


async def test_a_request_gets_its_answer(host: Outside, client: Client) -> None:
    host.answers("/x", {"priority": 7})
    answer = await client.post(host.url("/x"), b'{"job":{}}', {"x-one": "1"})
    assert (answer.status, answer.body) == (200, b'{"priority":7}')
    assert answer.headers["content-type"].startswith("application/json")
    (asked,) = host.asked
    assert asked.body == b'{"job":{}}'
    assert asked.headers["x-one"] == "1"
    assert asked.headers["accept-encoding"] == "identity"


@pytest.mark.parametrize(
    "written",
    [
        "127.0.0.1",
        "127.0.0.2",
        "localhost",
        "LOCALHOST",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[64:ff9b::127.0.0.1]",
        "0.0.0.0",
        "[::]",
        "2130706433",
        "0177.0.0.1",
        "0x7f.0.0.1",
        "0x7f000001",
        "127.1",
        "127.0.0.1.",
        "①②⑦.0.0.1",
        "127。0。0。1",
        "169.254.169.254",
    ],
)
async def test_without_leave_no_way_of_writing_it_leads_to_this_machine(
    host: Outside, written: str
) -> None:
    host.answers("/x", 1)
    async with Client(Allowed()) as client:
        with pytest.raises(OutboundRefused, match="not called"):
            await post(client, host.url("/x", written))
    assert host.asked == []  # J23


async def test_a_name_that_leads_to_a_special_address_is_not_called(host: Outside) -> None:
    names = Names(rebound_example=[["127.0.0.1", "::1", "::ffff:10.0.0.1"]])
    async with Client(Allowed(), resolver=names) as client:
        with pytest.raises(OutboundRefused, match=r"rebound\.example is not called"):
            await post(client, host.url("/x", "rebound.example"))
    assert names.asked == ["rebound.example"]
    assert host.asked == []  # J23


async def test_the_address_that_is_connected_to_is_the_one_that_was_looked_at(
    host: Outside,
) -> None:
    """A name that means something else each time it is asked for."""
    host.answers("/x", 1)
    names = Names(rebound_example=[["127.0.0.1"], ["10.0.0.1"]])
    async with Client(LOOPBACK, resolver=names) as client:
        assert (await post(client, host.url("/x", "rebound.example"))).status == 200
        assert names.asked == ["rebound.example"]
    names = Names(rebound_example=[["10.0.0.1"], ["127.0.0.1"]])
    async with Client(LOOPBACK, resolver=names) as client:
        with pytest.raises(OutboundRefused):
            await post(client, host.url("/x", "rebound.example"))


async def test_of_several_addresses_only_the_open_ones_are_tried(host: Outside) -> None:
    host.answers("/x", 1)
    names = Names(mixed_example=[["10.0.0.1", "127.0.0.1", "::1"]])
    async with Client(LOOPBACK, resolver=names) as client:
        assert (await post(client, host.url("/x", "mixed.example"))).status == 200


async def test_a_host_is_opened_by_name_wherever_it_leads(host: Outside) -> None:
    host.answers("/x", 1)
    names = Names(hooks_internal=[["127.0.0.1"]], other_internal=[["127.0.0.1"]])
    async with Client(Allowed.parse(["hooks.internal"]), resolver=names) as client:
        assert (await post(client, host.url("/x", "hooks.internal"))).status == 200
        with pytest.raises(OutboundRefused):
            await post(client, host.url("/x", "other.internal"))


PUBLIC = "93.184.215.14"


async def send_secret(client: Client, url: str) -> OutboundAnswer:
    return await client.post(url, b"{}", {"x-functions-key": "hush"}, secret=True)


@pytest.mark.parametrize("written", [PUBLIC, "hooks.example"])
async def test_a_secret_goes_without_encryption_to_no_address_of_the_internet(
    written: str,
) -> None:
    names = Names(hooks_example=[[PUBLIC]])
    async with Client(LOOPBACK, resolver=names) as client:
        with pytest.raises(OutboundRefused, match="without encryption; write https"):
            await send_secret(client, f"http://{written}/x")


async def test_a_secret_goes_without_encryption_to_what_the_operator_has_opened(
    host: Outside,
) -> None:
    host.answers("/x", 1)
    names = Names(hooks_internal=[["127.0.0.1"]], mixed_example=[[PUBLIC, "127.0.0.1"]])
    async with Client(LOOPBACK, resolver=names) as client:
        for written in ("127.0.0.1", "hooks.internal", "mixed.example"):
            assert (await send_secret(client, host.url("/x", written))).status == 200
    opened = Allowed.parse(["hooks.internal"])
    async with Client(opened, resolver=names) as client:
        assert (await send_secret(client, host.url("/x", "hooks.internal"))).status == 200
        with pytest.raises(OutboundRefused, match="not called"):
            await send_secret(client, host.url("/x"))


async def test_a_secret_does_not_follow_a_redirect(host: Outside, client: Client) -> None:
    async with outside() as other:

        async def away(_: web.Request) -> web.Response:
            return web.Response(status=307, headers={"location": other.url("/x")})

        host.at("/x", away)
        assert (await send_secret(client, host.url("/x"))).status == 307
        assert other.asked == []


async def test_redirects_are_answers_and_not_followed(host: Outside, client: Client) -> None:
    async def elsewhere(_: web.Request) -> web.StreamResponse:
        return web.Response(status=307, headers={"location": "http://169.254.169.254/secret"})

    host.at("/x", elsewhere)
    assert (await post(client, host.url("/x"))).status == 307
    assert host.paths() == ["/x"]


async def test_no_proxy_of_the_environment_is_used(
    host: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    host.answers("/x", 1)
    async with Client(LOOPBACK) as client:
        assert (await post(client, host.url("/x"))).status == 200


async def test_cookies_are_not_kept(host: Outside, client: Client) -> None:
    async def baker(_: web.Request) -> web.StreamResponse:
        return web.Response(headers={"set-cookie": "a=b"})

    host.at("/x", baker)
    await post(client, host.url("/x"))
    await post(client, host.url("/x"))
    assert all("cookie" not in asked.headers for asked in host.asked)


@pytest.mark.parametrize("status", [502, 503, 504])
async def test_an_answer_of_something_in_between_is_tried_once_more(
    host: Outside, client: Client, status: int
) -> None:
    host.answers("/x", Status(status), 1)
    assert (await post(client, host.url("/x"))).status == 200
    host.answers("/y", Status(status), Status(status), 1)
    assert (await post(client, host.url("/y"))).status == status
    assert host.paths() == ["/x", "/x", "/y", "/y"]


@pytest.mark.parametrize("status", [200, 201, 400, 401, 404, 429, 500, 501])
async def test_any_other_answer_counts(host: Outside, client: Client, status: int) -> None:
    host.answers("/x", Status(status), 1)
    assert (await post(client, host.url("/x"))).status == status
    assert len(host.asked) == 1


async def test_a_broken_connection_is_tried_once_more(host: Outside, client: Client) -> None:
    async def hang_up(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    async def recover(request: web.Request) -> web.StreamResponse:
        return await hang_up(request) if len(host.asked) == 1 else web.Response()

    host.at("/x", recover)
    assert (await post(client, host.url("/x"))).status == 200
    host.asked.clear()
    host.at("/y", hang_up)
    with pytest.raises(OutboundFailed, match="closed the connection"):
        await post(client, host.url("/y"))
    assert len(host.asked) == 2


async def test_half_an_answer_is_a_broken_connection(host: Outside, client: Client) -> None:
    async def half(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-length": "100"})
        await response.prepare(request)
        await response.write(b"1")
        assert request.transport is not None
        request.transport.close()
        return response

    host.at("/x", half)
    with pytest.raises(OutboundFailed, match="closed the connection"):
        await post(client, host.url("/x"))
    assert len(host.asked) == 2


async def test_a_port_where_nobody_listens_is_a_failure(host: Outside, client: Client) -> None:
    async with outside() as gone:
        url = gone.url("/geheim?code=geheim")
    with pytest.raises(OutboundFailed, match="cannot be connected to") as caught:
        await post(client, url)
    assert "geheim" not in str(caught.value)  # J23


async def test_a_name_that_nobody_knows_is_a_failure() -> None:
    async with Client(Allowed(), resolver=Names()) as client:
        with pytest.raises(OutboundFailed, match=r"nowhere\.example cannot be found by name"):
            await post(client, "https://nowhere.example/")
    async with Client(Allowed(), resolver=Names(empty_example=[[]])) as client:
        with pytest.raises(OutboundFailed, match="cannot be found by name"):
            await post(client, "https://empty.example/")


async def test_a_name_that_cannot_be_asked_for_is_a_failure() -> None:
    async with Client(Allowed()) as client:
        with pytest.raises(OutboundFailed, match="cannot be found by name"):
            await post(client, f"https://{'a' * 64}.example/")


@given(text=st.text(max_size=30))
async def test_any_text_as_an_address_is_refused_or_fails(text: str) -> None:
    async with Client(Allowed(), resolver=Names()) as client:
        for url in (text, f"http://{text}", f"https://{text}/"):
            with pytest.raises(OutboundFailed):
                await post(client, url)


@pytest.mark.parametrize("begun", [False, True], ids=["no answer", "half an answer"])
async def test_who_does_not_finish_in_time_has_failed(host: Outside, begun: bool) -> None:
    released = asyncio.Event()

    async def hold(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        if begun:
            await response.prepare(request)
            await response.write(b"1")
        await released.wait()
        return response

    host.at("/x", hold)
    async with Client(LOOPBACK, seconds=0.2) as client:
        with pytest.raises(OutboundFailed, match=r"did not answer within 0\.2 s"):
            await post(client, host.url("/x"))
    released.set()


async def test_an_answer_may_be_as_large_as_the_bound_and_no_larger(
    host: Outside, client: Client
) -> None:
    host.answers("/x", Status(200, b"1" * limits.OUTBOUND_ANSWER_BYTES_MAX))
    answer = await post(client, host.url("/x"))
    assert len(answer.body) == limits.OUTBOUND_ANSWER_BYTES_MAX
    host.answers("/y", Status(200, b"1" * (limits.OUTBOUND_ANSWER_BYTES_MAX + 1)))
    with pytest.raises(OutboundFailed, match="more than 1048576 bytes"):
        await post(client, host.url("/y"))


async def test_an_answer_without_end_is_cut_off(host: Outside, client: Client) -> None:
    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while request.transport is not None and not request.transport.is_closing():
            await response.write(b"1" * 65_536)
        return response

    host.at("/x", endless)
    with pytest.raises(OutboundFailed, match="more than 1048576 bytes"):
        await post(client, host.url("/x"))


async def test_a_compressed_answer_is_never_unfolded(host: Outside, client: Client) -> None:
    bomb = gzip.compress(bytes(64 * 1024 * 1024))
    assert len(bomb) < limits.OUTBOUND_ANSWER_BYTES_MAX

    async def explode(_: web.Request) -> web.StreamResponse:
        return web.Response(body=bomb, headers={"content-encoding": "gzip"})

    host.at("/x", explode)
    with pytest.raises(OutboundFailed, match="compressed"):
        await post(client, host.url("/x"))


async def test_what_is_not_http_is_a_failure(client: Client) -> None:
    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(babble, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(OutboundFailed, match="did not answer in HTTP"):
            await post(client, f"http://127.0.0.1:{port}/")


@pytest.mark.parametrize("value", ["geheim\r\nhost: other", "geheim\0", "geheim\n", "geheimä"])
async def test_a_header_cannot_bring_another_one(host: Outside, client: Client, value: str) -> None:
    with pytest.raises(OutboundRefused, match="the header x-functions-key") as caught:
        await client.post(host.url("/x"), b"", {"x-functions-key": value})
    assert "geheim" not in str(caught.value)  # J23
    assert host.asked == []


async def test_a_certificate_must_be_trusted_and_be_of_that_host(tmp_path: Path) -> None:
    serving, trusting = _certificate(tmp_path)
    names = Names(good_example=[["127.0.0.1"]], other_example=[["127.0.0.1"]])
    async with outside(serving) as host:
        host.answers("/x", 1)
        good = f"https://good.example:{host.port}/x"
        async with Client(LOOPBACK, resolver=names) as client:
            with pytest.raises(OutboundFailed, match="certificate that is not trusted"):
                await post(client, good)
        async with Client(LOOPBACK, resolver=names, trust=trusting) as client:
            assert (await post(client, good)).status == 200
            with pytest.raises(OutboundFailed, match="certificate that is not trusted"):
                await post(client, f"https://other.example:{host.port}/x")
        assert len(host.asked) == 1


def _certificate(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Make a certificate for good.example: contexts that serve with it, and that trust it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "good.example")])
    start = datetime.now(UTC) - timedelta(days=1)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, start, start + timedelta(days=2))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("good.example")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    public, private = folder / "public.pem", folder / "private.pem"
    public.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(public, private)
    return serving, ssl.create_default_context(cafile=str(public))
