"""Who is let in: bearer keys and signatures, over the wire and through the cache."""

from __future__ import annotations

import asyncio
import base64
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from relevo import limits
from relevo.api.keyring import LAST_USE_SECONDS, KeyRing
from relevo.api.keys import Keys, NewKey
from relevo.api.operations import OPERATIONS
from relevo.api.roles import ROLES
from relevo.api.sealing import MasterKey
from relevo.testing.clock import Clock
from tests.api.signer import signed

if TYPE_CHECKING:
    from relevo.api.contract import Operation
    from relevo.postgres.database import Database
    from tests.api.conftest import Opens, Site

pytestmark = pytest.mark.anyio

SIGNING = NewKey(name="s", kind="signing", roles=("admin",))


def path_of(operation: Operation) -> str:
    path = operation.path
    for name in operation.parameters:
        path = path.replace(f"{{{name}}}", "none")
    return path


@pytest.mark.parametrize("role", [None, *ROLES])
async def test_every_operation_lets_in_whom_the_table_names(site: Site, role: str | None) -> None:
    """Promise 17: operation x role over HTTP; a role is let in or gets 403, a stranger 401."""
    from relevo.api.contract import PUBLIC
    from relevo.api.roles import permissions_of

    allowed = permissions_of((role,)) if role else frozenset()
    for operation in OPERATIONS:
        reply = await site.ask(operation.method, path_of(operation), key=role)
        if operation.permission == PUBLIC or operation.permission in allowed:
            assert reply.status not in (401, 403), operation.name
        else:
            assert reply.status == (403 if role else 401), operation.name


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Bearer wrong",
        "Basic dXNlcjpwYXNz",
        "HMAC-SHA256",
        "HMAC-SHA256 nonsense",
        "Bearer \xff",
    ],
)
async def test_wrong_or_missing_credentials_are_refused(
    site: Site, authorization: str | None
) -> None:
    headers = {} if authorization is None else {"Authorization": authorization}
    reply = await site.ask("GET", "/v1/hosts", headers=headers)
    assert (reply.status, reply.json["code"]) == (401, "unauthenticated")


async def test_two_credentials_are_refused(site: Site) -> None:
    secret = site.secrets["admin"].encode()
    answer = await site.raw(
        b"GET /v1/hosts HTTP/1.1\r\nHost: h\r\nConnection: close\r\n"
        + b"Authorization: Bearer %s\r\n" % secret * 2
        + b"\r\n"
    )
    assert answer.startswith(b"HTTP/1.1 401 ")


async def test_a_revoked_key_is_refused_at_once_where_it_was_revoked(site: Site) -> None:
    made = await site.ask("POST", "/v1/keys", key="admin", json={"name": "n", "roles": ["viewer"]})
    assert made.status == 201
    secret, key_id = made.json["secret"], made.json["key"]["id"]
    assert (await site.ask("GET", "/v1/hosts", key=secret)).status == 200
    assert (await site.ask("DELETE", f"/v1/keys/{key_id}", key="admin")).status == 200
    assert (await site.ask("GET", "/v1/hosts", key=secret)).status == 401


async def test_an_expired_key_is_refused(site: Site) -> None:
    clock = Clock(site.services.app.database)
    expires_at = await clock.now() + timedelta(hours=1)
    body = {"name": "n", "roles": ["viewer"], "expires_at": expires_at.isoformat()}
    made = await site.ask("POST", "/v1/keys", key="admin", json=body)
    secret = made.json["secret"]
    assert (await site.ask("GET", "/v1/hosts", key=secret)).status == 200
    await clock.advance(3_601)
    site.services.keys.ring.forget()
    assert (await site.ask("GET", "/v1/hosts", key=secret)).status == 401


