"""Sizes, numbers and times that one host takes, over a real socket."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from msgspec.structs import fields

from relevo import limits
from relevo.http.admission import ConnectionBounds
from relevo.http.application import RequestBounds
from relevo.http.operations import OPERATIONS
from tests.http.table import TABLE, Gate, code

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from relevo.kernel.operation import Operation
    from tests.http.conftest import Opens, Site

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
    async with open_site(operations=gate.table(), bounds=RequestBounds(in_flight=1)) as site:
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
    bounds = RequestBounds(requests_per_second=0.001, burst=2)
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
    bounds = RequestBounds(request_seconds=0.2)
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
    bounds = RequestBounds(request_seconds=0.2)
    async with open_site(operations=gate.table(), bounds=bounds) as site:
        head = (
            b"POST /v1/wait HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 10\r\n\r\n{"
        )
        answer = await site.raw(head)
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"request_timeout" in answer


async def hold(group: asyncio.TaskGroup, site: Site, gate: Gate, target: str, key: str) -> Any:
    """Have one more request wait at the gate."""
    inside = gate.inside
    task = group.create_task(site.ask("GET", target, key=key))
    await gate.until(inside + 1)
    return task


async def test_one_key_leaves_slots_for_the_others(open_site: Opens) -> None:
    gate = Gate()
    bounds = RequestBounds(in_flight=6)
    async with (
        open_site(operations=gate.table(), bounds=bounds) as site,
        asyncio.TaskGroup() as group,
    ):
        for _ in range(3):
            await hold(group, site, gate, "/v1/hold", "viewer")
        reply = await site.ask("GET", "/v1/hold", key="viewer")
        assert (reply.status, code(reply)) == (429, "rate_limited")
        assert "3 requests in flight" in reply.json["detail"]
        assert int(reply.headers["Retry-After"]) >= 1
        await hold(group, site, gate, "/v1/hold", "operator")
        assert (await site.ask("GET", "/v1/echo/1", key="admin")).status == 200
        await hold(group, site, gate, "/v1/hold", "admin")
        await hold(group, site, gate, "/v1/wait", "")
        reply = await site.ask("GET", "/v1/echo/1", key="admin")
        assert (reply.status, code(reply)) == (503, "overloaded")
        assert "6 requests in flight" in reply.json["detail"]
        gate.open.set()


async def test_long_polls_hold_no_slot_of_requests_and_each_key_has_its_share(
    open_site: Opens,
) -> None:
    gate = Gate()
    bounds = RequestBounds(in_flight=2, long_polls=6)
    async with (
        open_site(operations=gate.table(), bounds=bounds) as site,
        asyncio.TaskGroup() as group,
    ):
        for _ in range(3):
            await hold(group, site, gate, "/v1/poll?wait_seconds=50", "viewer")
        reply = await site.ask("GET", "/v1/poll?wait_seconds=50", key="viewer")
        assert (reply.status, code(reply)) == (429, "rate_limited")
        assert "3 requests that wait" in reply.json["detail"]
        assert (await site.ask("GET", "/v1/echo/1", key="viewer")).status == 200
        await hold(group, site, gate, "/v1/poll?wait_seconds=50", "operator")
        gate.open.set()


async def test_a_long_poll_ends_when_its_client_leaves(open_site: Opens) -> None:
    gate = Gate()
    async with open_site(operations=gate.table(), bounds=RequestBounds(long_polls=2)) as site:
        for _ in range(5):
            asking = asyncio.create_task(site.ask("GET", "/v1/poll?wait_seconds=50", key="viewer"))
            await gate.until(1)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            await gate.until(0)


SUBSCRIPTION = "topics/t/subscriptions/s"
POLLS = (
    ("GET", "/v1/events?start=now&wait_seconds=50", None),
    ("GET", "/v1/router/events?start=now&wait_seconds=50", None),
    ("GET", "/v1/router/offers?worker=w&wait_seconds=50", None),
    ("POST", "/v1/containers/c/changes:read", {"start": "now", "wait_seconds": 50}),
    ("GET", "/v1/jobs/{job}/end?wait_seconds=20", None),
    ("GET", "/v1/batches/{batch}/end?wait_seconds=20", None),
    ("POST", "/v1/messages:claim", {"sources": ["q"], "wait_seconds": 50}),
    ("POST", "/v1/queues/q/messages:claim", {"wait_seconds": 50}),
    ("POST", "/v1/queues/q/dead-letters/messages:claim", {"wait_seconds": 50}),
    ("POST", "/v1/queues/s/sessions:accept", {"wait_seconds": 50}),
    ("POST", "/v1/queues/s/sessions/x/messages:claim", {"holder": 1, "wait_seconds": 50}),
    ("POST", f"/v1/{SUBSCRIPTION}/messages:claim", {"wait_seconds": 50}),
    ("POST", f"/v1/{SUBSCRIPTION}/dead-letters/messages:claim", {"wait_seconds": 50}),
    ("POST", f"/v1/{SUBSCRIPTION}b/sessions:accept", {"wait_seconds": 50}),
    (
        "POST",
        f"/v1/{SUBSCRIPTION}b/sessions/x/messages:claim",
        {"holder": 1, "wait_seconds": 50},
    ),
)


IN_ACTORS = {"pools.lease", "limits.acquire", "resolvers.move", "resolvers.apply"}
"""What waits in an actor, which holds no connection meanwhile either."""


def _waits(operation: Operation) -> bool:
    return "wait_seconds" in {field.name for field in fields(operation.request)}


def test_every_operation_that_waits_is_a_long_poll() -> None:
    waiting = {one.name: one.wait for one in OPERATIONS if _waits(one)}
    assert len(waiting.keys() - IN_ACTORS) == len(POLLS)
    assert waiting.keys() > IN_ACTORS
    assert set(waiting.values()) == {"wait_seconds"}


async def test_long_polls_hold_no_connection_of_the_database(open_site: Opens) -> None:
    async with open_site(pool_size=1) as site:
        app = site.services.app
        await app.container("c", "/pk").upsert({"id": "1", "pk": "a"})
        await app.router.register_worker("w", queues=[], channels={"chat": 1})
        job = await app.jobs.submit("nobody-serves-this")
        batch = await app.jobs.batch()
        await app.queue("q").ensure()
        await app.queue("s", requires_session=True).accept_session("x")
        await app.topic("t").subscription("s").ensure()
        await app.topic("t").subscription("sb", requires_session=True).accept_session("x")
        asking = [
            asyncio.create_task(
                site.ask(method, target.format(job=job.id, batch=batch.id), key="admin", json=body)
            )
            for method, target, body in POLLS
            for _ in range(5)
        ]
        for _ in range(50):
            assert (await site.ask("GET", "/v1/hosts", key="admin")).status == 200
        assert not [task.result().body for task in asking if task.done()]
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)


async def test_a_stopping_host_ends_long_polls_at_once(open_site: Opens) -> None:
    gate = Gate()
    async with aiohttp.ClientSession() as session:
        async with open_site(operations=gate.table(), grace_seconds=60) as site:
            site.session = session
            asking = asyncio.create_task(site.ask("GET", "/v1/poll?wait_seconds=50", key="viewer"))
            await gate.until(1)
        reply = await asking
    assert (reply.status, code(reply)) == (503, "closed")


@pytest.mark.parametrize(
    ("version", "hosts", "status"),
    [
        (b"1.1", b"", 400),
        (b"1.1", b"Host: a\r\nHost: b\r\n", 400),
        (b"1.1", b"Host: a\r\nHost: a\r\n", 400),
        (b"1.0", b"Host: a\r\nHost: b\r\n", 400),
        (b"1.1", b"Host: a\r\n", 200),
        (b"1.0", b"", 200),
    ],
)
@pytest.mark.parametrize(("path", "part"), [(b"/livez", b"invalid_value"), (b"/routing/x", b"Bad")])
async def test_a_request_says_once_for_which_host_it_is(
    site: Site, version: bytes, hosts: bytes, status: int, path: bytes, part: bytes
) -> None:
    if status == 200 and path != b"/livez":
        return
    answer = await site.raw(
        b"GET %s HTTP/%s\r\n%sConnection: close\r\n\r\n" % (path, version, hosts)
    )
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert status == 200 or part in answer


async def test_a_crowded_host_answers_probes_and_tells_others_which_bound_was_reached(
    open_site: Opens,
) -> None:
    connections = ConnectionBounds(most=2, per_address=2, probes=2, backlog=16)
    async with open_site(connections=connections) as site:
        idle = [await asyncio.open_connection("127.0.0.1", site.address.port) for _ in range(2)]
        for _ in range(3):
            answer = await site.raw(b"GET /livez HTTP/1.1\r\nHost: h\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 200 ")
        answer = await site.raw(b"GET /v1/hosts HTTP/1.1\r\nHost: h\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: 1" in answer
        assert b"2 connections, as many as it takes" in answer
        for _, writer in idle:
            writer.close()
