"""`ActorTest`: actors of a type in memory, without a host and a database.

    async with ActorTest(AccountActor, key="alice") as account:
        assert await account.proxy.deposit(500) == 500
        assert account.state.cents == 500
        await account.advance(60)        # timers and reminders fire
        assert account.sent == []

Calls of other actors of the same app run in memory as well.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from relevo.actors.calls.calling import Calling
from relevo.actors.calls.delivery import Way, Ways
from relevo.actors.core.deltas import DueReminder, StoredActor
from relevo.actors.core.identity import ActorRef
from relevo.actors.running.due.due_work import fire_reminder
from relevo.actors.running.runtime import ActorRuntime
from relevo.actors.running.slots import Slot
from relevo.actors.running.turn import FunctionWork
from relevo.errors import NotFound
from relevo.kernel.leases.held import Lease
from relevo.kernel.leases.hosts import Deadline
from relevo.kernel.leases.model import Fence
from relevo.kernel.pages import Fetched

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from relevo.actors.actor import Actor
    from relevo.actors.core.calls import Answer, Call, MovedTo
    from relevo.actors.core.deltas import Delta, OutgoingMessage, RecordedCall, ReminderChange
    from relevo.actors.definitions import ActorDefinition, ActorTypes
    from relevo.actors.running.activation import Activation

A = TypeVar("A", bound="Actor[Any]")
GROUP_SLOT: Final = 0
START: Final = datetime(2030, 1, 1, tzinfo=UTC)
SETTLE_SECONDS: Final = 10.0


class _Stored:
    def __init__(self) -> None:
        self.actor = StoredActor()
        self.entries: dict[tuple[str, str], bytes] = {}
        self.reminders: dict[str, ReminderChange] = {}
        self.recorded: dict[str, RecordedCall] = {}


class MemoryStorage:
    """Keeps what turns commit in dicts."""

    def __init__(self) -> None:
        self.actors: dict[str, _Stored] = {}
        self.sent: list[OutgoingMessage] = []
        self.commits = 0

    def of(self, actor: str) -> _Stored:
        """Return what is stored of an actor."""
        return self.actors.setdefault(actor, _Stored())

    async def load(self, actor: str) -> StoredActor:
        """Return the state of an actor."""
        return self.of(actor).actor

    async def entry(self, actor: str, map_name: str, key: str) -> bytes | None:
        """Return an entry of a map."""
        return self.of(actor).entries.get((map_name, key))

    async def entries(
        self, actor: str, map_name: str, after: str = "", limit: int = 200
    ) -> Fetched[tuple[str, bytes]]:
        """Return a page of a map."""
        found = sorted(
            (key, value) for (name, key), value in self.of(actor).entries.items()
            if name == map_name and key > after
        )  # fmt: skip
        return Fetched(found[:limit], len(found) > limit)

    async def recorded(self, actor: str, call_id: str) -> RecordedCall | None:
        """Return the recorded answer of a call."""
        return self.of(actor).recorded.get(call_id)

    def commit_soon(self, delta: Delta) -> asyncio.Future[None]:
        """Store what a turn commits."""
        self.commits += 1
        stored, self.sent = self.of(delta.actor), [*self.sent, *delta.messages]
        before = stored.actor
        if delta.deleted:
            self.actors[delta.actor] = stored = _Stored()
            stored.actor = StoredActor(delta.revision, before.incarnation + 1)
        else:
            document = before.document if delta.document is None else delta.document
            stored.actor = StoredActor(delta.revision, before.incarnation, document, delta.schema)
        for entry in delta.entries:
            stored.entries.pop((entry.map, entry.key), None)
            if entry.value is not None:
                stored.entries[entry.map, entry.key] = entry.value
        for reminder in delta.reminders:
            stored.reminders.pop(reminder.name, None)
            if reminder.due is not None:
                stored.reminders[reminder.name] = reminder
        stored.recorded |= {call.call_id: call for call in delta.recorded}
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done


class VirtualClock:
    """Time that moves when the test says so, and what is to be called at which time."""

    def __init__(self) -> None:
        self.now = START
        self._order = itertools.count()
        self._calls: list[tuple[datetime, int, VirtualTimer]] = []

    def call_later(
        self, seconds: float, function: Callable[..., Any], *arguments: Any
    ) -> VirtualTimer:
        """Call a function after so many seconds."""
        timer = VirtualTimer(lambda: function(*arguments))
        at = self.now + timedelta(seconds=seconds)
        heapq.heappush(self._calls, (at, next(self._order), timer))
        return timer

    @property
    def next(self) -> datetime | None:
        """When something is to be called next."""
        while self._calls and self._calls[0][2].is_canceled:
            heapq.heappop(self._calls)
        return self._calls[0][0] if self._calls else None

    def fire(self) -> None:
        """Call what is due."""
        while (at := self.next) is not None and at <= self.now:
            heapq.heappop(self._calls)[2].function()


class VirtualTimer:
    """Something to be called later."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self.function = function
        self.is_canceled = False

    def cancel(self) -> None:
        """Call it never."""
        self.is_canceled = True


