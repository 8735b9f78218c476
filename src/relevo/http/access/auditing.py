"""Which calls of operations are written into the audit, and what of them.

Every call of an AI agent is audited, also one that only reads and one that it may not make. A call
of another caller is audited if it may change something by the permission of an administrator: that
is data (`roles.AUDITED`), not a matter of handlers. Work at the rate of machines, such as sending
messages or answering offers, has other permissions.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec
import structlog
from msgspec import Struct

from relevo import limits
from relevo.audit.service import AuditedCall, CallerKind
from relevo.errors import InvalidValue, OutcomeUnknown, RelevoError
from relevo.http.access.roles import AUDITED
from relevo.kernel.operation import Reply, Versioned

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from relevo.errors import Forbidden
    from relevo.http.access.authenticator import Principal
    from relevo.http.services import Services
    from relevo.kernel.operation import Operation

HEADER: Final = b"relevo-reason"
"""The header by which a caller says why."""
CALLER_HEADER: Final = b"relevo-caller"
"""The header by which `relevo mcp` says that an AI agent makes the call. It can only add lines to
the audit, so nothing is gained by sending it wrongly."""
_UNKNOWN: Final = "outcome_unknown"
_INTERNAL: Final = "internal_error"
log = structlog.get_logger(__name__)


def is_audited(operation: Operation, caller: CallerKind | None = None) -> bool:
    """Return whether calls of an operation are written into the audit."""
    return caller == "agent" or (
        operation.audit and operation.method != "GET" and operation.permission in AUDITED
    )


def reason_of(values: Sequence[bytes]) -> str | None:
    """Return the reason in the headers of a request."""
    return ", ".join(value.decode("utf-8", "replace") for value in values) or None


def caller_of(values: Sequence[bytes]) -> CallerKind | None:
    """Return the kind of caller in the headers of a request; raises `InvalidValue`."""
    if not values:
        return None
    if values != [b"agent"]:
        raise InvalidValue("Relevo-Caller is agent, or is left out", pointer="Relevo-Caller")
    return "agent"


async def refused(
    services: Services,
    principal: Principal,
    operation: Operation,
    resource: str,
    error: Forbidden,
) -> None:
    """Write down that an AI agent may not make a call."""
    entry = AuditedCall(
        by_id=principal.id, by_name=principal.name, operation=operation.name,
        resource=resource[: limits.AUDIT_RESOURCE_LENGTH_MAX], reason=None, caller="agent",
    )  # fmt: skip
    await services.app.audit.end(await services.app.audit.begin(entry), entry, error.code)


def _checked(reason: str | None) -> str | None:
    if reason is not None and (
        len(reason) > limits.AUDIT_REASON_LENGTH_MAX or not reason.isprintable()
    ):
        raise InvalidValue(
            f"the reason is one line of at most {limits.AUDIT_REASON_LENGTH_MAX} characters",
            pointer="Relevo-Reason",
        )
    return reason


async def audited(
    services: Services,
    principal: Principal,
    operation: Operation,
    command: Any,
    reason: str | None,
    run: Callable[[], Awaitable[Any]],
    caller: CallerKind | None = None,
) -> Any:
    """Run an operation between the two halves of its entry in the audit.

    Nothing is run if the entry cannot be stored. Raises `OutcomeUnknown` if the operation is done,
    and that cannot be stored.
    """
    audit = services.app.audit
    entry = AuditedCall(
        by_id=principal.id, by_name=principal.name, operation=operation.name,
        resource=resource_of(operation, command), caller=caller,
        reason=_checked(reason) or _own_reason(command),
    )  # fmt: skip
    number = await audit.begin(entry)
    try:
        response = await run()
    except asyncio.CancelledError:
        await asyncio.shield(audit.end(number, entry, _UNKNOWN))
        raise
    except Exception as error:
        outcome = error.code if isinstance(error, RelevoError) else _INTERNAL
        try:
            await audit.end(number, entry, outcome)
        except RelevoError as late:
            log.error("audit.not_ended", entry=number, outcome=outcome, error=str(late))
        raise
    made = msgspec.structs.replace(entry, resource=_with_made(operation, entry, response))
    try:
        await audit.end(number, made)
    except RelevoError as error:
        raise OutcomeUnknown(
            f"{operation.name} was done, but that could not be stored in entry {number} of the"
            f" audit: {error.message}"
        ) from error
    return response


def resource_of(operation: Operation, command: Any) -> str:
    """Return the path of an operation with what the command names."""
    values = {
        field.encode_name: getattr(command, field.name)
        for field in msgspec.structs.fields(operation.request)
        if field.encode_name in operation.parameters
    }
    path = operation.path
    for name, value in values.items():
        path = path.replace(f"{{{name}}}", quote(str(value), safe=":@!$&'()*+,;="))
    return path[: limits.AUDIT_RESOURCE_LENGTH_MAX]


def _own_reason(command: Any) -> str | None:
    """Return the reason that a command itself takes, for pauses."""
    reason = getattr(command, "reason", None)
    return reason[: limits.AUDIT_REASON_LENGTH_MAX] if isinstance(reason, str) else None


def _with_made(operation: Operation, entry: AuditedCall, response: Any) -> str:
    """Return the path of what was made, if the operation's path does not name it."""
    if operation.parameters:
        return entry.resource
    body = response.body if isinstance(response, Reply | Versioned) else response
    parts = [body]
    if isinstance(body, Struct):
        parts += msgspec.structs.astuple(body)
    for part in parts:
        for name in ("id", "name"):
            if isinstance(part, Struct) and (found := getattr(part, name, None)) is not None:
                made = f"{entry.resource}/{quote(str(found), safe=':@')}"
                return made[: limits.AUDIT_RESOURCE_LENGTH_MAX]
    return entry.resource