async def test_a_key_gives_no_more_than_its_maker_has(site: Site) -> None:
    body = {"name": "n", "roles": ["viewer", "amdin"]}
    reply = await site.ask("POST", "/v1/keys", key="admin", json=body)
    assert (reply.status, reply.json["pointer"]) == (400, "/roles/1")
    assert "admin" in reply.json["detail"]
    reply = await site.ask(
        "POST", "/v1/keys", key="operator", json={"name": "n", "roles": ["admin"]}
    )
    assert reply.status == 403


async def test_a_key_with_scopes_reaches_nothing_that_is_not_scoped(site: Site) -> None:
    body = {"name": "n", "roles": ["admin"], "scopes": ["queue:mail-*"]}
    made = await site.ask("POST", "/v1/keys", key="admin", json=body)
    assert made.json["key"]["scopes"] == ["queue:mail-*"]
    reply = await site.ask("GET", "/v1/hosts", key=made.json["secret"])
    assert (reply.status, reply.json["code"]) == (403, "forbidden")


@pytest.mark.parametrize("scope", ["queue", "*", ":x", "queue:", "Queue:x", "queue:a\nb"])
async def test_a_malformed_scope_is_refused(site: Site, scope: str) -> None:
    body = {"name": "n", "roles": ["admin"], "scopes": [scope]}
    reply = await site.ask("POST", "/v1/keys", key="admin", json=body)
    assert (reply.status, reply.json["pointer"]) == (400, "/scopes/0")


class Signer:
    """A client with a signing key."""

    def __init__(self, site: Site, secret: str) -> None:
        self.site = site
        self.secret = secret
        self.host = f"{site.address.host}:{site.address.port}"

    async def ask(self, method: str, target: str, body: bytes = b"", **changes: Any) -> Any:
        sent = changes.pop("sent", None)
        as_host = changes.pop("as_host", self.host)
        headers = signed(self.secret, method, target, as_host, body=body, **changes)
        if body:
            headers["Content-Type"] = "application/json"
        data = body if sent is None else sent
        return await self.site.ask(method, target, headers=headers, data=data or None)


@pytest.fixture
async def signer(site: Site) -> Signer:
    return Signer(site, (await site.services.keys.create(SIGNING)).secret)


@pytest.mark.parametrize(
    "target",
    [
        "/v1/keys",
        "/v1/keys?limit=1",
        "/v1/keys/8%3Aacs%3Ax",
        "/v1/keys/8:acs:x",
        "/v1/keys/a%2Fb",
    ],
)
async def test_a_signature_over_the_raw_target_is_accepted(signer: Signer, target: str) -> None:
    assert (await signer.ask("GET", target)).status in (200, 404)


async def test_an_empty_query_is_part_of_the_target(signer: Signer) -> None:
    headers = signed(signer.secret, "GET", "/v1/keys?", signer.host) | {"Host": signer.host}
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items()).encode()
    for target, status in ((b"/v1/keys?", b"200"), (b"/v1/keys", b"401")):
        head = b"GET " + target + b" HTTP/1.1\r\nConnection: close\r\n" + lines + b"\r\n"
        assert (await signer.site.raw(head)).startswith(b"HTTP/1.1 " + status)


async def test_a_signed_body_is_accepted_and_another_refused(signer: Signer) -> None:
    body = b'{"name": "n", "roles": ["viewer"]}'
    assert (await signer.ask("POST", "/v1/keys", body)).status == 201
    other = body.replace(b"viewer", b"admin ")
    for sent in (other, body + b" "):
        reply = await signer.ask("POST", "/v1/keys", body, sent=sent)
        assert (reply.status, reply.json["code"]) == (401, "unauthenticated")
    reply = await signer.ask("POST", "/v1/keys", b"", sent=body)
    assert reply.status in (401, 415)
    assert len(await signer.site.services.keys.list(None, 100)) == len(ROLES) + 2


@pytest.mark.parametrize("seconds", [-1_000, 1_000])
async def test_a_stale_date_is_refused(signer: Signer, seconds: int) -> None:
    now = datetime.now(UTC) + timedelta(seconds=seconds)
    reply = await signer.ask("GET", "/v1/keys", now=now)
    assert reply.status == 401
    assert "away from the server's time" in reply.json["detail"]


