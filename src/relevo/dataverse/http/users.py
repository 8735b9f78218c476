"""Users, teams and business units over HTTP.

A disabled user is refused here whatever rights its key has; otherwise it could enable itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, TypeVar
from uuid import UUID

from msgspec import Meta, Struct

from relevo import limits
from relevo.dataverse.http.requester import requester_of
from relevo.dataverse.users.model import TeamInfo, UnitInfo, UserInfo, UserView
from relevo.dataverse.users.service import NAME_LENGTH_MAX
from relevo.errors import Conflict, NotFound
from relevo.http import paging
from relevo.http.paging import Cursor, Limit, Page
from relevo.kernel.operation import OperationOptions, Operations
from relevo.kernel.pages import first

if TYPE_CHECKING:
    from collections.abc import Sequence

    from relevo.dataverse.users.service import Users
    from relevo.http.access.authenticator import Principal
    from relevo.http.services import Services

T = TypeVar("T", UserInfo, TeamInfo, UnitInfo)
Name = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=NAME_LENGTH_MAX,
        pattern=r"^[^\x00-\x1f\x7f]+$",
        description="The name for people.",
    ),
]
UserId = Annotated[UUID, Meta(description="The user's id.")]
TeamId = Annotated[UUID, Meta(description="The team's id.")]
UnitId = Annotated[UUID, Meta(description="The business unit's id.")]
OwnUnit = Annotated[UUID, Meta(description="The business unit. Default: the organization.")]


_MADE: Final[OperationOptions] = {"errors": (NotFound, Conflict), "status": 201}
# Users need the permissions of keys: both control access, and both are for administrators only.
operation = Operations()


async def _users(services: Services, principal: Principal) -> Users:
    """Return the users; raises `Forbidden` if the caller is disabled."""
    await requester_of(services, principal)
    return services.app.users


def _page(services: Services, rows: Sequence[T], limit: int) -> Page[T]:
    return paging.page(services.page_bytes, first(rows, limit), lambda row: row.id)


class ListUsers(Struct, frozen=True, kw_only=True):
    """A page of users."""

    unit: Annotated[UUID, Meta(description="Only users of this business unit.")] | None = None
    team: Annotated[UUID, Meta(description="Only members of this team.")] | None = None
    name: Annotated[str, Meta(description="Only users of exactly this name.")] | None = None
    cursor: Cursor | None = None
    limit: Limit = limits.PAGE_ROWS_DEFAULT


@operation("users.list", "GET /v1/users", "keys:read")
async def list_users(
    services: Services, principal: Principal, command: ListUsers
) -> Page[UserInfo]:
    """List users.

    In the order of their creation, including disabled ones.
    """
    users = await _users(services, principal)
    rows = await users.list(
        paging.decode(command.cursor, UUID), command.limit + 1,
        unit=command.unit, team=command.team, name=command.name,
    )  # fmt: skip
    return _page(services, rows, command.limit)


class ByUserId(Struct, frozen=True, kw_only=True):
    """A user."""

    id: UserId


@operation("users.get", "GET /v1/users/{id}", "keys:read", errors=(NotFound,))
async def get_user(services: Services, principal: Principal, command: ByUserId) -> UserView:
    """Show a user, its teams and its rights."""
    return await (await _users(services, principal)).view(command.id)


class CreateUser(Struct, frozen=True, kw_only=True):
    """A new user."""

    name: Name
    unit: OwnUnit | None = None
    language: Annotated[
        str,
        Meta(pattern=r"^[a-z]{2}$", description="The language of texts; `en` or `es`."),
    ] = "en"
    zone: Annotated[
        str,
        Meta(
            max_length=80,
            pattern=r"^[A-Za-z0-9_+/-]+$",
            description="The time zone of displayed dates, such as `Europe/Madrid`.",
        ),
    ] = "UTC"


@operation("users.create", "POST /v1/users", "keys:write", _MADE)
async def create_user(services: Services, principal: Principal, command: CreateUser) -> UserView:
    """Create a user; create keys for it afterwards."""
    users = await _users(services, principal)
    made = await users.create_user(
        command.name, unit=command.unit, language=command.language, zone=command.zone
    )
    return await users.view(made)


class MoveUser(ByUserId, frozen=True, kw_only=True):
    """A user and its new business unit."""

    unit: UnitId


@operation("users.move", "POST /v1/users/{id}:move", "keys:write", errors=(NotFound,))
async def move_user(services: Services, principal: Principal, command: MoveUser) -> UserView:
    """Move a user to another business unit."""
    users = await _users(services, principal)
    await users.move(command.id, command.unit)
    return await users.view(command.id)


@operation(
    "users.disable", "POST /v1/users/{id}:disable", "keys:write", errors=(NotFound, Conflict)
)
async def disable_user(services: Services, principal: Principal, command: ByUserId) -> UserView:
    """Disable a user: its keys stop working, and its jobs make no data operations."""
    return await _set_disabled(services, principal, command.id, disabled=True)


@operation("users.enable", "POST /v1/users/{id}:enable", "keys:write", errors=(NotFound, Conflict))
async def enable_user(services: Services, principal: Principal, command: ByUserId) -> UserView:
    """Enable a disabled user again."""
    return await _set_disabled(services, principal, command.id, disabled=False)


async def _set_disabled(
    services: Services, principal: Principal, user: UUID, *, disabled: bool
) -> UserView:
    users = await _users(services, principal)
    await users.disable(user, disabled=disabled)
    services.keys.ring.forget()
    return await users.view(user)


class ListPage(Struct, frozen=True, kw_only=True):
    """A page of a list."""

    cursor: Cursor | None = None
    limit: Limit = limits.PAGE_ROWS_DEFAULT


@operation("teams.list", "GET /v1/teams", "keys:read")
async def list_teams(services: Services, principal: Principal, command: ListPage) -> Page[TeamInfo]:
    """List teams."""
    users = await _users(services, principal)
    rows = await users.teams(paging.decode(command.cursor, UUID), command.limit + 1)
    return _page(services, rows, command.limit)


class ByTeamId(Struct, frozen=True, kw_only=True):
    """A team."""

    id: TeamId


@operation("teams.get", "GET /v1/teams/{id}", "keys:read", errors=(NotFound,))
async def get_team(services: Services, principal: Principal, command: ByTeamId) -> TeamInfo:
    """Show a team."""
    return await (await _users(services, principal)).team(command.id)


class CreateTeam(Struct, frozen=True, kw_only=True):
    """A new team."""

    name: Name
    unit: OwnUnit | None = None


@operation("teams.create", "POST /v1/teams", "keys:write", _MADE)
async def create_team(services: Services, principal: Principal, command: CreateTeam) -> TeamInfo:
    """Create a team, whose members share rows."""
    users = await _users(services, principal)
    return await users.team(await users.create_team(command.name, unit=command.unit))


class TeamMembership(ByTeamId, frozen=True, kw_only=True):
    """A user and a team."""

    user: UserId


@operation("teams.join", "POST /v1/teams/{id}:join", "keys:write", errors=(NotFound,))
async def join_team(services: Services, principal: Principal, command: TeamMembership) -> TeamInfo:
    """Add a user to a team; repeating it changes nothing."""
    users = await _users(services, principal)
    await users.join(command.id, command.user)
    return await users.team(command.id)


@operation("teams.leave", "POST /v1/teams/{id}:leave", "keys:write", errors=(NotFound,))
async def leave_team(services: Services, principal: Principal, command: TeamMembership) -> TeamInfo:
    """Remove a user from a team; repeating it changes nothing."""
    users = await _users(services, principal)
    await users.leave(command.id, command.user)
    return await users.team(command.id)


@operation("units.list", "GET /v1/units", "keys:read")
async def list_units(services: Services, principal: Principal, command: ListPage) -> Page[UnitInfo]:
    """List business units.

    In the order of their creation; the organization is the first.
    """
    users = await _users(services, principal)
    rows = await users.units(paging.decode(command.cursor, UUID), command.limit + 1)
    return _page(services, rows, command.limit)


class ByUnitId(Struct, frozen=True, kw_only=True):
    """A business unit."""

    id: UnitId


@operation("units.get", "GET /v1/units/{id}", "keys:read", errors=(NotFound,))
async def get_unit(services: Services, principal: Principal, command: ByUnitId) -> UnitInfo:
    """Show a business unit."""
    return await (await _users(services, principal)).unit(command.id)


class CreateUnit(Struct, frozen=True, kw_only=True):
    """A new business unit."""

    name: Name
    parent: (
        Annotated[UUID, Meta(description="The parent unit. Default: the organization.")] | None
    ) = None


@operation("units.create", "POST /v1/units", "keys:write", _MADE)
async def create_unit(services: Services, principal: Principal, command: CreateUnit) -> UnitInfo:
    """Create a business unit."""
    users = await _users(services, principal)
    return await users.unit(await users.create_unit(command.name, parent=command.parent))
