"""Turns, reentrancy and the output gate as a state machine, beside a model with lists.

Commits end when a step of the machine says so, in order, or are lost. Between the steps everything
that may run has run, so the model says of each call whether it is answered, and with what.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Literal

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec import Struct, field

from relevo import App
from relevo.actors import Actor, Interface, method
from relevo.errors import OutcomeUnknown, RelevoError
from relevo.testing import ActorTest
from relevo.testing.actor_test import MemoryStorage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from relevo.actors.core.deltas import Delta

Kind = Literal["add", "fail", "nest", "circle", "hold", "read", "glance"]
PASSES = 40
"""Of the event loop: more than any step needs."""


class Tape(Interface):
    async def add(self, tag: str) -> int: ...
    async def fail(self, tag: str) -> int: ...
    async def nest(self, tag: str, fails: bool) -> int: ...
    async def circle(self, tag: str, fails: bool) -> int: ...
    async def hold(self, tag: str) -> int: ...
    @method(read_only=True)
    async def read(self) -> list[str]: ...
    @method(interleave=True)
    async def glance(self) -> list[str]: ...


class Echo(Interface):
    async def back(self, tag: str, fails: bool) -> int: ...


class Tags(Struct):
    tags: list[str] = field(default_factory=list)


class HeldStorage(MemoryStorage):
    """Stores deltas when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.pending: deque[tuple[Delta, asyncio.Future[None]]] = deque()

    def commit_soon(self, delta: Delta) -> asyncio.Future[None]:
        self.pending.append((delta, asyncio.get_running_loop().create_future()))
        return self.pending[-1][1]

    def store_next(self) -> None:
        delta, stored = self.pending.popleft()
        super().commit_soon(delta)
        stored.set_result(None)

    def lose_all(self) -> None:
        for _, stored in self.pending:
            stored.set_exception(OutcomeUnknown("by design"))
        self.pending.clear()


def define(app: App, gate: dict[str, asyncio.Event]) -> type[Actor[Tags]]:
    @app.actor("echo", implements=Echo, persist="volatile")
    class EchoActor(Actor[None]):
        async def back(self, tag: str, fails: bool) -> int:
            tape = app.actor(Tape, "t")
            return await (tape.fail(tag) if fails else tape.add(tag))

    @app.actor("tape", implements=Tape)
    class TapeActor(Actor[Tags]):
        async def add(self, tag: str) -> int:
            self.state.tags.append(tag)
            return len(self.state.tags)

        async def fail(self, tag: str) -> int:
            self.state.tags.append(tag)
            raise RuntimeError("by design")

        async def nest(self, tag: str, fails: bool) -> int:
            tape = app.actor(Tape, "t")
            return await self._with_inner(tag, fails, tape.fail if fails else tape.add)

        async def circle(self, tag: str, fails: bool) -> int:
            echo = app.actor(Echo, "e")
            return await self._with_inner(tag, fails, lambda inner: echo.back(inner, fails))

        async def _with_inner(
            self, tag: str, fails: bool, inner: Callable[[str], Awaitable[int]]
        ) -> int:
            self.state.tags.append(tag)
            try:
                await inner(f"{tag}'")
            except RelevoError:
                assert fails
            return len(self.state.tags)

        async def hold(self, tag: str) -> int:
            self.state.tags.append(tag)
            await gate[tag].wait()
            return len(self.state.tags)

        async def read(self) -> list[str]:
            return list(self.state.tags)

        async def glance(self) -> list[str]:
            return list(self.state.tags)

    return TapeActor


class ModelCall:
    """A call, and what the model knows of it."""

    def __init__(self, kind: Kind, tag: str, fails: bool, task: asyncio.Task[Any]) -> None:
        self.kind = kind
        self.tag = tag
        self.fails = fails
        self.task = task
        self.answer: Any = None
        self.after: int | None = None
        """How many commits must be stored before its answer leaves; None before its turn ends."""


class TurnMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.gates: dict[str, asyncio.Event] = {}
        self.calls: list[ModelCall] = []
        self.waiting: deque[ModelCall] = deque()
        self.running: ModelCall | None = None
        """A turn that waits: for its gate, or to let a call out."""
        self.tags: list[str] = []
        self.ended: list[str] = []
        """What turns left that have ended."""
        self.stored: list[str] = []
        self.pending: deque[list[str]] = deque()
        self.commits = 0
        """Those that were queued, and are stored or pending."""
        self.loop.run_until_complete(self._begin())

    async def _begin(self) -> None:
        self.app = App()
        self.test: ActorTest[Any] = ActorTest(define(self.app, self.gates), "t")
        self.test.storage = self.storage = HeldStorage()
        await self.test.__aenter__()

    def teardown(self) -> None:
        async def end() -> None:
            self.storage.lose_all()
            for one in self.calls:
                one.task.cancel()
            await asyncio.gather(*(one.task for one in self.calls), return_exceptions=True)
            await self.test.__aexit__(None, None, None)

        self.loop.run_until_complete(end())
        self.loop.close()

    def _settle(self, do: Callable[[], object] = lambda: None) -> None:
        """Do something in the event loop, and let everything run that may."""

        async def passes() -> None:
            do()
            for _ in range(PASSES):
                await asyncio.sleep(0)

        self.loop.run_until_complete(passes())

    # -- what happens -----------------------------------------------------------------------------

    @rule(
        kind=st.sampled_from(["add", "fail", "nest", "circle", "hold", "read", "glance"]),
        fails=st.booleans(),
    )
    def call(self, kind: Kind, fails: bool) -> None:
        tag, tape = f"{len(self.calls)}", self.app.actor(Tape, "t")
        arguments: list[Any] = [] if kind in ("read", "glance") else [tag]
        if kind in ("nest", "circle"):
            arguments.append(fails)
        if kind == "hold":
            self.gates[tag] = asyncio.Event()
        task = self.loop.create_task(getattr(tape, kind)(*arguments))
        one = ModelCall(kind, tag, fails, task)
        self.calls.append(one)
        if kind == "glance":  # at once, whatever runs, and sees the turns that have ended
            self._end(one, list(self.ended))
        else:
            self.waiting.append(one)
            self._go_on()
        self._settle()

    @precondition(lambda self: self.running is not None and self.running.kind == "hold")
    @rule()
    def open_gate(self) -> None:
        assert self.running is not None
        one, self.running = self.running, None
        self.gates[one.tag].set()
        self._changed(one)
        self._go_on()
        self._settle()

    @precondition(lambda self: self.pending)
    @rule(count=st.integers(1, 3))
    def store(self, count: int) -> None:
        for _ in range(min(count, len(self.pending))):
            self._settle(self.storage.store_next)
            self.stored = self.pending.popleft()
            self._go_on()

    @precondition(lambda self: self.pending)
    @rule()
    def lose(self) -> None:
        """The first commit fails, and with it all that was built on it."""
        for one in self.calls:
            if one.after is not None and one.after > self._stored_count:
                one.answer, one.after = OutcomeUnknown, 0
        if self.running is not None:
            self.running.answer, self.running.after, self.running = OutcomeUnknown, 0, None
        self.commits -= len(self.pending)
        self.pending.clear()
        self.tags, self.ended = list(self.stored), list(self.stored)
        self._go_on()
        self._settle(self.storage.lose_all)

    @precondition(lambda self: not (self.pending or self.running or self.waiting))
    @rule()
    def leave_memory(self) -> None:
        self.loop.run_until_complete(self.test.deactivate())

    # -- the model --------------------------------------------------------------------------------

    @property
    def _stored_count(self) -> int:
        return self.commits - len(self.pending)

    def _go_on(self) -> None:
        """Run what may run: one turn after the other, and calls leave only what is durable."""
        if self.running is not None and self.running.kind != "hold" and not self.pending:
            one, self.running = self.running, None
            self._inner(one)
        while self.running is None and self.waiting:
            one = self.waiting.popleft()
            match one.kind:
                case "read":
                    self._end(one, list(self.tags))
                case "fail":
                    self._end(one, RelevoError)
                case "add":
                    self.tags.append(one.tag)
                    self._changed(one)
                case "hold":
                    self.tags.append(one.tag)
                    self.running = one
                case _:
                    self.tags.append(one.tag)
                    if self.pending:
                        self.running = one
                    else:
                        self._inner(one)

    def _inner(self, one: ModelCall) -> None:
        if not one.fails:
            self.tags.append(f"{one.tag}'")
        self._changed(one)

    def _changed(self, one: ModelCall) -> None:
        self.commits += 1
        self.ended = list(self.tags)
        self.pending.append(list(self.tags))
        self._end(one, len(self.tags))

    def _end(self, one: ModelCall, answer: Any) -> None:
        one.answer = answer
        one.after = self.commits if self.pending else 0

    # -- what holds -------------------------------------------------------------------------------

    @invariant()
    def answers_leave_after_what_they_rest_on(self) -> None:
        for one in self.calls:  # I11, I16, I18, I21, I24
            is_due = one.after is not None and one.after <= self._stored_count
            assert one.task.done() == is_due, (one.kind, one.tag)
            if not is_due:
                continue
            if isinstance(one.answer, type):
                assert isinstance(one.task.exception(), RelevoError)
            else:
                assert one.task.result() == one.answer

    @invariant()
    def what_is_stored_is_a_prefix_of_the_turns(self) -> None:  # I22, I25
        assert self.test.state.tags == self.stored
        assert len(self.storage.pending) == len(self.pending)


TestTurnMachine = TurnMachine.TestCase
