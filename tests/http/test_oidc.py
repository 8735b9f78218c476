"""Tokens of an OpenID Connect issuer: who they stand for, and which of them are refused."""

from __future__ import annotations

import base64
import hmac
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, RSAKey

from relevo import limits
from relevo.errors import SettingsError
from relevo.http.access.keyring import KeyRing
from relevo.http.access.oidc import Issuer
from relevo.kernel.sealing import MasterKey
from tests.kernel.outbound.outside import Outside, Status, outside

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from relevo.kernel.postgres.database import Database
    from tests.http.conftest import Opens, Site

pytestmark = pytest.mark.anyio
QUEUES = "/routing/queues?api-version=2023-11-01"
WORKER = "/routing/workers/ana?api-version=2023-11-01"
DISABLE = "update relevo.system_user set disabled = $1 where identity = 'oidc:ana'"
DISCOVERY = "/.well-known/openid-configuration"


class Office:
    """An issuer with a key, and what it says about itself."""

    def __init__(self, host: Outside) -> None:
        self.host = host
        self.url = host.url("")
        self.change_key("one")
        host.answers(DISCOVERY, {"issuer": self.url, "jwks_uri": host.url("/keys")})

    def change_key(self, kid: str) -> None:
        self.key: Any = RSAKey.generate_key(2048, {"kid": kid})
        self.host.answers("/keys", {"keys": [self.key.as_dict(private=False)]})

    def token(self, *roles: str, key: Any = None, alg: str = "RS256", **claims: Any) -> str:
        key = key or self.key
        told = {
            "iss": self.url, "aud": "relevo", "sub": "u1", "exp": int(time.time()) + 300,
            "roles": list(roles), **claims,
        }  # fmt: skip
        kept = {name: value for name, value in told.items() if value is not None}
        header = {"alg": alg, "kid": key.kid or "none"}
        return jwt.encode(header, kept, key, algorithms=[alg])


def forged(token: str, alg: str, secret: bytes) -> str:
    """The same claims, signed with what everybody knows."""
    header = base64.urlsafe_b64encode(msgspec.json.encode({"alg": alg, "kid": "one"})).rstrip(b"=")
    signed = header + b"." + token.split(".")[1].encode()
    digest = hmac.digest(secret, signed, "sha256") if secret else b""
    return (signed + b"." + base64.urlsafe_b64encode(digest).rstrip(b"=")).decode()


@asynccontextmanager
async def opened(open_site: Opens, **settings: Any) -> AsyncIterator[tuple[Site, Office]]:
    async with outside() as host:
        office = Office(host)
        told = {"oidc_issuer": office.url, "outbound_allow": ("127.0.0.1",), **settings}
        async with open_site(**told) as site:
            yield site, office


async def test_a_token_brings_the_roles_that_it_names(open_site: Opens) -> None:
    async with opened(open_site) as (site, office):
        assert (await site.ask("GET", QUEUES, key=office.token("reader"))).status == 200
        policy = "/routing/distributionPolicies/d?api-version=2023-11-01"
        assert (await site.ask("PATCH", policy, key=office.token("reader"), json={})).status == 403
        assert (await site.ask("PATCH", policy, key=office.token("admin"), json={})).status == 201
        assert (await site.ask("GET", QUEUES, key=office.token("unheard-of"))).status == 403
        assert office.host.paths() == [DISCOVERY, "/keys"]


async def test_keys_go_on_beside_tokens(open_site: Opens) -> None:
    async with opened(open_site) as (site, _):
        assert (await site.ask("GET", QUEUES, key="reader")).status == 200


async def test_a_token_of_one_worker_reaches_only_that_one(open_site: Opens) -> None:  # J22
    async with opened(open_site) as (site, office):
        made = await site.ask("PATCH", WORKER, key=office.token("admin"), json={"capacity": 1})
        assert made.status == 201
        assert (await site.ask("GET", WORKER, key=office.token("worker:ana"))).status == 200
        assert (await site.ask("GET", WORKER, key=office.token("worker:bob"))).status == 403


async def test_roles_may_lie_deeper(open_site: Opens) -> None:
    async with opened(open_site, oidc_roles_claim="realm_access.roles") as (site, office):
        token = office.token(realm_access={"roles": ["reader"]}, roles=None)
        assert (await site.ask("GET", QUEUES, key=token)).status == 200


