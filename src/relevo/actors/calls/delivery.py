"""Where calls go, and what is known of a call that is made again until it is answered."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from relevo.actors.calls.gateway import NamedMethod
    from relevo.actors.core.calls import Answer, Call, MovedTo
    from relevo.actors.core.identity import ActorRef
    from relevo.actors.signatures import MethodSpec
    from relevo.errors import RelevoError


class Way:
    """Where the calls of a slot go that this process does not own."""

    __slots__ = ("deliver", "epoch", "host")

    def __init__(
        self,
        deliver: Callable[[Call], Awaitable[Answer]],
        epoch: int,
        host: tuple[str, str] | None = None,
    ) -> None:
        self.deliver = deliver
        """Raises `NotSent`, or `OutcomeUnknown` if the connection broke after sending."""
        self.epoch = epoch
        """Of the slot; 0 for a call of a stateless type, which has no owner."""
        self.host = host
        """Where the host of a call without owner takes calls, and its incarnation."""


class Ways:
    """Finds the owner of a slot."""

    async def slots(self, type_name: str) -> tuple[str, int]:
        """Return the placement group of a type and its number of slots; raises `NotFound`.

        And `NoHost` if no host has ever served the group.
        """
        raise NotImplementedError

    def is_joining(self, type_name: str) -> bool:
        """Whether this process serves the placement group of a type, or is about to."""
        raise NotImplementedError

    def here(self, call: Call) -> asyncio.Future[Answer] | None:
        """Run a call in this process, which keeps its deadline; None if that is not the owner."""
        raise NotImplementedError

    async def find(self, group: str, slot: int) -> Way | None:
        """Return how to reach another owner of a slot, or None if nobody is known to own it.

        Raises `NoHost` if nobody will: the group is the kit's, and no host runs.
        """
        raise NotImplementedError

    def learn(self, group: str, slot: int, moved: MovedTo) -> None:
        """Note where a slot has gone."""
        raise NotImplementedError

    async def has_ended(self, group: str, slot: int, way: Way) -> bool:
        """Whether the owner to which a way led was lost since, and did not let go in order."""
        raise NotImplementedError

    async def changed(self, group: str, seconds: float) -> None:
        """Wait until owners of a group have changed, at most so long."""
        raise NotImplementedError


class Sent(NamedTuple):
    """An attempt at a call that has left this process."""

    group: str
    slot: int
    way: Way


class Delivery:
    """A call, from the first attempt to its answer."""

    def __init__(
        self,
        ref: ActorRef,
        method: MethodSpec | NamedMethod,
        call: Call,
        deadline: float,
        number: int,
    ) -> None:
        self.ref = ref
        self.method = method
        self.call = call
        self.number = number
        """Its place among the calls of this process."""
        self._deadline = deadline
        self._loop = asyncio.get_running_loop()
        self.may_repeat = method.options.idempotent or call.call_id is not None
        """Whether it is made again when its outcome is not known."""
        self.may_overtake = bool(call.chain.frames)
        """It does not stand in line: a turn waits for it, or it has lost its place."""
        self.attempt = 0
        self.reason: RelevoError | None = None
        """For which it did not run, the last time."""
        self.unknown: RelevoError | None = None
        """Why it is not known whether it has run."""
        self.sent: Sent | None = None
        self.unanswered: Sent | None = None
        """The last attempt without an answer, until it is known what became of the owner."""
        self.crashes = 0
        """Owners in a row that were lost instead of answering."""

    @property
    def left(self) -> float:
        """Seconds until its deadline."""
        return self._deadline - self._loop.time()

    def note_unknown(self, error: RelevoError) -> None:
        """Note that the connection was lost after the call was sent."""
        earlier, self.unanswered = self.unanswered, self.sent
        if (
            earlier is not None
            and self.sent is not None
            and earlier.way.epoch == self.sent.way.epoch
        ):
            self.crashes = 0  # that owner took the call once more: it had survived it
        self.unknown = error

    def note_crash(self) -> None:
        """Note that the owner was lost that did not answer."""
        self.unanswered = None
        self.crashes += 1
