"""The change feed processor as users hold it: its options, callbacks and health."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, Literal, Unpack

from msgspec import Struct

from relevo import limits
from relevo.errors import Conflict, InvalidValue
from relevo.feed.operating import dead_letters
from relevo.feed.operating.unit import Definition, UnitOptions, VersionHold
from relevo.feed.options import ProcessorOptions, ProcessorSettings
from relevo.feed.processing import context, memory_leases
from relevo.feed.reading import bounds, filters
from relevo.feed.reading import start as starts
from relevo.kernel import callables, checking, uses
from relevo.kernel.backoff import Backoff
from relevo.kernel.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from relevo.feed.processing.host import RunningProcessor
    from relevo.feed.reading.bounds import Until
    from relevo.feed.reading.filters import Filter
    from relevo.kernel.leases import Lease

log = get_logger(__name__)
Notification = Literal[
    "acquired", "released", "error", "stalled", "dead_lettered", "completed"
]  # fmt: skip
DETAILS: Final[dict[Notification, str]] = {
    "acquired": "epoch", "released": "reason", "error": "error", "stalled": "stall",
    "dead_lettered": "letter", "completed": "positions",
}  # fmt: skip
"""The second argument of a callback, after the token of the lease."""
NOTIFY_SECONDS_MAX: Final = 30.0
State = Literal["ok", "degraded", "failed"]
Symptom = Literal["failing", "stalled", "blocked", "store", "unreadable"]
ABANDONED_MAX = 8
"""With this many calls that never end, the process needs a restart."""


class ProcessorHealth(Struct, frozen=True):
    """The answer of `processor.health()`."""

    state: State
    reasons: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return self.state == "ok"


class Stall(Struct, frozen=True, kw_only=True):
    """A call that takes longer than `stall_after`."""

    seconds: float
    first: str
    """Id of the first change of the call."""
    changes: int


class Symptoms:
    """The present problems of each lease."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, Symptom, int], str] = {}
        self.abandoned = 0
        """Calls that were left to themselves since the process started."""

    def note(self, symptom: Symptom, token: str, text: str, lane: int = 0) -> None:
        """Record a problem of a lease, or of one lane of it."""
        self._found[token, symptom, lane] = text

    def clear(self, token: str, *symptoms: Symptom, lane: int | None = None) -> None:
        """Remove problems, of one lane or of all."""
        if not self._found:
            return
        for key in list(self._found):
            if key[0] == token and key[1] in symptoms and lane in (None, key[2]):
                del self._found[key]

    def judge(self, *, running: bool, may_act: bool, why: str | None = None) -> ProcessorHealth:
        """Return the health: failed if this host does no work, degraded if it does some."""
        fatal = []
        if not running:
            reason = "" if why is None else f": {why}"
            fatal.append(f"the processor is not running{reason}")
        elif not may_act:
            fatal.append("this host is past its self-fencing deadline: no renewal succeeded")
        if self.abandoned >= ABANDONED_MAX:
            fatal.append(f"{self.abandoned} calls of the handler never ended; restart the process")
        reasons = [f"lease {token}: {text}" for (token, *_), text in sorted(self._found.items())]
        if self.abandoned and not fatal:
            reasons.append(f"{self.abandoned} calls of the handler never ended")
        state: State = "failed" if fatal else "degraded" if reasons else "ok"
        return ProcessorHealth(state, (*fatal, *reasons))


class Notifications:
    """The callbacks that listen to one processor."""

    def __init__(self, processor: str) -> None:
        self._processor = processor
        self._callbacks: dict[Notification, list[Callable[..., Any]]] = {}

    def listen(self, event: Notification, callback: Callable[..., Any]) -> Callable[..., Any]:
        """Take a callback, and return it; refuses one that cannot be called."""
        what = f"the callback of {self._processor!r} for {event!r}"
        callables.check(callback, what, "token", DETAILS[event])
        self._callbacks.setdefault(event, []).append(callback)
        return callback

    async def send(self, event: Notification, *details: Any) -> None:
        """Call the callbacks of an event; one that fails is logged and never stops processing."""
        for callback in self._callbacks.get(event, ()):
            try:
                async with asyncio.timeout(NOTIFY_SECONDS_MAX):
                    with uses.used_for("handlers"):
                        await callables.call(callback, *details)
            except Exception:
                log.exception(
                    "feed.notification_failed", processor=self._processor, notification=event
                )


