"""Webhooks over HTTP and on the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

if TYPE_CHECKING:
    from tests.http.conftest import Site

pytestmark = pytest.mark.anyio
HOOK = {"name": "billing", "url": "https://hooks.example/in?token=hush", "types": ["relevo.job.*"]}


async def test_the_life_of_a_webhook_over_http(site: Site) -> None:
    made = await site.ask("POST", "/v1/webhooks", key="admin", json=HOOK)
    assert made.status == 201
    assert made.json["secret"].startswith("whsec_")
    found = await site.ask("GET", "/v1/webhooks/billing", key="viewer")
    assert found.json["url"] == "https://hooks.example/in?redacted"
    assert b"hush" not in found.body
    assert b"whsec_" not in found.body
    refused = await site.ask("POST", "/v1/webhooks", key="viewer", json=HOOK)
    assert refused.status == 403
    twice = await site.ask("POST", "/v1/webhooks", key="admin", json=HOOK)
    assert twice.status == 409
    wrong = {**HOOK, "name": "b", "filter": "lane = 1"}
    answer = await site.ask("POST", "/v1/webhooks", key="admin", json=wrong)
    assert (answer.status, answer.json["pointer"]) == (400, "/filter")
    changed = await site.ask(
        "PATCH", "/v1/webhooks/billing", key="operator", json={"filter": "version > 1"}
    )
    assert (changed.json["filter"], changed.json["types"]) == ("version > 1", ["relevo.job.*"])
    paused = await site.ask(
        "POST", "/v1/webhooks/billing:pause", key="admin", json={"reason": "move"}
    )
    assert (paused.json["state"], paused.json["reason"]) == ("paused", "move")
    resumed = await site.ask("POST", "/v1/webhooks/billing:resume", key="admin", json={})
    assert resumed.json["state"] == "enabled"
    rotated = await site.ask("POST", "/v1/webhooks/billing:rotate", key="admin", json={})
    assert rotated.json["secret"] != made.json["secret"]
    listed = await site.ask("GET", "/v1/webhooks", key="viewer")
    assert [len(one["secrets"]) for one in listed.json["items"]] == [2]
    dead = await site.ask("GET", "/v1/webhooks/billing/deliveries", key="viewer")
    assert dead.json == {"items": [], "next": None}
    everything = "/v1/webhooks/billing/deliveries:replay"
    assert (await site.ask("POST", everything, key="admin", json={})).json == {"changed": 0}
    one = "/v1/webhooks/billing/deliveries/7:replay"
    assert (await site.ask("POST", one, key="admin", json={})).status == 404
    code = "00000000-0000-0000-0000-000000000000"
    confirmed = await site.ask("GET", f"/v1/webhooks/billing:validate?code={code}")
    assert confirmed.status == 404
    gone = await site.ask("DELETE", "/v1/webhooks/billing", key="admin")
    assert gone.status in (200, 204)
    assert (await site.ask("GET", "/v1/webhooks/billing", key="viewer")).status == 404
    assert msgspec.json.decode((await site.ask("GET", "/v1/webhooks", key="viewer")).body) == {
        "items": [],
        "next": None,
    }
