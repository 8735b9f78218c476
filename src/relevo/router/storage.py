"""Reads the rows that commands touch into a `World`, under locks, and writes back what changed.

Lock order, on every path: policies and queues (shared), workers by id, jobs by id, stamp locks of
the event log. Statements take arrays, so many commands need no more statements than one.

A host keeps all policies and queues in memory, as of one revision: they are few and change rarely.
Every command learns the current revision under its locks and never acts on an older one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import asyncpg
import msgspec
from msgspec import Struct, field

from relevo.errors import ReferenceNotFound
from relevo.kernel.postgres import catalog
from relevo.router import model
from relevo.router.core.selectors import WorkerSelector
from relevo.router.core.world import JobRow, OfferRow, WorkerRow, World
from relevo.router.model import Channel, JobNote
from relevo.router.wire import credentials, documents
from relevo.router.wire.exception_policies import ExceptionPolicy
from relevo.router.wire.policies import ClassificationPolicy, DistributionPolicy, RouterQueue

if TYPE_CHECKING:
    from collections.abc import Iterable

    from relevo.kernel.events import EventLog
    from relevo.kernel.postgres import Database, Transaction
    from relevo.router.wire.credentials import Sealer

MANAGED_CHANNELS: Final = ("AcsChatChannel", "AcsVoiceChannel", "AcsSMSChannel")
"""Predefined channels, also valid in the strict mode that refuses unknown ones."""


class RouterOptions(Struct, frozen=True, kw_only=True):
    """Settings of the router; the defaults are those of Azure's."""

    unassign_max: int | None = 3
    """How often a job may be unassigned; None means no limit."""
    deregister_on_expiry: bool = True
    """Whether a worker that lets an offer expire is deregistered."""
    idle_seconds: float | None = 7 * 86_400.0
    """How long a worker may be idle before it is deregistered; None means no limit."""
    job_retention_seconds: float | None = None
    """How long ended jobs are kept; None means forever."""
    strict_channels: bool = False
    """Whether jobs and workers may only use channels that were defined."""


class Resources(Struct, frozen=True):
    """Policies and queues by id."""

    revision: int
    queues: dict[str, RouterQueue]
    distribution_policies: dict[str, DistributionPolicy]
    exception_policies: dict[str, ExceptionPolicy]
    classification_policies: dict[str, ClassificationPolicy]
    options: RouterOptions = RouterOptions()
    channels: frozenset[str] = frozenset()
    """Those that were defined."""

    def check_channel(self, channel_id: str, pointer: str) -> None:
        """Refuse an undefined channel in strict mode."""
        known = channel_id in self.channels or channel_id in MANAGED_CHANNELS
        if self.options.strict_channels and not known:
            raise ReferenceNotFound(
                f"there is no channel {channel_id!r}; define it first, or switch"
                " router_strict_channels off",
                pointer=pointer,
            )

    def distribution(self, queue_id: str) -> DistributionPolicy | None:
        """Return how jobs of a queue are distributed."""
        queue = self.queues.get(queue_id)
        if queue is None:
            return None
        return self.distribution_policies.get(queue.distribution_policy_id)


NOTHING = Resources(-1, {}, {}, {}, {})


class Remembered:
    """The policies and queues that this host knows."""

    def __init__(self, sealer: Sealer, options: RouterOptions | None = None) -> None:
        self._sealer = sealer
        self._options = options or RouterOptions()
        self._known = NOTHING

    async def at(self, connection: Database | Transaction, revision: int) -> Resources:
        """Return them as of a revision that has been committed."""
        if self._known.revision != revision:
            self._known = await self._read(connection, revision)
        return self._known

    async def now(self, database: Database) -> Resources:
        """Return them as they are."""
        return await self.at(database, await database.fetchval(SQL.revision))

    async def _read(self, connection: Database | Transaction, revision: int) -> Resources:
        found: dict[str, dict[str, Any]] = {}
        for row in await connection.fetch(SQL.all_resources):
            document = msgspec.json.decode(row["body"])
            if documents.secrets_in(document):
                owner = f"{row['kind']}/{row['id']}"
                document = credentials.opened(document, await self._sealer.key(), owner)
            found.setdefault(row["kind"], {})[row["id"]] = model.stored(row["kind"], document)
        return Resources(
            revision,
            found.get("queues", {}),
            found.get("distributionPolicies", {}),
            found.get("exceptionPolicies", {}),
            found.get("classificationPolicies", {}),
            self._options,
            frozenset(row["id"] for row in await connection.fetch(SQL.channels)),
        )


