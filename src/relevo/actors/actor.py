"""`Actor`: the base of the classes whose objects are actors."""

from __future__ import annotations

import asyncio
from contextvars import Context
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, cast

import msgspec

from relevo.actors.calls.message_proxies import MessageProxy, Noted, SendOptions
from relevo.actors.events import EventMessage
from relevo.actors.reminders import Reminders
from relevo.actors.running.deferred import Deferred, Offloaded
from relevo.actors.running.memory.maps import ActorMap, StateManager
from relevo.actors.running.turn import FunctionWork, turn_of
from relevo.errors import Conflict, InvalidValue, ReadOnlyTurn
from relevo.kernel.events import Event as LogEvent
from relevo.limits import ACTOR_SEND_ATTEMPTS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from msgspec import Struct

    from relevo.actors.calls.proxies import ProxyBase
    from relevo.actors.core.deltas import OnDead, OutgoingMessage
    from relevo.actors.events import Event
    from relevo.actors.running.activation import Activation
    from relevo.actors.running.context import ActorContext
    from relevo.actors.running.timers import Timers
    from relevo.actors.service import Actors
    from relevo.actors.states import DeactivationReason

S = TypeVar("S")
V = TypeVar("V")
R = TypeVar("R")
P = TypeVar("P")
_ANYTHING: Any = Any


