"""Commands on all jobs that match: `POST /v1/jobs:retry`, `:cancel`, `:pause` and so on."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final
from uuid import UUID

from msgspec import Meta, Struct

from relevo import limits
from relevo.dataverse.http.requester import requester_of, scope_of
from relevo.errors import InvalidQuery, InvalidValue, QueryTooCostly
from relevo.http import paging
from relevo.http.paging import Cursor
from relevo.jobs.http.jobs import narrowed
from relevo.jobs.http.models import ChosenJobs
from relevo.jobs.matching import MatchingCommand, command_some
from relevo.kernel import checking
from relevo.kernel.operation import Operations
from relevo.kernel.postgres import clock
from relevo.kernel.querying.model import Position

if TYPE_CHECKING:
    from relevo.http.access.authenticator import Principal
    from relevo.http.services import Services

operation = Operations(
    minds_reach=True, errors=(InvalidValue, InvalidQuery, QueryTooCostly), status=200
)


class CommandMatching(ChosenJobs, frozen=True, kw_only=True):
    """Which jobs, and how many of them in this request."""

    dry_run: Annotated[bool, Meta(description="Only count what would be changed.")] = False
    cursor: Cursor | None = None
    most: Annotated[
        int,
        Meta(ge=1, le=limits.JOBS_COMMANDED_MAX, description="Jobs of this request at most."),
    ] = limits.JOBS_COMMANDED_MAX


class PostponeMatching(CommandMatching, frozen=True, kw_only=True):
    """Which jobs wait, and until when."""

    until: Annotated[datetime, Meta(tz=True, description="When they may run.")]


class MatchingCommanded(Struct, frozen=True, kw_only=True):
    """What has become of the jobs that matched."""

    matched: int
    done: int
    refused: int
    refusals: dict[UUID, str]
    """Why, for the first 20 of them."""
    handlers: dict[str, int]
    """How many matched, by handler."""
    next: str | None
    """Ask again with this as `cursor`: more match. Jobs that are submitted meanwhile do not."""


class _Place(Struct, frozen=True, array_like=True):
    created_at: Annotated[datetime, Meta(tz=True)]
    sequence: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    id: UUID
    before: Annotated[datetime, Meta(tz=True)]


_CONDITIONS: Final = ChosenJobs.__struct_fields__


async def _command(
    services: Services, principal: Principal, command: CommandMatching, *, name: str,
    permission: str,
) -> MatchingCommanded:  # fmt: skip
    if not any(getattr(command, field) not in (None, ()) for field in _CONDITIONS):
        raise InvalidValue(
            f"{name} of all jobs needs a condition, such as a status, a handler or a filter;"
            " nothing was changed"
        )
    who = await requester_of(services, principal)
    jobs = services.app.jobs
    after = paging.decode(command.cursor, _Place)
    before = await clock.now(jobs.database) if after is None else after.before
    until = getattr(command, "until", None)
    asked = MatchingCommand(
        command=None if command.dry_run else {"retry": "rerun"}.get(name, name),
        until=None if until is None else checking.aware(until, "until"), user=who.user.id,
        scope=partial(scope_of, services, principal, who, permission),
    )  # fmt: skip
    found, position = await command_some(
        jobs.commands, narrowed(jobs.query(who.caller), command).created(before=before), asked,
        command.most,
        None if after is None else Position((after.created_at, after.sequence, after.id)),
    )  # fmt: skip
    following = None
    if position is not None:
        created_at, sequence, id_ = position.values
        following = paging.encode(_Place(created_at, sequence, id_, before))
    return MatchingCommanded(
        matched=found.matched, done=found.done, refused=found.refused, refusals=found.refusals,
        handlers=dict(found.handlers.most_common()), next=following,
    )  # fmt: skip


@operation("jobs.retry_all", "POST /v1/jobs:retry", "jobs:write")
async def retry_all(
    services: Services, principal: Principal, command: CommandMatching
) -> MatchingCommanded:
    """Run all failed and canceled jobs again that match."""
    return await _command(services, principal, command, name="retry", permission="jobs:write")


@operation("jobs.cancel_all", "POST /v1/jobs:cancel", "jobs:write")
async def cancel_all(
    services: Services, principal: Principal, command: CommandMatching
) -> MatchingCommanded:
    """Cancel all jobs that match; running handlers are asked to stop."""
    return await _command(services, principal, command, name="cancel", permission="jobs:write")


@operation("jobs.pause_all", "POST /v1/jobs:pause", "jobs:write")
async def pause_all(
    services: Services, principal: Principal, command: CommandMatching
) -> MatchingCommanded:
    """Ask all running jobs that match to yield at their next checkpoints."""
    return await _command(services, principal, command, name="pause", permission="jobs:write")


@operation("jobs.resume_all", "POST /v1/jobs:resume", "jobs:write")
async def resume_all(
    services: Services, principal: Principal, command: CommandMatching
) -> MatchingCommanded:
    """Let all suspended jobs that match go on."""
    return await _command(services, principal, command, name="resume", permission="jobs:write")


@operation("jobs.postpone_all", "POST /v1/jobs:postpone", "jobs:write")
async def postpone_all(
    services: Services, principal: Principal, command: PostponeMatching
) -> MatchingCommanded:
    """Let all jobs that match wait until an instant."""
    return await _command(services, principal, command, name="postpone", permission="jobs:write")


@operation("jobs.delete_all", "POST /v1/jobs:delete", "jobs:delete")
async def delete_all(
    services: Services, principal: Principal, command: CommandMatching
) -> MatchingCommanded:
    """Remove all jobs that match, and their records; running handlers are asked to stop."""
    return await _command(services, principal, command, name="delete", permission="jobs:delete")
