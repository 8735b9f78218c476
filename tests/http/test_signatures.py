"""Signed requests over the wire."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from relevo import limits
from relevo.errors import Unauthenticated
from relevo.http.access.replays import Replays
from relevo.http.access.roles import ROLES
from relevo.testing.clock import Clock
from tests.http.signer import SIGNING, Signer, signed

if TYPE_CHECKING:
    from tests.http.conftest import Opens, Site

pytestmark = pytest.mark.anyio


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


async def test_a_signed_request_is_taken_once(signer: Signer) -> None:
    keys, clock = signer.site.services.keys, Clock(signer.site.services.app.database)
    now = datetime.now(UTC)
    body = b'{"name": "n", "roles": ["viewer"]}'
    # The date has no fraction of a second: two honest requests may look the same.
    for _ in range(2):
        assert (await signer.ask("POST", "/v1/keys", body, now=now)).status == 201
    await clock.advance(5)
    keys.ring.forget()
    reply = await signer.ask("POST", "/v1/keys", body, now=now)
    assert (reply.status, reply.json["code"]) == (401, "unauthenticated")
    assert "sign each request anew" in reply.json["detail"]
    for _ in range(2):  # to read again changes nothing
        assert (await signer.ask("GET", "/v1/keys", now=now)).status == 200
    later = now + timedelta(seconds=5)
    assert (await signer.ask("POST", "/v1/keys", body, now=later)).status == 201
    names = [key.name for key in await keys.list(None, 100)]
    assert names.count("n") == 3


async def test_a_request_whose_body_was_not_the_signed_one_has_not_been_here(
    signer: Signer,
) -> None:
    now = datetime.now(UTC)
    body = b'{"name": "n", "roles": ["viewer"]}'
    assert (await signer.ask("POST", "/v1/keys", body, now=now, sent=b"{}")).status == 401
    await Clock(signer.site.services.app.database).advance(5)
    signer.site.services.keys.ring.forget()
    assert (await signer.ask("POST", "/v1/keys", body, now=now)).status == 201


def test_what_is_forgotten_too_early_is_refused_and_what_has_expired_takes_no_room() -> None:
    start = datetime(2031, 5, 30, tzinfo=UTC)
    replays = Replays(skew_seconds=60.0, most=10)

    def after(seconds: float) -> datetime:
        return start + timedelta(seconds=seconds)

    for second in range(12):
        replays.check(b"%d" % second, after(second), after(second))
    for second in (0, 1):
        with pytest.raises(Unauthenticated, match="no longer knows"):
            replays.check(b"new", after(second), after(12))
    for second in range(2, 10):
        with pytest.raises(Unauthenticated, match="already"):
            replays.check(b"%d" % second, after(second), after(12))
    for second in range(200, 210):  # nothing that is still valid has to go for these
        replays.check(b"%d" % second, after(second), after(second))
    with pytest.raises(Unauthenticated, match="already"):
        replays.check(b"200", after(200), after(210))
