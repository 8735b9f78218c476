"""`app.users`: who works with rows, in which teams and business units."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import asyncpg

from relevo.dataverse.users.model import (
    RIGHTS,
    Reach,
    TeamInfo,
    UnitInfo,
    User,
    UserInfo,
    UserView,
    rights_of,
)
from relevo.errors import Conflict, Forbidden, InvalidValue, NotFound
from relevo.jobs.model import SYSTEM
from relevo.kernel.part import Service
from relevo.kernel.postgres import catalog
from relevo.kernel.zones import code_of, zone_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from uuid import UUID

    from relevo.kernel.postgres import Transaction

SQL = catalog.load(__package__)
NAME_LENGTH_MAX: Final = 256


class Users(Service):
    """The users, teams and business units of an installation.

    >>> north = await app.users.create_unit("north")  # doctest: +SKIP
    >>> ana = await app.users.create_user("Ana", unit=north)  # doctest: +SKIP
    """

    async def get(self, user: UUID) -> User:
        """Return a user as it is now; raises `NotFound`."""
        row = await self.database.fetchrow(SQL.user_by_id, user)
        if row is None:
            raise NotFound(f"there is no user {user}")
        return User(**{**dict(row), "teams": tuple(row["teams"])})

    async def view(self, user: UUID) -> UserView:
        """Return a user with its teams and rights; raises `NotFound`."""
        rows = await self.database.fetch(SQL.list_users, None, 1, None, None, None, user)
        if not rows:
            raise NotFound(f"there is no user {user}")
        teams = await self.database.fetch(SQL.teams_of_user, user)
        return UserView(
            **dict(rows[0]),
            teams={row["name"]: row["id"] for row in teams},
            rights=await self.rights_of(user),
        )

    async def list(
        self, after: UUID | None, limit: int, *,
        unit: UUID | None = None, team: UUID | None = None, name: str | None = None,
    ) -> Sequence[UserInfo]:  # fmt: skip
        """Return a page of users in the order they were made, also disabled ones."""
        rows = await self.database.fetch(SQL.list_users, after, limit, unit, team, name, None)
        return [UserInfo(**dict(row)) for row in rows]

    async def teams(self, after: UUID | None, limit: int) -> Sequence[TeamInfo]:
        """Return a page of teams in the order they were made."""
        rows = await self.database.fetch(SQL.list_teams, after, limit, None)
        return [TeamInfo(**dict(row)) for row in rows]

    async def team(self, team: UUID) -> TeamInfo:
        """Return a team; raises `NotFound`."""
        row = await self.database.fetchrow(SQL.list_teams, None, 1, team)
        if row is None:
            raise NotFound(f"there is no team {team}")
        return TeamInfo(**dict(row))

    async def units(self, after: UUID | None, limit: int) -> Sequence[UnitInfo]:
        """Return a page of business units in the order they were made."""
        rows = await self.database.fetch(SQL.list_units, after, limit, None)
        return [UnitInfo(**dict(row)) for row in rows]

    async def unit(self, unit: UUID) -> UnitInfo:
        """Return a business unit; raises `NotFound`."""
        row = await self.database.fetchrow(SQL.list_units, None, 1, unit)
        if row is None:
            raise NotFound(f"there is no business unit {unit}")
        return UnitInfo(**dict(row))

    async def rights_of(self, user: UUID | None, tx: Transaction | None = None) -> dict[str, Reach]:
        """Return what a user may do now: all that its keys give it, none if it is disabled.

        Code that acts in nobody's name, or in that of SYSTEM, may do everything. Who comes with
        tokens of an issuer has the rights of each token while it lasts, and none here. `tx` is
        asked instead of the pool, by who must not wait for a second connection.
        """
        if user is None or user == SYSTEM:
            return dict.fromkeys(RIGHTS, "all")
        rows = await (self.database if tx is None else tx).fetch(SQL.roles_of_user, user)
        return rights_of(row["role"] for row in rows)

    async def admitted(self, user: UUID) -> User:
        """Return a user who may work; raises `Forbidden` for one that is disabled."""
        found = await self.get(user)
        if found.disabled:
            raise Forbidden(f"the user {found.name!r} is disabled; ask an administrator")
        return found

    async def known_as(self, identity: str, name: str) -> UUID:
        """Return the user of somebody who is known elsewhere, made when they first come."""
        found: UUID | None = await self.database.fetchval(SQL.user_by_identity, identity)
        if found is None:
            shown = name[:NAME_LENGTH_MAX]
            await self.database.write(SQL.add_identity, identity, shown, idempotent=True)
            found = await self.database.fetchval(SQL.user_by_identity, identity)
        assert found is not None, "users are never deleted"
        return found

    async def create_user(
        self, name: str, *, unit: UUID | None = None, language: str = "en", zone: str = "UTC"
    ) -> UUID:
        """Make a user; keys are given to it with `keys.create`."""
        zone_of(zone, "/zone")
        return await self._add(SQL.add_user, name, unit, language, zone, code_of(zone))

    async def create_team(
        self, name: str, *, unit: UUID | None = None, members: Iterable[UUID] = ()
    ) -> UUID:
        """Make a team; its members share what it owns."""
        team = await self._add(SQL.add_team, name, unit)
        for member in members:
            await self.join(team, member)
        return team

    async def create_unit(self, name: str, *, parent: UUID | None = None) -> UUID:
        """Make a business unit."""
        return await self._add(SQL.add_unit, name, parent)

    async def join(self, team: UUID, member: UUID) -> None:
        """Let a user join a team; again changes nothing."""
        try:
            await self.database.write(SQL.add_member, team, member, idempotent=True)
        except asyncpg.ForeignKeyViolationError:
            raise NotFound(f"there is no team {team}, or no user {member}") from None

    async def leave(self, team: UUID, member: UUID) -> None:
        """Let a user leave a team; again changes nothing."""
        await self.database.write(SQL.remove_member, team, member, idempotent=True)

    async def move(self, user: UUID, unit: UUID) -> None:
        """Move a user to another business unit."""
        try:
            moved = await self.database.write(SQL.move_user, user, unit, idempotent=True)
        except asyncpg.ForeignKeyViolationError:
            raise NotFound(f"there is no business unit {unit}") from None
        if not moved:
            raise NotFound(f"there is no user {user}")

    async def disable(self, user: UUID, *, disabled: bool = True) -> None:
        """Keep a user out, whatever keys or tokens it has, or let it in again.

        Its jobs stay, but make no data operation while it is disabled.
        """
        if user == SYSTEM:
            raise Conflict(
                "the user SYSTEM does what nobody asked for, and cannot be disabled; disable the"
                " users whose keys are misused"
            )
        if not await self.database.write(SQL.set_disabled, user, disabled, idempotent=True):
            raise NotFound(f"there is no user {user}")

    async def _add(self, statement: str, name: str, *values: object) -> UUID:
        if not 1 <= len(name) <= NAME_LENGTH_MAX or "\0" in name:
            raise InvalidValue(f"a name has 1 to {NAME_LENGTH_MAX} characters, not {name[:100]!r}")
        made: UUID = await self.database.fetchval(SQL.new_id)
        try:
            await self.database.write(statement, made, name, *values, idempotent=True)
        except asyncpg.UniqueViolationError:
            raise Conflict(f"there is one named {name!r} already; choose another name") from None
        except asyncpg.ForeignKeyViolationError:
            raise NotFound(f"there is no business unit {values[0]}") from None
        return made
