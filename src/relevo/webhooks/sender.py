"""The sender of one webhook: it runs where the webhook's lease is.

It takes waiting events, sends those of different subjects side by side and those of one subject
one after the other, and writes down what became of them in the lease's name. An event counts as
delivered when that is committed: if a sender is killed, events are sent twice, but none is lost.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import structlog

from relevo import limits
from relevo.errors import SettingsError
from relevo.kernel.backoff import Backoff
from relevo.kernel.events import Event
from relevo.kernel.leases import fencing
from relevo.kernel.postgres import catalog
from relevo.webhooks import events, sending
from relevo.webhooks.core import retry

if TYPE_CHECKING:
    import asyncpg

    from relevo.kernel.events import EventLog
    from relevo.kernel.leases import Lease
    from relevo.kernel.outbound.client import Client
    from relevo.kernel.postgres import Transaction
    from relevo.kernel.sealing import Vault
    from relevo.webhooks.core.retry import AttemptOutcome
    from relevo.webhooks.due import DueWebhooks, IdleSender
    from relevo.webhooks.sending import Endpoint

SQL = catalog.load(__package__)
log = structlog.get_logger(__name__)
IDLE_SECONDS: Final = 3_600.0
"""How long a sender with nothing to do waits; the look for due webhooks wakes it before."""
FAILURES_TO_PROBE: Final = 4
"""Failures in a row after which a sender tries one event at a time, after a wait."""
FAILURES_TO_DISABLE: Final = 10
GONE: Final = "the receiver answered 410 Gone"
FAILED_TOO_LONG: Final = "no delivery succeeded for five days"
UNCONFIRMED: Final = "the receiver did not confirm the validation event within ten minutes"


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """An attempt that has ended, and what follows."""

    row: asyncpg.Record
    outcome: AttemptOutcome
    state: str
    wait: float


@dataclass(frozen=True, kw_only=True)
class SenderTools:
    """What all senders of a host share."""

    log: EventLog
    client: Client
    vault: Vault
    due: DueWebhooks
    collecting: str
    """The unit of the processor that collects events."""
    public_host: str | None


class WebhookSender:
    """Sends the events of one webhook while this host owns its lease."""

    def __init__(self, tools: SenderTools, lease: Lease) -> None:
        self._tools = tools
        self._database = tools.log.database
        self._lease = lease
        self._id = UUID(lease.name)
        self._random = random.Random()  # noqa: S311 - jitter, not a secret
        self._backoff = Backoff(first=1.0, longest=60.0, jitter=retry.JITTER)
        self._revision: int | None = None
        """That of the webhook as it was last read."""
        self._failures = 0
        """In a row."""
        self._resume_at = 0.0
        self._ended: list[Attempt] = []
        self._settling = asyncio.Lock()

    async def run(self) -> None:
        """Send until the lease must be released."""
        with self._tools.due.waiting(self._id) as idle:
            while not self._lease.stopping.is_set():
                wait = self._resume_at - _clock()
                if wait <= 0 or idle.revision != self._revision:
                    idle.woken.clear()
                    wait = await self._round(idle)
                if wait > 0:
                    await self._pause(idle.woken, wait)

    async def _round(self, idle: IdleSender) -> float:
        """Do what is due; returns for how many seconds there may be nothing more."""
        self._lease.check()
        try:
            endpoint = await sending.read_endpoint(self._database, self._tools.vault, self._id)
        except SettingsError as error:
            log.error("webhooks.unreadable_secret", webhook=self._lease.name, error=str(error))
            return limits.WEBHOOK_SECONDS_MAX
        if endpoint is None:
            return IDLE_SECONDS
        if endpoint.revision != self._revision:  # what was learned of the receiver counts no more
            self._revision = idle.revision = endpoint.revision
            self._failures, self._resume_at = endpoint.failures, 0.0
        if endpoint.state in ("paused", "disabled"):
            return IDLE_SECONDS
        if endpoint.state == "validating":
            return await self._validate(endpoint)
        count = 1 if self._failures >= FAILURES_TO_PROBE else limits.WEBHOOK_BATCH_MAX
        rows = await self._database.fetch(
            SQL.due_deliveries, self._id, count, self._tools.collecting
        )
        if not rows:
            return IDLE_SECONDS
        await self._send(endpoint, rows)
        return self._resume_at - _clock()

    async def _send(self, endpoint: Endpoint, rows: list[asyncpg.Record]) -> None:
        """Send a batch: subjects side by side, the events of each in their order."""
        chains: dict[str, deque[asyncpg.Record]] = {}
        for row in rows:
            chains.setdefault(row["subject"], deque()).append(row)
        left = deque(chains.values())
        try:
            async with asyncio.TaskGroup() as lanes:
                for _ in range(min(limits.WEBHOOK_CONCURRENCY, len(left))):
                    lanes.create_task(self._lane(endpoint, left))
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None
        await self._settle(endpoint)
        if self._failures >= FAILURES_TO_PROBE:
            nth = min(self._failures, 64) - FAILURES_TO_PROBE
            self._resume_at = _clock() + self._backoff.delay(nth, self._random)

    async def _lane(self, endpoint: Endpoint, left: deque[deque[asyncpg.Record]]) -> None:
        while left:
            chain = left.popleft()
            while chain and not self._lease.stopping.is_set():
                self._lease.check()
                outcome = await sending.deliver(self._tools.client, endpoint, chain[0])
                self._note(endpoint, chain.popleft(), outcome)
                if not self._settling.locked():
                    await self._settle(endpoint)
                if outcome.verdict == "gone" or self._failures >= FAILURES_TO_PROBE:
                    left.clear()
                if outcome.verdict != "delivered":
                    break
            if self._lease.stopping.is_set():
                left.clear()

    def _note(self, endpoint: Endpoint, row: asyncpg.Record, outcome: AttemptOutcome) -> None:
        """Keep an attempt for the next write, with what follows from it."""
        attempts = row["attempts"] + 1
        state, wait = "delivered", 0.0
        if outcome.verdict == "delivered":
            self._failures = 0
        else:
            self._failures += 1
            following = retry.next_wait(endpoint.retry, attempts, outcome.retry_after, self._random)
            state, wait = ("dead", 0.0) if following is None else ("waiting", following)
        if outcome.retry_after:  # the whole receiver asks for it, not the event
            self._resume_at = max(self._resume_at, _clock() + outcome.retry_after)
        counted = "dead" if state == "dead" else outcome.verdict
        self._database.metrics.webhook_deliveries.labels(outcome=counted).inc()
        self._ended.append(Attempt(row=row, outcome=outcome, state=state, wait=wait))

    async def _settle(self, endpoint: Endpoint) -> None:
        """Write down the attempts that have ended, in the lease's name."""
        async with self._settling:
            ended, self._ended = self._ended, []
            if not ended:
                return
            failures = self._failures
            appended = await self._database.run(
                lambda tx: self._write(tx, endpoint, ended, failures), idempotent=True
            )
            if appended:
                self._tools.log.sent()

    async def _write(
        self, tx: Transaction, endpoint: Endpoint, ended: list[Attempt], failures: int
    ) -> bool:
        dead = await tx.fetch(
            SQL.settle,
            [one.row["id"] for one in ended],
            [one.state for one in ended],
            [one.row["attempts"] + 1 for one in ended],
            [one.wait for one in ended],
            [one.outcome.status for one in ended],
            [one.outcome.error for one in ended],
        )
        errors = [one.outcome.error for one in ended if one.outcome.error is not None]
        succeeded = any(one.state == "delivered" for one in ended)
        too_long = await tx.fetchval(
            SQL.note_attempts, self._id, failures, errors[-1] if errors else None, succeeded,
            limits.WEBHOOK_FAILING_SECONDS_MAX,
        )  # fmt: skip
        reason = None
        if any(one.outcome.verdict == "gone" for one in ended):
            reason = GONE
        elif too_long and failures >= FAILURES_TO_DISABLE:
            reason = FAILED_TOO_LONG
        told = [_letter(endpoint, row) for row in dead]
        if reason is not None:
            told += await disable(tx, self._id, reason)
        await fencing.require(tx, self._lease.fence)
        await self._tools.log.append(tx, told)
        return bool(told)

    async def _validate(self, endpoint: Endpoint) -> float:
        """Ask the receiver whether it wants events, until it says so or its time is over."""
        assert endpoint.validation_code is not None
        if endpoint.validation_until is None or endpoint.now >= endpoint.validation_until:
            await self._disable(UNCONFIRMED)
            return IDLE_SECONDS
        confirmed, reason = await sending.validate(
            self._tools.client, endpoint, self._tools.public_host
        )
        self._lease.check()
        if confirmed:
            await self._database.write(
                SQL.validate_webhook, endpoint.name, endpoint.validation_code, idempotent=True
            )
            self._failures = 0
            return 0.0
        await self._database.write(
            SQL.note_attempts, self._id, 0, reason, False, limits.WEBHOOK_FAILING_SECONDS_MAX,
            idempotent=True,
        )  # fmt: skip
        self._failures += 1
        self._resume_at = _clock() + self._backoff.delay(self._failures, self._random)
        return self._resume_at - _clock()

    async def _disable(self, reason: str) -> None:
        async def work(tx: Transaction) -> None:
            told = await disable(tx, self._id, reason)
            await fencing.require(tx, self._lease.fence)
            await self._tools.log.append(tx, told)

        await self._database.run(work, idempotent=True)
        self._tools.log.sent()

    async def _pause(self, woken: asyncio.Event, seconds: float) -> None:
        """Wait until there may be something to do, or the lease must be released."""
        waits = [asyncio.ensure_future(each.wait()) for each in (woken, self._lease.stopping)]
        try:
            await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()
            await asyncio.gather(*waits, return_exceptions=True)


async def disable(tx: Transaction, webhook_id: UUID, reason: str) -> list[Event]:
    """Disable a webhook; returns the event that says so, none if it was disabled already."""
    row = await tx.fetchrow(SQL.disable_webhook, webhook_id, reason)
    if row is None:
        return []
    data = events.WebhookDisabled(name=row["name"], reason=reason)
    log.warning("webhooks.disabled", webhook=row["name"], reason=reason)
    return [Event(events.DISABLED, events.OWN_SUBJECT + row["name"], row["revision"], data)]


def _letter(endpoint: Endpoint, row: Any) -> Event:
    data = events.WebhookLetter(
        name=endpoint.name, delivery_id=row["id"], event_type=row["type"],
        event_subject=row["subject"], attempts=row["attempts"], error=row["error"] or "",
    )  # fmt: skip
    return Event(events.DEAD_LETTERED, events.OWN_SUBJECT + endpoint.name, endpoint.revision, data)


def _clock() -> float:
    return asyncio.get_running_loop().time()
