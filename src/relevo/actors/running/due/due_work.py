"""Hands reminders and durable messages whose time has come to their actors.

One loop per host looks for its slots: woken by a commit, else each second. What it has handed out
it passes over until that has ended; the commit of the turn removes the row, so nothing is lost when
this process dies in between.
"""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec

from relevo.actors.core.deltas import DueMessage, DueReminder, ReminderChange
from relevo.actors.core.identity import ActorRef, slot_of
from relevo.actors.core.schedules import ReminderSchedule, occurrence
from relevo.actors.reminders import Tick
from relevo.actors.running.due.trials import DueKey, Trials, due_key
from relevo.actors.running.turn import CURRENT, FunctionWork
from relevo.actors.storing.inbox import HAS_DUE
from relevo.errors import (
    ActivationLost,
    CommitFailed,
    Conflict,
    NotFound,
    OutcomeUnknown,
    RelevoError,
    StatePoisoned,
    Unavailable,
    UnknownMethod,
)
from relevo.kernel import error_text, faults
from relevo.kernel.backoff import Backoff
from relevo.kernel.postgres.polling import Question
from relevo.kernel.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from relevo.actors.definitions import ActorDefinition
    from relevo.actors.running.runtime import ActorRuntime
    from relevo.actors.running.slots import Slot
    from relevo.kernel.leases.model import Fence
    from relevo.kernel.postgres.wakeups import Wakeups

log = get_logger(__name__)
LOOK_SECONDS: Final = 1.0
POSTPONED_SECONDS: Final = 5.0
"""How long work waits whose actor cannot be activated now."""
PAGE: Final = 1_000
FEW: Final = PAGE // 4
MESSAGE_BACKOFF: Final = Backoff(first=0.5, longest=300.0, jitter=(0.8, 1.2))
_TRANSIENT = (ActivationLost, CommitFailed, OutcomeUnknown)
_schedules = msgspec.msgpack.Decoder(ReminderSchedule)


def _nothing() -> None:
    """Do nothing."""


class DueItem(FunctionWork, eq=False):
    """A reminder or a message as work; what did not run is looked for again."""

    returns: ClassVar[bool] = True
    let_go: Callable[[], None] = _nothing

    def withdraw(self) -> None:
        """Let the item be handed out again."""
        self.let_go()


