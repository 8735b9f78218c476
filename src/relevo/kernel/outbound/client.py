"""An HTTP client for URLs that users write.

It connects only to addresses that were checked, and to exactly those: names are resolved here, and
the connection goes to what was looked at, so a name that means something else a moment later leads
nowhere else. No redirects, no proxies, no cookies, no compression; one deadline for everything;
answers up to a size. Secrets go by https, or to the operator's own network.

Error messages name the host alone: paths and queries of such addresses hold secrets more often than
not, and what a foreign host says is not for those who read our errors.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final, Self

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver
from msgspec import Struct
from yarl import URL

from relevo import limits
from relevo.errors import OutboundFailed, OutboundRefused
from relevo.kernel.outbound.addresses import Address, Allowed, is_special, literal

if TYPE_CHECKING:
    import ssl
    from types import TracebackType

_PASSING: Final = frozenset({502, 503, 504})
"""Statuses by which something in between says that it did not get through."""
_BROKEN: Final = (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError)
Permits = Callable[[str, Address], bool]
"""Whether a call for a host may connect to one of its addresses."""
_HINT: Final = "the operator may open it with RELEVO_OUTBOUND_ALLOW"


class OutboundAnswer(Struct, frozen=True):
    """The answer of the other service; its body is complete and within the bound."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Client:
    """Sends requests to the outside; use it as `async with`, one for the life of a process."""

    def __init__(
        self,
        allowed: Allowed,
        *,
        seconds: float = limits.OUTBOUND_SECONDS_MAX,
        attempts: int = limits.OUTBOUND_ATTEMPTS_MAX,
        connections: int = limits.OUTBOUND_CONNECTIONS_MAX,
        resolver: AbstractResolver | None = None,
        trust: ssl.SSLContext | None = None,
    ) -> None:
        """Build it; `resolver` replaces the system's, `trust` the system's certificates."""
        self._allowed = allowed
        self._seconds = seconds
        self._attempts = attempts
        self._connections = connections
        self._resolver = resolver
        self._trust = trust
        self._session: aiohttp.ClientSession | None = None
        self._plain: aiohttp.ClientSession | None = None
        """For secrets without encryption: its connections go nowhere else."""

    async def __aenter__(self) -> Self:
        self._session = self._opened(self._allowed.permits)
        self._plain = self._opened(self._allowed.permits_plain)
        return self

    def _opened(self, permits: Permits) -> aiohttp.ClientSession:
        checked = _Checked(self._resolver or ThreadedResolver(), permits)
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                resolver=checked,
                use_dns_cache=False,
                ssl=self._trust or True,
                limit=self._connections,
                limit_per_host=limits.OUTBOUND_CONNECTIONS_PER_HOST_MAX,
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
            headers={"accept-encoding": "identity", "user-agent": "relevo"},
        )

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for session in (self._session, self._plain):
            if session is not None:
                await session.close()

    async def get(self, url: str, headers: Mapping[str, str]) -> OutboundAnswer:
        """Send a GET and return the answer; otherwise as `post`."""
        return await self._send("GET", url, None, headers)

    async def post(
        self, url: str, body: bytes, headers: Mapping[str, str], *, secret: bool = False
    ) -> OutboundAnswer:
        """Send a POST and return the answer, whatever its status.

        It is sent once more when the connection fails or the answer is 502, 503 or 504, unless the
        client makes one attempt only; so the other side may see it twice. Attempts share one
        deadline. `secret` says that body or
        headers hold one: then it goes by https, or to an address that the operator has opened.
        Raises `OutboundRefused` if the address may not be called, `OutboundFailed` if there is no
        whole answer.
        """
        return await self._send("POST", url, body, headers, secret=secret)

    async def _send(
        self,
        method: str,
        url: str,
        body: bytes | None,
        headers: Mapping[str, str],
        *,
        secret: bool = False,
    ) -> OutboundAnswer:
        target = checked(url, self._allowed, secret=secret)
        _check_headers(headers, target)
        session = self._plain if secret and target.scheme == "http" else self._session
        assert session is not None, "use the client as `async with`"
        try:
            async with asyncio.timeout(self._seconds):
                return await _attempts(session, method, target, body, headers, self._attempts)
        except TimeoutError:
            raise OutboundFailed(
                f"{_shown(target)} did not answer within {self._seconds:g} s"
            ) from None


class _Checked(AbstractResolver):
    """Resolves names to those of their addresses that may be connected to."""

    def __init__(self, resolver: AbstractResolver, permits: Permits) -> None:
        self._resolver = resolver
        self._permits = permits

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily | int = 0
    ) -> list[ResolveResult]:
        try:
            found = await self._resolver.resolve(host, port, family)  # type: ignore[arg-type]
        except UnicodeError:  # a name that no server can even be asked for
            found = []
        open_ = [one for one in found if self._permits(host, ip_address(one["host"]))]
        if not found:
            raise socket.gaierror(socket.EAI_NONAME, "no addresses")
        if not open_ and any(not is_special(ip_address(one["host"])) for one in found):
            raise _unencrypted(host)
        if not open_:
            raise OutboundRefused(
                f"{host} is not called: no address it has is one of the internet; {_HINT}"
            )
        return open_

    async def close(self) -> None:
        await self._resolver.close()


