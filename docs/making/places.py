"""What is made for each place of a page."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final

from relevo.actors.operating import events as actor_events
from relevo.actors.states import ACTIVATION
from relevo.feed.operating.states import UNIT
from relevo.governance.core.moves import MOVE
from relevo.governance.operating import events as governance_events
from relevo.jobs import events as job_events
from relevo.jobs.states import JOB as SYSTEM_JOB
from relevo.kernel.leases.states import HOST, LEASE
from relevo.messaging import states as message_states
from relevo.messaging.model import MessageOptions
from relevo.router.core.states import JOB
from relevo.webhooks import events as webhook_events

from . import job_tables, message_tables
from .api_tables import api_tables
from .error_tables import error_table, error_tree, problem_table
from .event_tables import (
    diagram,
    event_details,
    event_table,
    layers,
    message_event_data,
    metric_table,
)
from .operation_tables import operation_details, operation_table, permission_table, role_table
from .setting_tables import limit_tables, settings_table, systemd_unit
from .writing import EVENT_HEADINGS, attribute_docs, inspect_fields, table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def part_table(name: str) -> str:
    """One of the tables of system jobs or of messaging."""
    return table(*(job_tables.TABLES | message_tables.TABLES)[name]())


def event_names(types: Iterable[Any]) -> str:
    """Every event of a part in one line."""
    return table(["event", "written when"], [[f"`{one.name}`", one.sentence] for one in types])


PLACES: Final[dict[str, Callable[[], str]]] = {
    "settings": settings_table,
    "api": api_tables,
    "error tree": error_tree,
    "errors": error_table,
    "problem": problem_table,
    "operations": operation_table,
    "operation details": operation_details,
    "roles": role_table,
    "permissions": permission_table,
    "limits": limit_tables,
    "metrics": metric_table,
    "systemd": systemd_unit,
    "layers": layers,
    "host states": lambda: diagram(HOST),
    "lease states": lambda: diagram(LEASE),
    "unit states": lambda: diagram(UNIT),
    "router job states": lambda: diagram(JOB),
    "job states": lambda: diagram(SYSTEM_JOB),
    "message states": lambda: diagram(message_states.MESSAGE),
    "message event data": message_event_data,
    "activation states": lambda: diagram(ACTIVATION),
    "actor events": lambda: event_names(actor_events.TYPES),
    "actor event data": lambda: table(EVENT_HEADINGS, inspect_fields(actor_events.ActorData)),
    "move states": lambda: diagram(MOVE),
    "governance events": lambda: event_names(governance_events.TYPES),
    "governance event data": lambda: table(
        EVENT_HEADINGS, inspect_fields(governance_events.GovernanceData)
    ),
    "message fields": lambda: table(*message_tables.fields(attribute_docs(MessageOptions))),
    **{
        name: functools.partial(part_table, name)
        for name in (*job_tables.TABLES, *message_tables.TABLES)
    },
    "webhook events": lambda: event_names(webhook_events.TYPES),
    "job event data": lambda: table(EVENT_HEADINGS, inspect_fields(job_events.JobData)),
    "router events": event_table,
    "router event details": event_details,
}
