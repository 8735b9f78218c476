"""Calls that every actor answers, for its administration; their names begin with `$`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from relevo.actors.core.deltas import ReminderChange
from relevo.actors.interfaces import Interface, MethodOptions, MethodSpec
from relevo.actors.running.arrivals import Arrival
from relevo.actors.running.turn import CURRENT
from relevo.errors import InvalidValue, UnknownMethod

if TYPE_CHECKING:
    import asyncio

    from relevo.actors.core.calls import Answer, Call, MovedTo
    from relevo.actors.definitions import ActorDefinition
    from relevo.actors.interfaces import Interfaces
    from relevo.actors.running.activation import Activation
    from relevo.actors.running.runtime import ActorRuntime

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

    async def cancel_reminder(self, name: str) -> None:
        """Remove a reminder, as a turn."""

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
                turn.journal.deleted = True
            case "cancel_reminder":
                if not turn.activation.definition.is_durable:
                    raise InvalidValue(f"{turn.activation.ref.type!r} is volatile: no reminders")
                (name,) = self.arguments
                turn.journal.reminders[name] = ReminderChange(name, None)
            case other:
                raise UnknownMethod(f"no turn does {other!r}")
        return self.encode(None)

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
        activation.leave_when_idle = True  # counts while it is still being activated
        activation.deactivate("requested")
        if not waits_for_us:
            await activation.over.wait()
        self.finish(self.encode(True), None)


def info_of(activation: Activation) -> ActivationReport:
    """Return an activation as administrators see it."""
    return ActivationReport(
        state=activation.state, turns=len(activation.turns),
        waiting=len(activation.mailbox.queued()), deferred=len(activation.deferred),
        idle_seconds=max(0.0, activation.idle_seconds),
    )  # fmt: skip
