"""Consumers on a host: declares them, and serves them one life of the host after the other."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from relevo.errors import Conflict, InvalidValue, NotFound, RelevoError
from relevo.kernel.postgres import catalog
from relevo.kernel.postgres.polling import Question
from relevo.kernel.running.lanes import HostLane
from relevo.kernel.running.processes import Processes
from relevo.kernel.running.runner import Runner
from relevo.messaging.core import reserving
from relevo.messaging.core.entities import EntityProperties
from relevo.messaging.core.hours import Hours
from relevo.messaging.core.names import Path
from relevo.messaging.registry import SHARED
from relevo.messaging.running.claims import MessageClaim, MessageSettlement
from relevo.messaging.running.ledger import HOST_TOPIC, MessageLedger, ServedConsumers
from relevo.messaging.running.processes import call_in_process
from relevo.messaging.sending import TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterable
    from uuid import UUID

    from relevo.kernel.leases import Leases
    from relevo.kernel.leases.life import Life
    from relevo.kernel.part import Host
    from relevo.kernel.postgres import Database
    from relevo.kernel.running.budgets import Budgets
    from relevo.kernel.supervision import Supervisor
    from relevo.messaging.model import PriorityClass
    from relevo.messaging.registry import ConsumersDefinition
    from relevo.messaging.service import Messaging

SQL = catalog.load("relevo.messaging")
WORK: Final = "messages.work"
DECLARE: Final = "messages.declare"
DECLARE_SECONDS: Final = 5.0
"""How often a host looks whether the sources of its consumers are still the same."""
BEGIN_SECONDS: Final = 0.1
"""What is claimed ahead of free slots begins within that time: a message that comes later and
ranks higher waits no longer for it."""
MessageRunner = Runner[MessageClaim, MessageSettlement]


class ConsumersHost:
    """Serves the consumers of an app on a host."""

    def __init__(self, service: Messaging) -> None:
        self._service = service
        self._runner: MessageRunner | None = None
        self._supervisor: Supervisor | None = None
        self._processes = Processes()
        self._numbers = itertools.count(1)
        self._served: tuple[UUID, dict[str, ServedConsumers]] | None = None
        """The life for which they were declared, and what came of it."""

    async def start(self, host: Host) -> None:
        """Begin to claim and run; a host without consumers has nothing to run.

        Raises `Conflict` if another host serves consumers of the same name that are defined
        otherwise, and `NotFound` if a source does not exist.
        """
        if not self._service.registry.consumers:
            return
        await self._declare(host.leases.life.incarnation)
        self._supervisor = host.supervisor
        self._supervisor.run(WORK, lambda: self._work(host.leases))
        self._supervisor.run(DECLARE, self._declare_often)

    async def _declare(self, life: UUID) -> dict[str, ServedConsumers]:
        """Return what is served in a life; stores it once."""
        if self._served is None or self._served[0] != life:
            database, _ = self._service.connection.opened
            consumers = self._service.registry.consumers
            found = {name: await declared(database, life, one) for name, one in consumers.items()}
            self._served = (life, found)
        return self._served[1]

    async def _declare_often(self) -> None:
        """Follow sources that were deleted and made anew, which have other numbers then."""
        _, wakeups = self._service.connection.opened
        question = Question(SQL.sources_gone, self._sources, every=DECLARE_SECONDS)
        with wakeups.signal(question=question) as woken:
            while True:
                await woken.wait(woken.patience(DECLARE_SECONDS))
                await self.follow_sources()

    def _sources(self) -> tuple[list[int]]:
        served = {} if self._served is None else self._served[1]
        return ([id_ for one in served.values() for id_ in one.sources],)

    async def follow_sources(self) -> None:
        """Declare consumers anew whose sources have other numbers than they had."""
        if self._served is None:
            return
        life, served = self._served
        database, _ = self._service.connection.opened
        keys = {Path.of(path).key for one in served.values() for path in one.definition.sources}
        rows = await database.fetch(SQL.consumer_sources, list(keys))
        present = {row["id"] for row in rows}
        for name, one in served.items():
            if not present.issuperset(one.sources):
                with contextlib.suppress(NotFound):  # it may be made again
                    served[name] = await declared(database, life, one.definition)

    async def _work(self, leases: Leases) -> None:
        """Serve, one life of the host after the other."""
        while True:
            if not leases.may_act:
                await asyncio.sleep(0.1)
                continue
            life = leases.life
            served = await self._declare(life.incarnation)  # it may be over when this returns
            self._runner = self._new_runner(leases, life, served)
            await self._runner.run()
            if self._runner.stopping:  # `stop` ends this loop next
                await asyncio.Event().wait()

    def _new_runner(
        self, leases: Leases, life: Life, served: dict[str, ServedConsumers]
    ) -> MessageRunner:
        host = life.incarnation
        database, wakeups = self._service.connection.opened
        budgets = self._service.registry.budgets
        lanes = {name: _lane(one, budgets) for name, one in served.items()}
        ledger = MessageLedger(
            database, wakeups, self._service.tools.receiving, host, served, lanes,
            partial(call_in_process, self._processes), asyncio.get_running_loop(),
        )  # fmt: skip
        sources = {id_ for one in served.values() for id_ in one.sources}
        topics = (HOST_TOPIC.format(host), *(TOPIC.format(id_) for id_ in sources))
        return Runner(wakeups, leases, life, lanes, ledger, self._numbers, topics, database.metrics)

    def at_work(self) -> list[str]:
        """Return the messages in handlers, by number and consumers."""
        claims = [] if self._runner is None else self._runner.at_work
        return [f"message {claim.label} of {claim.handler}" for claim in claims]

    async def stop(self, timeout: float) -> None:
        """Claim nothing more; let handlers end, then give back unfinished messages."""
        if self._supervisor is None:
            return
        if self._served is not None:  # its slots are nobody's any more
            database, _ = self._service.connection.opened
            with contextlib.suppress(RelevoError):
                await database.write(SQL.leave_consumers, self._served[0], idempotent=True)
        if self._runner is not None:
            await self._runner.stop(timeout)
        await self._supervisor.stop(WORK)
        await self._supervisor.stop(DECLARE)
        await self._processes.close()
        self._runner = self._supervisor = self._served = None


async def declared(
    database: Database, life: UUID, definition: ConsumersDefinition
) -> ServedConsumers:
    """Store that a host serves consumers; returns them as it does."""
    keys = [Path.of(source).key for source in definition.sources]
    rows = {row["key"]: row for row in await database.fetch(SQL.consumer_sources, keys)}
    classes: list[PriorityClass] = []
    for key, source in zip(keys, definition.sources, strict=True):
        if key not in rows:
            raise NotFound(
                f"consumers {definition.name!r} name the source {source!r}, which does not exist;"
                " create it first"
            )
        if rows[key]["kind"] == "topic":
            raise InvalidValue(
                f"consumers {definition.name!r} name the topic {source!r}, which keeps no messages;"
                " name its subscriptions",
                pointer="sources",
            )
        properties = msgspec.json.decode(rows[key]["properties"], type=EntityProperties)
        classes += properties.classes
    _check_sessions(definition, rows.values())
    reserved = reserving.reservations(classes, definition.reserved, definition.concurrency)
    sources = tuple(rows[key]["id"] for key in keys)
    [row] = await database.write(
        SQL.declare_consumers, life, definition.name, definition.stored(), list(SHARED),
        list(sources), definition.concurrency, idempotent=True,
    )  # fmt: skip
    if row["differs"] is not None:
        raise Conflict(
            f"another host serves consumers {definition.name!r} with other {row['differs']}; stop"
            " it first, define them alike, or give these another name"
        )
    hours = None if definition.hours is None else Hours.of(definition.hours)
    return ServedConsumers(
        id=row["id"], definition=definition, sources=sources, reserved=reserved, hours=hours,
        has_sessions=any(one["has_sessions"] for one in rows.values()),
    )  # fmt: skip


def _check_sessions(definition: ConsumersDefinition, rows: Iterable[Any]) -> None:
    """Refuse options that choose single messages, where whole sessions are handled in order."""
    named = [row["path"] for row in rows if row["has_sessions"]]
    if named and (definition.batch > 1 or definition.is_limited or definition.preempt is not None):
        raise Conflict(
            f"consumers {definition.name!r} serve {named[0]!r}, which requires sessions: its"
            " messages are handled one after the other, so leave out batch, reserved,"
            " max_per_class, max_per_fairness_key and preempt"
        )


def _lane(served: ServedConsumers, budgets: Budgets) -> HostLane[MessageClaim]:
    definition = served.definition
    ahead = definition.prefetch == "auto" and not (
        served.is_limited or served.has_sessions or definition.preempt is not None
    )
    return HostLane(
        definition.name, definition.concurrency, [definition.name],
        begin_within=BEGIN_SECONDS if ahead else 0.0,
        budget=budgets.open(definition.pool, definition.limit, definition.concurrency),
    )  # fmt: skip
