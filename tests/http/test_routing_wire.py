"""`/routing` on the wire, where the official client does not look: headers, odd requests."""

from __future__ import annotations

import asyncio
import io
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, quote, urlsplit

import pytest

from relevo.http.access.key_model import NewKey
from relevo.http.application import RequestBounds
from tests.http.table import Gate, code

if TYPE_CHECKING:
    from tests.http.conftest import Opens, Reply, Site

pytestmark = pytest.mark.anyio

V = "api-version=2023-11-01"
POLICIES = "/routing/distributionPolicies"
PATCH = {"Content-Type": "application/merge-patch+json"}


async def patch(
    site: Site, path: str, body: Any = None, key: str = "admin", **headers: str
) -> Reply:
    sent = {**PATCH, **{name.replace("_", "-"): value for name, value in headers.items()}}
    data = body if isinstance(body, bytes) else None
    json = None if isinstance(body, bytes) else (body or {})
    return await site.ask("PATCH", f"{path}?{V}", key=key, headers=sent, json=json, data=data)


async def get(site: Site, path: str, key: str = "viewer") -> Reply:
    return await site.ask("GET", f"{path}?{V}", key=key)


async def test_created_changed_and_read_with_tag_and_time(site: Site) -> None:
    made = await patch(site, f"{POLICIES}/d", {"name": "a"})
    assert (made.status, made.type) == (201, "application/json")
    assert made.headers["Content-Type"] == "application/json; charset=utf-8"
    changed = await patch(site, f"{POLICIES}/d", {"name": "b"})
    read = await get(site, f"{POLICIES}/d")
    for reply in (made, changed, read):
        assert re.fullmatch(r'"[^"]+"', reply.headers["ETag"])
        assert reply.json["etag"] == reply.headers["ETag"]
        assert reply.headers["Last-Modified"].endswith(" GMT")
        assert reply.headers["api-supported-versions"] == "2023-11-01, 2024-01-18-preview"
    assert (changed.status, read.status, read.json) == (200, 200, changed.json)
    head = await site.ask("HEAD", f"{POLICIES}/d?{V}", key="viewer")
    assert (head.status, head.headers["ETag"]) == (200, changed.headers["ETag"])


async def test_unset_is_left_out_and_empty_is_there(site: Site) -> None:
    made = await patch(site, "/routing/classificationPolicies/c")
    assert made.json.keys() == {
        "id", "etag", "queueSelectorAttachments", "workerSelectorAttachments",
    }  # fmt: skip


async def test_last_modified_fulfils_if_unmodified_since(site: Site) -> None:
    made = await patch(site, f"{POLICIES}/d")
    since = made.headers["Last-Modified"]
    assert (
        await patch(site, f"{POLICIES}/d", {"name": "x"}, If_Unmodified_Since=since)
    ).status == 200
    for date, status in (("Wed, 15 Nov 2023 10:00:00 GMT", 412), ("yesterday", 400)):
        reply = await patch(site, f"{POLICIES}/d", {"name": "y"}, If_Unmodified_Since=date)
        assert reply.status == status


async def test_conditions_come_before_the_body_and_after_authentication(site: Site) -> None:
    await patch(site, f"{POLICIES}/d")
    for body in (b"{", {"mode": 5}):
        reply = await patch(site, f"{POLICIES}/d", body, If_Match='"stale"')
        assert (reply.status, code(reply)) == (412, "ConditionNotMet")
    stranger = await patch(site, f"{POLICIES}/d", {}, key="nobody's", If_Match='"stale"')
    assert (stranger.status, code(stranger)) == (401, "Denied")


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("", "MissingApiVersionParameter"),
        ("api-version=", "MissingApiVersionParameter"),
        ("api-version=2021-10-20-preview2", "UnsupportedApiVersionValue"),
        ("api-version=2023-11-01", None),
        ("api-version=2024-01-18-preview", None),
    ],
)
async def test_the_version_is_looked_at_after_authentication(
    site: Site, version: str, expected: str | None
) -> None:
    target = f"/routing/queues?{version}"
    assert code(await site.ask("GET", target)) == "Denied"
    reply = await site.ask("GET", target, key="viewer")
    if expected is None:
        assert reply.json == {"value": []}
    else:
        assert (reply.status, code(reply)) == (400, expected)


