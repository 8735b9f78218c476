"""The table of all operations, collected from the `http` packages of all parts.

Routing, OpenAPI, authorisation, the CLI's generic commands and the reference come from it.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final

import msgspec

from relevo.actors.http import actors, calls, quarantine
from relevo.actors.http import letters as actor_letters
from relevo.actors.http import reminders as actor_reminders
from relevo.audit.http import entries as audit
from relevo.dataverse.http import bulk_actions, bulk_deletes, messages, metadata, rows, users
from relevo.dataverse.http import changes as dataverse_changes
from relevo.dataverse.http import surface as dataverse
from relevo.feed.http import administration, changes, dead_letters, units
from relevo.governance.http import limits as rate_limits
from relevo.governance.http import pools, resolvers
from relevo.history.http import figures
from relevo.http import events, openapi, system, v1
from relevo.http.answers import Surfaces
from relevo.jobs.http import batches, jobs, matching, schedules, views
from relevo.kernel.operation import PUBLIC, Method, Operation, Operations, Text
from relevo.messaging.http import consumers, entities, locks, moves, rules, sessions
from relevo.messaging.http import messages as queue_messages
from relevo.router.http import board, insight, offers, policies, workers
from relevo.router.http import jobs as router_jobs
from relevo.router.http import surface as routing
from relevo.store.http import bulk, containers, items
from relevo.webhooks.http import deliveries, webhooks

if TYPE_CHECKING:
    from relevo.http.access.authenticator import Principal
    from relevo.http.services import Services

__all__ = ["OPERATIONS", "PUBLIC", "SURFACES", "Method", "Operation", "Text", "operation"]

SURFACES: Final = Surfaces((v1.SURFACE, routing.SURFACE, dataverse.SURFACE))
_OWN: Final = Operations()


@_OWN("system.openapi", "GET /openapi.json", PUBLIC)
async def _openapi(_: Services, __: Principal, ___: system.Nothing) -> Text:
    """Describe this API as an OpenAPI 3.1 document."""
    return Text("application/json", _document())


@functools.cache
def _document() -> bytes:
    return msgspec.json.encode(openapi.document(OPERATIONS, SURFACES))


OPERATIONS: Final[tuple[Operation, ...]] = (
    *system.operation, *_OWN, *v1.operation,
    *figures.operation,
    *containers.operation, *items.operation, *bulk.operation,
    *changes.operation, *units.operation, *administration.operation, *dead_letters.operation,
    *users.operation,
    *policies.operation, *router_jobs.operation, *workers.operation, *offers.operation,
    *insight.operation, *board.operation,
    *jobs.operation, *views.operation, *schedules.operation, *batches.operation,
    *matching.operation,
    *entities.operation, *rules.operation, *queue_messages.operation, *locks.operation,
    *moves.operation, *sessions.operation, *consumers.operation,
    *actors.operation, *calls.operation, *actor_reminders.operation, *actor_letters.operation,
    *quarantine.operation,
    *pools.operation, *rate_limits.operation, *resolvers.operation,
    *bulk_deletes.operation, *metadata.operation, *rows.operation, *dataverse_changes.operation,
    *bulk_actions.operation, *messages.operation,
    *events.operation, *webhooks.operation, *deliveries.operation, *audit.operation,
)  # fmt: skip

_BY_NAME: Final = {operation.name: operation for operation in OPERATIONS}
assert len(_BY_NAME) == len(OPERATIONS), "two operations share a name"


def operation(name: str) -> Operation:
    """Return the operation of a name; raises `KeyError`."""
    return _BY_NAME[name]
