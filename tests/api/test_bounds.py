"""Sizes, numbers and times that one host takes, over a real socket."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from relevo import limits
from relevo.api.http import Bounds
from tests.api.table import TABLE, Gate, code

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.api.conftest import Opens, Site

pytestmark = pytest.mark.anyio


@pytest.fixture
async def site(open_site: Opens) -> AsyncIterator[Site]:
    async with open_site(operations=TABLE) as site:
        yield site


async def chunks(size: int) -> AsyncIterator[bytes]:
    for _ in range(size // 65_536 + 1):
        yield b"x" * 65_536


@pytest.mark.parametrize(
    "target", ["/v1/echo/1", "/routing/echoes/1:cancel?api-version=2023-11-01"]
)
@pytest.mark.parametrize("how", ["declared", "chunked"])
async def test_a_body_that_is_too_large_is_refused(site: Site, target: str, how: str) -> None:
    size = limits.BODY_BYTES_MAX + 1
    data: Any = chunks(size)
    headers = {"Content-Type": "application/json"}
    if how == "declared":
        headers["Content-Length"] = str((size // 65_536 + 1) * 65_536)
    reply = await site.ask("POST", target, key="viewer", headers=headers, data=data)
    expected = "too_large" if target.startswith("/v1") else "RequestTooLarge"
    assert (reply.status, code(reply)) == (413, expected)


async def test_the_largest_body_is_taken(site: Site) -> None:
    body = b'{"note": "' + b"x" * (limits.BODY_BYTES_MAX - 12) + b'"}'
    assert len(body) == limits.BODY_BYTES_MAX

    async def whole() -> AsyncIterator[bytes]:
        yield body

    headers = {"Content-Type": "application/json"}
    reply = await site.ask("POST", "/v1/echo/1", key="viewer", headers=headers, data=whole())
    assert reply.status == 200


@pytest.mark.parametrize(
    ("prefix", "expected"), [("/v1/", "url_too_long"), ("/routing/", "RequestTooLarge")]
)
async def test_a_url_that_is_too_long_is_refused(site: Site, prefix: str, expected: str) -> None:
    target = prefix + "x" * (limits.URL_BYTES_MAX - len(prefix))
    assert (await site.ask("GET", target)).status == 404
    reply = await site.ask("GET", target + "x")
    assert (reply.status, code(reply)) == (414, expected)


@pytest.mark.parametrize(
    ("path", "part"),
    [(b"/v1/x", b'"code":"headers_too_large"'), (b"/routing/x", b"RequestTooLarge")],
)
@pytest.mark.parametrize("where", ["header", "headers", "url"])
async def test_a_head_that_is_too_large_is_refused(
    site: Site, path: bytes, part: bytes, where: str
) -> None:
    big = b"x" * limits.HEADER_BYTES_MAX
    match where:
        case "header":
            head = b"GET " + path + b" HTTP/1.1\r\nHost: h\r\nX-Big: " + big + b"\r\n\r\n"
        case "headers":
            many = b"".join(
                b"X-%d: %s\r\n" % (i, b"y" * 500) for i in range(limits.HEADER_BYTES_MAX // 500)
            )
            head = b"GET " + path + b" HTTP/1.1\r\nHost: h\r\n" + many + b"\r\n"
        case _:
            head = b"GET " + path + b"?" + big + b" HTTP/1.1\r\nHost: h\r\n\r\n"
    answer = await site.raw(head)
    assert answer.startswith(b"HTTP/1.1 431 ")
    assert part in answer
    assert b"connection: close" in answer


async def test_overload_is_refused_early_while_probes_are_answered(open_site: Opens) -> None:
    gate = Gate()
    async with open_site(operations=gate.table(), bounds=Bounds(in_flight=1)) as site:
        async with asyncio.TaskGroup() as group:
            first = group.create_task(site.ask("GET", "/v1/wait"))
            await gate.entered.wait()
            for target, expected in (
                ("/v1/echo/1", "overloaded"),
                ("/routing/echoes/1", "ServiceUnavailable"),
            ):
                reply = await site.ask("GET", target, key="viewer")
                assert (reply.status, code(reply)) == (503, expected)
                assert int(reply.headers["Retry-After"]) >= 1
            assert (await site.ask("GET", "/livez")).status == 200
            assert (await site.ask("GET", "/metrics", key="viewer")).status == 200
            gate.open.set()
        assert first.result().status == 200
        assert (await site.ask("GET", "/v1/echo/1", key="viewer")).status == 200


async def test_a_key_that_sends_too_fast_is_held_back_and_no_other(open_site: Opens) -> None:
    bounds = Bounds(requests_per_second=0.001, burst=2)
    async with open_site(operations=TABLE, bounds=bounds) as site:
        for _ in range(2):
            assert (await site.ask("GET", "/v1/echo/1", key="viewer")).status == 200
        reply = await site.ask("GET", "/v1/echo/1", key="viewer")
        assert (reply.status, code(reply)) == (429, "rate_limited")
        assert reply.json["retryable"] is True
        assert 900 <= int(reply.headers["Retry-After"]) <= 1_000
        reply = await site.ask("GET", "/routing/echoes/1", key="viewer")
        assert (reply.status, code(reply)) == (429, "ThrottleLimitExceeded")
        assert (await site.ask("GET", "/v1/echo/1", key="operator")).status == 200
        assert (await site.ask("GET", "/livez")).status == 200


async def test_the_rate_comes_from_the_settings(open_site: Opens) -> None:
    async with open_site(operations=TABLE, requests_per_second=0.5) as site:
        assert (await site.ask("GET", "/v1/echo/1", key="viewer")).status == 200
        assert (await site.ask("GET", "/v1/echo/1", key="viewer")).status == 429


async def test_a_request_that_takes_too_long_ends_in_what_is_known_of_it(
    open_site: Opens,
) -> None:
    gate = Gate()
    bounds = Bounds(request_seconds=0.2)
    async with open_site(operations=gate.table(), bounds=bounds) as site:
        reply = await site.ask("GET", "/v1/wait")
        assert (reply.status, code(reply)) == (503, "unavailable")
        reply = await site.ask("POST", "/v1/wait")
        assert (reply.status, code(reply)) == (503, "outcome_unknown")
        assert "Retry-After" not in reply.headers


@pytest.mark.parametrize(
    ("method", "expected"), [("GET", "unavailable"), ("POST", "outcome_unknown")]
)
async def test_a_request_cut_off_by_a_stop_ends_in_what_is_known_of_it(
    open_site: Opens, method: str, expected: str
) -> None:
    gate = Gate()
    async with aiohttp.ClientSession() as session:
        async with open_site(operations=gate.table(), grace_seconds=0) as site:
            site.session = session
            waiting = asyncio.create_task(site.ask(method, "/v1/wait"))
            await gate.entered.wait()
        reply = await waiting
    assert (reply.status, code(reply)) == (503, expected)


async def test_a_body_that_does_not_arrive_is_given_up(open_site: Opens) -> None:
    gate = Gate()
    bounds = Bounds(request_seconds=0.2)
    async with open_site(operations=gate.table(), bounds=bounds) as site:
        head = (
            b"POST /v1/wait HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 10\r\n\r\n{"
        )
        answer = await site.raw(head)
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"request_timeout" in answer
