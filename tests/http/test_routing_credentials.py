"""Credentials of rules over the wire: where they may go, and who is shown what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.http.routing import Wire

if TYPE_CHECKING:
    from tests.http.conftest import Site

pytestmark = pytest.mark.anyio
POLICY = "classificationPolicies/c"
FUNCTION = {
    "kind": "function",
    "functionUri": "https://f.example/score?code=hush-query",
    "credential": {"functionKey": "hush-key", "clientId": "me"},
}
WEBHOOK = {
    "kind": "webhook",
    "webhookUri": "https://w.example/hook?sig=hush-query",
    "authorizationServerUri": "https://a.example/token?sig=hush-query",
    "clientCredential": {"clientId": "me", "clientSecret": "hush-key"},
}


@pytest.fixture
def wire(site: Site) -> Wire:
    return Wire(site)


async def stored(wire: Wire) -> Any:
    """The rule as it is used, with its secrets."""
    policies = wire.site.services.app.router.policies
    found = await policies.get("classificationPolicies", "c")
    return (await policies.opened(found))["prioritizationRule"]


async def made(wire: Wire, rule: Any) -> Any:
    reply = await wire.patch(POLICY, {"fallbackQueueId": None, "prioritizationRule": rule})
    assert reply.status in (200, 201), reply.body
    return await stored(wire)


MOVES = [
    (FUNCTION, "functionUri", "https://evil.example/score"),
    (FUNCTION, "functionUri", "http://f.example/score"),
    (FUNCTION, "functionUri", "https://f.example:8443/score"),
    (WEBHOOK, "webhookUri", "https://evil.example/hook"),
    (WEBHOOK, "authorizationServerUri", "https://evil.example/token"),
]


@pytest.mark.parametrize(("rule", "name", "url"), MOVES)
async def test_a_stored_credential_does_not_follow_an_address_to_another_origin(
    wire: Wire, rule: dict[str, Any], name: str, url: str
) -> None:
    before = await made(wire, rule)
    reply = await wire.patch(POLICY, {"prioritizationRule": {name: url}})
    assert (reply.status, reply.json["error"]["target"]) == (400, f"/prioritizationRule/{name}")
    holder = "credential" if "credential" in rule else "clientCredential"
    secret = "functionKey" if "credential" in rule else "clientSecret"
    assert f"send {holder} with {secret} again" in reply.json["error"]["message"]
    assert b"hush" not in reply.body
    assert await stored(wire) == before


@pytest.mark.parametrize(("rule", "name", "url"), MOVES)
async def test_an_address_moves_with_a_credential_that_is_given_anew_or_dropped(
    wire: Wire, rule: dict[str, Any], name: str, url: str
) -> None:
    await made(wire, rule)
    holder = "credential" if "credential" in rule else "clientCredential"
    secret = "functionKey" if "credential" in rule else "clientSecret"
    moved = await made(wire, {name: url, holder: {secret: "new"}})
    assert (moved[name], moved[holder][secret]) == (url, "new")
    assert holder not in await made(wire, {name: rule[name], holder: None})


async def test_an_address_that_was_taken_away_comes_back_only_with_its_credential(
    wire: Wire,
) -> None:
    await made(wire, WEBHOOK)
    await made(wire, {"authorizationServerUri": None})
    change = {"authorizationServerUri": "https://evil.example/token"}
    assert (await wire.patch(POLICY, {"prioritizationRule": change})).status == 400


async def test_within_an_origin_the_credential_stays(wire: Wire) -> None:
    await made(wire, FUNCTION)
    moved = await made(wire, {"functionUri": "https://F.example:443/other"})
    assert moved["credential"]["functionKey"] == "hush-key"


async def test_another_kind_of_rule_and_an_array_take_no_credential_along(wire: Wire) -> None:
    await made(wire, FUNCTION)
    other = {"kind": "webhook", "webhookUri": "https://evil.example/hook"}
    assert await made(wire, other) == other
    attachment = {"kind": "ruleEngine", "rule": FUNCTION}
    await wire.patch(POLICY, {"queueSelectorAttachments": [attachment]})
    sent = {**FUNCTION, "functionUri": "https://evil.example/score", "credential": {}}
    await wire.patch(POLICY, {"queueSelectorAttachments": [{"kind": "ruleEngine", "rule": sent}]})
    policies = wire.site.services.app.router.policies
    found = await policies.opened(await policies.get("classificationPolicies", "c"))
    assert "functionKey" not in found["queueSelectorAttachments"][0]["rule"]["credential"]


async def test_an_address_with_a_password_in_it_is_refused(wire: Wire) -> None:
    rule = {"kind": "function", "functionUri": "https://me:hush@f.example/score"}
    reply = await wire.patch(POLICY, {"prioritizationRule": rule})
    assert (reply.status, reply.json["error"]["target"]) == (
        400,
        "/prioritizationRule/functionUri",
    )


@pytest.mark.parametrize("role", ["reader", "viewer", "operator", "router"])
async def test_readers_are_not_shown_the_query_of_an_address(wire: Wire, role: str) -> None:
    await made(wire, WEBHOOK)
    scored = {"kind": "bestWorker", "scoringRule": FUNCTION}
    await wire.patch("distributionPolicies/d", {"mode": scored})
    attached = [{"kind": "ruleEngine", "rule": FUNCTION}]
    await wire.patch(POLICY, {"workerSelectorAttachments": attached})
    reader = wire.as_(role)
    for path in (POLICY, "classificationPolicies", "distributionPolicies/d"):
        reply = await reader.get(path)
        assert reply.status == 200
        assert b"hush" not in reply.body
        assert b"redacted" in reply.body
    shown = (await reader.get(POLICY)).json["prioritizationRule"]
    assert shown["webhookUri"] == "https://w.example/hook?redacted"


@pytest.mark.parametrize("role", ["admin", "supervisor"])
async def test_who_may_write_an_address_is_shown_all_of_it(wire: Wire, role: str) -> None:
    await made(wire, WEBHOOK)
    shown = (await wire.as_(role).get(POLICY)).json["prioritizationRule"]
    assert shown["webhookUri"] == WEBHOOK["webhookUri"]


async def test_neither_explanations_nor_events_show_the_query_of_an_address(wire: Wire) -> None:
    await wire.queue()
    await made(wire, FUNCTION)
    await wire.patch(POLICY, {"fallbackQueueId": "q"})
    async with wire.site.services.app.host():
        await wire.patch("jobs/j", {"channelId": "voice", "classificationPolicyId": "c"})
        tried = await wire.site.ask(
            "POST", "/v1/router/classification-policies/c:try", key="admin", json={}
        )
        assert tried.status == 200
        explained = await wire.site.ask("GET", "/v1/router/jobs/j/explanation", key="reader")
        events = await wire.site.ask("GET", "/v1/router/events", key="reader")
    for reply in (tried, explained, events):
        assert b"hush" not in reply.body
