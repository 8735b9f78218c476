"""The operations that an AI agent may call as tools, and the schemas of their arguments. Pure.

A tool is an operation of the table under a name that says what it does. Its description and its
arguments come from the operation, so the tools cannot differ from the API.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from relevo.errors import InvalidValue

if TYPE_CHECKING:
    from collections.abc import Mapping

    from relevo.kernel.operation import Operation

INSTRUCTIONS: Final = (
    "Relevo offers jobs to workers. To work as one: register_worker once with your queues, channels"
    " and labels, then repeat wait_for_offers, accept_offer, read_router_job, do the work,"
    " complete_router_job, close_router_job. Decline what you cannot do. An offer that is not"
    " answered in time expires and goes to another worker. submit_job starts a background job, and"
    " the explain tools tell why a job waits."
)


class AgentTool(Struct, frozen=True):
    """A tool: an operation under the name by which agents call it."""

    name: str
    operation: str
    destructive: bool = False
    """Whether it ends something that cannot be begun again."""


TOOLS: Final = (
    AgentTool("register_worker", "router.workers.patch"),
    AgentTool("wait_for_offers", "router.offers.list"),
    AgentTool("accept_offer", "router.offers.accept"),
    AgentTool("decline_offer", "router.offers.decline"),
    AgentTool("read_router_job", "router.jobs.get"),
    AgentTool("complete_router_job", "router.jobs.complete"),
    AgentTool("close_router_job", "router.jobs.close", destructive=True),
    AgentTool("list_router_queues", "router.queues.overview"),
    AgentTool("explain_router_job", "router.explain.job"),
    AgentTool("explain_worker", "router.explain.worker"),
    AgentTool("submit_job", "jobs.submit"),
    AgentTool("read_job", "jobs.get"),
    AgentTool("list_jobs", "jobs.list"),
    AgentTool("wait_for_job", "jobs.wait"),
    AgentTool("explain_job", "jobs.explain"),
)
BY_NAME: Final = {tool.name: tool for tool in TOOLS}


def argument_schema(operation: Operation) -> dict[str, Any]:
    """Return the JSON Schema of an operation's arguments as an agent gives them.

    Headers and what our own clients fill in are left out.
    """
    (_,), components = msgspec.json.schema_components(
        [operation.request], ref_template="#/$defs/{name}"
    )
    command = components.pop(operation.request.__name__)
    hidden = _hidden(operation)
    properties: dict[str, Any] = {
        name: schema for name, schema in command.get("properties", {}).items() if name not in hidden
    }
    if operation.body is not None:
        properties[operation.body] = {"type": "object", "description": "The fields to set."}
    schema: dict[str, Any] = {
        "type": "object",
        "properties": properties,
        "required": sorted(set(command.get("required", ())) - hidden),
        "additionalProperties": False,
    }
    return schema | ({"$defs": components} if components else {})


def values_of(operation: Operation, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a call; raises `InvalidValue` for an argument that there is not."""
    known = {field.encode_name for field in msgspec.structs.fields(operation.request)}
    known -= _hidden(operation)
    if strange := sorted(arguments.keys() - known):
        raise InvalidValue(
            f"there is no argument {strange[0]!r}; there are {', '.join(sorted(known))}",
            pointer=strange[0],
        )
    return {**operation.fixed, **arguments}


def _hidden(operation: Operation) -> set[str]:
    return {*operation.fixed, *operation.headers}
