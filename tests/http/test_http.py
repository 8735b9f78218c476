"""Bounds, rendering and manners of the HTTP layer, over a real socket."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

from relevo.kernel.operation import PUBLIC, Text
from tests.http.table import TABLE, code, op
from tests.support.logs import capture_logs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.http.conftest import Opens, Site

pytestmark = pytest.mark.anyio


@pytest.fixture
async def site(open_site: Opens) -> AsyncIterator[Site]:
    async with open_site(operations=TABLE) as site:
        yield site


@pytest.mark.parametrize(
    ("method", "target", "status", "expected"),
    [
        ("GET", "/v1/nothing", 404, "not_found"),
        ("GET", "/nothing", 404, "not_found"),
        ("GET", "/routing/nothing", 404, "NotFound"),
        ("GET", "/routing", 404, "NotFound"),
        ("PUT", "/v1/echo/1", 405, "method_not_allowed"),
        ("PUT", "/routing/echoes/1", 405, "MethodNotAllowed"),
        ("POST", "/routing/echoes/1:unknown", 405, "MethodNotAllowed"),
        ("GET", "/v1/echo/1", 401, "unauthenticated"),
        ("GET", "/routing/echoes/1", 401, "Denied"),
        ("GET", "/v1/echo/%ff", 401, "unauthenticated"),
    ],
)
async def test_errors_before_a_handler_are_rendered_by_the_surface(
    site: Site, method: str, target: str, status: int, expected: str
) -> None:
    reply = await site.ask(method, target)
    assert (reply.status, code(reply)) == (status, expected)
    routing = target.startswith("/routing")
    assert reply.type == ("application/json" if routing else "application/problem+json")
    assert reply.headers.get("x-ms-error-code") == (expected if routing else None)
    if status == 405:
        assert "GET" in reply.headers["Allow"]
    if status == 401:
        challenge = "HMAC-SHA256" if routing else 'Bearer realm="relevo", HMAC-SHA256'
        assert reply.headers["WWW-Authenticate"] == challenge


@pytest.mark.parametrize(
    ("method", "target"),
    [("GET", "/livez"), ("GET", "/v1/none"), ("GET", "/routing/echoes/1"), ("OPTIONS", "/v1/keys")],
)
async def test_every_answer_carries_the_security_headers_and_a_fresh_id(
    site: Site, method: str, target: str
) -> None:
    replies = [await site.ask(method, target, headers={"x-request-id": "mine"}) for _ in range(2)]
    for reply in replies:
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["cache-control"] == "no-store"
        assert "server" not in reply.headers
    ids = {reply.headers["x-request-id"] for reply in replies}
    assert len(ids) == 2
    assert "mine" not in ids


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("/v1/echo/a%2Fb", "a/b"),
        ("/v1/echo/8%3Aacs%3A1", "8:acs:1"),
        ("/v1/echo/8:acs:1", "8:acs:1"),
        ("/v1/echo/%C3%A9%20%2B+", "é ++"),
        ("/routing/echoes/x:cancel?api-version=2023-11-01", "x:cancel"),
        ("/v1/echo/%252F", "%2F"),
        ("/v1/echo/..", ".."),
    ],
)
async def test_the_path_is_split_before_it_is_decoded(
    site: Site, target: str, expected: str
) -> None:
    reply = await site.ask("GET", target, key="viewer")
    assert reply.json["id"] == expected


@pytest.mark.parametrize(
    ("target", "pointer"),
    [
        ("/v1/echo/1?nte=x", "/nte"),
        ("/v1/echo/%00", "/id"),
        ("/v1/echo/%ff", "/id"),
        ("/v1/keys?limit=0", "/limit"),
        ("/v1/keys?limit=501", "/limit"),
        ("/v1/keys?cursor=zzz", "/cursor"),
    ],
)
async def test_wrong_input_is_refused_with_a_pointer(site: Site, target: str, pointer: str) -> None:
    reply = await site.ask("GET", target, key="admin")
    assert (reply.status, reply.json["pointer"]) == (400, pointer)


async def test_an_unknown_field_is_refused_with_a_suggestion_or_ignored(site: Site) -> None:
    reply = await site.ask("POST", "/v1/echo/1", key="viewer", json={"nte": "x"})
    assert (reply.status, reply.json["pointer"]) == (400, "/nte")
    assert "did you mean 'note'?" in reply.json["detail"]
    target = "/routing/echoes/1:cancel?api-version=2023-11-01&x=1"
    reply = await site.ask("POST", target, key="viewer", json={"nte": "x"})
    assert reply.json == {"id": "1", "note": ""}


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("/v1/echo/1", "invalid_json"),
        ("/routing/echoes/1:cancel?api-version=2023-11-01", "InvalidJson"),
    ],
)
async def test_bad_json_is_refused(site: Site, target: str, expected: str) -> None:
    headers = {"Content-Type": "application/json"}
    reply = await site.ask("POST", target, key="viewer", headers=headers, data=b'{"note": ')
    assert (reply.status, code(reply)) == (400, expected)


async def test_another_media_type_is_refused(site: Site) -> None:
    reply = await site.ask("POST", "/v1/echo/1", key="viewer", data=b"note=x")
    assert (reply.status, code(reply)) == (415, "unsupported_media_type")


async def test_what_is_not_http_is_refused(site: Site) -> None:
    answer = await site.raw(b"HELLO\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"application/problem+json" in answer


async def test_two_content_lengths_are_refused(site: Site) -> None:
    head = b"POST /v1/echo/1 HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n"
    assert (await site.raw(head)).startswith(b"HTTP/1.1 400 ")


async def test_head_is_get_without_the_body(site: Site) -> None:
    got = await site.ask("GET", "/v1/echo/1", key="viewer")
    reply = await site.ask("HEAD", "/v1/echo/1", key="viewer")
    assert (reply.status, reply.body) == (200, b"")
    assert reply.headers["Content-Length"] == str(len(got.body))
    assert (await site.ask("HEAD", "/v1/echo/1")).status == 401


@pytest.mark.parametrize(
    ("target", "status", "allow"),
    [
        ("/v1/echo/1", 204, "GET, HEAD, OPTIONS, POST"),
        ("/v1/keys/1", 204, "DELETE, GET, HEAD, OPTIONS"),
        ("/v1/none", 404, None),
    ],
)
async def test_options_tells_the_methods_and_opens_nothing_to_other_origins(
    site: Site, target: str, status: int, allow: str | None
) -> None:
    reply = await site.ask("OPTIONS", target, headers={"Origin": "https://elsewhere.example"})
    assert (reply.status, reply.headers.get("Allow")) == (status, allow)
    assert not any(name.lower().startswith("access-control") for name in reply.headers)


@pytest.mark.parametrize(
    ("target", "status", "expected"),
    [
        ("/v1/broken", 500, "internal"),
        ("/routing/broken?api-version=2023-11-01", 500, "InternalError"),
        ("/v1/unreachable", 503, "database_unavailable"),
    ],
)
async def test_the_words_of_a_system_fault_go_to_the_log_only(
    site: Site, target: str, status: int, expected: str
) -> None:
    with capture_logs() as logs:
        reply = await site.ask("GET", target, key="viewer")
    assert (reply.status, code(reply)) == (status, expected)
    assert b"10.0.0.7" not in reply.body
    (entry,) = [entry for entry in logs if entry["event"] == "request_failed"]
    assert "10.0.0.7" in entry["reason"]
    assert entry["request_id"] == reply.headers["x-request-id"]
    assert ("exception" in entry) == (status == 500)
    assert ("Retry-After" in reply.headers) == (status == 503)


async def test_secrets_are_neither_logged_nor_answered(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    secret = site.secrets["viewer"]
    wrong = "relevo_key-1_" + "w" * 43
    replies = []
    with capture_logs() as logs:
        for target in ("/v1/broken", "/v1/unreachable", "/v1/keys", "/v1/echo/1?x=1", "/routing/x"):
            replies += [await site.ask("GET", target, key=key) for key in ("viewer", wrong)]
        made = await site.ask(
            "POST", "/v1/keys", key="admin", json={"name": "n", "roles": ["viewer"]}
        )
    assert made.status == 201
    told = repr(logs) + caplog.text + "".join(str(r.headers) + repr(r.body) for r in replies)
    for hidden in (secret, wrong, made.json["secret"], site.secrets["admin"]):
        assert hidden not in told


async def test_requests_are_measured_by_operation_and_status(site: Site) -> None:
    await site.ask("GET", "/v1/echo/1", key="viewer")
    await site.ask("GET", "/v1/none")
    figures = (await site.ask("GET", "/metrics", key="viewer")).body.decode()
    name = "relevo_http_request_seconds_count"
    assert f'{name}{{operation="test.echo",status="200"}} 1.0' in figures
    assert f'{name}{{operation="none",status="404"}} 1.0' in figures


async def test_readiness_hides_from_strangers_what_health_tells_in_full(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    from relevo.app import Health

    async def health() -> Health:
        return Health(False, ("database is not reachable: 10.0.0.7 refused", "host is draining"))

    monkeypatch.setattr(site.services.app, "health", health)
    reply = await site.ask("GET", "/readyz")
    assert reply.status == 503
    assert reply.json == {
        "ready": False,
        "reasons": ["database is not reachable", "host is draining"],
        "write_probe_age_seconds": None,
    }
    assert (await site.ask("GET", "/v1/health")).status == 401
    reply = await site.ask("GET", "/v1/health", key="viewer")
    assert reply.status == 200
    assert "10.0.0.7" in reply.json["reasons"][0]


async def test_a_text_answer_keeps_its_type(open_site: Opens) -> None:
    async def text(*_: Any) -> Text:
        """Not JSON."""
        return Text("text/csv", b"a,b")

    table = (op("test.text", "GET", "/v1/text", text, permission=PUBLIC, response=Text),)
    async with open_site(operations=table) as site:
        reply = await site.ask("GET", "/v1/text")
        assert (reply.type, reply.body) == ("text/csv", b"a,b")