class Processor:
    """Delivers the changes of one container to a handler; all hosts that define it share the work.

    Relevo calls `handler(changes)` or `handler(ctx, changes)`, a coroutine or a plain function,
    with batches in order, one at a time per lease. When the handler returns, its changes are
    checkpointed; when it raises, Relevo delivers them again. `ProcessorSettings` explains the
    options. `start` matters only when the unit is created.
    """

    def __init__(
        self,
        container: str,
        name: str,
        handler: Callable[..., Any],
        **options: Unpack[ProcessorOptions],
    ) -> None:
        if not name or len(name) > limits.NAME_LENGTH_MAX:
            raise InvalidValue(
                f"a processor's name has 1 to {limits.NAME_LENGTH_MAX} characters; hosts that use"
                " the same name share the work"
            )
        checking.options(f"processor {name!r}", options, ProcessorSettings.__struct_fields__)
        settings = self.settings = ProcessorSettings(**options)
        self.container = container
        self.name = name
        self.handler = handler
        self.with_context = context.wants_context(handler, f"the handler of {name!r}")
        self.limit = dead_letters.check(
            settings.max_attempts, settings.dead_letter, settings.on_poison
        )
        self.pace = settings.pace()
        self.backoff = settings.backoff or Backoff(first=1.0, longest=60.0)
        self.until = None if settings.until is None else bounds.check(settings.until)
        self.definition = _definition(container, settings)
        self.unit_name = f"{memory_leases.name_of(settings.leases_in)}/{container}/{name}"
        """Name of the unit in the lease tables."""
        self.symptoms = Symptoms()
        self.notifications = Notifications(name)
        self.not_started: str | None = None
        """Why the host could not start it; None if it could, or has not tried."""
        self._running: RunningProcessor | None = None
        self._starting = asyncio.Lock()

    def on_acquired(self, callback: Callable[..., Any]) -> Callable[..., Any]:
        """Call back with (token, epoch) when this host gains a lease, before its first delivery."""
        return self.notifications.listen("acquired", callback)

    def on_released(self, callback: Callable[..., Any]) -> Callable[..., Any]:
        """Call back with (token, reason) after the last delivery of a lease."""
        return self.notifications.listen("released", callback)

    def on_error(self, callback: Callable[..., Any]) -> Callable[..., Any]:
        """Call back with (token, error) at every failure; the error's type tells its source."""
        return self.notifications.listen("error", callback)

    def on_stall(self, callback: Callable[..., Any]) -> Callable[..., Any]:
        """Call back with (token, `Stall`) when a call takes longer than `stall_after`."""
        return self.notifications.listen("stalled", callback)

    def on_dead_lettered(self, callback: Callable[..., Any]) -> Callable[..., Any]:
        """Call back with (token, `DeadLetter`) when a change becomes a dead letter."""
        return self.notifications.listen("dead_lettered", callback)

    def on_completed(self, callback: Callable[..., Any]) -> Callable[..., Any]:
        """Call back with (token, positions) when a lease has reached the end of a bounded run."""
        return self.notifications.listen("completed", callback)

    def run_until(self, until: Until) -> None:
        """Make the next start a bounded run, as the option `until` does."""
        if self._running is not None:
            raise Conflict(f"processor {self.name!r} is running; set the end before it starts")
        self.until = bounds.check(until)

    async def completed(self) -> None:
        """Return when every lease of the unit, on any host, has reached `until`."""
        if self.until is None:
            raise Conflict(f"processor {self.name!r} has no end; give it until=…")
        await self._now.completed()

    def health(self) -> ProcessorHealth:
        """Return whether this host does its part of the work: ok, degraded or failed, and why."""
        running = self._running
        if running is None:
            return self.symptoms.judge(running=False, may_act=False, why=self.not_started)
        return self.symptoms.judge(running=True, may_act=running.leases.may_act)

    @property
    def _now(self) -> RunningProcessor:
        if self._running is None:
            raise Conflict(f"processor {self.name!r} is not running")
        return self._running

    @property
    def running(self) -> bool:
        """Whether this host serves the unit."""
        return self._running is not None

    @property
    def filter(self) -> Filter | None:
        """Which changes the unit gets; None is all."""
        return self.definition.options.filter

    @property
    def leases(self) -> list[Lease]:
        """The leases of the unit that this host holds."""
        if self._running is None:
            return []
        return [lease for lease in self._running.leases.held if lease.unit == self.unit_name]


def _definition(container: str, settings: ProcessorSettings) -> Definition:
    """Return what the first host stores about the unit."""
    return Definition(
        container=container, mode=settings.mode, start=starts.check(settings.start),
        options=UnitOptions(
            leases=settings.leases, follow_splits=settings.follow_splits,
            filter=filters.check(settings.filter, settings.mode),
        ),
        on_start_mismatch=settings.on_start_mismatch, hold=VersionHold.of(settings.hold),
        block_keys=settings.on_poison == "block_key",
    )  # fmt: skip