SQL = catalog.load(__package__)
_encode = msgspec.json.encode
_selectors = msgspec.json.Decoder(tuple[WorkerSelector, ...]).decode
_notes = msgspec.json.Decoder(tuple[JobNote, ...]).decode
_channels = msgspec.json.Decoder(tuple[Channel, ...]).decode
_offers = msgspec.json.Decoder(list[OfferRow]).decode
_plain = msgspec.json.decode


class Needs(Struct):
    """The rows that commands touch; their offers and the offers' workers are added."""

    workers: set[str] = field(default_factory=set)
    jobs: set[str] = field(default_factory=set)
    offers: set[UUID] = field(default_factory=set)
    whole: set[str] = field(default_factory=set)
    """Workers whose offers are looked at, with the jobs that they are for."""


async def load(tx: Transaction, needs: Needs, remembered: Remembered) -> World:
    """Lock and read."""
    locked = await tx.fetchrow(
        SQL.lock, list(needs.workers), list(needs.jobs), list(needs.offers), list(needs.whole)
    )
    assert locked is not None
    resources = await remembered.at(tx, locked["revision"])
    world = World(locked["at"], resources, locked["arrival"])
    for row in await tx.fetch(SQL.jobs_by_id, locked["jobs"]) if locked["jobs"] else ():
        world.jobs[row[0]] = job_of(row)
    for row in await tx.fetch(SQL.workers_by_id, locked["workers"]) if locked["workers"] else ():
        world.workers[row[0]] = worker_of(row)
    offers = await tx.fetch(
        SQL.offers_touched, locked["jobs"], list(needs.offers), list(needs.whole)
    )
    for row in offers:
        world.add_offer(OfferRow(*row))
    return world


async def save(tx: Transaction, world: World, log: EventLog) -> bool:
    """Write the changes, and events last; False if there are none."""
    await _save_jobs(tx, world)
    await _save_workers(tx, world)
    if world.new_offers:
        rows = [msgspec.structs.astuple(world.offers[offer]) for offer in world.new_offers]
        await tx.execute(SQL.insert_offers, *_columns(rows))
    if ended := world.changed_offers - world.new_offers:
        await tx.execute(SQL.update_offers, *_columns(_outcome(world.offers[o]) for o in ended))
    if world.pointers:
        await tx.execute(SQL.put_pointers, list(world.pointers), list(world.pointers.values()))
    entries = world.log_entries()
    if entries:
        await log.append(tx, entries)
    return bool(entries)


async def _save_jobs(tx: Transaction, world: World) -> None:
    if world.deleted_jobs:
        await tx.execute(SQL.delete_jobs, list(world.deleted_jobs))
    # By id, so that transactions that insert the same jobs cannot deadlock.
    new = [world.jobs[job] for job in sorted(world.new_jobs)]
    if new:
        made = await tx.fetch(SQL.insert_jobs, _encode(new).decode())
        if len(made) < len(new):
            raise asyncpg.SerializationError("a job of that id was created meanwhile")
    old = world.job_documents.intersection(world.jobs) - world.new_jobs
    if old:
        edited = _encode([world.jobs[one] for one in old]).decode()
        await tx.execute(SQL.update_jobs, edited)
    states = world.job_states.intersection(world.jobs) - old - world.new_jobs
    if states:
        await tx.execute(SQL.move_jobs, *_columns(_state(world.jobs[state]) for state in states))
    steps = world.job_steps.intersection(world.jobs) - states - old - world.new_jobs
    if steps:
        await tx.execute(SQL.step_jobs, *_columns(_step(world.jobs[step]) for step in steps))


