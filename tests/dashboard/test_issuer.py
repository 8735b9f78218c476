"""Signing in at an OpenID Connect issuer: authorisation code with PKCE."""

from __future__ import annotations

import base64
import hashlib
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

import pytest
from aiohttp import web

from relevo import App, settings
from relevo.dashboard.application import ApiAndDashboard, Dashboard
from relevo.http.application import HttpApi
from relevo.http.server import serving
from relevo.http.services import open_services
from tests.dashboard.conftest import Browser
from tests.http.test_oidc import DISCOVERY, Office
from tests.kernel.outbound.outside import Outside, outside

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from relevo.testing.databases import TestDatabases

pytestmark = pytest.mark.anyio


class Provider(Office):
    """An issuer that lets everybody in, and gives a token for each code once."""

    def __init__(self, host: Outside) -> None:
        super().__init__(host)
        host.answers(
            DISCOVERY,
            {
                "issuer": self.url, "jwks_uri": host.url("/keys"),
                "authorization_endpoint": host.url("/authorize"),
                "token_endpoint": host.url("/token"),
            },
        )  # fmt: skip
        host.at("/token", self.give)
        self.codes: dict[str, dict[str, str]] = {}
        self.claims: dict[str, Any] = {}
        self.access_token = ""

    def let_in(self, address: str) -> str:
        """Return the query that the browser comes back with."""
        assert address.startswith(self.host.url("/authorize?"))
        asked = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
        assert (asked["response_type"], asked["code_challenge_method"]) == ("code", "S256")
        code = f"code-{len(self.codes)}"
        self.codes[code] = asked
        return urlencode({"code": code, "state": asked["state"]})

    async def give(self, request: web.Request) -> web.StreamResponse:
        form = dict(parse_qsl((await request.read()).decode()))
        asked = self.codes.pop(form["code"], None)
        if asked is None or form["redirect_uri"] != asked["redirect_uri"]:
            return web.Response(status=400)
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        if base64.urlsafe_b64encode(digest).rstrip(b"=").decode() != asked["code_challenge"]:
            return web.Response(status=400)
        if form.get("client_secret") != "hush":
            return web.Response(status=401)
        claims = {"aud": "console", "nonce": asked["nonce"], "name": "Ana"} | self.claims
        token = self.token("viewer", **claims)
        return web.json_response({"id_token": token, "access_token": self.access_token})


@asynccontextmanager
async def opened(
    databases: TestDatabases, home: Path, **more: Any
) -> AsyncIterator[tuple[Provider, str]]:
    url = databases.create()
    async with outside() as host:
        provider = Provider(host)
        told = settings.load(
            {
                "database_url": url, "home": home, "oidc_issuer": provider.url,
                "oidc_client_id": "console", "oidc_client_secret": "hush",
                "outbound_allow": ("127.0.0.1",), **more,
            },
            environ={},
        )  # fmt: skip
        async with App(settings=told) as app, open_services(app) as services:
            site = ApiAndDashboard(HttpApi(services), Dashboard(app, services=services))
            async with serving(site, "127.0.0.1", 0) as address:
                yield provider, address.url
    databases.drop(url)


@asynccontextmanager
async def browsing(base: str) -> AsyncIterator[Browser]:
    browser = Browser(base)
    try:
        yield browser
    finally:
        await browser.session.close()


async def go(browser: Browser, path: str) -> str:
    """Return where a link leads."""
    async with browser.session.get(browser.base + path, allow_redirects=False) as answer:
        assert answer.status == 303, await answer.text()
        return answer.headers["Location"]


async def test_people_sign_in_at_the_issuer(
    relevo_databases: TestDatabases, tmp_path: Path
) -> None:
    async with opened(relevo_databases, tmp_path) as (provider, base):
        async with browsing(base) as browser:
            page = await browser.get("/jobs?status=failed")
            assert "/sign-in/issuer?next=%2Fjobs%3Fstatus%3Dfailed" in page.text
            back = provider.let_in(
                await go(browser, "/sign-in/issuer?next=%2Fjobs%3Fstatus%3Dfailed")
            )
            signed_in = await browser.get(f"/sign-in/callback?{back}")
            assert signed_in.status == 200, signed_in.text
            assert 'content="0;url=/jobs?status=failed"' in signed_in.text
            cookies = signed_in.headers.getall("Set-Cookie")
            assert any("relevo_session" in each and "SameSite=Strict" in each for each in cookies)
            jobs = await browser.get("/jobs")
            assert jobs.status == 200
            assert "Ana" in jobs.text
            assert (await browser.get("/keys")).status == 403  # a viewer's token
            again = await browser.get(f"/sign-in/callback?{back}")
            assert again.status == 401  # a code counts once

        async with browsing(base) as browser:  # roles only in the token for the API
            provider.claims = {"roles": None}
            provider.access_token = provider.token("admin")
            back = provider.let_in(await go(browser, "/sign-in/issuer"))
            await browser.get(f"/sign-in/callback?{back}")
            assert (await browser.get("/keys")).status == 200


async def test_answers_that_are_not_for_this_sign_in_are_refused(
    relevo_databases: TestDatabases, tmp_path: Path
) -> None:
    async with (
        opened(relevo_databases, tmp_path) as (provider, base),
        browsing(base) as victim, browsing(base) as attacker,
    ):  # fmt: skip
        theirs = provider.let_in(await go(attacker, "/sign-in/issuer"))
        await go(victim, "/sign-in/issuer")
        forced = await victim.get(f"/sign-in/callback?{theirs}")
        assert (forced.status, "not begun in this browser" in forced.text) == (401, True)
        denied = await victim.get("/sign-in/callback?error=access_denied")
        assert "The issuer says: access_denied" in denied.text
        wrong: list[dict[str, Any]] = [
            {"nonce": "another"}, {"aud": "relevo"}, {"exp": 1}, {"roles": []},
        ]  # fmt: skip
        for claims in wrong:
            provider.claims = claims
            back = provider.let_in(await go(victim, "/sign-in/issuer"))
            refused = await victim.get(f"/sign-in/callback?{back}")
            assert refused.status == 401, claims
        assert "Access key" in (await victim.get("/jobs")).text


async def test_without_a_client_there_is_only_the_key(
    relevo_databases: TestDatabases, tmp_path: Path
) -> None:
    async with (
        opened(relevo_databases, tmp_path, oidc_client_id=None) as (_, base),
        browsing(base) as browser,
    ):
        assert "/sign-in/issuer" not in (await browser.get("/")).text
        assert (await browser.get("/sign-in/issuer")).status == 404
