"""Events reach receivers: at least once, in order per subject, signed, whatever others do."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from aiohttp import web
from standardwebhooks import Webhook as PeerWebhook
from standardwebhooks import WebhookVerificationError

from relevo.errors import NotFound
from relevo.testing.clock import Clock
from tests.kernel.outbound.outside import Status
from tests.webhooks.receiver import Gate, Kitchen, kitchen

pytestmark = pytest.mark.anyio
OK = Status(204)


async def test_events_are_delivered_in_order_and_signed(relevo_url: str) -> None:
    async with kitchen(relevo_url) as shop:
        shop.host.answers("/hook", OK)
        made = await shop.app.webhooks.create("hook", shop.url("/hook"), types=["kitchen.*"])
        for number in range(1, 6):
            await shop.cook(number, number + 100)
            await shop.cook(number, dish="tea")
        await shop.until(lambda: len(shop.sent("/hook")) >= 15)
        soup = [
            one["data"]["number"] for one in shop.sent("/hook") if one["subject"] == "dish/soup"
        ]
        assert soup == [1, 101, 2, 102, 3, 103, 4, 104, 5, 105]
        peer = PeerWebhook(made.secret)
        for asked in shop.host.asked:
            event = peer.verify(asked.body, dict(asked.headers))
            assert event["id"] == asked.headers["webhook-id"]
            assert event["type"] == "kitchen.dish.cooked"
            assert asked.headers["content-type"].startswith("application/cloudevents+json")


async def test_a_receiver_that_hangs_or_fails_holds_up_nobody_else(relevo_url: str) -> None:
    async with kitchen(relevo_url) as shop:
        slow = Gate(shop.host, "/slow")
        shop.host.answers("/bad", Status(500))
        shop.host.answers("/good", OK)
        for name in ("slow", "bad", "good"):
            await shop.app.webhooks.create(name, shop.url(f"/{name}"), types=["kitchen.*"])
        for number in range(20):
            await shop.cook(number, dish=f"dish-{number}")
        await slow.asked.wait()
        await shop.until(lambda: len(shop.sent("/good")) >= 20)
        assert sorted(shop.numbers("/good")) == list(range(20))
        # Not all of it was tried on the one that fails: a few failures in a row are enough.
        bad = await shop.app.webhooks.get("bad")
        assert bad.failures >= 4
        assert bad.last_error == "answered with status 500"
        assert bad.failing_since is not None
        slow.go_on.set()
        await shop.until(lambda: len(shop.sent("/slow")) >= 20)


async def test_a_failed_event_is_tried_again_and_its_subject_waits(relevo_url: str) -> None:
    async with kitchen(relevo_url) as shop:
        clock = Clock(shop.app.database)
        shop.host.answers("/hook", Status(503), OK)
        hook = await shop.app.webhooks.create("hook", shop.url("/hook"), retry=[3_600], types=["*"])
        assert hook.webhook.state == "enabled"
        await shop.cook(1)
        await shop.until_stored(lambda: _failed(shop, "hook", 1))
        await shop.cook(2)
        await shop.cook(3, dish="tea")  # another subject does not wait
        await shop.until(lambda: 3 in shop.numbers("/hook"))
        assert shop.numbers("/hook") == [1, 3]
        waiting, *_ = await shop.app.webhooks.deliveries("hook", "waiting")
        assert (waiting.attempts, waiting.status) == (1, 503)
        await clock.advance(7_200)
        await shop.until(lambda: 2 in shop.numbers("/hook"))
        assert shop.numbers("/hook") == [1, 3, 1, 2]


async def test_the_last_failure_makes_a_dead_letter_that_can_be_replayed(relevo_url: str) -> None:
    async with kitchen(relevo_url) as shop:
        webhooks = shop.app.webhooks
        shop.host.answers("/hook", Status(400), Status(400), OK)
        shop.host.answers("/alerts", OK)
        await webhooks.create("alerts", shop.url("/alerts"), types=["relevo.webhook.*"])
        await webhooks.create("hook", shop.url("/hook"), retry=(), types=["kitchen.*"])
        await shop.cook(1, 2, 3)
        await shop.until(lambda: 3 in shop.numbers("/hook"))
        assert shop.numbers("/hook") == [1, 2, 3]
        await shop.until(lambda: len(shop.sent("/alerts")) >= 2)
        told = shop.sent("/alerts")[0]
        assert told["type"] == "relevo.webhook.dead_lettered"
        assert told["data"]["error"] == "answered with status 400"
        first, second = await webhooks.deliveries("hook", "dead")
        assert await webhooks.replay("hook", first.id) == 1
        await shop.until(lambda: shop.numbers("/hook") == [1, 2, 3, 1])
        assert await webhooks.discard("hook", second.id) == 1
        await shop.until_stored(lambda: _count(shop, "hook", "delivered", 2))
        assert await webhooks.replay("hook", state="delivered") == 2
        await shop.until(lambda: len(shop.numbers("/hook")) == 6)
        assert await webhooks.deliveries("hook", "dead") == []
        with pytest.raises(NotFound, match="no delivery 77"):
            await webhooks.replay("hook", 77)


async def test_retry_after_is_honoured_and_410_disables(relevo_url: str) -> None:
    async with kitchen(relevo_url) as shop:
        webhooks = shop.app.webhooks

        async def busy(_: web.Request) -> web.Response:
            return web.Response(status=429, headers={"retry-after": "5000"})

        shop.host.at("/busy", busy)
        shop.host.answers("/gone", Status(410))
        shop.host.answers("/alerts", OK)
        await webhooks.create("alerts", shop.url("/alerts"), types=["relevo.webhook.disabled"])
        await webhooks.create("busy", shop.url("/busy"), retry=[1, 1], types=["kitchen.*"])
        await webhooks.create("gone", shop.url("/gone"), types=["kitchen.*"])
        now = await shop.app.now()
        await shop.cook(1)
        await shop.until(lambda: len(shop.sent("/alerts")) == 1)
        assert shop.sent("/alerts")[0]["data"]["name"] == "gone"
        gone = await webhooks.get("gone")
        assert (gone.state, gone.reason) == ("disabled", "the receiver answered 410 Gone")
        await shop.until_stored(lambda: _failed(shop, "busy", 1))
        (waiting,) = await webhooks.deliveries("busy", "waiting")
        assert (waiting.due - now).total_seconds() > 4_900
        # The event that was refused waits; resuming sends it.
        shop.host.answers("/gone", OK)
        await webhooks.resume("gone")
        await webhooks.replay("gone", state="waiting")
        await shop.until_stored(lambda: _count(shop, "gone", "delivered", 1))


async def test_a_rotated_secret_signs_beside_the_old_one_until_that_expires(
    relevo_url: str,
) -> None:
    async with kitchen(relevo_url) as shop:
        clock, webhooks = Clock(shop.app.database), shop.app.webhooks
        shop.host.answers("/hook", OK)
        own = "whsec_" + base64.b64encode(b"s" * 24).decode()
        made = await webhooks.create("hook", shop.url("/hook"), secret=own, types=["kitchen.*"])
        assert made.secret == own
        rotated = await webhooks.rotate("hook", overlap=3_600)
        await shop.cook(1)
        await shop.until(lambda: len(shop.host.asked) == 1)
        asked = shop.host.asked[0]
        assert len(asked.headers["webhook-signature"].split()) == 2
        for secret in (own, rotated.secret):
            PeerWebhook(secret).verify(asked.body, dict(asked.headers))
        await clock.advance(7_200)
        await shop.cook(2)
        await shop.until(lambda: len(shop.host.asked) == 2)
        asked = shop.host.asked[1]
        PeerWebhook(rotated.secret).verify(asked.body, dict(asked.headers))
        with pytest.raises(WebhookVerificationError):
            PeerWebhook(own).verify(asked.body, dict(asked.headers))
        assert len((await webhooks.get("hook")).secrets) == 1


async def test_paused_webhooks_collect_and_filters_select(relevo_url: str) -> None:
    async with kitchen(relevo_url) as shop:
        webhooks = shop.app.webhooks
        shop.host.answers("/hook", OK)
        shop.host.answers("/new", OK)
        await webhooks.create(
            "hook", shop.url("/hook"), types=["kitchen.*"],
            filter="data.lane = 'grill' and data.[labels.table] in ('4', '5') or version > 90",
        )  # fmt: skip
        await webhooks.pause("hook", "maintenance")
        await shop.cook(1, labels={"table": "4"})
        await shop.cook(2, labels={"table": "6"})
        await shop.cook(3, lane="cold", labels={"table": "4"})
        await shop.cook(91, lane="cold")
        await shop.until_stored(lambda: _count(shop, "hook", "waiting", 2))
        assert shop.host.asked == []
        paused = await webhooks.get("hook")
        assert (paused.state, paused.reason, paused.waiting) == ("paused", "maintenance", 2)
        await webhooks.update("hook", url=shop.url("/new"), filter=None)
        await webhooks.resume("hook")
        await shop.cook(5)
        await shop.until(lambda: shop.numbers("/new") == [1, 91, 5])
        assert shop.host.paths() == ["/new"] * 3
        await webhooks.delete("hook")
        with pytest.raises(NotFound):
            await webhooks.get("hook")


async def test_events_of_one_subject_are_in_order_over_pipelines(relevo_url: str) -> None:
    async with kitchen(relevo_url) as shop:
        shop.host.answers("/hook", OK)
        await shop.app.webhooks.create("hook", shop.url("/hook"), types=["kitchen.*"])
        for number in range(60):
            await shop.cook(number, dish="soup", pipeline=number % 5)
        await shop.until(lambda: len(shop.numbers("/hook")) >= 60)
        assert shop.numbers("/hook") == list(range(60))


async def _failed(shop: Kitchen, name: str, failures: int) -> bool:
    return (await shop.app.webhooks.get(name)).failures >= failures


async def _count(shop: Kitchen, name: str, state: Any, count: int) -> bool:
    return len(await shop.app.webhooks.deliveries(name, state)) == count
