"""A client for calls to other services that is opened at its first call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from relevo.kernel.outbound.addresses import Allowed
    from relevo.kernel.outbound.client import Client, OutboundAnswer


class OutboundCalls(Protocol):
    """Sends requests; see `relevo.kernel.outbound.client.Client`."""

    async def get(self, url: str, headers: Mapping[str, str]) -> OutboundAnswer:
        """Send a GET and return the answer."""
        ...

    async def post(
        self, url: str, body: bytes, headers: Mapping[str, str], *, secret: bool = False
    ) -> OutboundAnswer:
        """Send a POST and return the answer; `secret` says that a credential goes with it."""
        ...


class LazyClient:
    """Imports and opens a `Client` at the first call: the import takes a quarter of a process's
    start, and most processes make no calls."""

    def __init__(self, allowed: Allowed) -> None:
        self._allowed = allowed
        self._client: Client | None = None

    async def get(self, url: str, headers: Mapping[str, str]) -> OutboundAnswer:
        """Send a GET and return the answer."""
        return await (await self._opened()).get(url, headers)

    async def post(
        self, url: str, body: bytes, headers: Mapping[str, str], *, secret: bool = False
    ) -> OutboundAnswer:
        """Send a POST and return the answer; `secret` says that a credential goes with it."""
        return await (await self._opened()).post(url, body, headers, secret=secret)

    async def close(self) -> None:
        """Close the client, if it was opened."""
        if self._client is not None:
            await self._client.__aexit__(None, None, None)

    async def _opened(self) -> Client:
        if self._client is None:
            from relevo.kernel.outbound.client import Client

            self._client = await Client(self._allowed).__aenter__()
        return self._client
