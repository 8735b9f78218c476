"""A turn: one execution of a method, timer, reminder or message of an actor."""

from __future__ import annotations

import itertools
import secrets
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from relevo.actors.running.journal import Journal
from relevo.errors import OutsideTurn

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable

    from relevo.actors.core.calls import Call, Chain
    from relevo.actors.core.deltas import RecordedCall
    from relevo.actors.core.mailbox import Mode
    from relevo.actors.running.activation import Activation
    from relevo.actors.running.deferred import Deferred

_numbers = itertools.count(secrets.randbits(62))
"""Of turns: unlike those of other processes, also of earlier ones."""
CURRENT: ContextVar[Turn | None] = ContextVar("relevo_actor_turn", default=None)
"""The turn in which the present code runs; tasks made by a turn inherit it."""


class Work:
    """Something to run as a turn, and who hears of its end."""

    __slots__ = (
        "begin", "call", "confirm", "deadline", "deferred", "encode", "finish", "is_abandoned",
        "is_cancelable", "is_control", "is_hook", "is_queued", "is_removed", "mode", "name",
        "queued_at", "record", "turn", "withdraw",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        begin: Callable[[Any], Awaitable[Any]],
        finish: Callable[[Any, BaseException | None], None],
        *,
        mode: Mode = "write",
        call: Call | None = None,
        deadline: float | None = None,
        is_control: bool = True,
        is_cancelable: bool = False,
        is_hook: bool = False,
        confirm: bool = True,
        withdraw: Callable[[], None] | None = None,
        encode: Callable[[Any], Any] | None = None,
        record: Callable[[Any, BaseException | None], RecordedCall | None] | None = None,
    ) -> None:
        self.name = name
        self.begin = begin
        self.finish = finish
        """Hears of the result or the error, once they may leave."""
        self.withdraw = withdraw
        """Hears that it will not run here; what has none is forgotten."""
        self.encode = encode
        """How a deferred answer is encoded, in the turn that gives it."""
        self.record = record
        """What is stored of the answer, so that a repeat of the call gets it."""
        self.mode: Mode = mode
        self.call = call
        self.deadline = deadline
        """Loop time after which it does not begin."""
        self.is_control = is_control
        self.is_cancelable = is_cancelable
        self.confirm = confirm
        self.is_hook = is_hook
        """A method of the life cycle, which is in no mailbox."""
        self.is_queued = False
        self.is_removed = False
        self.is_abandoned = False
        """Its caller has gone."""
        self.deferred: Deferred[Any] | None = None
        """The answer that a later turn gives."""
        self.queued_at = 0.0
        self.turn: Turn | None = None


class Turn:
    """A running turn; a nested one shares the journal of the outermost."""

    __slots__ = (
        "activation", "chain", "given_up", "has_begun", "id", "inner", "inner_turn", "is_answered",
        "is_closing", "is_cut", "is_over", "journal", "nested", "outer", "task", "timed_out",
        "view", "waiting_for", "was_cancelled", "work",
    )  # fmt: skip

    def __init__(
        self, activation: Activation, work: Work, chain: Chain, outer: Turn | None = None
    ) -> None:
        self.id = next(_numbers)
        self.activation = activation
        self.work = work
        self.chain = chain
        self.outer = outer
        self.journal: Journal = Journal() if outer is None else outer.journal
        self.nested: asyncio.Lock | None = None
        """Nested turns run one at a time."""
        self.inner: set[asyncio.Task[None]] = set()
        """Calls that run, or wait to run, nested in it."""
        self.inner_turn: Turn | None = None
        """The one of them that has begun last."""
        self.has_begun = False
        self.is_cut = False
        """It is to end early."""
        self.is_closing = False
        """Its coroutine has ended: further calls of its chain wait for a turn of their own."""
        self.is_over = False
        self.is_answered = False
        """Its answer has left ahead of its outputs."""
        self.timed_out = False
        self.was_cancelled = False
        self.given_up = False
        """Its activation was aborted."""
        self.view: Any = None
        """What a turn that may not write sees as the state."""
        self.task: asyncio.Task[None] | None = None
        self.waiting_for: list[Call] = []
        """Calls that it has made and waits for."""

    def cut(self) -> None:
        """Cancel its task; one that has not begun is not cancelled, and ends when it begins."""
        self.is_cut = True
        if self.has_begun and self.task is not None:
            self.task.cancel()

    @property
    def root(self) -> Turn:
        """The outermost turn."""
        turn = self
        while turn.outer is not None:
            turn = turn.outer
        return turn

    @property
    def may_write(self) -> bool:
        """Whether it may change the state."""
        return self.root.work.mode == "write" and self.work.mode == "write"

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
