"""Functions and webhooks (job-router 10.2), answered by a real host on loopback."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

import msgspec
import pytest
from aiohttp import web

from relevo import limits
from relevo.errors import RuleFailed
from relevo.kernel.outbound.addresses import Allowed
from relevo.kernel.outbound.client import Client
from relevo.router.core.rules import RuleAnswer, RuleCall
from relevo.router.matcher.rule_calls import RuleCaller
from relevo.router.wire.policies import (
    FunctionCredential,
    FunctionRule,
    WebhookCredential,
    WebhookRule,
)
from tests.kernel.outbound.outside import Outside, Status, outside

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from relevo.router.core.rules import ExternalRule

pytestmark = pytest.mark.anyio

SECRET = "geheim-7c0f"


class Watch:
    """A clock that stands still until it is told otherwise."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
async def host() -> AsyncIterator[Outside]:
    async with outside() as running:
        yield running


@pytest.fixture
def watch() -> Watch:
    return Watch()


@asynccontextmanager
async def calling(*allow: str, watch: Watch | None = None) -> AsyncIterator[RuleCaller]:
    async with Client(Allowed.parse(allow)) as client:
        yield RuleCaller(client, monotonic=watch or Watch())


@pytest.fixture
async def caller(watch: Watch) -> AsyncIterator[RuleCaller]:
    async with calling("127.0.0.1", watch=watch) as ready:
        yield ready


def call(rule: ExternalRule, place: str = "/prioritizationRule") -> RuleCall:
    return RuleCall(place, rule, {"job": {"Total": 7}})


def webhook(host: Outside, secret: str = SECRET) -> WebhookRule:
    return WebhookRule(
        webhook_uri=host.url("/hook"),
        authorization_server_uri=host.url("/token"),
        client_credential=WebhookCredential(client_id="ana", client_secret=secret),
    )


@pytest.mark.parametrize("value", [7, -1.5, True, "text", None, [1], {"a": {"b": []}}])
async def test_a_function_answers_any_json_value(
    host: Outside, caller: RuleCaller, value: Any
) -> None:
    host.answers("/f", value)
    assert await caller.value(call(FunctionRule(function_uri=host.url("/f")))) == value
    (asked,) = host.asked
    assert msgspec.json.decode(asked.body) == {"job": {"Total": 7}}
    assert asked.headers["content-type"] == "application/json"
    assert not {"x-functions-key", "x-functions-clientid", "authorization"} & {
        name.lower() for name in asked.headers
    }


@pytest.mark.parametrize(
    ("credential", "headers"),
    [
        (FunctionCredential(function_key=SECRET), {"x-functions-key": SECRET}),
        (
            FunctionCredential(app_key=SECRET, client_id="ana"),
            {"x-functions-key": SECRET, "x-functions-clientid": "ana"},
        ),
        (FunctionCredential(function_key=SECRET, app_key="other"), {"x-functions-key": SECRET}),
        (FunctionCredential(), {}),
    ],
)
async def test_credentials_of_a_function_are_headers(
    host: Outside, caller: RuleCaller, credential: FunctionCredential, headers: dict[str, str]
) -> None:
    host.answers("/f", 1)
    rule = FunctionRule(function_uri=host.url("/f"), credential=credential)
    await caller.value(call(rule))
    sent = {name.lower(): value for name, value in host.asked[0].headers.items()}
    assert {name: sent[name] for name in sent if name.startswith("x-functions")} == headers


@pytest.mark.parametrize("status", [201, 204, 302, 400, 401, 404, 429, 500])
async def test_anything_but_200_is_a_failure(
    host: Outside, caller: RuleCaller, status: int
) -> None:
    host.answers("/f", Status(status, b"7"))
    with pytest.raises(RuleFailed, match=f"answered {status} instead of 200"):
        await caller.value(call(FunctionRule(function_uri=host.url("/f"))))


@pytest.mark.parametrize("body", [b"", b"<html>", b"{", b"1 2", b"\xff", b"NaN", b"[" * 200_000])
async def test_a_body_that_is_not_json_is_a_failure(
    host: Outside, caller: RuleCaller, body: bytes
) -> None:
    host.answers("/f", Status(200, body))
    with pytest.raises(RuleFailed, match="not JSON"):
        await caller.value(call(FunctionRule(function_uri=host.url("/f"))))


async def test_without_leave_no_rule_reaches_this_machine(host: Outside) -> None:
    host.answers("/f", 1)
    host.answers("/token", {"access_token": "t"})
    async with calling() as caller:
        for url in (host.url("/f"), host.url("/f", "localhost"), host.url("/f", "2130706433")):
            with pytest.raises(RuleFailed, match="not called"):
                await caller.value(call(FunctionRule(function_uri=url)))
            with pytest.raises(RuleFailed, match="not called"):
                await caller.value(call(WebhookRule(webhook_uri=url)))
        with pytest.raises(RuleFailed, match="not called"):
            await caller.value(call(webhook(host)))
    assert host.asked == []  # J23


