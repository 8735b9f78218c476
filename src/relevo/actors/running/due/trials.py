"""Attempts at due work that may have ended its host.

An attempt leaves no trace while it runs: another commit for each would double the cost of due work.
Only what was due before a slot was taken, so that an earlier owner may have begun it, is noted
before it begins, a page of it in one commit. If the owner is lost then, what it had noted runs
alone from then on, one at a time on its host. What ends its hosts even so becomes a dead letter.
"""

from __future__ import annotations

import asyncio
from collections import deque
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from relevo.actors.core.deltas import DueMessage, DueReminder, may_be_deadly
from relevo.errors import RelevoError
from relevo.kernel.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from relevo.actors.running.runtime import ActorRuntime
    from relevo.actors.running.slots import Slot

log = get_logger(__name__)
AGAIN_SECONDS = 1.0
DueKey = tuple[str, str | int]


class Trial(NamedTuple):
    """A reminder or a message that is to be noted before it begins."""

    slot: Slot
    item: DueReminder | DueMessage
    key: DueKey


class Trials:
    """Due work of a host that is noted before it begins."""

    def __init__(
        self,
        runtime: ActorRuntime,
        hand_out: Callable[[Slot, DueReminder | DueMessage, DueKey], None],
        let_go: Callable[[DueKey], None],
    ) -> None:
        self._runtime = runtime
        self._hand_out = hand_out
        self._let_go = let_go
        self._noted: list[Trial] = []
        self._alone: deque[Trial] = deque()
        self._is_alone = False
        self._running: dict[DueKey, asyncio.Event] = {}
        """What runs alone, until it has ended."""

    async def note_taken(self, slots: Sequence[Slot]) -> None:
        """Learn since when slots are this host's."""
        taken = [slot for slot in slots if slot.taken_at is None]
        if taken:
            now, ticks = await self._runtime.now(), asyncio.get_running_loop().time()
            for slot in taken:
                slot.taken_at = now - timedelta(seconds=ticks - slot.began)

    def takes(self, slot: Slot, item: DueReminder | DueMessage, key: DueKey) -> bool:
        """Keep work that is to be noted first, until `begin`; False if it may run at once."""
        if may_be_deadly(item, slot.lease.epoch):
            self._alone.append(Trial(slot, item, key))
            return True
        is_old = slot.taken_at is not None and item.since <= slot.taken_at
        if is_old and item.begun_epoch is None:
            self._noted.append(Trial(slot, item, key))
            return True
        return False

    def begin(self) -> None:
        """Begin what was kept."""
        if self._noted:
            noted, self._noted = self._noted, []
            self._runtime.run(self._begin(noted))
        if self._alone and not self._is_alone:
            self._is_alone = True
            self._runtime.run(self._run_alone())

    def ended(self, key: DueKey) -> None:
        """Hear that something ended, or did not begin."""
        running = self._running.pop(key, None)
        if running is not None:
            running.set()

    async def _run_alone(self) -> None:
        try:
            while self._alone:
                trial = self._alone.popleft()
                over = self._running[trial.key] = asyncio.Event()
                await self._begin([trial])
                await over.wait()
        finally:
            self._is_alone = False

    async def _begin(self, trials: Sequence[Trial]) -> None:
        """Note what begins, and hand it out; what became a dead letter by that is not."""
        inbox = self._runtime.storage.inbox
        keys: set[DueKey] = set()
        try:
            begun, dead = await inbox.begin([(one.item, one.slot.lease.fence) for one in trials])
            keys = {due_key(item) for item in begun}
            for item in dead:
                _log_dead(item)
        except RelevoError as error:
            log.warning("actor.begin_not_stored", error=str(error))
            await asyncio.sleep(AGAIN_SECONDS)
        for slot, item, key in trials:
            if key in keys:
                self._hand_out(slot, item, key)
            else:
                self._let_go(key)


def due_key(item: DueReminder | DueMessage) -> DueKey:
    """Return what names a message or a reminder."""
    if isinstance(item, DueMessage):
        return "message", item.number
    return item.actor, item.name


def _log_dead(item: DueReminder | DueMessage) -> None:
    log.error(
        "actor.work_ends_its_hosts",
        actor=item.receiver if isinstance(item, DueMessage) else item.actor,
        kind="message" if isinstance(item, DueMessage) else "reminder", method=item.method,
        advice="it is a dead letter now: relevo actor letter list",
    )  # fmt: skip