class _HereWays(Ways):
    """Every actor is in this process."""

    def __init__(self, runtime: ActorRuntime, types: ActorTypes) -> None:
        self._runtime = runtime
        self._types = types

    async def slots(self, type_name: str) -> tuple[str, int]:
        definition = self._types.by_name.get(type_name)
        if definition is None:
            raise NotFound(f"no actor type {type_name!r} is defined")
        return definition.options.placement_group, 1

    def is_joining(self, type_name: str) -> bool:
        return True

    def here(self, call: Call) -> asyncio.Future[Answer] | None:
        return self._runtime.take(call)

    async def find(self, group: str, slot: int) -> Way | None:
        return None

    def learn(self, group: str, slot: int, moved: MovedTo) -> None:
        """Nothing moves."""

    async def changed(self, group: str, seconds: float) -> None:
        await asyncio.sleep(seconds)


class ActorTest(Generic[A]):
    """One actor in memory: call its methods, move its time, look at what it did."""

    def __init__(self, cls: type[A], key: Any = "test", *, type: str | None = None) -> None:  # noqa: A002
        if "_service" not in vars(cls):
            raise NotFound(f"{cls.__qualname__} is not below an @app.actor(…)")
        self._service = service = cls._service
        names = [name for name, one in service.types.by_name.items() if one.cls is cls]
        self._definition: ActorDefinition = service.types.by_name[type or names[0]]
        self.ref = ActorRef.of(self._definition.name, key)
        self.storage = MemoryStorage()
        self.clock = VirtualClock()

    async def __aenter__(self) -> ActorTest[A]:
        storage: Any = self.storage
        types: ActorTypes = self._service.types
        self._runtime = ActorRuntime(
            types, storage, activations_max=10_000, slots_of=lambda _: 1, now=self._now
        )
        call_later: Any = self.clock.call_later
        self._runtime.call_later = call_later
        deadline = Deadline()
        deadline.renew(float("inf"))
        for group in types.groups():
            fence = Fence(1, 1, group, str(GROUP_SLOT))
            lease = Lease(fence, {}, deadline, clean=True, save=_save)
            self._runtime.slots[group, GROUP_SLOT] = Slot(self._runtime, group, lease)
            self._runtime.stateless.begin_life(group, deadline)
        self._service.calling_in_memory = Calling(_HereWays(self._runtime, types))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self._service.calling_in_memory = None
        for slot in self._runtime.slots.values():
            slot.lose()
        for pool in self._runtime.stateless.pools:
            pool.lose()
        await self._runtime.close()

    @property
    def proxy(self) -> Any:
        """A proxy of the actor, with the methods of its first interface."""
        return self._service.proxy(
            self._definition.implements[0], self.ref.key, type=self._definition.name
        )

    @property
    def activation(self) -> Activation | None:
        """The actor in memory, unless it has left."""
        return self._runtime.activation_of(self.ref.canonical)

    @property
    def state(self) -> Any:
        """A copy of the stored state; of a volatile actor, of the state in memory."""
        if not self._definition.is_durable and self.activation is not None:
            return self.activation.document.copy(self.activation.document.encoded)
        return self._definition.codec.read(self.storage.of(self.ref.canonical).actor)

    @property
    def sent(self) -> list[tuple[str, str, tuple[Any, ...]]]:
        """Durable messages: the receiver, the method and the arguments; nobody handles them."""
        found = []
        for message in self.storage.sent:
            definition = self._service.types.by_name[ActorRef.read(message.receiver).type]
            method = definition.methods[message.method]
            found.append((message.receiver, message.method, method.decode_arguments(message.body)))
        return found

    @property
    def reminders(self) -> dict[str, datetime]:
        """When each reminder is due."""
        stored = self.storage.of(self.ref.canonical).reminders
        return {name: one.due for name, one in stored.items() if one.due is not None}

    async def advance(self, seconds: float) -> None:
        """Move the time; timers and reminders fire at theirs, in order. Failures are raised."""
        target = self.clock.now + timedelta(seconds=seconds)
        await self.settle()
        while True:
            dues = [one for one in (self.clock.next, *self.reminders.values()) if one is not None]
            at = min(dues, default=target)
            if at > target:
                break
            self.clock.now = max(self.clock.now, at)
            self.clock.fire()
            await self._fire_reminders()
            await self.settle()
            if not dues:
                break
        self.clock.now = target

    async def deactivate(self) -> None:
        """Let the actor leave memory as an idle one does."""
        activation = self.activation
        if activation is not None:
            activation.deactivate("idle")
            await activation.over.wait()

    async def settle(self) -> None:
        """Wait until no turn runs or waits."""
        async with asyncio.timeout(SETTLE_SECONDS):
            while any(
                not one.mailbox.is_idle or one.gate.mark is not None or one.state != "active"
                for one in self._runtime.in_memory()
            ):
                await asyncio.sleep(0)

    async def _fire_reminders(self) -> None:
        now = self.clock.now
        for name, one in list(self.storage.of(self.ref.canonical).reminders.items()):
            if one.due is None or one.due > now:
                continue
            due = DueReminder(
                self.ref.canonical, name, one.method, one.due, now, one.schedule, one.payload,
                one.attempt, one.due,
            )  # fmt: skip
            await self._turn(f"reminder {name}", due)

    async def _turn(self, name: str, due: DueReminder) -> None:
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def begin(instance: Any) -> None:
            await fire_reminder(due, instance)

        def finish(_: Any, error: BaseException | None) -> None:
            if error is None:
                ended.set_result(None)
            else:
                ended.set_exception(error)

        slot = self._runtime.slots[self._definition.options.placement_group, GROUP_SLOT]
        slot.activation(self._definition, self.ref).admit(
            FunctionWork(name, function=begin, ended=finish)
        )
        await ended

    async def _now(self) -> datetime:
        return self.clock.now


async def _save(*_: Any) -> None:
    """A lease in memory has no position."""