@pytest.mark.parametrize(
    "claims",
    [
        {"exp": 1},
        {"exp": None},
        {"aud": "somebody else"},
        {"aud": None},
        {"iss": "https://elsewhere.example"},
        {"sub": None},
        {"nbf": int(time.time()) + 10_000},
    ],
)
async def test_a_token_for_others_or_another_time_is_refused(
    open_site: Opens, claims: dict[str, Any]
) -> None:
    async with opened(open_site) as (site, office):
        reply = await site.ask("GET", QUEUES, key=office.token("admin", **claims))
        assert (reply.status, reply.json["error"]["code"]) == (401, "Denied")


async def test_a_token_that_the_issuer_did_not_sign_is_refused(open_site: Opens) -> None:
    async with opened(open_site) as (site, office):
        own = RSAKey.generate_key(2048, {"kid": "one"})
        curve = ECKey.generate_key("P-256", {"kid": "one"})
        valid = office.token("admin")
        for token in (
            office.token("admin", key=own),
            office.token("admin", key=curve, alg="ES256"),
            forged(valid, "HS256", office.key.as_pem(private=False)),
            forged(valid, "none", b""),
            valid[:-4] + "AAAA",
            valid.rsplit(".", 1)[0] + ".",
            "a.b.c",
        ):
            assert (await site.ask("GET", QUEUES, key=token)).status == 401


async def test_a_changed_key_is_found_and_strangers_make_nobody_ask_again(
    open_site: Opens, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(open_site) as (site, office):
        assert (await site.ask("GET", QUEUES, key=office.token("reader"))).status == 200
        office.change_key("two")
        assert (await site.ask("GET", QUEUES, key=office.token("reader"))).status == 401
        assert len(office.host.asked) == 2
        monkeypatch.setattr("relevo.http.access.oidc.REFETCH_SECONDS", -1.0)
        assert (await site.ask("GET", QUEUES, key=office.token("reader"))).status == 200
        assert len(office.host.asked) == 4


async def test_an_issuer_that_does_not_answer_is_not_the_callers_fault(open_site: Opens) -> None:
    async with opened(open_site) as (site, office):
        office.host.answers(DISCOVERY, Status(500))
        reply = await site.ask("GET", QUEUES, key=office.token("reader"))
        assert (reply.status, reply.json["error"]["code"]) == (503, "ServiceUnavailable")


async def test_tokens_of_a_disabled_user_open_nothing(open_site: Opens) -> None:
    wanted: dict[str, Any] = {"name": "another", "roles": ["admin"]}
    async with opened(open_site) as (site, office):
        token = office.token("admin", name="Ana")
        assert (await site.ask("GET", "/v1/keys", key=token)).status == 200
        (ana,) = (await site.ask("GET", "/v1/users?name=Ana", key=token)).json["items"]
        path = f"/v1/users/{ana['id']}"
        assert (await site.ask("POST", f"{path}:disable", key="admin", json={})).status == 200
        for target in ("/v1/keys", f"{path}:enable"):  # neither a new key nor the old one
            reply = await site.ask("POST", target, key=token, json=wanted)
            assert reply.status == 403, target
            assert "'Ana' is disabled" in reply.json["detail"]
        assert (await site.ask("GET", QUEUES, key=token)).status == 403
        other = office.token("admin", sub="u2")
        assert (await site.ask("GET", QUEUES, key=other)).status == 200
        assert (await site.ask("POST", f"{path}:enable", key="admin", json={})).status == 200
        assert (await site.ask("POST", "/v1/keys", key=token, json=wanted)).status == 201


class Steady:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


async def test_who_is_disabled_elsewhere_is_kept_out_when_memory_has_aged(
    database: Database,
) -> None:
    clock = Steady()
    ring = KeyRing(database, MasterKey(b"m" * 32), clock=clock)
    await database.write(
        "insert into relevo.system_user (name, identity) values ('Ana', 'oidc:ana')"
    )
    assert not await ring.is_disabled("oidc:ana")
    assert not await ring.is_disabled("oidc:stranger")
    await database.write(DISABLE, True)
    clock.now += limits.KEY_CACHE_SECONDS - 0.1
    assert not await ring.is_disabled("oidc:ana")
    clock.now += 0.2
    assert await ring.is_disabled("oidc:ana")
    assert set(ring._identities) == {"oidc:ana"}  # what has aged takes no room
    await database.write(DISABLE, False)
    assert await ring.is_disabled("oidc:ana")
    ring.forget()
    clock.now += 0.1
    assert not await ring.is_disabled("oidc:ana")
    await ring.close()


def test_without_the_library_the_setting_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "joserfc", None)
    with pytest.raises(SettingsError, match="relevo\\[oidc\\]"):
        Issuer(None, "https://login.example", "relevo", "roles")  # type: ignore[arg-type]
