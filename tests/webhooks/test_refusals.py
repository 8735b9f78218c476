"""What is not called, and receivers that must agree first."""

from __future__ import annotations

from functools import partial
from uuid import UUID

import msgspec
import pytest
from aiohttp import web

from relevo.errors import Conflict, InvalidExpression, InvalidValue, NotFound
from relevo.kernel.postgres import catalog
from relevo.testing.clock import Clock
from relevo.webhooks.core import envelopes
from tests.kernel.outbound.outside import Status
from tests.webhooks.receiver import Kitchen, connected, kitchen

pytestmark = pytest.mark.anyio
OK = Status(204)
FAILING_FOR_DAYS = catalog.own(
    "tests.failing",
    """
update relevo.webhook set failures = 20, failing_since = relevo.now() - interval '6 days'
returning 1
""",
)


async def test_names_of_closed_addresses_and_redirects_lead_nowhere(relevo_url: str) -> None:
    async with kitchen(relevo_url, outbound_allow=()) as shop:
        shop.host.answers("/hook", OK)
        inside = f"https://localhost:{shop.host.port}/hook"
        await shop.app.webhooks.create("inside", inside, types=["kitchen.*"])
        await shop.app.webhooks.create("plain", "http://localhost/", types=["kitchen.*"])
        await shop.cook(1)
        for name in ("inside", "plain"):
            await shop.until_stored(partial(_has_failed, shop, name))
            assert "is not called" in str((await shop.app.webhooks.get(name)).last_error)
        assert shop.host.asked == []
    async with kitchen(relevo_url) as shop:

        async def elsewhere(_: web.Request) -> web.Response:
            return web.Response(status=302, headers={"location": shop.url("/secret")})

        shop.host.at("/redirect", elsewhere)
        await shop.app.webhooks.create("redirect", shop.url("/redirect"), types=["kitchen.*"])
        await shop.cook(2)
        await shop.until_stored(lambda: _has_failed(shop, "redirect"))
        assert set(shop.host.paths()) == {"/redirect"}


async def test_event_grid_receivers_are_asked_before_they_get_events(relevo_url: str) -> None:
    async with kitchen(relevo_url, public_hosts=("relevo.example",)) as shop:
        webhooks = shop.app.webhooks

        async def agrees(request: web.Request) -> web.Response:
            (event,) = msgspec.json.decode(await request.read())
            if event["eventType"] != envelopes.VALIDATION_TYPE:
                return web.Response()
            code = event["data"]["validationCode"]
            return web.json_response({"validationResponse": code})

        shop.host.at("/agrees", agrees)
        shop.host.answers("/silent", OK)
        for name in ("agrees", "silent"):
            made = await webhooks.create(
                name, shop.url(f"/{name}"), format="eventgrid", types=["kitchen.*"]
            )
            assert made.webhook.state == "validating"
        await shop.cook(1)
        await shop.until(lambda: len(shop.sent("/agrees")) == 2)
        asked, sent = (one for one in shop.host.asked if one.path == "/agrees")
        assert asked.headers["aeg-event-type"] == "SubscriptionValidation"
        assert sent.headers["aeg-event-type"] == "Notification"
        assert sent.headers["aeg-subscription-name"] == "agrees"
        assert shop.sent("/agrees")[1]["data"]["number"] == 1
        # Whoever opens the address in the event agrees by hand.
        await shop.until(lambda: bool(shop.sent("/silent")))
        (event, *_) = shop.sent("/silent")
        url = event["data"]["validationUrl"]
        code = event["data"]["validationCode"]
        assert url == f"https://relevo.example/v1/webhooks/silent:validate?code={code}"
        with pytest.raises(NotFound):
            await webhooks.validate("silent", UUID(int=0))
        await webhooks.validate("silent", UUID(code))
        await shop.until(lambda: 1 in [one["data"].get("number") for one in shop.sent("/silent")])
        assert (await webhooks.get("silent")).state == "enabled"


async def test_a_receiver_that_does_not_agree_in_time_gets_nothing(relevo_url: str) -> None:
    async with kitchen(relevo_url) as shop:
        shop.host.answers("/silent", OK)
        await shop.app.webhooks.create("silent", shop.url("/silent"), format="eventgrid")
        await shop.until(lambda: bool(shop.sent("/silent")))
        await Clock(shop.app.database).advance(700)
        await shop.until_stored(lambda: _is(shop, "silent", "disabled"))
        assert "did not confirm" in str((await shop.app.webhooks.get("silent")).reason)
        await shop.cook(1)
        assert {one["eventType"] for one in shop.sent("/silent")} == {envelopes.VALIDATION_TYPE}


async def test_an_endpoint_without_success_for_days_is_disabled(relevo_url: str) -> None:
    async with connected(relevo_url) as app:
        await app.webhooks.create("hook", "http://127.0.0.1:9/", types=["kitchen.*"])
        await app.database.write(FAILING_FOR_DAYS)
    async with kitchen(relevo_url) as shop:
        await shop.cook(1)
        await shop.until_stored(lambda: _is(shop, "hook", "disabled"))
        assert "no delivery succeeded" in str((await shop.app.webhooks.get("hook")).reason)


async def test_wrong_calls_say_what_is_wrong(relevo_url: str) -> None:
    async with connected(relevo_url) as app:
        webhooks = app.webhooks
        await webhooks.create("one", "https://hooks.example/?token=hush")
        assert (await webhooks.get("one")).url == "https://hooks.example/?redacted"
        with pytest.raises(Conflict, match="already"):
            await webhooks.create("one", "https://hooks.example/")
        with pytest.raises(InvalidValue, match="not one of the internet"):
            await webhooks.update("one", url="https://10.0.0.1/")
        with pytest.raises(InvalidExpression):
            await webhooks.update("one", filter="lane = 1")
        for call in (webhooks.get, webhooks.resume, webhooks.delete, webhooks.rotate):
            with pytest.raises(NotFound, match="no webhook 'two'"):
                await call("two")
        with pytest.raises(InvalidValue, match="overlap"):
            await webhooks.rotate("one", overlap=-1)
        for _ in range(4):
            await webhooks.rotate("one")
        with pytest.raises(Conflict, match="sign already"):
            await webhooks.rotate("one")
        await webhooks.rotate("one", overlap=0)
        assert [one.name for one in await webhooks.list()] == ["one"]


async def _has_failed(shop: Kitchen, name: str) -> bool:
    return (await shop.app.webhooks.get(name)).failures > 0


async def _is(shop: Kitchen, name: str, state: str) -> bool:
    return (await shop.app.webhooks.get(name)).state == state