async def test_the_date_is_held_against_the_clock_of_the_store(signer: Signer) -> None:
    """D3: what counts is neither this host's clock nor the client's."""
    await Clock(signer.site.services.app.database).advance(7_200)
    signer.site.services.keys.ring.forget()
    assert (await signer.ask("GET", "/v1/keys")).status == 401
    later = datetime.now(UTC) + timedelta(seconds=7_200)
    assert (await signer.ask("GET", "/v1/keys", now=later)).status == 200


async def test_another_host_may_be_signed_only_if_it_is_configured(open_site: Opens) -> None:
    async with open_site(public_hosts=("relevo.example",)) as site:
        signer = Signer(site, (await site.services.keys.create(SIGNING)).secret)
        for host, status in (
            ("relevo.example", 200),
            ("relevo.example/", 200),
            (signer.host + "/", 200),
            ("other.example", 401),
        ):
            assert (await signer.ask("GET", "/v1/keys", as_host=host)).status == status


async def test_the_allowed_skew_is_a_setting(open_site: Opens) -> None:
    async with open_site(signature_skew=60.0) as site:
        signer = Signer(site, (await site.services.keys.create(SIGNING)).secret)
        now = datetime.now(UTC) - timedelta(seconds=120)
        assert (await signer.ask("GET", "/v1/keys", now=now)).status == 401


async def test_every_signing_key_signs_until_it_is_revoked(site: Site) -> None:
    keys = site.services.keys
    made = [await keys.create(SIGNING) for _ in range(limits.SIGNING_KEYS_MAX)]
    for each in made:
        assert (await Signer(site, each.secret).ask("GET", "/v1/keys")).status == 200
    await keys.revoke(made[3].key.id)
    assert (await Signer(site, made[3].secret).ask("GET", "/v1/keys")).status == 401
    assert (await Signer(site, made[4].secret).ask("GET", "/v1/keys")).status == 200


async def test_a_key_of_nobody_signs_nothing(site: Site) -> None:
    stranger = Signer(site, base64.b64encode(b"x" * 32).decode())
    assert (await stranger.ask("GET", "/v1/keys")).status == 401


async def test_the_text_of_a_signing_key_may_be_a_bearer_key(signer: Signer) -> None:
    assert (await signer.site.ask("GET", "/v1/keys", key=signer.secret)).status == 200


async def test_a_bearer_key_cannot_sign(site: Site) -> None:
    secret = base64.b64encode(site.secrets["admin"].encode()).decode()
    assert (await Signer(site, secret).ask("GET", "/v1/keys")).status == 401


async def test_a_key_in_use_costs_no_query(signer: Signer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "KEY_CACHE_SECONDS", 3_600.0)
    site = signer.site
    lookups = site.services.keys.ring._lookups
    await site.ask("GET", "/v1/hosts", key="viewer")
    await signer.ask("GET", "/v1/hosts")
    before = lookups.statements
    for _ in range(5):
        await site.ask("GET", "/v1/hosts", key="viewer")
        await signer.ask("GET", "/v1/hosts")
    assert lookups.statements == before


class Steady:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


MASTER = MasterKey(b"m" * 32)


async def test_a_key_that_expires_in_memory_is_refused_without_a_query(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "KEY_CACHE_SECONDS", 7_200.0)
    steady = Steady()
    keys, ring = Keys(database, MASTER), KeyRing(database, MASTER, clock=steady)
    expires_at = await Clock(database).now() + timedelta(hours=1)
    await keys.create(NewKey(name="b", roles=("viewer",), expires_at=expires_at))
    secret_hash = (await database.fetch("select secret_hash from relevo.access_key"))[0][0]
    assert await ring.by_hash(secret_hash) is not None
    steady.now += 3_600
    assert await ring.by_hash(secret_hash) is None
    assert ring._lookups.statements == 1
    await ring.close()
    await keys.close()