@pytest.mark.parametrize("rule", [
    FunctionRule(
        function_uri="http://93.184.215.14/f", credential=FunctionCredential(function_key=SECRET)
    ),
    WebhookRule(
        webhook_uri="https://w.example/hook", authorization_server_uri="http://93.184.215.14/token",
        client_credential=WebhookCredential(client_id="me", client_secret=SECRET),
    ),
])  # fmt: skip
async def test_no_credential_is_sent_without_encryption(
    caller: RuleCaller, rule: ExternalRule
) -> None:
    with pytest.raises(RuleFailed, match="a credential would go there without encryption"):
        await caller.value(call(rule))


async def test_a_token_is_not_sent_to_a_webhook_without_encryption(
    host: Outside, caller: RuleCaller
) -> None:
    host.answers("/token", {"access_token": "t"})
    rule = msgspec.structs.replace(webhook(host), webhook_uri="http://93.184.215.14/hook")
    with pytest.raises(RuleFailed, match="without encryption"):
        await caller.value(call(rule))


async def test_a_redirect_leads_nowhere(host: Outside, caller: RuleCaller) -> None:
    async def elsewhere(_: web.Request) -> web.StreamResponse:
        return web.Response(status=302, headers={"location": "http://10.0.0.1/"})

    host.at("/f", elsewhere)
    with pytest.raises(RuleFailed, match="answered 302"):
        await caller.value(call(FunctionRule(function_uri=host.url("/f"))))


async def test_a_webhook_without_authorization_server_is_called_as_it_is(
    host: Outside, caller: RuleCaller
) -> None:
    host.answers("/hook", 1)
    rule = WebhookRule(
        webhook_uri=host.url("/hook"), client_credential=WebhookCredential(client_id="ana")
    )
    assert await caller.value(call(rule)) == 1
    assert "authorization" not in host.asked[0].headers


async def test_a_webhook_without_an_address_has_failed(caller: RuleCaller) -> None:
    with pytest.raises(RuleFailed, match="must start with"):
        await caller.value(call(WebhookRule()))


async def test_a_webhook_is_called_with_a_token_that_is_kept(
    host: Outside, caller: RuleCaller
) -> None:
    host.answers("/token", {"access_token": "t1", "expires_in": 3600})
    host.answers("/hook", 1, 2)
    assert await caller.value(call(webhook(host))) == 1
    assert await caller.value(call(webhook(host))) == 2
    assert host.paths() == ["/token", "/hook", "/hook"]
    form = parse_qs(host.asked[0].body.decode())
    assert form == {
        "grant_type": ["client_credentials"],
        "client_id": ["ana"],
        "client_secret": [SECRET],
    }
    assert host.asked[0].headers["content-type"] == "application/x-www-form-urlencoded"
    assert [one.headers["authorization"] for one in host.asked[1:]] == ["Bearer t1"] * 2
    assert SECRET.encode() not in host.asked[1].body


async def test_a_token_belongs_to_one_secret(host: Outside, caller: RuleCaller) -> None:
    host.answers("/token", {"access_token": "t1"}, {"access_token": "t2"})
    host.answers("/hook", 1)
    await caller.value(call(webhook(host)))
    await caller.value(call(webhook(host, "another")))
    sent = [one.headers["authorization"] for one in host.asked if one.path == "/hook"]
    assert sent == ["Bearer t1", "Bearer t2"]


@pytest.mark.parametrize(
    ("expires_in", "used"),
    [(3600, 3540), ("3600", 3540), (100, 90), (None, 270), ("soon", 270)],
)
async def test_a_token_is_fetched_anew_shortly_before_it_ends(
    host: Outside, caller: RuleCaller, watch: Watch, expires_in: Any, used: float
) -> None:
    given = {} if expires_in is None else {"expires_in": expires_in}
    host.answers("/token", {"access_token": "t1", **given}, {"access_token": "t2", **given})
    host.answers("/hook", 1)
    await caller.value(call(webhook(host)))
    watch.now += used - 0.001
    await caller.value(call(webhook(host)))
    assert host.paths().count("/token") == 1
    watch.now += 0.001
    await caller.value(call(webhook(host)))
    assert host.paths().count("/token") == 2