async def _attempts(
    session: aiohttp.ClientSession,
    method: str,
    url: URL,
    body: bytes | None,
    headers: Mapping[str, str],
    attempts: int,
) -> OutboundAnswer:
    async def once() -> OutboundAnswer:
        async with session.request(
            method, url, data=body, headers=headers, allow_redirects=False
        ) as response:
            return OutboundAnswer(
                response.status, response.headers.copy(), await _read(response, url)
            )

    for _ in range(attempts - 1):
        try:
            answer = await once()
        except aiohttp.ClientError as error:
            if isinstance(error, _BROKEN) and not isinstance(error, aiohttp.ClientSSLError):
                continue
            raise _failed(url, error) from None
        if answer.status not in _PASSING:
            return answer
    try:
        return await once()
    except aiohttp.ClientError as error:
        raise _failed(url, error) from None


def _unencrypted(shown: str) -> OutboundRefused:
    return OutboundRefused(
        f"{shown} is not called: a credential would go there without encryption; write https, or"
        " use a private address that the operator has opened with RELEVO_OUTBOUND_ALLOW"
    )


def parsed(text: str) -> URL:
    """Return a URL that can be called at all; raises `OutboundRefused` for any other text."""
    try:
        url = URL(text)
        host, port = url.raw_host, url.port
    except ValueError:
        raise OutboundRefused("the address to call is not a URL; write it like https://…") from None
    if len(text) > limits.URL_BYTES_MAX:
        raise OutboundRefused(f"the URL to call is longer than {limits.URL_BYTES_MAX} characters")
    if url.scheme not in ("http", "https") or not host or not port:
        raise OutboundRefused("the URL to call must start with http:// or https:// and a host")
    if url.raw_user is not None or url.raw_password is not None:
        raise OutboundRefused(
            f"the URL of {_shown(url)} holds a user or password; use the fields for credentials"
        )
    return url


def checked(text: str, allowed: Allowed, *, secret: bool) -> URL:
    """Return a URL that may be called, as far as that can be told without resolving its name.

    Raises `OutboundRefused` for any other.
    """
    url = parsed(text)
    assert url.raw_host is not None
    try:
        address = literal(url.raw_host)
    except ValueError as error:
        raise OutboundRefused(f"{_shown(url)} is not called: {error}") from None
    if address is None:
        return url
    if not allowed.permits(url.raw_host, address):
        raise OutboundRefused(
            f"{_shown(url)} is not called: the address is not one of the internet; {_HINT}"
        )
    plain = secret and url.scheme == "http"
    if plain and not allowed.permits_plain(url.raw_host, address):
        raise _unencrypted(_shown(url))
    return url


def origin(text: str) -> str:
    """Return the part of a URL that holds no secret, for messages."""
    return _shown(parsed(text))


def _check_headers(headers: Mapping[str, str], url: URL) -> None:
    """Refuse what could not be sent, or would become a header of its own, without showing it."""
    for name, value in headers.items():
        if any(not " " <= one <= "~" for one in value):
            raise OutboundRefused(
                f"the header {name} for {_shown(url)} has characters that no header may have"
            )


async def _read(response: aiohttp.ClientResponse, url: URL) -> bytes:
    """Read a body up to the bound; a compressed one is refused, since it may unfold to anything."""
    if response.headers.get("content-encoding", "identity").lower() != "identity":
        raise OutboundFailed(f"{_shown(url)} sent a compressed answer, which was not asked for")
    most = limits.OUTBOUND_ANSWER_BYTES_MAX
    content = bytearray()
    async for part in response.content.iter_any():
        content += part
        if len(content) > most:
            response.close()
            raise OutboundFailed(f"{_shown(url)} answered with more than {most} bytes")
    return bytes(content)


def _failed(url: URL, error: aiohttp.ClientError) -> OutboundFailed:
    match error:
        case aiohttp.ClientConnectorCertificateError():
            reason = "has a certificate that is not trusted"
        case aiohttp.ClientSSLError():
            reason = "speaks no TLS that can be used"
        case aiohttp.ClientConnectorDNSError():
            reason = "cannot be found by name"
        case aiohttp.ClientConnectorError():
            reason = f"cannot be connected to ({error.os_error.strerror or 'no reason given'})"
        case aiohttp.ClientConnectionError() | aiohttp.ClientPayloadError():
            reason = "closed the connection before it had answered"
        case _:
            reason = "did not answer in HTTP"
    return OutboundFailed(f"{_shown(url)} {reason}")


def _shown(url: URL) -> str:
    """The part of a URL that holds no secret."""
    return f"{url.scheme}://{url.host_port_subcomponent}"
