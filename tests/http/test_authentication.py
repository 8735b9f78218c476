"""Who is let in: bearer keys and signatures, over the wire and through the cache."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from relevo.http.access.roles import ROLES
from relevo.http.operations import OPERATIONS
from relevo.testing.clock import Clock

if TYPE_CHECKING:
    from relevo.kernel.operation import Operation
    from tests.http.conftest import Site

pytestmark = pytest.mark.anyio


def path_of(operation: Operation) -> str:
    path = operation.path
    for name in operation.parameters:
        path = path.replace(f"{{{name}}}", "none")
    return path


@pytest.mark.parametrize("role", [None, *ROLES])
async def test_every_operation_lets_in_whom_the_table_names(site: Site, role: str | None) -> None:
    """Promise 17: operation x role over HTTP; a role is let in or gets 403, a stranger 401."""
    from relevo.http.access.roles import permissions_of
    from relevo.kernel.operation import PUBLIC

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
