"""Users, teams and business units: who works with rows, and whose rows are whose.

Who is disabled gets no answer here, whatever its key may do: else it could let itself in again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final
from uuid import UUID

from msgspec import Meta, Struct

from relevo import limits
from relevo.dataverse.http.asking import asker
from relevo.dataverse.users.model import TeamInfo, UnitInfo, UserInfo, UserView
from relevo.dataverse.users.service import NAME_LENGTH_MAX
from relevo.errors import Conflict, NotFound
from relevo.http import paging
from relevo.http.paging import Cursor, Limit, Page
from relevo.kernel.operation import OperationOptions, Operations
from relevo.kernel.pages import first

if TYPE_CHECKING:
    from relevo.dataverse.users.service import Users
    from relevo.http.access.authenticator import Principal
    from relevo.http.services import Services

Name = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=NAME_LENGTH_MAX,
        pattern=r"^[^\x00-\x1f\x7f]+$",
        description="For people, to know it by.",
    ),
]
UserId = Annotated[UUID, Meta(description="The user's id.")]
TeamId = Annotated[UUID, Meta(description="The team's id.")]
UnitId = Annotated[UUID, Meta(description="The business unit's id.")]
OwnUnit = Annotated[
    UUID, Meta(description="The business unit it is in; without it, the organization.")
]


_MADE: Final[OperationOptions] = {"errors": (NotFound, Conflict), "status": 201}
# Who gives keys also says who there is: both decide who comes in, and belong to admins alone.
operation = Operations()


async def _users(services: Services, principal: Principal) -> Users:
    """Return the users, to somebody who is not disabled."""
    await asker(services, principal)
    return services.app.users


class ListUsers(Struct, frozen=True, kw_only=True):
    """Which page of users, and which users."""

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

    In the order they were made, also disabled ones.
    """
    users = await _users(services, principal)
    found = await users.list(
        paging.decode(command.cursor, UUID), command.limit + 1,
        unit=command.unit, team=command.team, name=command.name,
    )  # fmt: skip
    return paging.page(services.page_bytes, first(found, command.limit), lambda user: user.id)


class ByUserId(Struct, frozen=True, kw_only=True):
    """Which user."""

    id: UserId


@operation("users.get", "GET /v1/users/{id}", "keys:read", errors=(NotFound,))
async def get_user(services: Services, principal: Principal, command: ByUserId) -> UserView:
    """Show a user, its teams and its rights."""
    return await (await _users(services, principal)).view(command.id)


class CreateUser(Struct, frozen=True, kw_only=True):
    """What a new user is to be."""

    name: Name
    unit: OwnUnit | None = None
    language: Annotated[
        str,
        Meta(pattern=r"^[a-z]{2}$", description="Of texts for people; `en` and `es` are there."),
    ] = "en"
    zone: Annotated[
        str,
        Meta(
            max_length=80,
            pattern=r"^[A-Za-z0-9_+/-]+$",
            description="The time zone of dates for people, such as `Europe/Madrid`.",
        ),
    ] = "UTC"


@operation("users.create", "POST /v1/users", "keys:write", _MADE)
async def create_user(services: Services, principal: Principal, command: CreateUser) -> UserView:
    """Make a user; give it keys afterwards."""
    users = await _users(services, principal)
    made = await users.create_user(
        command.name, unit=command.unit, language=command.language, zone=command.zone
    )
    return await users.view(made)


class MoveUser(ByUserId, frozen=True, kw_only=True):
    """Which user goes where."""

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
    """Keep a user out, whatever keys it has; its jobs make no data operations."""
    users = await _users(services, principal)
    await users.disable(command.id)
    services.keys.ring.forget()
    return await users.view(command.id)


@operation("users.enable", "POST /v1/users/{id}:enable", "keys:write", errors=(NotFound, Conflict))
async def enable_user(services: Services, principal: Principal, command: ByUserId) -> UserView:
    """Let a disabled user in again."""
    users = await _users(services, principal)
    await users.disable(command.id, disabled=False)
    services.keys.ring.forget()
    return await users.view(command.id)


class ListPage(Struct, frozen=True, kw_only=True):
    """Which page."""

    cursor: Cursor | None = None
    limit: Limit = limits.PAGE_ROWS_DEFAULT


@operation("teams.list", "GET /v1/teams", "keys:read")
async def list_teams(services: Services, principal: Principal, command: ListPage) -> Page[TeamInfo]:
    """List teams."""
    users = await _users(services, principal)
    found = await users.teams(paging.decode(command.cursor, UUID), command.limit + 1)
    return paging.page(services.page_bytes, first(found, command.limit), lambda team: team.id)


class ByTeamId(Struct, frozen=True, kw_only=True):
    """Which team."""

    id: TeamId


@operation("teams.get", "GET /v1/teams/{id}", "keys:read", errors=(NotFound,))
async def get_team(services: Services, principal: Principal, command: ByTeamId) -> TeamInfo:
    """Show a team."""
    return await (await _users(services, principal)).team(command.id)


class CreateTeam(Struct, frozen=True, kw_only=True):
    """What a new team is to be."""

    name: Name
    unit: OwnUnit | None = None


@operation("teams.create", "POST /v1/teams", "keys:write", _MADE)
async def create_team(services: Services, principal: Principal, command: CreateTeam) -> TeamInfo:
    """Make a team, whose members share rows."""
    users = await _users(services, principal)
    return await users.team(await users.create_team(command.name, unit=command.unit))


class Membership(ByTeamId, frozen=True, kw_only=True):
    """Who, in which team."""

    user: UserId


@operation("teams.join", "POST /v1/teams/{id}:join", "keys:write", errors=(NotFound,))
async def join_team(services: Services, principal: Principal, command: Membership) -> TeamInfo:
    """Let a user join a team; again changes nothing."""
    users = await _users(services, principal)
    await users.join(command.id, command.user)
    return await users.team(command.id)


@operation("teams.leave", "POST /v1/teams/{id}:leave", "keys:write", errors=(NotFound,))
async def leave_team(services: Services, principal: Principal, command: Membership) -> TeamInfo:
    """Let a user leave a team; again changes nothing."""
    users = await _users(services, principal)
    await users.leave(command.id, command.user)
    return await users.team(command.id)


@operation("units.list", "GET /v1/units", "keys:read")
async def list_units(services: Services, principal: Principal, command: ListPage) -> Page[UnitInfo]:
    """List business units.

    In the order they were made; the organization is the first.
    """
    users = await _users(services, principal)
    found = await users.units(paging.decode(command.cursor, UUID), command.limit + 1)
    return paging.page(services.page_bytes, first(found, command.limit), lambda unit: unit.id)


class ByUnitId(Struct, frozen=True, kw_only=True):
    """Which business unit."""

    id: UnitId


@operation("units.get", "GET /v1/units/{id}", "keys:read", errors=(NotFound,))
async def get_unit(services: Services, principal: Principal, command: ByUnitId) -> UnitInfo:
    """Show a business unit."""
    return await (await _users(services, principal)).unit(command.id)


class CreateUnit(Struct, frozen=True, kw_only=True):
    """What a new business unit is to be."""

    name: Name
    parent: (
        Annotated[UUID, Meta(description="The unit it is a part of; without it, the organization.")]
        | None
    ) = None


@operation("units.create", "POST /v1/units", "keys:write", _MADE)
async def create_unit(services: Services, principal: Principal, command: CreateUnit) -> UnitInfo:
    """Make a business unit."""
    users = await _users(services, principal)
    return await users.unit(await users.create_unit(command.name, parent=command.parent))
