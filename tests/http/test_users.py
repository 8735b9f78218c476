"""Users, teams and business units over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from relevo.dataverse.http import users
from relevo.dataverse.users.model import ORGANIZATION
from relevo.http.access.key_model import NewKey
from relevo.http.access.roles import ROLES
from relevo.jobs.model import SYSTEM
from tests.http.table import code

if TYPE_CHECKING:
    from tests.http.conftest import Reply, Site

pytestmark = pytest.mark.anyio


async def ask(site: Site, method: str, path: str, key: str = "admin", **json: Any) -> Reply:
    return await site.ask(method, f"/v1/{path}", key=key, json=json if method == "POST" else None)


async def made(site: Site, noun: str, **told: Any) -> Any:
    reply = await ask(site, "POST", noun, **told)
    assert reply.status == 201, reply.body
    return reply.json


async def test_a_user_is_made_shown_moved_and_kept_out(site: Site) -> None:
    north = await made(site, "units", name="north")
    assert north == {**north, "name": "north", "parent": str(ORGANIZATION)}
    ana = await made(site, "users", name="Ana", language="es", zone="Europe/Madrid")
    assert ana == {
        **ana, "name": "Ana", "unit": str(ORGANIZATION), "unit_name": "organization",
        "language": "es", "zone": "Europe/Madrid", "disabled": False, "teams": {}, "rights": {},
    }  # fmt: skip
    path = f"users/{ana['id']}"
    moved = await ask(site, "POST", f"{path}:move", unit=north["id"])
    assert (moved.json["unit"], moved.json["unit_name"]) == (north["id"], "north")
    new = NewKey(name="k", roles=("job.read:unit",), user_id=ana["id"])
    await site.services.keys.create(new)
    assert (await ask(site, "GET", path)).json["rights"] == {"job.read": "unit"}
    kept_out = (await ask(site, "POST", f"{path}:disable")).json
    assert (kept_out["disabled"], kept_out["rights"]) == (True, {})
    assert (await ask(site, "POST", f"{path}:enable")).json["disabled"] is False


async def test_members_join_and_leave_a_team(site: Site) -> None:
    ana, ben = [await made(site, "users", name=name) for name in ("Ana", "Ben")]
    crew = await made(site, "teams", name="crew")
    assert (crew["members"], crew["unit"]) == (0, str(ORGANIZATION))
    path = f"teams/{crew['id']}"
    for one in (ana, ben, ana):
        joined = await ask(site, "POST", f"{path}:join", user=one["id"])
    assert joined.json["members"] == 2
    for _ in range(2):
        left = await ask(site, "POST", f"{path}:leave", user=ben["id"])
        assert left.json["members"] == 1
    listed = (await ask(site, "GET", f"users?team={crew['id']}")).json["items"]
    assert [one["name"] for one in listed] == ["Ana"]
    assert (await ask(site, "GET", f"users/{ana['id']}")).json["teams"] == {"crew": crew["id"]}
    assert (await ask(site, "GET", path)).json == left.json


@pytest.mark.parametrize("noun", ["users", "teams", "units"])
async def test_lists_come_in_pages_that_lose_nothing(site: Site, noun: str) -> None:
    names = [f"{noun} {n}" for n in range(5)]
    for name in names[:4]:
        await made(site, noun, name=name)
    found: list[str] = []
    cursor = ""
    while True:
        reply = await ask(site, "GET", f"{noun}?limit=2{cursor}")
        assert reply.status == 200, reply.body
        found += [one["name"] for one in reply.json["items"]]
        if reply.json["next"] is None:
            break
        if len(found) == 2:
            await made(site, noun, name=names[4])  # meanwhile: it shifts no other
        cursor = f"&cursor={reply.json['next']}"
    assert sorted(name for name in found if name in names) == names
    assert len(found) == len(set(found))
    strange = await ask(site, "GET", f"{noun}?cursor=eyJhIjoxfQ")
    assert (strange.status, code(strange)) == (400, "invalid_value")


async def test_users_are_found_by_unit_and_name(site: Site) -> None:
    north = await made(site, "units", name="north")
    for name, unit in (("Ana", north["id"]), ("Ana", None), ("Ben", north["id"])):
        await made(site, "users", name=name, **({} if unit is None else {"unit": unit}))
    for query, count in (
        (f"unit={north['id']}", 2), ("name=Ana", 2), (f"unit={north['id']}&name=Ana", 1),
        ("name=ana", 0), (f"team={uuid4()}", 0),
    ):  # fmt: skip
        assert len((await ask(site, "GET", f"users?{query}")).json["items"]) == count, query


@pytest.mark.parametrize(
    ("path", "told", "status", "text"),
    [
        ("users/{none}:move", {"unit": str(ORGANIZATION)}, 404, "no user"),
        ("users/{none}:disable", {}, 404, "no user"),
        (f"users/{SYSTEM}:move", {"unit": "{none}"}, 404, "no business unit"),
        (f"users/{SYSTEM}:disable", {}, 409, "cannot be disabled"),
        ("users", {"name": "Ana", "unit": "{none}"}, 404, "no business unit"),
        ("users", {"name": "Ana", "zone": "Mars/Base"}, 400, "no time zone"),
        ("users", {"name": ""}, 400, "name"),
        ("users", {"name": "a\nb"}, 400, "name"),
        ("users", {"nom": "Ana"}, 400, "nom"),
        ("teams", {"name": "x", "unit": "{none}"}, 404, "no business unit"),
        ("teams/{none}:join", {"user": str(SYSTEM)}, 404, "no team"),
        ("teams/{none}:leave", {"user": str(SYSTEM)}, 404, "no team"),
        ("units", {"name": "x", "parent": "{none}"}, 404, "no business unit"),
        ("units", {"name": "organization"}, 409, "'organization' is already"),
    ],
)
async def test_what_cannot_be_done_is_refused_by_name(
    site: Site, path: str, told: dict[str, str], status: int, text: str
) -> None:
    none = str(uuid4())
    told = {name: value.replace("{none}", none) for name, value in told.items()}
    reply = await ask(site, "POST", path.replace("{none}", none), **told)
    assert reply.status == status, reply.body
    assert text in reply.body.decode()


@pytest.mark.parametrize("noun", ["users", "teams", "units"])
async def test_what_does_not_exist_is_not_found(site: Site, noun: str) -> None:
    assert (await ask(site, "GET", f"{noun}/{uuid4()}")).status == 404
    assert (await ask(site, "GET", f"{noun}/x")).status in (400, 404)


async def test_only_admins_come_near(site: Site) -> None:
    """Who decides who comes in could let anybody in, also itself."""
    for operation in users.operation:
        path = operation.path.replace("{id}", str(SYSTEM)).removeprefix("/v1/")
        for role in ROLES:
            if role != "admin":
                reply = await ask(site, operation.method, path, key=role)
                assert reply.status == 403, (operation.name, role)


async def test_a_disabled_admin_cannot_let_itself_in_again(site: Site) -> None:
    key = await site.services.keys.create(NewKey(name="k", roles=("admin",)))
    path = f"users/{key.key.user_id}"
    assert (await ask(site, "GET", path, key=key.secret)).status == 200
    await ask(site, "POST", f"{path}:disable")
    for method, verb in (("POST", ":enable"), ("GET", "")):
        reply = await ask(site, method, f"{path}{verb}", key=key.secret)
        assert (reply.status, code(reply)) == (403, "forbidden")
    assert (await site.services.app.users.get(key.key.user_id)).disabled


async def test_keys_of_a_disabled_user_open_nothing(site: Site) -> None:
    key = await site.services.keys.create(NewKey(name="k", roles=("admin",)))
    wanted: dict[str, Any] = {"name": "another", "roles": ["admin"]}
    await ask(site, "POST", f"users/{key.key.user_id}:disable")
    reply = await ask(site, "POST", "keys", key=key.secret, **wanted)
    assert (reply.status, code(reply)) == (403, "forbidden")
    assert "disabled" in reply.json["detail"]
    await ask(site, "POST", f"users/{key.key.user_id}:enable")
    assert (await ask(site, "POST", "keys", key=key.secret, **wanted)).status == 201
