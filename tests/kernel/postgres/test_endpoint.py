"""Where the database is: several hosts, TLS, and what a wrong address gets told."""

from __future__ import annotations

import asyncio
import datetime
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from relevo import limits, settings
from relevo.errors import DatabaseUnavailable, SettingsError
from relevo.kernel.postgres.database import Database
from relevo.kernel.postgres.embedded.server import EmbeddedServer
from relevo.kernel.postgres.pool import endpoint as endpoints
from relevo.kernel.postgres.pool.endpoint import Endpoint
from relevo.testing.proxy import Proxy
from tests.kernel.postgres.conftest import retries
from tests.kernel.postgres.servers import debian_server, free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.anyio


async def opened(url: str) -> Database:
    return await Database.open(settings.load({"database_url": url}, environ={}))


def several(proxies: list[Proxy], url: str) -> str:
    """`url` with one host after the other."""
    parts = urlsplit(proxies[0].url(url))
    user = parts.netloc.rpartition("@")[0]
    hosts = ",".join(f"127.0.0.1:{proxy.port}" for proxy in proxies)
    return parts._replace(netloc=f"{user}@{hosts}").geturl()


# --- addresses --------------------------------------------------------------------------------


def test_an_endpoint_is_shown_without_its_password() -> None:
    assert str(Endpoint("postgresql://ana:geheim@db.example:5433/shop?sslmode=require")) == (
        "db.example:5433/shop"
    )
    assert str(Endpoint("postgresql://relevo@/relevo?host=/run/pg&password=geheim")) == (
        "/run/pg/relevo"
    )


@pytest.mark.parametrize(
    ("url", "fault"),
    [
        ("mysql://db/shop", "starts with postgresql://, not mysql://"),
        ("db.example/shop", "not nothing://"),
        ("postgresql://[::1/shop", "cannot be used"),
        ("postgresql:///shop?host=a,b,c&port=1,2", "3 hosts and 2 ports"),
    ],
)
def test_an_address_that_cannot_be_one_is_refused(url: str, fault: str) -> None:
    with pytest.raises(SettingsError, match=fault):
        Endpoint(url)


async def test_an_option_that_cannot_be_is_refused(relevo_url: str) -> None:
    with pytest.raises(SettingsError, match="the database URL cannot be used"):
        await opened(f"{relevo_url}{'&' if '?' in relevo_url else '?'}sslmode=perhaps")


async def test_a_server_that_is_not_there_is_unavailable() -> None:
    with pytest.raises(DatabaseUnavailable, match="check that it runs"):
        await opened(f"postgresql://relevo@127.0.0.1:{free_port()}/relevo")


async def test_a_database_that_is_not_there_is_unavailable(relevo_url: str) -> None:
    parts = urlsplit(relevo_url)
    with pytest.raises(DatabaseUnavailable, match='database "nowhere" does not exist'):
        await opened(parts._replace(path="/nowhere").geturl())


async def test_a_version_that_is_too_old_is_refused(
    relevo_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoints, "VERSION_MIN", 990_000)
    with pytest.raises(SettingsError, match="is not supported; Relevo needs 15 to 18"):
        await opened(relevo_url)


# --- several hosts ----------------------------------------------------------------------------


async def test_a_host_that_refuses_is_passed_over(relevo_url: str) -> None:
    with Proxy.to(relevo_url) as dead, Proxy.to(relevo_url) as alive:
        dead.refuse()
        async with await opened(several([dead, alive], relevo_url)) as database:
            assert await database.fetchval("select 1") == 1
        assert alive.transferred.downstream > 0