class DueWork:
    """The reminders and messages of the slots of this host."""

    def __init__(self, runtime: ActorRuntime, wakeups: Wakeups) -> None:
        self._runtime = runtime
        question = Question(HAS_DUE, self._places, every=LOOK_SECONDS)
        self.signal = wakeups.signal(question=question)
        """Wakes the look; whoever stores what is due at once sets it."""
        self._handed: set[DueKey] = set()
        self._ended_meanwhile: set[DueKey] = set()
        """What has ended since the last look began: that may have read it as it was before."""
        self._few = asyncio.Event()
        self._trials = Trials(runtime, self._admit, self._let_go)

    async def run(self) -> None:
        """Look for due work until the host stops."""
        with self.signal:
            while True:
                if await self.look():
                    await self._until_few()
                else:
                    await self.signal.wait(self.signal.patience(LOOK_SECONDS))

    def _slots(self) -> list[Slot]:
        slots = self._runtime.slots.values()
        return [slot for slot in slots if slot.is_open and slot.lease.may_act]

    def _places(self) -> tuple[list[str], list[int]]:
        slots = self._slots()
        return [slot.group for slot in slots], [slot.number for slot in slots]

    async def look(self) -> bool:
        """Hand out what is due; True if there may be more at once."""
        slots = self._slots()
        if not slots:
            return False
        await self._trials.note_taken(slots)
        self._ended_meanwhile.clear()
        found = await self._runtime.storage.inbox.due(
            [slot.group for slot in slots], [slot.number for slot in slots], PAGE
        )
        is_old = bool(self._ended_meanwhile)
        due: list[DueReminder | DueMessage] = [*found.reminders, *found.messages]
        fresh = [
            (item, key) for item in due
            if (key := due_key(item)) not in self._handed and key not in self._ended_meanwhile
        ]  # fmt: skip
        for item, key in fresh:
            self._handed.add(key)
            self._hand_out(item, key)
        self._trials.begin()
        handed = len(fresh)
        return is_old or (handed > 0 and len(due) >= PAGE)

    async def _until_few(self) -> None:
        """Wait until most of what was handed out has ended: else a look reads it all again."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK_SECONDS):
                while len(self._handed) > FEW:
                    self._few.clear()
                    await self._few.wait()

    def _let_go(self, key: DueKey) -> None:
        """Hand it out again, if the store still has it."""
        self._handed.discard(key)
        self._ended_meanwhile.add(key)
        self._trials.ended(key)
        if len(self._handed) <= FEW:
            self._few.set()

    def _hand_out(self, item: DueReminder | DueMessage, key: DueKey) -> None:
        """Hand an item to its actor, or keep it until it is noted that it begins."""
        canonical = item.actor if isinstance(item, DueReminder) else item.receiver
        try:
            definition = self._definition_of(canonical)
            group = definition.options.placement_group
            number = slot_of(canonical, self._runtime.slots_of(group))
        except RelevoError as error:
            self._later(None, item, key, error)  # it waits for a host that defines the type
            return
        slot = self._runtime.slots.get((group, number))
        if slot is None:
            self._let_go(key)
        elif not self._trials.takes(slot, item, key):
            self._admit(slot, item, key)

    def _definition_of(self, canonical: str) -> ActorDefinition:
        name = ActorRef.read(canonical).type
        definition = self._runtime.types.by_name.get(name)
        if definition is None:
            raise NotFound(f"no actor type {name!r} is defined on the host of its slot")
        return definition

    def _admit(self, slot: Slot, item: DueReminder | DueMessage, key: DueKey) -> None:
        """Let an item wait for its turn."""
        if not slot.is_open:
            self._let_go(key)
            return
        if isinstance(item, DueReminder):
            canonical, name = item.actor, f"reminder {item.name}"
            begin: Callable[[Any], Awaitable[None]] = partial(fire_reminder, item)
        else:
            canonical, name = item.receiver, f"message {item.method}"
            begin = partial(self._receive, item)
        try:
            activation = slot.activation(self._definition_of(canonical), ActorRef.read(canonical))
            activation.touch()
            activation.admit(
                DueItem(
                    name,
                    function=begin,
                    ended=partial(self._ended, slot, item, key),
                    let_go=partial(self._let_go, key),
                )
            )
        except RelevoError as error:
            # That the actor cannot be activated now is not the fault of this item.
            waits = isinstance(error, (StatePoisoned, Unavailable))
            self._later(None if waits else slot.lease.fence, item, key, error)

    async def _receive(self, message: DueMessage, instance: Any) -> None:
        turn = CURRENT.get()
        assert turn is not None
        method = turn.activation.definition.methods.get(message.method)
        if method is None:
            raise UnknownMethod(f"{turn.activation.ref.type!r} has no method {message.method!r}")
        arguments = method.decode_arguments(message.body)
        turn.journal.handled_message = message.number
        if not turn.activation.definition.is_durable:
            raise Conflict(f"{turn.activation.ref.type!r} is volatile, and handles no messages")
        handler = getattr(instance, message.method)
        call = partial(method.call, handler, arguments)
        if message.method in turn.activation.definition.plain_methods:
            await self._runtime.call_plain(call)
        else:
            await call()

    def _ended(
        self, slot: Slot, item: DueReminder | DueMessage, key: DueKey, _: Any,
        error: BaseException | None,
    ) -> None:  # fmt: skip
        if error is None or isinstance(error, _TRANSIENT) or slot.lease.over:
            self._let_go(key)
            if isinstance(item, DueMessage):
                self.signal.set()  # the next of its pair
            return
        self._later(slot.lease.fence, item, key, error)

    def _later(
        self,
        fence: Fence | None,
        item: DueReminder | DueMessage,
        key: DueKey,
        error: BaseException,
    ) -> None:
        """Store that an attempt failed: it is tried again later, or was the last."""
        self._runtime.run(self._store_failure(fence, item, key, error))

    async def _store_failure(
        self,
        fence: Fence | None,
        item: DueReminder | DueMessage,
        key: DueKey,
        error: BaseException,
    ) -> None:
        inbox, random = self._runtime.storage.inbox, self._runtime.random
        text = error_text.shown(error)
        try:
            if fence is None:
                await asyncio.sleep(POSTPONED_SECONDS)
            elif isinstance(item, DueMessage):
                if item.attempt + 1 >= item.attempts:
                    await inbox.bury_message(item, fence, text)
                else:
                    delay = MESSAGE_BACKOFF.delay(item.attempt, random)
                    await inbox.retry_message(item, fence, text, delay)
            else:
                schedule = _schedules.decode(item.schedule)
                if schedule.attempts is not None and item.attempt + 1 >= schedule.attempts:
                    await inbox.bury_reminder(item, fence, text)
                else:
                    delay = schedule.backoff.delay(item.attempt, random)
                    await inbox.retry_reminder(item, fence, text, delay)
        except RelevoError as failure:
            log.warning("actor.failure_not_stored", error=str(failure))
            await asyncio.sleep(LOOK_SECONDS)
        finally:
            self._let_go(key)
            self.signal.set()


async def fire_reminder(due: DueReminder, instance: Any) -> None:
    """Run the handler of a reminder in the present turn, and plan its next time."""
    turn = CURRENT.get()
    assert turn is not None
    await faults.point("before_reminder")
    if turn.activation.reminder_dues.get(due.name, due.due) != due.due:
        return  # a turn that ran after it was read has replaced or canceled it
    schedule = _schedules.decode(due.schedule)
    found = occurrence(schedule, due.due, due.now)
    turn.journal.handled_reminder = (due.name, due.due)
    turn.journal.reminders[due.name] = ReminderChange(
        due.name, found.next_due, due.method, due.schedule, due.payload
    )
    if not found.fires:
        return
    definition = turn.activation.definition
    lateness = (due.now - found.scheduled_at).total_seconds()
    definition.figures.late(definition.name, lateness)
    tick: Tick[Any] = Tick(
        due.name, found.scheduled_at, due.now, found.missed, due.attempt + 1,
        msgspec.msgpack.decode(due.payload) if due.payload else None,
    )  # fmt: skip
    handler = getattr(instance, due.method, None)
    if handler is None or due.method not in turn.activation.definition.reminder_handlers:
        raise UnknownMethod(f"{turn.activation.ref.type!r} has no reminder handler {due.method!r}")
    await turn.activation.home.invoke(handler, tick)
