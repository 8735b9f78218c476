"""`app.users`: users, teams and business units."""

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
from relevo.kernel.recurrence.zones import code_of, zone_of

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
        """Return a page of users in the order of their creation, including disabled ones."""
        rows = await self.database.fetch(SQL.list_users, after, limit, unit, team, name, None)
        return [UserInfo(**dict(row)) for row in rows]

    async def teams(self, after: UUID | None, limit: int) -> Sequence[TeamInfo]:
        """Return a page of teams in the order of their creation."""
        rows = await self.database.fetch(SQL.list_teams, after, limit, None)
        return [TeamInfo(**dict(row)) for row in rows]

    async def team(self, team: UUID) -> TeamInfo:
        """Return a team; raises `NotFound`."""
        row = await self.database.fetchrow(SQL.list_teams, None, 1, team)
        if row is None:
            raise NotFound(f"there is no team {team}")
        return TeamInfo(**dict(row))

    async def units(self, after: UUID | None, limit: int) -> Sequence[UnitInfo]:
        """Return a page of business units in the order of their creation."""
        rows = await self.database.fetch(SQL.list_units, after, limit, None)
        return [UnitInfo(**dict(row)) for row in rows]

    async def unit(self, unit: UUID) -> UnitInfo:
        """Return a business unit; raises `NotFound`."""
        row = await self.database.fetchrow(SQL.list_units, None, 1, unit)
        if row is None:
            raise NotFound(f"there is no business unit {unit}")
        return UnitInfo(**dict(row))

    async def rights_of(self, user: UUID | None, tx: Transaction | None = None) -> dict[str, Reach]:
        """Return the current rights of a user: those of its keys, none if it is disabled.

        Code without a user, and the user SYSTEM, have all rights. The rights of OpenID Connect
        tokens belong to the token, so they are not included. With `tx`, the query uses that
        transaction instead of a second connection.
        """
        if user is None or user == SYSTEM:
            return dict.fromkeys(RIGHTS, "all")
        rows = await (self.database if tx is None else tx).fetch(SQL.roles_of_user, user)
        return rights_of(row["role"] for row in rows)

    async def admitted(self, user: UUID) -> User:
        """Return a user; raises `Forbidden` if it is disabled."""
        known = await self.get(user)
        if known.disabled:
            raise Forbidden(f"the user {known.name!r} is disabled; ask an administrator")
        return known

    async def known_as(self, identity: str, name: str) -> UUID:
        """Return the user of an external identity; creates it the first time."""
        user: UUID | None = await self.database.fetchval(SQL.user_by_identity, identity)
        if user is None:
            shown = name[:NAME_LENGTH_MAX]
            await self.database.write(SQL.add_identity, identity, shown, idempotent=True)
            user = await self.database.fetchval(SQL.user_by_identity, identity)
        assert user is not None, "users are never deleted"
        return user

    async def create_user(
        self, name: str, *, unit: UUID | None = None, language: str = "en", zone: str = "UTC"
    ) -> UUID:
        """Create a user; create its keys with `keys.create`."""
        zone_of(zone, "/zone")
        return await self._add(SQL.add_user, name, unit, language, zone, code_of(zone))

    async def create_team(
        self, name: str, *, unit: UUID | None = None, members: Iterable[UUID] = ()
    ) -> UUID:
        """Create a team; its members share the rows that it owns."""
        team = await self._add(SQL.add_team, name, unit)
        for member in members:
            await self.join(team, member)
        return team

    async def create_unit(self, name: str, *, parent: UUID | None = None) -> UUID:
        """Create a business unit."""
        return await self._add(SQL.add_unit, name, parent)

    async def join(self, team: UUID, member: UUID) -> None:
        """Add a user to a team; repeating it changes nothing."""
        try:
            await self.database.write(SQL.add_member, team, member, idempotent=True)
        except asyncpg.ForeignKeyViolationError:
            raise NotFound(f"there is no team {team}, or no user {member}") from None

    async def leave(self, team: UUID, member: UUID) -> None:
        """Remove a user from a team; repeating it changes nothing."""
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
        """Refuse all keys and tokens of a user, or accept them again.

        Its jobs stay, but make no data operations while it is disabled.
        """
        if user == SYSTEM:
            raise Conflict(
                "the user SYSTEM runs Relevo's own work and cannot be disabled; disable the"
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
            raise Conflict(f"the name {name!r} is already taken; choose another") from None
        except asyncpg.ForeignKeyViolationError:
            raise NotFound(f"there is no business unit {values[0]}") from None
        return made