@pytest.mark.parametrize("form", ["authority", "options"])
async def test_a_host_that_does_not_even_refuse_does_not_use_up_the_time(
    relevo_url: str, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.setattr(limits, "CONNECT_SECONDS_MAX", 2.0)
    with Proxy.to(relevo_url) as dead, Proxy.to(relevo_url) as alive:
        dead.cut()
        url = several([dead, alive], relevo_url)
        if form == "options":
            parts = urlsplit(url)
            hosts = f"host=127.0.0.1,127.0.0.1&port={dead.port},{alive.port}"
            url = parts._replace(netloc=f"{parts.username}@", query=hosts).geturl()
        async with await opened(url) as database:
            assert await database.fetchval("select 1") == 1
            assert retries(database) == 0  # the next connection begins with the good one


@pytest.mark.usefixtures("impatient")
async def test_when_all_hosts_fail_each_says_why(relevo_url: str) -> None:
    with Proxy.to(relevo_url) as one, Proxy.to(relevo_url) as other:
        url = several([one, other], relevo_url)
        one.refuse()
        other.cut()
        with pytest.raises(
            DatabaseUnavailable, match=f"{one.port}.*Connect call failed.*{other.port}.*Timeout"
        ):
            await opened(url)


@contextmanager
def embedded_server(**options: str) -> Iterator[EmbeddedServer]:
    with tempfile.TemporaryDirectory(prefix="relevo-test-") as folder:
        Path(folder).chmod(0o755)
        server = EmbeddedServer.join(Path(folder) / "home", settings={"fsync": "off", **options})
        yield server
        server.leave()


async def test_after_a_failover_calls_go_to_the_new_primary() -> None:
    """The old one vanishes without a word; the new one took no writes until then."""
    read_only = "alter system set default_transaction_read_only = "
    with (
        embedded_server() as old,
        embedded_server() as new,
        Proxy.to(old.url) as to_old,
        Proxy.to(new.url) as to_new,
    ):
        async with await opened(new.url) as standby:
            await standby.write("create table note (id text)")
            await standby.write(f"{read_only} on")
            await standby.fetch("select pg_reload_conf()")
            await until_setting(standby, "on")
            async with await opened(several([to_new, to_old], old.url)) as database:
                await database.write("create table note (id text)")  # the standby is passed over
                await database.write("insert into note values ('old')")
                to_old.refuse()
                to_old.reset()
                await standby.write(f"{read_only} off")
                await standby.fetch("select pg_reload_conf()")
                await until_setting(standby, "off")
                await database.write("insert into note values ('new')")
                assert await standby.fetchval("select array_agg(id) from note") == ["new"]


async def until_setting(standby: Database, value: str) -> None:
    """The postmaster tells its backends of a new setting when it gets to it."""
    async with asyncio.timeout(30):
        while await standby.fetchval("show default_transaction_read_only") != value:
            await asyncio.sleep(0.01)


# --- TLS --------------------------------------------------------------------------------------


def certificate(name: str) -> tuple[bytes, bytes]:
    """A key, and a certificate for it that vouches for itself and for `name`."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    encoded = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return encoded, signed.public_bytes(serialization.Encoding.PEM)


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, Path]]:
    """A server that lets nobody in without TLS, and the certificate to trust."""
    key, trusted = certificate("localhost")
    root = tmp_path_factory.mktemp("tls") / "root.crt"
    root.write_bytes(trusted)
    with debian_server(
        "local all all trust\nhostssl all all 127.0.0.1/32 trust\n",
        {"ssl": "on"},
        {"server.key": key, "server.crt": trusted},
    ) as port:
        yield port, root


@pytest.mark.parametrize("mode", ["sslmode=require", "sslmode=verify-full&sslrootcert={root}"])
async def test_a_connection_can_be_encrypted(tls: tuple[int, Path], mode: str) -> None:
    port, root = tls
    options = mode.format(root=root)
    async with await opened(f"postgresql://relevo@localhost:{port}/relevo?{options}") as database:
        encrypted = "select ssl from pg_stat_ssl where pid = pg_backend_pid()"
        assert await database.fetchval(encrypted) is True


@pytest.mark.parametrize(
    ("host", "mode", "fault"),
    [
        ("localhost", "sslmode=disable", "no encryption"),
        ("127.0.0.1", "sslmode=verify-full&sslrootcert={root}", "certificate verify failed"),
    ],
    ids=["plain", "another name"],
)
async def test_a_connection_that_is_not_safe_as_asked_is_refused(
    tls: tuple[int, Path], host: str, mode: str, fault: str
) -> None:
    port, root = tls
    with pytest.raises(DatabaseUnavailable, match=fault):
        await opened(f"postgresql://relevo@{host}:{port}/relevo?{mode.format(root=root)}")


# --- URLs as vendors print them ---------------------------------------------------------------

PRINTED = {
    "neon": "sslmode=prefer&channel_binding=require",
    "keepalives": "keepalives=1&keepalives_idle=30&keepalives_interval=10&keepalives_count=3",
    "gss": "gssencmode=disable&sslcompression=0&connect_timeout=10",
    "prisma": "pgbouncer=true&connect_timeout=15",
}


@pytest.mark.parametrize("options", list(PRINTED.values()), ids=list(PRINTED))
@pytest.mark.parametrize("scheme", ["postgres", "postgresql+asyncpg", "postgresql+psycopg"])
async def test_what_vendors_print_is_understood(relevo_url: str, scheme: str, options: str) -> None:
    url = f"{relevo_url}{'&' if '?' in relevo_url else '?'}{options}"
    async with await opened(url.replace("postgresql", scheme, 1)) as database:
        assert await database.fetchval("select 1") == 1
        assert database.endpoint.pooled == ("pgbouncer" in options)
        left_out = set(database.endpoint.address.left_out)
        assert left_out <= {one.partition("=")[0] for one in options.split("&")}
        assert database.endpoint.address.unmet == (
            ("channel_binding",) if "channel_binding" in options else ()
        )


def test_what_a_url_says_besides_is_read() -> None:
    address = Endpoint(
        "postgresql+asyncpg://ana:p%40ss@a,b:5433/shop?ssl=require&connect_timeout=3&keepalives=0"
    ).address
    assert address.urls == tuple(
        f"postgresql://ana:p%40ss@{host}/shop?target_session_attrs=read-write&sslmode=require"
        for host in ("a", "b:5433")
    )
    assert (address.connect_seconds, address.left_out) == (3.0, ("keepalives",))
    with pytest.raises(SettingsError, match="is a number of seconds, not 'soon'"):
        Endpoint("postgresql://db/shop?connect_timeout=soon")


async def test_a_connection_is_given_up_when_the_url_says_so(relevo_url: str) -> None:
    with Proxy.to(relevo_url) as proxy:
        proxy.cut()
        url = proxy.url(relevo_url)
        with pytest.raises(DatabaseUnavailable, match="cannot connect"):
            await opened(f"{url}{'&' if '?' in url else '?'}connect_timeout=0.2")
