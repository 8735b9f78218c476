"""What travels between a pool and those who use it."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from relevo.actors import Interface, method
from relevo.errors import InUse, InvalidValue, NotFound, SettingsMismatch
from relevo.governance.calls.changes import PutOutcome
from relevo.governance.calls.gates import SeenGeneration
from relevo.governance.core.lending import ChunkAsk, Loan
from relevo.governance.core.permits import Permit
from relevo.governance.core.pools import PoolOptions, WaitingKey
from relevo.governance.errors import PoolExhausted, StaleResolution

POOL_TYPE: Final = "relevo.pool"
ANSWER_SECONDS: Final = 20.0
"""A pool answers after so long at the latest, if only that nothing has come free."""

WAITERS_SHOWN: Final = 20


class PermitAsk(Struct, frozen=True, kw_only=True):
    """A request for one permit for each ticket; asked again it is the same request."""

    tickets: tuple[str, ...]
    """Made by the caller, who releases and asks again by them."""
    key: str = ""
    weight: int = 1
    priority: int = 4
    host: str | None = None
    """The life of the host with which the permits end; None for a client."""
    ttl: float | None = None
    """Seconds after which the permits of a client end, unless it renews them."""
    wait: float = ANSWER_SECONDS
    """Seconds after which the pool answers although nothing has come free."""
    seen: SeenGeneration | None = None


class GrantedPermit(Struct, frozen=True):
    """A permit, by the ticket that asked for it."""

    ticket: str
    number: int
    item: str | None = None
    expires_at: float | None = None
    """The store's time at which it ends unless it is renewed; None for a host."""


class StoredPermit(Struct, frozen=True):
    """A permit and its ticket, as a pool stores them."""

    permit: Permit
    ticket: str
    returned: int = 0
    """Of a chunk: all that its host has given back."""


class PoolView(Struct, frozen=True):
    """A pool at one moment."""

    size: int
    in_use: int
    waiting: int
    options: PoolOptions
    waiters: tuple[WaitingKey, ...] = ()
    """Those that have waited longest, `WAITERS_SHOWN` at most."""


_ERRORS = (PoolExhausted, InUse, InvalidValue, NotFound, SettingsMismatch, StaleResolution)


class PoolCalls(Interface):
    """The methods of the actor that is a pool."""

    @method(idempotent=True, raises=_ERRORS)
    async def declare(self, options: PoolOptions) -> None:
        """Make the pool; raises `SettingsMismatch` if it exists with others."""

    @method(idempotent=True, raises=_ERRORS)
    async def put(self, options: PoolOptions) -> PutOutcome:
        """Make the pool, or change it; programs that declared it as it was may go on."""

    @method(idempotent=True, raises=_ERRORS)
    async def remove(self) -> bool:
        """Forget the pool; False if there is none. Raises `InUse` while permits are in use."""

    @method(idempotent=True, raises=_ERRORS)
    async def ask(self, ask: PermitAsk) -> list[GrantedPermit]:
        """Return the permits that were granted, at least one unless the time to wait has passed."""

    @method(idempotent=True, raises=_ERRORS)
    async def lend(self, ask: ChunkAsk) -> Loan:
        """Return what a host is to know of its chunk, once there is news, or after a while."""

    @method(idempotent=True)
    async def release(self, tickets: list[str]) -> None:
        """Take permits back, and forget requests that wait; one that is unknown is nothing new."""

    @method(idempotent=True)
    async def renew(self, tickets: list[str], ttl: float) -> list[str]:
        """Put off the end of permits of clients; returns the tickets that have none any more."""

    @method(idempotent=True, raises=_ERRORS)
    async def resize(self, size: int) -> None:
        """Change how much may be in use at once."""

    @method(idempotent=True, raises=_ERRORS)
    async def view(self) -> PoolView:
        """Return what is in use, and how many wait."""

    @method(read_only=True)
    async def held(self, ticket: str) -> GrantedPermit | None:
        """Return the permit of a ticket."""

    @method(idempotent=True, raises=_ERRORS)
    async def permits(self, after: int, limit: int) -> list[StoredPermit]:
        """Return permits in use by number, beyond a number, one more than the limit at most."""