@pytest.mark.parametrize("expires_in", [0, -5])
async def test_a_token_that_has_no_life_is_used_once(
    host: Outside, caller: RuleCaller, expires_in: int
) -> None:
    host.answers("/token", {"access_token": "t1", "expires_in": expires_in})
    host.answers("/hook", 1)
    await caller.value(call(webhook(host)))
    await caller.value(call(webhook(host)))
    assert host.paths() == ["/token", "/hook", "/token", "/hook"]


async def test_a_token_that_is_refused_is_fetched_once_more(
    host: Outside, caller: RuleCaller
) -> None:
    host.answers("/token", {"access_token": "t1"}, {"access_token": "t2"})
    host.answers("/hook", Status(401), 7)
    assert await caller.value(call(webhook(host))) == 7
    assert host.paths() == ["/token", "/hook", "/token", "/hook"]
    assert host.asked[-1].headers["authorization"] == "Bearer t2"


async def test_a_second_refusal_is_a_failure(host: Outside, caller: RuleCaller) -> None:
    host.answers("/token", {"access_token": "t1"})
    host.answers("/hook", Status(401))
    with pytest.raises(RuleFailed, match="answered 401"):
        await caller.value(call(webhook(host)))
    assert host.paths() == ["/token", "/hook", "/token", "/hook"]


async def test_those_who_need_the_same_token_fetch_it_once(
    host: Outside, caller: RuleCaller
) -> None:
    host.answers("/token", {"access_token": "t1"})
    host.answers("/hook", 1)
    calls = [call(webhook(host), f"/{number}") for number in range(10)]
    answers = await caller.answers(calls)
    assert set(answers.values()) == {RuleAnswer(1)}
    assert host.paths().count("/token") == 1


@pytest.mark.parametrize(
    "given",
    [
        Status(400, b'{"error":"invalid_client"}'),
        Status(200, b"token"),
        {},
        [],
        {"access_token": 7},
        {"access_token": ""},
        {"access_token": "a\r\nx-evil: 1"},
    ],
)
async def test_without_a_token_the_webhook_is_not_called(
    host: Outside, caller: RuleCaller, given: Any
) -> None:
    host.answers("/token", given)
    with pytest.raises(RuleFailed) as caught:
        await caller.value(call(webhook(host)))
    assert set(host.paths()) == {"/token"}
    assert SECRET not in str(caught.value)  # J23


async def test_no_error_tells_a_secret_or_what_was_answered(
    host: Outside, caller: RuleCaller, caplog: pytest.LogCaptureFixture
) -> None:
    host.answers("/f", Status(500, SECRET.encode()))
    host.answers("/g", Status(200, SECRET.encode()))
    credential = FunctionCredential(function_key=SECRET)
    urls = [
        host.url(f"/f?code={SECRET}"),
        host.url(f"/g?code={SECRET}"),
        f"http://ana:{SECRET}@127.0.0.1/",
        f"ftp://x/{SECRET}",
        f"http://127.0.0.1:1/{SECRET}",
    ]
    for url in urls:
        with pytest.raises(RuleFailed) as caught:
            await caller.value(call(FunctionRule(function_uri=url, credential=credential)))
        told = f"{caught.value!r} {caught.value.__cause__!r}"
        assert SECRET not in told  # J23
    assert SECRET not in caplog.text  # J23


async def test_many_calls_are_made_some_at_a_time(host: Outside, caller: RuleCaller) -> None:
    running, most = 0, 0

    async def count(_: web.Request) -> web.StreamResponse:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return web.json_response(1)

    host.at("/f", count)
    host.answers("/broken", Status(500))
    rule = FunctionRule(function_uri=host.url("/f"))
    calls = [call(rule, f"/{number}") for number in range(60)]
    broken = call(FunctionRule(function_uri=host.url("/broken")), "/broken")
    answers = await caller.answers([*calls, broken])
    assert [answers[one.place] for one in calls] == [RuleAnswer(1)] * 60
    assert "answered 500" in (answers["/broken"].failure or "")
    assert most <= limits.ROUTER_CALLS_AT_ONCE_MAX
    assert await caller.answers([]) == {}


async def test_calls_for_which_no_time_is_left_are_told(host: Outside, caller: RuleCaller) -> None:
    released = asyncio.Event()

    async def hold(_: web.Request) -> web.StreamResponse:
        await released.wait()
        return web.json_response(1)

    host.at("/slow", hold)
    rule = FunctionRule(function_uri=host.url("/slow"))
    calls = [call(rule, f"/{number}") for number in range(limits.ROUTER_CALLS_AT_ONCE_MAX + 5)]
    answers = await caller.answers(calls, seconds=0.2)
    released.set()
    told = RuleAnswer(failure="there was no time left to call it")
    assert answers == {one.place: told for one in calls}
