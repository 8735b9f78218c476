"""Users, teams and business units: who works with rows, and whose rows are whose.

Who is disabled gets no answer here, whatever its key may do: else it could let itself in again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final
from uuid import UUID

from msgspec import Meta, Struct

from relevo import limits
from relevo.dataverse.http.asking import asker
from relevo.dataverse.users.model import TeamInfo, UnitInfo, UserInfo, UserView
from relevo.dataverse.users.service import NAME_LENGTH_MAX
from relevo.errors import Conflict, NotFound
from relevo.http import paging
from relevo.http.paging import Cursor, Limit, Page
from relevo.kernel.operation import Operation
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


async def list_users(
    services: Services, principal: Principal, command: ListUsers
) -> Page[UserInfo]:
    """Return users in the order they were made, also disabled ones."""
    users = await _users(services, principal)
    found = await users.list(
        paging.decode(command.cursor, UUID), command.limit + 1,
        unit=command.unit, team=command.team, name=command.name,
    )  # fmt: skip
    return paging.page(services.page_bytes, first(found, command.limit), lambda user: user.id)


class ByUserId(Struct, frozen=True, kw_only=True):
    """Which user."""

    id: UserId


async def get_user(services: Services, principal: Principal, command: ByUserId) -> UserView:
    """Return a user with its teams and rights."""
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


async def create_user(services: Services, principal: Principal, command: CreateUser) -> UserView:
    """Make a user; it can do nothing until it is given a key."""
    users = await _users(services, principal)
    made = await users.create_user(
        command.name, unit=command.unit, language=command.language, zone=command.zone
    )
    return await users.view(made)


class MoveUser(ByUserId, frozen=True, kw_only=True):
    """Which user goes where."""

    unit: UnitId


async def move_user(services: Services, principal: Principal, command: MoveUser) -> UserView:
    """Move a user to another business unit."""
    users = await _users(services, principal)
    await users.move(command.id, command.unit)
    return await users.view(command.id)


async def disable_user(services: Services, principal: Principal, command: ByUserId) -> UserView:
    """Keep a user out, whatever keys it has."""
    users = await _users(services, principal)
    await users.disable(command.id)
    services.keys.ring.forget()
    return await users.view(command.id)


async def enable_user(services: Services, principal: Principal, command: ByUserId) -> UserView:
    """Let a user in again."""
    users = await _users(services, principal)
    await users.disable(command.id, disabled=False)
    services.keys.ring.forget()
    return await users.view(command.id)


class ListPage(Struct, frozen=True, kw_only=True):
    """Which page."""

    cursor: Cursor | None = None
    limit: Limit = limits.PAGE_ROWS_DEFAULT


async def list_teams(services: Services, principal: Principal, command: ListPage) -> Page[TeamInfo]:
    """Return teams in the order they were made."""
    users = await _users(services, principal)
    found = await users.teams(paging.decode(command.cursor, UUID), command.limit + 1)
    return paging.page(services.page_bytes, first(found, command.limit), lambda team: team.id)


class ByTeamId(Struct, frozen=True, kw_only=True):
    """Which team."""

    id: TeamId


async def get_team(services: Services, principal: Principal, command: ByTeamId) -> TeamInfo:
    """Return a team."""
    return await (await _users(services, principal)).team(command.id)


class CreateTeam(Struct, frozen=True, kw_only=True):
    """What a new team is to be."""

    name: Name
    unit: OwnUnit | None = None


async def create_team(services: Services, principal: Principal, command: CreateTeam) -> TeamInfo:
    """Make a team without members."""
    users = await _users(services, principal)
    return await users.team(await users.create_team(command.name, unit=command.unit))


class Membership(ByTeamId, frozen=True, kw_only=True):
    """Who, in which team."""

    user: UserId


async def join_team(services: Services, principal: Principal, command: Membership) -> TeamInfo:
    """Let a user join a team."""
    users = await _users(services, principal)
    await users.join(command.id, command.user)
    return await users.team(command.id)


async def leave_team(services: Services, principal: Principal, command: Membership) -> TeamInfo:
    """Let a user leave a team."""
    users = await _users(services, principal)
    await users.leave(command.id, command.user)
    return await users.team(command.id)


async def list_units(services: Services, principal: Principal, command: ListPage) -> Page[UnitInfo]:
    """Return business units in the order they were made; the organization is the first."""
    users = await _users(services, principal)
    found = await users.units(paging.decode(command.cursor, UUID), command.limit + 1)
    return paging.page(services.page_bytes, first(found, command.limit), lambda unit: unit.id)


class ByUnitId(Struct, frozen=True, kw_only=True):
    """Which business unit."""

    id: UnitId


async def get_unit(services: Services, principal: Principal, command: ByUnitId) -> UnitInfo:
    """Return a business unit."""
    return await (await _users(services, principal)).unit(command.id)


class CreateUnit(Struct, frozen=True, kw_only=True):
    """What a new business unit is to be."""

    name: Name
    parent: (
        Annotated[UUID, Meta(description="The unit it is a part of; without it, the organization.")]
        | None
    ) = None


async def create_unit(services: Services, principal: Principal, command: CreateUnit) -> UnitInfo:
    """Make a business unit."""
    users = await _users(services, principal)
    return await users.unit(await users.create_unit(command.name, parent=command.parent))


# Who gives keys also says who there is: both decide who comes in, and belong to admins alone.
_READ: Final[dict[str, Any]] = {"method": "GET", "permission": "keys:read"}
_WRITE: Final[dict[str, Any]] = {"method": "POST", "permission": "keys:write"}
_ONE: Final[dict[str, Any]] = {"errors": (NotFound,)}
_MADE: Final[dict[str, Any]] = {"errors": (NotFound, Conflict), "status": 201}

OPERATIONS: Final = (
    Operation(
        name="users.list", path="/v1/users", summary="List users.", request=ListUsers,
        response=Page[UserInfo], handler=list_users, **_READ,
    ),
    Operation(
        name="users.get", path="/v1/users/{id}", summary="Show a user, its teams and its rights.",
        request=ByUserId, response=UserView, handler=get_user, **_READ, **_ONE,
    ),
    Operation(
        name="users.create", path="/v1/users", summary="Make a user; give it keys afterwards.",
        request=CreateUser, response=UserView, handler=create_user, **_WRITE, **_MADE,
    ),
    Operation(
        name="users.move", path="/v1/users/{id}:move",
        summary="Move a user to another business unit.", request=MoveUser, response=UserView,
        handler=move_user, **_WRITE, **_ONE,
    ),
    Operation(
        name="users.disable", path="/v1/users/{id}:disable",
        summary="Keep a user out, whatever keys it has; its jobs make no data operations.",
        request=ByUserId, response=UserView, handler=disable_user, errors=(NotFound, Conflict),
        **_WRITE,
    ),
    Operation(
        name="users.enable", path="/v1/users/{id}:enable", summary="Let a disabled user in again.",
        request=ByUserId, response=UserView, handler=enable_user, errors=(NotFound, Conflict),
        **_WRITE,
    ),
    Operation(
        name="teams.list", path="/v1/teams", summary="List teams.", request=ListPage,
        response=Page[TeamInfo], handler=list_teams, **_READ,
    ),
    Operation(
        name="teams.get", path="/v1/teams/{id}", summary="Show a team.", request=ByTeamId,
        response=TeamInfo, handler=get_team, **_READ, **_ONE,
    ),
    Operation(
        name="teams.create", path="/v1/teams", summary="Make a team, whose members share rows.",
        request=CreateTeam, response=TeamInfo, handler=create_team, **_WRITE, **_MADE,
    ),
    Operation(
        name="teams.join", path="/v1/teams/{id}:join",
        summary="Let a user join a team; again changes nothing.", request=Membership,
        response=TeamInfo, handler=join_team, **_WRITE, **_ONE,
    ),
    Operation(
        name="teams.leave", path="/v1/teams/{id}:leave",
        summary="Let a user leave a team; again changes nothing.", request=Membership,
        response=TeamInfo, handler=leave_team, **_WRITE, **_ONE,
    ),
    Operation(
        name="units.list", path="/v1/units", summary="List business units.", request=ListPage,
        response=Page[UnitInfo], handler=list_units, **_READ,
    ),
    Operation(
        name="units.get", path="/v1/units/{id}", summary="Show a business unit.",
        request=ByUnitId, response=UnitInfo, handler=get_unit, **_READ, **_ONE,
    ),
    Operation(
        name="units.create", path="/v1/units", summary="Make a business unit.",
        request=CreateUnit, response=UnitInfo, handler=create_unit, **_WRITE, **_MADE,
    ),
)  # fmt: skip