async def test_pages_lead_to_each_other_by_absolute_addresses(site: Site) -> None:
    # J16
    for number in range(5):
        await patch(site, f"{POLICIES}/d{number}")
    target, seen = f"{POLICIES}?{V}&maxpagesize=2&extra=a%20b&empty=", []
    while target:
        reply = await site.ask("GET", target, key="viewer")
        seen.append([one["id"] for one in reply.json["value"]])
        link = reply.json.get("nextLink")
        target = ""
        if link:
            parts = urlsplit(link)
            assert (parts.scheme, parts.netloc) == ("http", f"127.0.0.1:{site.address.port}")
            arguments = parse_qs(parts.query, keep_blank_values=True)
            assert arguments["extra"] == ["a b"]
            assert "empty" not in arguments
            assert re.fullmatch(r"[A-Za-z0-9_-]+", arguments["continuation"][0])
            target = f"{parts.path}?{parts.query}"
    assert seen == [["d0", "d1"], ["d2", "d3"], ["d4"]]


@pytest.mark.parametrize(
    ("proxies", "expected"),
    [
        ((), None),
        (("192.0.2.0/24", "::1"), None),
        (("127.0.0.0/8",), "https://relevo.example/"),
        (("127.0.0.1",), "https://relevo.example/"),
    ],
)
async def test_what_headers_say_of_the_client_counts_from_trusted_proxies_alone(
    open_site: Opens, proxies: tuple[str, ...], expected: str | None
) -> None:
    headers = {"X-Forwarded-Proto": "https", "X-Forwarded-Host": "relevo.example, inner"}
    async with open_site(trusted_proxies=proxies) as site:
        for number in range(2):
            await patch(site, f"{POLICIES}/d{number}")
        target = f"{POLICIES}?{V}&maxpagesize=1"
        reply = await site.ask("GET", target, key="viewer", headers=headers)
        assert reply.json["nextLink"].startswith(expected or f"{site.address.url}/")


async def test_strangers_behind_a_trusted_proxy_are_told_apart(open_site: Opens) -> None:
    gate = Gate()
    bounds = RequestBounds(in_flight=4)
    async with (
        open_site(
            operations=gate.table(), bounds=bounds, trusted_proxies=("127.0.0.1", "10.0.0.0/8")
        ) as site,
        asyncio.TaskGroup() as group,
    ):
        first = {"X-Forwarded-For": "203.0.113.9, 192.0.2.1, 10.1.2.3"}  # who is before may lie
        for number in range(2):
            group.create_task(site.ask("GET", "/v1/wait", headers=first))
            await gate.until(number + 1)
        assert (await site.ask("GET", "/v1/wait", headers=first)).status == 429
        group.create_task(site.ask("GET", "/v1/wait", headers={"X-Forwarded-For": "192.0.2.2"}))
        await gate.until(3)
        gate.open.set()


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        ("maxpagesize=0", 400),
        ("maxpagesize=-1", 400),
        ("maxpagesize=x", 400),
        ("maxpagesize=99999999999999999999", 200),
        ("continuation=x", 400),
        ("continuation=WzkyMjMzNzIwMzY4NTQ3NzU4MDhd", 400),
        ("continuation=Wzk5OTk5OV0", 200),
    ],
)
async def test_arguments_of_lists(site: Site, arguments: str, status: int) -> None:
    reply = await site.ask("GET", f"{POLICIES}?{V}&{arguments}", key="viewer")
    assert reply.status == status
    assert (code(reply) == "InvalidValue") if status == 400 else reply.json == {"value": []}


@pytest.mark.parametrize(
    "name", ["8:acs:a_b", "a/b", "x:cancel", "ä b?&%", "-", "..", "e\u0301", "\U0001f600"]
)
async def test_ids_are_one_encoded_segment(site: Site, name: str) -> None:
    path = f"{POLICIES}/{quote(name, safe='')}"
    assert (await patch(site, path)).json["id"] == name
    assert (await get(site, path)).json["id"] == name
    bare = f"{POLICIES}/{quote(name, safe=':')}"
    assert (await site.ask("DELETE", f"{bare}?{V}", key="admin")).status == 204
    assert (await get(site, path)).status == 404


@pytest.mark.parametrize(
    "path", [f"{POLICIES}/a%0Ab", f"{POLICIES}/{'x' * 257}", f"{POLICIES}/%ff"]
)
async def test_ids_that_are_refused(site: Site, path: str) -> None:
    reply = await patch(site, path)
    assert (reply.status, code(reply)) == (400, "InvalidValue")


