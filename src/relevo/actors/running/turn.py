"""A turn: one execution of a method, timer, reminder or message of an actor."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec import Struct

from relevo.actors.core.calls import Call, Chain
from relevo.actors.core.mailbox import Mode
from relevo.actors.core.numbers import Numbers
from relevo.actors.running.deferred import Deferred
from relevo.actors.running.memory.journal import Journal
from relevo.errors import OutsideTurn
from relevo.kernel.uses import HeldConnection

if TYPE_CHECKING:
    from relevo.actors.core.deltas import RecordedCall
    from relevo.actors.running.activation import Activation  # noqa: TC004 - turns travel nowhere

_numbers = Numbers()
"""Of turns: unlike those of other processes, also of earlier ones."""
CURRENT: ContextVar[Turn | None] = ContextVar("relevo_actor_turn", default=None)
"""The turn in which the present code runs; tasks made by a turn inherit it."""


async def _nothing(_: Any) -> None:
    """Do nothing."""


def _ignore(value: Any, error: BaseException | None) -> None:
    """Tell nobody."""


class Work(Struct, eq=False):
    """Something to run as a turn; its class says what runs and who hears of the end."""

    returns: ClassVar[bool] = False
    """Whether it goes back to where it came from if it cannot run here; else it is forgotten."""

    name: str
    mode: Mode = "write"
    call: Call | None = None
    deadline: float | None = None
    """Loop time after which it does not begin."""
    is_control: bool = True
    is_cancelable: bool = False
    confirm: bool = True
    is_hook: bool = False
    """A method of the life cycle, which is in no mailbox."""
    is_queued: bool = False
    is_removed: bool = False
    is_abandoned: bool = False
    """Its caller has gone."""
    deferred: Deferred[Any] | None = None
    """The answer that a later turn gives."""
    queued_at: float = 0.0
    turn: Turn | None = None
    held: HeldConnection | None = None
    """The database connection that its caller holds: the turn must not wait for another such."""
    parent: Any = None
    """The span of the caller, for that of the turn."""

    async def begin(self, instance: Any) -> Any:
        """Run, and return the result."""
        raise NotImplementedError

    def finish(self, value: Any, error: BaseException | None) -> None:
        """Hear of the result or the error, once they may leave."""
        raise NotImplementedError

    def withdraw(self) -> None:
        """Hear that it will not run here."""

    def encode(self, value: Any) -> Any:
        """Return a deferred answer as it leaves, in the turn that gives it."""
        return value

    def record(self, value: Any, error: BaseException | None) -> RecordedCall | None:
        """Return what is stored of the answer, so that a repeat of the call gets it."""
        return None


class FunctionWork(Work, eq=False):
    """A coroutine function to run as a turn, and a function that hears of its end."""

    function: Callable[[Any], Awaitable[Any]] = _nothing
    ended: Callable[[Any, BaseException | None], None] = _ignore

    async def begin(self, instance: Any) -> Any:
        """Run the function."""
        return await self.function(instance)

    def finish(self, value: Any, error: BaseException | None) -> None:
        """Tell whoever asked for it."""
        self.ended(value, error)


class Turn(Struct, eq=False):
    """A running turn; a nested one shares the journal of the outermost."""

    id: int
    activation: Activation
    work: Work
    chain: Chain
    outer: Turn | None = None
    noted: Journal | None = None
    """What an outermost turn did besides changing the state; None if it is nothing so far."""
    nested: asyncio.Lock | None = None
    """Nested turns run one at a time."""
    inner: set[asyncio.Task[None]] | None = None
    """Calls that run, or wait to run, nested in it."""
    inner_turn: Turn | None = None
    """The one of them that has begun last."""
    has_begun: bool = False
    began: float = 0.0
    """When its code did, until that has ended."""
    is_cut: bool = False
    """It is to end early."""
    is_closing: bool = False
    """Its coroutine has ended: further calls of its chain wait for a turn of their own."""
    is_over: bool = False
    is_answered: bool = False
    """Its answer has left ahead of its outputs."""
    timed_out: bool = False
    was_canceled: bool = False
    given_up: bool = False
    """Its activation was aborted."""
    revision: int = 0
    """That of its actor when it ended, noted for records."""
    view: Any = None
    """What a turn that may not write sees as the state."""
    task: asyncio.Task[None] | None = None
    """What runs it now, and maybe other turns after it."""
    waiting_for: tuple[Call, ...] = ()
    """Calls that it has made and waits for."""

    @classmethod
    def of(
        cls, activation: Activation, work: Work, chain: Chain, outer: Turn | None = None
    ) -> Turn:
        """Return a turn with a number of its own."""
        return cls(_numbers.take(), activation, work, chain, outer)

    @property
    def journal(self) -> Journal:
        """What the outermost turn did so far besides changing the state."""
        root = self.root
        if root.noted is None:
            root.noted = Journal()
        return root.noted

    def expire(self) -> None:
        """Hear that its time is up."""
        self.activation.runner.time_out(self)

    def cut(self) -> None:
        """Cancel its task; one that has not begun is not canceled, and ends when it begins."""
        self.is_cut = True
        if self.has_begun and self.task is not None:
            self.task.cancel()

    @property
    def root(self) -> Turn:
        """The outermost turn."""
        return self if self.outer is None else self.outer.root

    @property
    def may_write(self) -> bool:
        """Whether it may change the state."""
        return self.work.mode == "write" and (self.outer is None or self.root.work.mode == "write")

    @property
    def deadline(self) -> float | None:
        """Loop time by which the call that it runs has to be answered."""
        return self.work.deadline


def turn_of(activation: Activation, doing: str) -> Turn:
    """Return the present turn of an activation; raises `OutsideTurn`."""
    turn = CURRENT.get()
    if turn is None or turn.activation is not activation or turn.is_over:
        raise OutsideTurn(
            f"{doing} of {activation.canonical} outside of its turns; code that goes on after a"
            " turn has ended calls a method of the actor, or uses self.offload(…, then=…)"
        )
    return turn