async def test_a_revocation_elsewhere_counts_when_memory_has_aged(database: Database) -> None:
    clock = Steady()
    here, there = KeyRing(database, MASTER, clock=clock), Keys(database, MASTER)
    await there.check_master_key()
    created = await there.create(SIGNING)
    (key,) = await here.signing_keys()
    assert await here.by_hash(key.secret_hash) is not None
    await there.revoke(created.key.id)
    clock.now += limits.KEY_CACHE_SECONDS - 0.1
    assert await here.by_hash(key.secret_hash) is not None
    assert len(await here.signing_keys()) == 1
    clock.now += 0.2
    assert await here.by_hash(key.secret_hash) is None
    assert await here.signing_keys() == ()
    await here.close()


async def test_a_key_made_elsewhere_counts_at_once(site: Site) -> None:
    await site.ask("GET", "/v1/hosts", key="viewer")
    assert len(await site.services.keys.ring.signing_keys()) == 0
    master = MasterKey.load(None, site.services.app.settings.home)
    elsewhere = Keys(site.services.app.database, master)
    created = await elsewhere.create(SIGNING)
    assert (await Signer(site, created.secret).ask("GET", "/v1/keys")).status == 200
    bearer = await elsewhere.create(NewKey(name="b", roles=("viewer",)))
    assert (await site.ask("GET", "/v1/hosts", key=bearer.secret)).status == 200


async def test_what_was_being_read_during_a_revocation_is_not_kept(database: Database) -> None:
    keys = Keys(database, MASTER)
    created = await keys.create(NewKey(name="b", roles=("viewer",)))
    ring = keys.ring
    rows = await database.fetch("select secret_hash from relevo.access_key")
    secret_hash = rows[0]["secret_hash"]

    original = database.fetch
    read, go_on = asyncio.Event(), asyncio.Event()

    async def slow(sql: str, *args: Any) -> Any:
        found = await original(sql, *args)
        read.set()
        await go_on.wait()
        return found

    database.fetch = slow  # type: ignore[method-assign]
    reading = asyncio.create_task(ring.by_hash(secret_hash))
    await read.wait()
    database.fetch = original  # type: ignore[method-assign]
    await keys.revoke(created.key.id)
    go_on.set()
    await reading
    assert await ring.by_hash(secret_hash) is None
    await keys.close()


async def test_strangers_that_knock_at_once_share_their_look_ups(database: Database) -> None:
    ring = KeyRing(database, MASTER)
    found = await asyncio.gather(*(ring.by_hash(bytes([n % 256, n // 256])) for n in range(1_000)))
    assert set(found) == {None}
    assert ring._lookups.statements <= 10
    assert ring._by_hash == {}
    await ring.close()


async def test_last_use_is_written_behind_the_requests_and_not_too_often(
    database: Database,
) -> None:
    steady, clock = Steady(), Clock(database)
    keys = Keys(database, MASTER)
    ring = KeyRing(database, MASTER, clock=steady)
    made = [await keys.create(NewKey(name="b", roles=("viewer",))) for _ in range(3)]
    rows = await database.fetch("select secret_hash from relevo.access_key order by created_at")

    async def use() -> list[datetime | None]:
        for row in rows:
            key = await ring.by_hash(row["secret_hash"])
            assert key is not None
            ring.note_use(key)
        await ring._last_use.close()
        return [(await keys.get(each.key.id)).last_used_at for each in made]

    first = await use()
    assert None not in first
    await clock.advance(LAST_USE_SECONDS / 2)
    steady.now += LAST_USE_SECONDS / 2
    assert await use() == first
    await clock.advance(LAST_USE_SECONDS)
    steady.now += LAST_USE_SECONDS
    assert all(now > then for now, then in zip(await use(), first, strict=True) if now and then)
    await ring.close()
    await keys.close()
