"""What travels between a rate limit and those who use it."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from relevo.actors import Interface, method
from relevo.errors import InvalidValue, NotFound, Overloaded, SettingsMismatch
from relevo.governance.calls.changes import PutOutcome
from relevo.governance.calls.gates import SeenGeneration
from relevo.governance.core.windows import Rate
from relevo.governance.errors import PoolExhausted, StaleResolution

LIMIT_TYPE: Final = "relevo.limit"
LEND_SECONDS: Final = 0.25
"""For how long a host may use what a limit lends it."""


class LimitOptions(Struct, frozen=True, kw_only=True):
    """What a limit admits."""

    rates: tuple[Rate, ...]
    burst: float = 0.0


class CostAsk(Struct, frozen=True, kw_only=True):
    """A request for a cost, which waits until it is admitted."""

    ticket: str
    cost: float
    key: str = ""
    wait: float = 0.0
    """Seconds after which nobody waits for the answer; 0: answer at once."""
    id: str | None = None
    """Names the request: however often it is asked, it is charged once."""
    seen: SeenGeneration | None = None
    lend: bool = False
    """Admit as much of the cost as there is, 1 at least, for use within `LEND_SECONDS`."""


class Admission(Struct, frozen=True):
    """Whether a cost was admitted; true if it was."""

    admitted: float
    """How much was admitted."""
    retry_after: float = 0.0
    """Seconds until it may be, as far as is known now."""
    valid_until: float = 0.0
    """The store's time until which what was lent may be used."""

    def __bool__(self) -> bool:
        return self.admitted > 0


class LimitView(Struct, frozen=True):
    """A limit at one moment."""

    options: LimitOptions
    keys: int
    waiting: int


_ERRORS = (PoolExhausted, Overloaded, InvalidValue, NotFound, SettingsMismatch, StaleResolution)


class LimitCalls(Interface):
    """The methods of the actor that is a limit."""

    @method(idempotent=True, raises=_ERRORS)
    async def declare(self, options: LimitOptions) -> None:
        """Make the limit; raises `SettingsMismatch` if it exists with others."""

    @method(idempotent=True, raises=_ERRORS)
    async def put(self, options: LimitOptions) -> PutOutcome:
        """Make the limit, or change it; programs that declared it as it was may go on."""

    @method(idempotent=True, raises=_ERRORS)
    async def remove(self) -> bool:
        """Forget the limit, but not what was spent; False if there is none."""

    @method(idempotent=True, raises=_ERRORS)
    async def ask(self, ask: CostAsk) -> Admission:
        """Charge a cost as soon as it is admitted; without an id, asked again it may be charged
        again."""

    @method(idempotent=True)
    async def cancel(self, tickets: list[str]) -> None:
        """Forget requests that wait."""

    @method(idempotent=True, raises=_ERRORS)
    async def change(self, options: LimitOptions) -> bool:
        """Change the rates; what was spent counts for the new ones. False if they are the same."""

    @method(idempotent=True, raises=_ERRORS)
    async def view(self) -> LimitView:
        """Return the rates, and how many wait."""
