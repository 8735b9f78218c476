"""Users, teams, business units, and the keys that belong to users."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from relevo.dataverse.users.model import (
    OF_ROLES,
    ORGANIZATION,
    RIGHTS,
    right_of,
    rights_of,
    wider,
)
from relevo.errors import Conflict, Forbidden, InvalidValue, NotFound, ReferenceNotFound
from relevo.http.access import roles
from relevo.http.access.key_model import NewKey
from relevo.http.access.keys import Keys
from relevo.jobs.model import SYSTEM
from relevo.kernel.sealing import MasterKey

if TYPE_CHECKING:
    from relevo import App

pytestmark = pytest.mark.anyio


async def test_a_user_is_in_its_unit_and_teams(app: App) -> None:
    north = await app.users.create_unit("north")
    ana = await app.users.create_user("Ana", unit=north, language="es", zone="Europe/Madrid")
    crew = await app.users.create_team("crew", unit=north, members=[ana])
    await app.users.join(crew, ana)
    user = await app.users.get(ana)
    assert (user.name, user.unit, user.teams) == ("Ana", north, (crew,))
    assert (user.language, user.zone) == ("es", "Europe/Madrid")
    await app.users.leave(crew, ana)
    await app.users.move(ana, ORGANIZATION)
    user = await app.users.get(ana)
    assert (user.unit, user.teams) == (ORGANIZATION, ())


async def test_what_does_not_exist_is_refused_by_name(app: App) -> None:
    strange = uuid4()
    with pytest.raises(NotFound, match=str(strange)):
        await app.users.get(strange)
    with pytest.raises(NotFound, match="no business unit"):
        await app.users.create_user("Ana", unit=strange)
    with pytest.raises(NotFound, match="no team"):
        await app.users.join(strange, SYSTEM)
    with pytest.raises(NotFound, match="no business unit"):
        await app.users.move(SYSTEM, strange)
    with pytest.raises(NotFound, match="no user"):
        await app.users.move(strange, ORGANIZATION)
    with pytest.raises(NotFound, match="no user"):
        await app.users.disable(strange)
    with pytest.raises(InvalidValue, match="1 to 256"):
        await app.users.create_unit("")
    await app.users.create_unit("north")
    with pytest.raises(Conflict, match="'north' is already taken"):
        await app.users.create_unit("north")


async def test_a_disabled_user_is_not_admitted(app: App) -> None:
    ana = await app.users.create_user("Ana")
    await app.users.disable(ana)
    with pytest.raises(Forbidden, match="'Ana' is disabled"):
        await app.users.admitted(ana)
    await app.users.disable(ana, disabled=False)
    assert (await app.users.admitted(ana)).id == ana


async def test_who_is_known_elsewhere_is_always_the_same_user(app: App) -> None:
    first = await app.users.known_as("oidc:ana", "Ana")
    assert await app.users.known_as("oidc:ana", "Ana María") == first
    assert await app.users.known_as("oidc:ben", "Ben") != first


async def test_a_key_belongs_to_a_user_of_its_own_or_to_a_given_one(app: App) -> None:
    keys = Keys(app.database, MasterKey(b"k" * 32))
    try:
        one = await keys.create(NewKey(name="one", roles=("reader",)))
        assert (await app.users.get(one.key.user_id)).name == "one"
        other = await keys.create(NewKey(name="other", roles=("reader",), user_id=one.key.user_id))
        assert other.key.user_id == one.key.user_id
        with pytest.raises(ReferenceNotFound, match="there is no user"):
            await keys.create(NewKey(name="x", roles=("reader",), user_id=uuid4()))
    finally:
        await keys.close()


def test_single_rights_are_roles_with_a_reach() -> None:
    assert right_of("job.payload.read:unit") == ("job.payload.read", "unit")
    assert right_of("job.read:mine") is None
    assert roles.is_role("job.read:own")
    assert not roles.is_role("job.read")
    assert roles.permissions_of(("job.read:own", "bulk.run:all")) == {"jobs:read", "bulk:run"}
    assert roles.reach_of(("job.read:own", "job.read:unit")) == {"jobs:read": "unit"}
    assert roles.reach_of(("admin", "job.read:own")) == {"jobs:read": "all"}
    assert wider("all", "own") == "all"


def test_the_roles_have_the_rights_that_the_specification_gives_them() -> None:
    every = {"jobs:read", "jobs:write", "jobs:delete", "jobs:payload", "jobs:submit"}
    assert every | {"pipeline:bypass", "bulk:run"} <= roles.granted("admin")
    assert roles.granted("reader") & every == {"jobs:read"}


@pytest.mark.parametrize("role", roles.ROLES)
def test_a_role_gives_a_user_the_rights_that_its_keys_use_over_http(role: str) -> None:
    of_right = {right: roles.permissions_of((f"{right}:all",)) for right in RIGHTS}
    by_key = {right for right, permission in of_right.items() if permission <= roles.granted(role)}
    assert rights_of([role]) == dict.fromkeys(OF_ROLES.get(role, ()), "all")
    assert set(rights_of([role])) == by_key


async def test_users_teams_and_units_are_listed_in_the_order_of_their_keys(app: App) -> None:
    units = sorted([await app.users.create_unit(name) for name in "ba"])  # within a millisecond
    users = sorted([await app.users.create_user(name, unit=units[0]) for name in "yxz"])
    team = await app.users.create_team("crew", members=users[1:])
    assert [one.id for one in await app.users.units(None, 10)] == [ORGANIZATION, *units]
    assert [one.id for one in await app.users.units(ORGANIZATION, 1)] == units[:1]
    listed = await app.users.list(None, 10)
    assert [one.id for one in listed] == [SYSTEM, *users]
    assert [one.id for one in await app.users.list(users[0], 10)] == users[1:]
    assert [one.id for one in await app.users.list(None, 10, team=team)] == users[1:]
    assert [
        one.id for one in await app.users.list(None, 10, unit=units[0], name=listed[2].name)
    ] == [users[1]]
    (crew,) = await app.users.teams(None, 10)
    assert crew == await app.users.team(team)
    assert (crew.members, crew.unit_name) == (2, "organization")
    seen = await app.users.view(users[1])
    assert (seen.teams, seen.rights) == ({"crew": team}, {})
    assert seen.unit_name == (await app.users.unit(units[0])).name


async def test_system_is_never_disabled(app: App) -> None:
    with pytest.raises(Conflict, match="SYSTEM"):
        await app.users.disable(SYSTEM)
    assert not (await app.users.get(SYSTEM)).disabled


async def test_a_time_zone_is_one_that_there_is(app: App) -> None:
    for zone in ("Mars/Base", "", "../etc/passwd", "x" * 300):
        with pytest.raises(InvalidValue, match="no time zone"):
            await app.users.create_user("Ana", zone=zone)


def test_nobody_gives_rights_that_reach_further_than_their_own() -> None:
    mine, reach = frozenset({"jobs:read"}), roles.reach_of(("job.read:unit",))
    assert roles.covers(mine, reach, "jobs:read", ("job.read:own",))
    assert not roles.covers(mine, reach, "jobs:read", ("job.read:all",))
    assert not roles.covers(mine, reach, "jobs:read", ("reader",))
    assert not roles.covers(mine, reach, "jobs:write", ("job.write:own",))
