"""Messages on the Dataverse surface, executed at once or in the background.

A message with `Prefer: respond-async` becomes a job; the answer is `202` with the address to poll.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final
from uuid import UUID

import msgspec
from msgspec import Meta, Struct

from relevo.dataverse.http.changes import WRITE
from relevo.dataverse.http.requester import READ, SQL, requester_of, scope_of
from relevo.dataverse.http.surface import BASE, WEB_API, RequestRefused, WebApiRequest
from relevo.errors import Forbidden, MethodNotAllowed, NotFound, Unavailable
from relevo.http.answers import sentence
from relevo.jobs import states
from relevo.jobs.core import codes
from relevo.jobs.errors import JobMissing, JobRefused, PlatformJob
from relevo.jobs.registry import check_open
from relevo.kernel.operation import Operations, OtherStatus, Reply
from relevo.kernel.running.verdicts import RetryLater, Verdict
from relevo.pipeline.model import message_handler

if TYPE_CHECKING:
    from relevo.dataverse.http.requester import Requester
    from relevo.http.access.authenticator import Principal
    from relevo.http.services import Services
    from relevo.jobs.model import Job

SUBMIT: Final = "jobs:submit"
MONITOR: Final = "/api/backgroundoperation/{id}"
_LATER: Final = OtherStatus(202, lambda reply: reply.status == 202, "It runs in the background.")


operation = Operations(WEB_API)


class Execute(WebApiRequest, frozen=True, kw_only=True):
    """A message and its parameters."""

    name: Annotated[str, Meta(description="The name of the message.")]
    input: Annotated[dict[str, Any], Meta(description="Its parameters.")]


class Monitored(WebApiRequest, frozen=True, kw_only=True):
    """The id of a background operation."""

    id: Annotated[UUID, Meta(description="The id from the `Location` of the 202 answer.")]


class BackgroundOperation(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The state of a background operation; it has outputs after it has succeeded."""

    background_operation_state_code: int
    background_operation_status_code: int
    background_operation_error_code: int | None = None
    background_operation_error_message: str | None = None


class AskedToWait(Unavailable):
    """A step of the message raised `RetryLater`: the caller should try again later."""

    code = "asked_to_wait"
    fault = "caller"  # its text is meant for the caller

    def __init__(self, error: RetryLater) -> None:
        super().__init__(error.text or f"{sentence(type(self))} Nothing was done.")
        self.error_code = codes.BUSY if error.code is None else error.code
        self.retry_after = self.retry_after if error.delay is None else error.delay


@operation(
    "dataverse.execute",
    f"POST {BASE}/{{name}}",
    SUBMIT,
    response=dict[str, Any],
    errors=(NotFound, MethodNotAllowed, Forbidden, RequestRefused, AskedToWait),
    outcomes=(_LATER,),
    body="input",
)
async def execute(services: Services, principal: Principal, command: Execute) -> Reply:
    """Execute a message; with `Prefer: respond-async` in the background."""
    requester = await requester_of(services, principal)
    if command.name in requester.catalogue.by_set:
        raise MethodNotAllowed(
            f"rows of {command.name} cannot be created here; jobs come from events, bulk operations"
            " and messages"
        )
    if command.preferences.respond_async:
        return await _submitted(services, requester, command)
    if command.name not in services.app.pipeline.registry.bodies:
        raise NotFound(f"there is no message {command.name[:64]!r}; register it with app.message")
    service = services.app.service.of(requester.user.id, rights=_rights(principal))
    try:
        output = await service.execute(command.name, input=command.input)
    except Verdict as error:
        raise _error_of(error) from error
    context = f"{command.base}/$metadata#Microsoft.Dynamics.CRM.{command.name}Response"
    return Reply(body={"@odata.context": context, **output})


async def _submitted(services: Services, requester: Requester, command: Execute) -> Reply:
    job = await services.app.jobs.submit(
        await _handler(services, command.name),
        command.input,
        name=command.name,
        owner=requester.user.id,
        retain=True,
        options={"message_name": command.name},
    )
    origin = command.base.removesuffix(f"/api/data/{command.version}")
    there = origin + MONITOR.format(id=job.id)
    return Reply(status=202, headers={"Location": there, "Preference-Applied": "respond-async"})


async def _handler(services: Services, name: str) -> str:
    """Return the job handler of a message: its own, or a job handler of the same name."""
    of_message = message_handler(name)
    if name in services.app.pipeline.registry.bodies:
        return of_message
    check_open(name)
    for handler in (of_message, name):
        if await services.app.database.fetchval(SQL.handler_exists, handler):
            return handler
    raise NotFound(
        f"no host has registered a message or job handler {name[:64]!r}; use app.message or app.job"
    )


def _error_of(error: Verdict) -> RequestRefused | AskedToWait:
    """Return the verdict of a step or body as an error, because there is no job to apply it to."""
    if isinstance(error, RetryLater):
        return AskedToWait(error)
    return RequestRefused(codes.HANDLER_REFUSED if error.code is None else error.code, str(error))


def _rights(principal: Principal) -> frozenset[str]:
    bypass = "pipeline:bypass" in principal.permissions
    return frozenset({"pipeline.bypass"} if bypass else ())


@operation(
    "dataverse.monitor.get",
    f"GET {MONITOR}",
    READ,
    response=BackgroundOperation,
    errors=(JobMissing,),
)
async def monitor(services: Services, principal: Principal, command: Monitored) -> Reply:
    """Show the state of a background operation."""
    requester = await requester_of(services, principal)
    job = await _seen(services, principal, requester, READ, command.id)
    return Reply(body=_progress(job, payload=requester.caller.may_read_payload))


@operation(
    "dataverse.monitor.cancel",
    f"DELETE {MONITOR}",
    WRITE,
    response=BackgroundOperation,
    errors=(JobMissing, JobRefused, PlatformJob),
)
async def cancel(services: Services, principal: Principal, command: Monitored) -> Reply:
    """Cancel a background operation."""
    requester = await requester_of(services, principal)
    scope = await scope_of(services, principal, requester, WRITE, [command.id])
    await services.app.jobs.command(command.id, "cancel", user=requester.user.id, scope=scope)
    job = await services.app.jobs.get(command.id)
    return Reply(body=_progress(job, payload=False))


async def _seen(
    services: Services, principal: Principal, requester: Requester, permission: str, key: UUID
) -> Job:
    """Return a job within the reach of a permission; raises `JobMissing`."""
    scope = await scope_of(services, principal, requester, permission, [key])
    job = await services.app.jobs.get(key)
    if scope.owners is not None and job.owner not in scope.owners:
        raise JobMissing(f"there is no job {key}")
    return job


def _progress(job: Job, *, payload: bool) -> dict[str, Any]:
    failed = job.status_code == states.FAILED
    shown: dict[str, Any] = msgspec.to_builtins(
        BackgroundOperation(
            background_operation_state_code=states.state_of(job.status_code),
            background_operation_status_code=job.status_code,
            background_operation_error_code=job.error_code if failed else None,
            background_operation_error_message=_reason(job) if failed else None,
        )
    )
    outputs = job.result if payload and isinstance(job.result, dict) else {}
    return {**outputs, **shown}


def _reason(job: Job) -> str:
    """Return the text of a failure: the handler's own, or that of its code."""
    known = codes.TEXTS.get(job.error_code or codes.HANDLER_FAILED)
    return job.friendly or known or codes.TEXTS[codes.HANDLER_FAILED]
