"""The ledger: a part's side of the runtime.

The runtime knows rounds, slots and runs. Which rows there are, which one statement settles and
claims them, how they become claims, what is asked of a run and what an error means: that is the
part's, and stands behind `Ledger`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from msgspec import Struct

if TYPE_CHECKING:
    import asyncio

    from relevo.kernel.running.rounds import Rounds
    from relevo.kernel.running.runs import Run
    from relevo.kernel.running.verdicts import Interruption


class RunClaim(Protocol):
    """Work that this host may run, until it settles it or its life ends."""

    @property
    def id(self) -> Hashable:
        """The key of its row, or of its row in this claim."""

    @property
    def ids(self) -> tuple[Hashable, ...]:
        """The keys of all its rows: several if one run is for several."""

    @property
    def label(self) -> str:
        """What logs and traces call it."""

    @property
    def number(self) -> int:
        """Under which number it was claimed: with the host's life, the fence of its writes."""

    @property
    def lane(self) -> str:
        """Whose slots it takes."""

    @property
    def handler(self) -> str:
        """The handler."""

    @property
    def taken_at(self) -> float:
        """The time of the claim, by this host's clock: one that waits too long is returned."""


C = TypeVar("C", bound=RunClaim)
C_co = TypeVar("C_co", bound=RunClaim, covariant=True)


class RunSettlement(Protocol[C_co]):
    """The outcome of a run, to be written with the next statement."""

    @property
    def claim(self) -> C_co:
        """The settled work."""

    @property
    def event(self) -> str:
        """The transition of the row; `done` is a success."""

    @property
    def seconds(self) -> float:
        """How long it ran."""


S = TypeVar("S", bound=RunSettlement[Any])


class Answer(Struct, Generic[C]):
    """The answer of a statement."""

    claims: dict[str, list[C]]
    """By lane."""
    sizes: Mapping[str, int]
    """How much memory their data takes, about, by lane."""
    asked: Mapping[Any, Any] = {}
    """Requests for work that this host holds, by its id; the part interprets them."""
    refused: Callable[[C], bool] | None = None
    """Which claims that have not begun are to go back, if any."""


class Ledger(Protocol[C, S]):
    """A part's knowledge of its work, used by the runtime."""

    part: str
    """Names log lines and figures."""

    def canceled(self, text: str) -> Interruption:
        """Return the exception for a handler whose work is not this host's any more."""

    due_sql: str
    """Asks whether there is anything to do, in the host's poll."""

    def due_arguments(self, rooms: Mapping[str, int], *, vacant: bool) -> Sequence[Any]:
        """Return the arguments of `due_sql`, with rooms and vacancy as of `work`."""

    @property
    def looks_often(self) -> bool:
        """Whether time decides now what is to be done."""

    async def work(
        self, number: int, finished: Sequence[S], rooms: Mapping[str, int], *, vacant: bool
    ) -> Sequence[Any]:
        """Settle finished runs and claim as much as there is room for, with one statement.

        `rooms` says how much by lane. Only a `vacant` host holds nothing else.
        """

    async def waiting(self, lanes: Sequence[str]) -> set[str]:
        """Return those of some lanes that have work to claim; asked only for lanes with a budget,
        while it has no permit to find out by a claim."""

    def read(self, rows: Sequence[Any], rooms: Mapping[str, int]) -> Answer[C]:
        """Return the answer from the rows of `work`."""

    def settled(self, batch: Sequence[S]) -> None:
        """Handle written settlements: wake their waiters."""

    async def held(self, numbers: Sequence[int] | None) -> list[C]:
        """Return this host's claims of some numbers, or all."""

    async def held_keys(self) -> Sequence[tuple[Hashable, int]]:
        """Return id and number of all that this host holds."""

    def adopted(self, claims: Sequence[C]) -> Answer[C]:
        """Take in claims whose answer was lost, and was looked up."""

    def returned(self, claim: C) -> S:
        """Give back a claim that was not begun."""

    def broken(self, claim: C, text: str) -> S:
        """Settle a run that failed outside of its handler."""

    def is_plain(self, settlement: S) -> bool:
        """Whether nothing follows from it but a record: so for most."""

    def ended(self, settlement: S) -> Callable[[C], bool] | None:
        """Take in a run that ended without success; which claims are to go back for that."""

    def ask(self, run: Any, what: Any) -> None:
        """Pass a request on to a run."""

    def not_asked(self, runs: Mapping[Any, Any], asked: Mapping[Any, Any]) -> None:
        """Withdraw requests from runs."""

    async def prepare(self, hands: Rounds[C, S]) -> None:
        """Prepare a round, for work that needs a host to itself."""

    @property
    def keeps_others_away(self) -> bool:
        """Whether nothing is to be claimed by `work` now."""

    def goes_on(self, hands: Rounds[C, S]) -> bool:
        """Whether there is reason for another round at once, while others are kept away."""

    def begin(
        self, claim: C, task: asyncio.Task[Any], now: float, over: asyncio.Event
    ) -> Run[C, S]:
        """Return the run of a claim, in a task; `over` is set before the host ends that task."""

    async def close(self) -> None:
        """Release the resources of runs, when the life is over."""