async def _save_workers(tx: Transaction, world: World) -> None:
    if world.deleted_workers:
        await tx.execute(SQL.delete_workers, list(world.deleted_workers))
    new = [world.workers[worker] for worker in sorted(world.new_workers)]
    if new:
        made = await tx.fetch(SQL.insert_workers, _encode(new).decode())
        if len(made) < len(new):
            raise asyncpg.SerializationError("a worker of that id was created meanwhile")
    old = world.worker_documents.intersection(world.workers) - world.new_workers
    if old:
        edited = _encode([world.workers[one] for one in old]).decode()
        await tx.execute(SQL.update_workers, edited)
    loads = world.loads.intersection(world.workers) - world.new_workers
    if loads:
        await tx.execute(SQL.put_loads, *_columns(_load(world.workers[one]) for one in loads))


def _columns(rows: Iterable[tuple[Any, ...]]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)]


def _state(job: JobRow) -> tuple[Any, ...]:
    """The columns of a job's state, without its document."""
    return (
        job.id, job.version, job.activity, job.events, job.modified_at, job.status, job.queue_id,
        job.disposition, job.mode, job.scheduled_at, job.enqueued_at, job.arrival, job.expedite,
        job.round, job.unassigned, _encode(job.fired).decode(), job.entered, job.due_at,
        job.close_at, job.ended_at, _encode(job.closing).decode(),
        _encode(job.requested).decode(), _encode(job.attached).decode(),
    )  # fmt: skip


def _step(job: JobRow) -> tuple[Any, ...]:
    """The columns of a job that a worker accepts, completes or closes."""
    return (
        job.id, job.activity, job.events, job.modified_at, job.status, job.disposition,
        job.due_at, job.close_at, job.ended_at, _encode(job.closing).decode(),
    )  # fmt: skip


def _outcome(offer: OfferRow) -> tuple[Any, ...]:
    """The columns of an offer's outcome."""
    return (
        offer.id, offer.state, offer.retry_at, offer.reason, offer.assignment_id,
        offer.assigned_at, offer.completed_at, offer.ended_at,
    )  # fmt: skip


def _load(worker: WorkerRow) -> tuple[Any, ...]:
    return (
        worker.id, worker.activity, worker.events, worker.used, worker.offers, worker.holding,
        worker.idle_since, worker.acted_at, _encode(worker.by_channel).decode(),
    )  # fmt: skip


def job_of(row: asyncpg.Record) -> JobRow:
    """Return a job from a row of the queries that name its columns."""
    return JobRow(  # type: ignore[call-arg]
        *row[:26],
        _plain(row[26]) if row[26] else None, _selectors(row[27]), _selectors(row[28]),
        _plain(row[29]), _plain(row[30]), _notes(row[31]),
    )  # fmt: skip


def worker_of(row: asyncpg.Record) -> WorkerRow:
    """Return a worker from a row of the queries that name its columns."""
    return WorkerRow(  # type: ignore[call-arg]
        *row[:18], _channels(row[18]), _plain(row[19]), _plain(row[20]), _plain(row[21])
    )


def held_in(row: asyncpg.Record) -> list[OfferRow]:
    """Return the offers and assignments that come along with a job or worker to be shown."""
    return _offers(row["held"]) if row["held"] else []


async def workers(database: Database, ids: Iterable[str]) -> list[WorkerRow]:
    """Read workers without locks."""
    return [worker_of(row) for row in await database.fetch(SQL.workers_by_id, list(ids))]