class Actor(Generic[S]):
    """An actor with a state of type `S`, which must be constructible without arguments.

    One turn at a time runs: a method, a timer, a reminder or a message. What a turn changes of
    `self.state` is stored when the turn ends, or undone if it raises.

    >>> @app.actor("account", implements=Account)  # doctest: +SKIP
    ... class AccountActor(Actor[AccountState]):
    ...     async def deposit(self, cents: int) -> int:
    ...         self.state.cents += cents
    ...         return self.state.cents
    """

    ctx: ActorContext
    _activation: Activation
    _service: ClassVar[Actors]
    """Of the app that defines the type, for `ActorTest`."""

    def __init__(self, ctx: ActorContext) -> None:
        self.ctx = ctx

    async def on_activate(self) -> None:
        """Runs as a turn before any other."""

    async def on_deactivate(self, reason: DeactivationReason) -> None:
        """Runs as the last turn, unless the process is killed or the slot was lost."""

    def on_rollback(self) -> None:
        """Runs after a turn was undone, to rebuild memory that is derived from the state."""

    @property
    def state(self) -> S:
        """The state; in methods that only read or interleave, that after the last ended turn."""
        activation = self._activation
        turn = turn_of(activation, "the state")
        document = activation.document
        if turn.may_write:
            value: S = document.value
            return value
        if turn.view is None:
            turn.view = document.value if turn.root.may_write else document.view()
        view: S = turn.view
        return view

    @state.setter
    def state(self, value: S) -> None:
        turn = turn_of(self._activation, "the state")
        if not turn.may_write:
            raise ReadOnlyTurn(f"{turn.work.name} only reads, and cannot replace the state")
        self._activation.document.value = value

    @property
    def timers(self) -> Timers:
        """Turns after a delay, or again and again, while the actor is in memory."""
        return self._activation.timers

    @property
    def reminders(self) -> Reminders:
        """Turns at stored times, which fire though every host be restarted in between."""
        return Reminders(self._activation)

    def map(self, name: str, kind: type[V]) -> ActorMap[V]:
        """Return a keyed collection beside the state, for data that is large or sparse."""
        return ActorMap(self._activation, name, kind)

    @property
    def state_manager(self) -> StateManager:
        """Dictionary-style state, for code that comes from Service Fabric or Dapr."""
        return StateManager(self.map("state", _ANYTHING))

    async def save(self) -> None:
        """Make what the turn did so far durable; a later failure undoes only what comes after."""
        turn = turn_of(self._activation, "save")
        if turn.outer is not None:
            raise Conflict(
                "a nested call commits with the turn that it is nested in, not before it"
            )
        if turn.journal.deleted:
            raise Conflict("a turn that deletes its actor commits when it ends, not before")
        activation = self._activation
        await activation.gate.passed(activation.runner.commit(turn))
        await activation.outlet.may_release()
        for output in turn.journal.take_outputs():
            output()

    def send(
        self, proxy: P, *, attempts: int = ACTOR_SEND_ATTEMPTS, on_dead: OnDead = "continue"
    ) -> P:
        """Return the proxy as one whose calls are messages, stored when the turn ends.

        A message of a committed turn is handled at least once and takes effect once; those to one
        actor are handled in order. After `attempts` failures it is a dead letter, and the messages
        behind it go on unless `on_dead="block"`.
        """
        turn = turn_of(self._activation, "send")
        if not turn.may_write:
            raise ReadOnlyTurn(f"{turn.work.name} only reads, and cannot send")

        def note(message: OutgoingMessage) -> Noted:
            turn_of(self._activation, "send").journal.messages.append(message)
            return Noted()

        options = SendOptions(attempts=attempts, on_dead=on_dead)
        definition = self._activation.definition
        if not definition.is_durable:
            raise InvalidValue(
                f"{definition.name!r} is {definition.options.persist}: nothing of its turns is"
                " stored; send with app.actors.send(…)"
            )
        sending = MessageProxy(
            cast("ProxyBase", proxy), definition.place, options, note, self._activation.canonical
        )
        return cast("P", sending)

    def log_event(self, type: str, subject: str, data: Struct) -> None:  # noqa: A002
        """Append an event to the event log, in the transaction of the present turn.

        Its version is the revision of this actor, which grows with every turn that stores
        something. A turn that fails appends nothing. Raises `InvalidValue` for a type that the app
        has not registered, and for data of another struct.
        """
        turn = turn_of(self._activation, "log_event")
        if not turn.may_write:
            raise ReadOnlyTurn(f"{turn.work.name} only reads, and cannot log events")
        if not self._activation.definition.is_durable:
            raise InvalidValue(
                f"{self._activation.definition.name!r} is volatile: nothing of its turns is stored,"
                " and it logs no events"
            )
        event = LogEvent(type, subject, self._activation.revision + 1, data)
        turn.journal.logged.append(self._activation.definition.events.row(event))

    def emit(self, event: Event[V], value: V) -> None:
        """Give an event to the subscribers of this actor, once the present turn is durable.

        Nothing is stored: an event that a subscriber misses is lost, and shows as a gap.
        """
        activation = self._activation
        turn = turn_of(activation, "emit")
        codecs = activation.definition.codecs
        encoded = codecs.encoder.encode(value)
        try:
            codecs.decoder(event.kind).decode(encoded)
        except msgspec.MsgspecError as error:
            raise InvalidValue(f"this is no value of {event.name}: {error}") from error
        body = codecs.encoder.encode(EventMessage(event.name, msgspec.Raw(encoded)))
        turn.journal.outputs.append(lambda: activation.home.publish(activation, event.name, body))

    def defer(self) -> Deferred[Any]:
        """Return an answer that a later turn gives; the method returns it, and the turn ends."""
        turn = turn_of(self._activation, "defer")
        self._activation.check_deferred()
        return self._activation.new_deferred(turn)

    def offload(
        self,
        work: Coroutine[Any, Any, R],
        *,
        then: Callable[[Offloaded[R]], Awaitable[None]] | None = None,
    ) -> None:
        """Run a coroutine outside of any turn, and its outcome as a turn of `then`.

        It starts once the present turn is durable. It gets its arguments only: the state belongs
        to turns.
        """
        activation, journal = self._activation, turn_of(self._activation, "offload").journal
        activation.offloads_to_come += 1

        def start() -> None:
            activation.offloads_to_come -= 1
            self._start_offload(work, then)

        def discard() -> None:
            activation.offloads_to_come -= 1
            work.close()

        journal.discards.append(discard)
        journal.outputs.append(start)

    def _start_offload(self, work: Coroutine[Any, Any, R], then: Any) -> None:
        activation = self._activation

        async def run() -> None:
            value: Any = None
            error: BaseException | None = None
            try:
                value = await work
            except asyncio.CancelledError as canceled:
                if activation.state == "gone":
                    return
                error = canceled
            except Exception as raised:
                error = raised
            if then is not None:
                outcome: Offloaded[R] = Offloaded(value, error)
                completion = FunctionWork("offloaded", function=lambda _: then(outcome), ended=_end)
                activation.admit(completion)

        def _end(_: Any, error: BaseException | None) -> None:
            if error is not None:
                activation.log_failed("offload", error)

        context = Context()
        task = asyncio.get_running_loop().create_task(run(), context=context)
        activation.offloads.add(task)
        task.add_done_callback(activation.offload_ended)

    async def run_turn(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """From an interleaved method: run a function as an ordinary turn, before what waits."""
        turn = turn_of(self._activation, "run_turn")
        if turn.root.work.mode != "interleave":
            raise Conflict(
                f"{turn.work.name} holds the turn itself; only interleaved methods use run_turn"
            )
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        async def begin(_: Any) -> Any:
            value = function(*arguments)
            return await value if hasattr(value, "__await__") else value

        def finish(value: Any, error: BaseException | None) -> None:
            if answer.done():
                return
            if error is None:
                answer.set_result(value)
            else:
                answer.set_exception(error)

        name = getattr(function, "__name__", "run_turn")
        work = FunctionWork(name, function=begin, ended=finish)
        self._activation.admit(work, first=True)
        try:
            return await answer
        except asyncio.CancelledError:
            if work.turn is None:
                self._activation.mailbox.remove(work)
            raise
