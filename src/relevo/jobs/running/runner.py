"""What runs jobs in one life of a host: the runtime with the jobs' ledger."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from relevo.jobs.commands import HOST_TOPIC
from relevo.jobs.running.claims import Claim, Settlement
from relevo.jobs.running.ledger import JobLedger
from relevo.jobs.submission import TOPIC
from relevo.kernel.running.lanes import HostLane
from relevo.kernel.running.runner import Runner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from relevo.jobs.brakes import Brakes
    from relevo.jobs.registry import Registry
    from relevo.jobs.running.context import JobContext
    from relevo.jobs.running.execution import Caller
    from relevo.kernel.leases import Leases
    from relevo.kernel.postgres import Database, Wakeups

JobRunner = Runner[Claim, Settlement]


def job_runner(
    database: Database, wakeups: Wakeups, leases: Leases, registry: Registry, in_process: Caller,
    service_for: Callable[[JobContext], Any] | None, numbers: Iterator[int], brakes: Brakes | None,
) -> JobRunner:  # fmt: skip
    """Return what claims and runs jobs of the handlers of an app until the host's life ends."""
    host, lanes = leases.life.incarnation, _served(registry)
    ledger = JobLedger(
        database, wakeups, host, leases.name, registry, lanes, in_process, service_for, brakes,
        asyncio.get_running_loop(),
    )  # fmt: skip
    topics = (TOPIC, HOST_TOPIC.format(host))
    return Runner(wakeups, leases, lanes, ledger, numbers, topics, database.metrics)


def _served(registry: Registry) -> dict[str, HostLane[Claim]]:
    """The lanes that the handlers of an app are in."""
    handlers: dict[str, list[str]] = {}
    for one in registry.handlers.values():
        handlers.setdefault(one.lane, []).append(one.name)
    return {
        name: HostLane(name, registry.lanes[name].slots, names) for name, names in handlers.items()
    }