async def test_media_types(site: Site) -> None:
    async def ask(content_type: str, data: bytes = b"{}") -> Reply:
        headers = {"Content-Type": content_type}
        return await site.ask("PATCH", f"{POLICIES}/d?{V}", key="admin", headers=headers, data=data)

    assert (await ask("application/merge-patch+json")).status == 201
    assert (await ask("application/json; charset=utf-8")).status == 200
    refused = await ask("text/plain")
    assert (refused.status, code(refused)) == (415, "UnsupportedMediaType")
    assert (await ask("text/plain", b"")).status == 200


@pytest.mark.parametrize(
    ("method", "path", "status", "expected"),
    [
        ("POST", f"{POLICIES}/d", 405, "MethodNotAllowed"),
        ("PUT", f"{POLICIES}/d", 405, "MethodNotAllowed"),
        ("PATCH", POLICIES, 405, "MethodNotAllowed"),
        ("GET", "/routing/nothing", 404, "NotFound"),
        ("GET", "/routing", 404, "NotFound"),
        ("GET", f"{POLICIES}/missing", 404, "NotFound"),
    ],
)
async def test_errors_have_the_envelope(
    site: Site, method: str, path: str, status: int, expected: str
) -> None:
    # J21
    reply = await site.ask(method, f"{path}?{V}", key="admin", json={} if method != "GET" else None)
    assert (reply.status, code(reply)) == (status, expected)
    assert reply.headers["x-ms-error-code"] == expected
    assert reply.json["error"]["message"]
    assert reply.headers["x-ms-request-id"]


@pytest.mark.parametrize(
    "body",
    [
        b"{", b"[]", b"5", b"null", b'"x"', b'{"name": {}}', b'{"mode": []}', b'{"mode": "x"}',
        b'{"mode": {"kind": 5}}', b'{"mode": {"kind": "bestWorker", "scoringRule": {"kind": []}}}',
        b'{"offerExpiresAfterSeconds": 1e400}', b'{"offerExpiresAfterSeconds": -1}',
        b'{"name": "\\u0000"}', b'{"name": "\\ud800"}', b"\xff", b'{"a":' * 900 + b"1" + b"}" * 900,
        b'{"mode": {"kind": "roundRobin", "minConcurrentOffers": 99999999999999999999}}',
    ],
)  # fmt: skip
async def test_whatever_is_sent_is_never_our_fault(site: Site, body: bytes) -> None:
    # J21, J14
    reply = await patch(site, f"{POLICIES}/d", body)
    assert (reply.status, reply.headers["x-ms-error-code"]) == (400, code(reply))
    assert (await get(site, f"{POLICIES}/d")).status == 404


async def test_a_body_that_is_too_large(site: Site) -> None:
    large = io.BytesIO(b'"' + b"x" * 1_048_576 + b'"')
    target = f"{POLICIES}/d?{V}"
    reply = await site.ask("PATCH", target, key="admin", headers=PATCH, data=large)
    assert (reply.status, code(reply)) == (413, "RequestTooLarge")


async def test_a_missing_resource_has_the_reason_phrase_of_the_client(site: Site) -> None:
    secret = site.secrets["viewer"]
    request = (
        f"GET {POLICIES}/d?{V} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {secret}\r\n"
        "Connection: close\r\n\r\n"
    )
    assert (await site.raw(request.encode())).startswith(b"HTTP/1.1 404 Not Found\r\n")


async def test_who_may(site: Site) -> None:
    for key in ("viewer", "operator", "router"):
        refused = await patch(site, f"{POLICIES}/d", key=key)
        assert (refused.status, code(refused)) == (403, "Forbidden")
        assert (await site.ask("GET", f"{POLICIES}?{V}", key=key)).status == 200
    assert (await patch(site, f"{POLICIES}/d", key="supervisor")).status == 201
    assert (await get(site, f"{POLICIES}/d", key="consumer")).status == 403


async def test_scopes_limit_a_key_to_its_resources(site: Site) -> None:
    new = NewKey(name="s", roles=("supervisor",), scopes=("distribution_policy:mine-*",))
    secret = (await site.services.keys.create(new)).secret
    assert (await patch(site, f"{POLICIES}/mine-1", key=secret)).status == 201
    assert (await patch(site, f"{POLICIES}/other", key=secret)).status == 403
    assert (await get(site, POLICIES, key=secret)).status == 403


async def test_what_is_read_can_be_sent_back_whole(site: Site) -> None:
    # J15
    await patch(site, f"{POLICIES}/d")
    queue = await patch(
        site, "/routing/queues/q", {"distributionPolicyId": "d", "labels": {"a": 1}}
    )
    back = await patch(site, "/routing/queues/q", {**queue.json, "id": "other", "etag": '"x"'})
    assert (back.status, back.json) == (200, queue.json)
