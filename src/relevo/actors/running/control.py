"""Calls that every actor answers, for its administration; their names begin with `$`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from relevo.actors.core.deltas import ReminderChange
from relevo.actors.interfaces import Interface, MethodOptions, MethodSpec
from relevo.actors.operating import events
from relevo.actors.operating.events import ActorData
from relevo.actors.running.arrivals import Arrival
from relevo.actors.running.turn import CURRENT
from relevo.errors import InvalidValue, RelevoError, UnknownMethod

if TYPE_CHECKING:
    import asyncio

    from relevo.actors.core.calls import Answer, Call, MovedTo
    from relevo.actors.definitions import ActorDefinition
    from relevo.actors.interfaces import Interfaces
    from relevo.actors.running.activation import Activation
    from relevo.actors.running.runtime import ActorRuntime
    from relevo.actors.running.turn import Turn
    from relevo.kernel.events import Event

PREFIX: Final = "$"
"""No method of an interface can begin with it."""


class ActivationReport(Struct, frozen=True):
    """An actor in memory, as its host sees it."""

    state: str
    """`loading`, `activating`, `active` or `deactivating`."""
    turns: int
    """Turns that run, nested ones included."""
    waiting: int
    """Calls that wait for a turn."""
    deferred: int
    """Answers that a later turn gives."""
    idle_seconds: float
    """Since it was used last."""


class Control(Interface):
    """What an actor's owner does for administrators."""

    async def delete(self) -> None:
        """Remove the actor and all that is stored of it, as a turn."""

    async def cancel_reminder(self, name: str) -> bool:
        """Remove a reminder, as a turn; False if there is none."""

    async def deactivate(self) -> bool:
        """Let the actor leave memory; False if it is not there."""

    async def serving(self) -> None:
        """Do nothing: an answer says that the owner of the slot takes calls."""

    async def activation(self) -> ActivationReport | None:
        """Return the actor as it is in memory."""


def control_method(interfaces: Interfaces, name: str) -> MethodSpec:
    """Return a method of `Control` as calls name it; raises `UnknownMethod`."""
    found = interfaces.of(Control).method(name.removeprefix(PREFIX))
    return MethodSpec(
        interfaces, "Control", f"{PREFIX}{found.name}", found.parameters, found.result,
        MethodOptions(idempotent=True),
    )  # fmt: skip


class ControlArrival(Arrival, eq=False):
    """A control call that has arrived; it needs no room in the mailbox."""

    @classmethod
    def to_control(
        cls,
        runtime: ActorRuntime,
        call: Call,
        definition: ActorDefinition,
        answer: asyncio.Future[Answer],
        deadline: float,
    ) -> ControlArrival:
        """Take a control call in."""
        method = control_method(definition.codecs, call.method)
        arrival = cls.of(runtime, call, method, answer, deadline)
        arrival.is_control = True
        return arrival

    async def begin(self, instance: Any) -> Any:
        """Do in a turn what only a turn may do."""
        turn = CURRENT.get()
        assert turn is not None
        match self.method.name.removeprefix(PREFIX):
            case "delete":
                await self._delete(turn)
                return self.encode(None)
            case "cancel_reminder":
                (name,) = self.arguments
                return self.encode(await self._cancel_reminder(turn, name))
            case other:
                raise UnknownMethod(f"no turn does {other!r}")

    async def _delete(self, turn: Turn) -> None:
        if turn.activation.definition.is_durable:
            self._log(turn, events.DELETED)
        else:
            await self._log_leaving(turn.activation, events.DELETED)
        turn.journal.deleted = True

    async def _cancel_reminder(self, turn: Turn, name: str) -> bool:
        activation = turn.activation
        if not activation.definition.is_durable:
            raise InvalidValue(f"{activation.ref.type!r} is volatile: no reminders")
        if name in activation.reminder_dues:
            is_set = activation.reminder_dues[name] is not None
        else:
            is_set = await self.runtime.storage.has_reminder(activation.canonical, name)
        if is_set:
            turn.journal.reminders[name] = ReminderChange(name, None)
            self._log(turn, events.REMINDER_CANCELED, name)
        return is_set

    def answers_at_once(self, activation: Activation | None, moved: MovedTo | None) -> bool:
        """Answer what needs no turn, and does not activate; False if it is something else.

        `moved` is the answer of a slot that takes no calls now.
        """
        match self.method.name.removeprefix(PREFIX):
            case "serving" if moved is not None:
                self.give(moved)
            case "serving":
                self.finish(self.encode(None), None)
            case "activation":
                self.finish(self.encode(None if activation is None else info_of(activation)), None)
            case "deactivate" if activation is None:
                self.finish(self.encode(False), None)
            case "deactivate":
                assert activation is not None
                self.runtime.run(self._deactivate(activation))
            case _:
                return False
        return True

    async def _deactivate(self, activation: Activation) -> None:
        waits_for_us = any(frame.actor == activation.canonical for frame in self.call.chain.frames)
        try:
            await self._log_leaving(activation, events.DEACTIVATED)
        except RelevoError as error:
            self.finish(None, error)
            return
        activation.leave_when_idle = True  # counts while it is still being activated
        activation.deactivate("requested")
        if not waits_for_us:
            await activation.over.wait()
        self.finish(self.encode(True), None)

    def _log(self, turn: Turn, kind: str, name: str | None = None) -> None:
        """Log a change with the turn that makes it."""
        event = self._event(turn.activation, kind, name)
        turn.journal.logged.append(events.CATALOGUE.row(event))

    async def _log_leaving(self, activation: Activation, kind: str) -> None:
        """Log that an actor leaves memory, before it does: it also leaves if its host ends now."""
        await self.runtime.storage.actors.log(self._event(activation, kind, None))

    def _event(self, activation: Activation, kind: str, name: str | None) -> Event:
        data = ActorData(actor=activation.canonical, by=self.call.headers.get(events.BY), name=name)
        return events.event_of(kind, data, activation.revision + 1)


def info_of(activation: Activation) -> ActivationReport:
    """Return an activation as administrators see it."""
    return ActivationReport(
        state=activation.state, turns=len(activation.turns),
        waiting=len(activation.mailbox.queued()), deferred=len(activation.deferred),
        idle_seconds=max(0.0, activation.idle_seconds),
    )  # fmt: skip
