"""The connections of a process to hosts, and what it knows of where the slots are."""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING

from relevo.actors.calls.routing import Routes
from relevo.actors.transport.handshake import PURPOSE, PeerIdentity
from relevo.actors.transport.listener import Listener
from relevo.actors.transport.peers import Peers
from relevo.actors.transport.tls import PeerTls
from relevo.kernel.events import reading

if TYPE_CHECKING:
    from collections.abc import Callable

    from relevo.actors.transport.receiving import Receiver
    from relevo.kernel.postgres import Database, Wakeups
    from relevo.kernel.sealing import Vault
    from relevo.settings import Settings


class Network:
    """Connects when the first call leaves the process; a host listens as well.

    `on_change` hears of placement groups in which slots have new epochs.
    """

    def __init__(
        self,
        database: Database,
        wakeups: Wakeups,
        vault: Vault,
        settings: Settings,
        receiver: Receiver,
        on_change: Callable[[str], None],
    ) -> None:
        self._database = database
        self._vault = vault
        self._settings = settings
        self._receiver = receiver
        self.routes = Routes(database, wakeups, self._note_host, on_change)
        self._client = PeerIdentity(f"client-{secrets.token_hex(4)}", secrets.token_hex(16))
        self._identity = self._client
        self._peers: Peers | None = None
        self._opening = asyncio.Lock()
        self._listener: Listener | None = None
        self._following: asyncio.Task[None] | None = None

    @property
    def address(self) -> str | None:
        """Where this process takes calls; None for a client."""
        return None if self._listener is None else self._listener.address

    async def peers(self) -> Peers:
        """Return the connections to other processes."""
        if self._peers is None:
            async with self._opening:
                if self._peers is None:
                    self._peers = await self._open()
        return self._peers

    def follow_routes(self) -> None:
        """Read routes again and again, once a call has left a client; hosts do so anyway."""
        if self._listener is None and self._following is None:
            self._following = asyncio.get_running_loop().create_task(self.routes.run())

    async def listen(self) -> str:
        """Take calls, if it does not yet; return the address. Raises `SettingsError`."""
        if self._listener is not None and self._listener.address is not None:
            return self._listener.address
        settings = self._settings
        listener = Listener(
            await self.peers(), settings.home, settings.actors_listen, settings.actors_address
        )
        address = await listener.start()
        self._listener = listener
        await self._follow_no_longer()
        return address

    def begin_life(self, host: str, incarnation: str, since: int) -> None:
        """Speak as a life of a host from now on; connections of an earlier one are given up."""
        self._speak_as(PeerIdentity(host, incarnation, since, self.address))

    async def stop_listening(self) -> None:
        """Take no more connections; be a client from now on."""
        listener, self._listener = self._listener, None
        if listener is not None:
            await listener.stop()
        self._speak_as(self._client)

    async def close(self) -> None:
        """Disconnect; requests under way get a moment to end."""
        await self._follow_no_longer()
        await self.routes.close()
        if self._peers is not None:
            await self._peers.close()

    async def _follow_no_longer(self) -> None:
        following, self._following = self._following, None
        if following is not None:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    async def _open(self) -> Peers:
        settings = self._settings
        log_state = await reading.look(self._database)
        key = (await self._vault.key()).derive(PURPOSE)
        tls = None
        if settings.tls_cert is not None and settings.tls_key is not None:
            tls = PeerTls(settings.tls_cert, settings.tls_key)
        return Peers(
            lambda: self._identity, cluster=log_state.incarnation, key=key,
            receiver=self._receiver, tls=tls,
        )  # fmt: skip

    def _speak_as(self, identity: PeerIdentity) -> None:
        if identity != self._identity:
            self._identity = identity
            if self._peers is not None:
                self._peers.leave_as(identity)

    def _note_host(self, host: str, incarnation: str, since: int) -> None:
        if self._peers is not None:
            self._peers.learn(PeerIdentity(host, incarnation, since))
