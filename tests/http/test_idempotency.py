"""`Idempotency-Key`: a repeated POST of `/v1` does nothing, and gets the first answer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from relevo import limits
from relevo.cli.calling import remote_calls
from relevo.cli.generic import fields
from relevo.errors import Conflict, Forbidden, InternalError, OutcomeUnknown, Overloaded
from relevo.http.operations import OPERATIONS, operation
from relevo.idempotency.service import KeyedRequest
from relevo.testing.clock import Clock
from relevo.testing.proxy import Proxy
from tests.http.table import TABLE, Echoed, Gate, op

if TYPE_CHECKING:
    from relevo.kernel.operation import Operation
    from tests.http.conftest import Opens, Reply, Site

pytestmark = pytest.mark.anyio


def keyed(key: str) -> dict[str, str]:
    return {"Idempotency-Key": key}


async def submit(site: Site, key: str, data: Any, *, by: str = "admin") -> Reply:
    body = {"handler": "mail", "data": data}
    return await site.ask("POST", "/v1/jobs", key=by, json=body, headers=keyed(key))


async def test_a_repeat_gets_the_first_answer_and_does_nothing(site: Site) -> None:
    first = await submit(site, "order-1", {"to": "ana"})
    again = await submit(site, "order-1", {"to": "ana"})
    assert (first.status, again.status) == (201, 201)
    assert again.body == first.body
    assert "Idempotent-Replayed" not in first.headers
    assert again.headers["Idempotent-Replayed"] == "true"
    assert again.headers["X-Request-Id"] != first.headers["X-Request-Id"]
    other = await submit(site, "order-1", {"to": "ana"}, by="producer")  # another caller's key
    assert other.json["id"] != first.json["id"]
    assert "Idempotent-Replayed" not in other.headers
    assert (await site.ask("GET", "/v1/jobs/count", key="admin")).json["jobs"] == 2


async def test_a_key_names_one_request(site: Site) -> None:
    await submit(site, "order-2", {"to": "ana"})
    reply = await submit(site, "order-2", {"to": "bob"})
    assert (reply.status, reply.json["code"]) == (422, "idempotency_key_reused")
    assert reply.json["pointer"] == "Idempotency-Key"
    body = {"handler": "mail", "data": {"to": "ana"}}
    reply = await site.ask(
        "POST", "/v1/jobs?other=1", key="admin", json=body, headers=keyed("order-2")
    )
    assert reply.status == 400  # what cannot be read takes no key
    drain = await site.ask("POST", "/v1/hosts/x:drain", key="admin", headers=keyed("order-2"))
    assert (drain.status, drain.json["code"]) == (422, "idempotency_key_reused")


async def test_a_key_is_free_again_after_a_day(site: Site) -> None:
    clock = Clock(site.services.app.database)
    first = await submit(site, "order-3", {})
    await clock.advance(limits.IDEMPOTENCY_SECONDS - 60)
    await site.services.app.idempotency.forget()
    assert (await submit(site, "order-3", {})).json["id"] == first.json["id"]
    await clock.advance(120)
    second = await submit(site, "order-3", {"other": True})  # before anything is removed
    assert second.json["id"] != first.json["id"]
    await clock.advance(limits.IDEMPOTENCY_SECONDS + 60)
    await site.services.app.idempotency.forget()
    count = "select count(*) from relevo.idempotency_key"
    assert await site.services.app.database.fetchval(count) == 0


async def test_secrets_in_answers_are_kept_sealed(site: Site) -> None:
    body = {"name": "ci", "roles": ["viewer"]}
    made = await site.ask("POST", "/v1/keys", key="admin", json=body, headers=keyed("ci-key"))
    again = await site.ask("POST", "/v1/keys", key="admin", json=body, headers=keyed("ci-key"))
    assert again.json == made.json
    stored = await site.services.app.database.fetchval("select answer from relevo.idempotency_key")
    assert made.json["secret"].encode() not in stored
    assert len((await site.ask("GET", "/v1/audit", key="admin")).json["items"]) == 1
    # A row that somebody copies to another key cannot be opened as that one's.
    await site.services.app.database.write(
        "update relevo.idempotency_key set key = 'stolen' where key = 'ci-key'"
    )
    reply = await site.ask("POST", "/v1/keys", key="admin", json=body, headers=keyed("stolen"))
    assert (reply.status, reply.json["code"]) == (409, "answer_not_kept")


async def test_while_the_first_runs_its_repeat_waits(open_site: Opens) -> None:
    gate = Gate()

    async def hold(*arguments: Any) -> Echoed:
        return await gate(*arguments)

    async with open_site(operations=(*TABLE, op("test.slow", "POST", "/v1/slow", hold))) as site:

        async def ask() -> Reply:
            return await site.ask("POST", "/v1/slow", key="admin", json={}, headers=keyed("slow"))

        both = [asyncio.create_task(ask()) for _ in range(2)]
        await gate.until(1)
        (early,), _ = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        refused = early.result()
        assert (refused.status, refused.json["code"]) == (409, "idempotency_key_in_use")
        assert (refused.headers["Retry-After"], refused.json["retryable"]) == ("1", True)
        gate.open.set()
        done = [await each for each in both if each is not early]
        assert [each.status for each in done] == [200]
        assert (await ask()).headers["Idempotent-Replayed"] == "true"


class _Failing:
    """A handler that fails as it is told, and counts its calls."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.calls = 0

    def operation(self, name: str) -> Operation:
        async def fail(*_: Any) -> None:
            self.calls += 1
            raise self.error

        return op(f"test.{name}", "POST", f"/v1/{name}", fail)


async def test_errors_are_kept_where_they_would_come_again(open_site: Opens) -> None:
    handlers = {
        "conflict": _Failing(Conflict("the queue is in use")),
        "overload": _Failing(Overloaded("too much")),
        "forbidden": _Failing(Forbidden("not for you")),
        "fault": _Failing(ValueError("nobody expected this")),
        "internal": _Failing(InternalError("a fault")),
    }
    table = (*TABLE, *(each.operation(name) for name, each in handlers.items()))
    async with open_site(operations=table) as site:
        replies = {
            name: [
                await site.ask("POST", f"/v1/{name}", key="admin", json={}, headers=keyed(name))
                for _ in range(2)
            ]
            for name in handlers
        }
    assert {name: [each.json["code"] for each in both] for name, both in replies.items()} == {
        "conflict": ["conflict", "conflict"],
        "overload": ["overloaded", "overloaded"],
        "forbidden": ["forbidden", "forbidden"],
        "fault": ["internal", "earlier_outcome_unknown"],
        "internal": ["internal", "earlier_outcome_unknown"],
    }
    assert {name: each.calls for name, each in handlers.items()} == {
        "conflict": 1, "overload": 2, "forbidden": 2, "fault": 1, "internal": 1,
    }  # fmt: skip
    assert replies["conflict"][1].headers["Idempotent-Replayed"] == "true"
    assert replies["conflict"][1].json["detail"] == "the queue is in use"


async def test_an_answer_that_is_too_large_is_not_kept(open_site: Opens) -> None:
    calls = 0

    async def much(*_: Any) -> Echoed:
        nonlocal calls
        calls += 1
        return Echoed("x" * limits.IDEMPOTENCY_ANSWER_BYTES_MAX, "")

    async with open_site(operations=(*TABLE, op("test.much", "POST", "/v1/much", much))) as site:
        first = await site.ask("POST", "/v1/much", key="admin", json={}, headers=keyed("much"))
        again = await site.ask("POST", "/v1/much", key="admin", json={}, headers=keyed("much"))
    assert (first.status, again.status, again.json["code"]) == (200, 409, "answer_not_kept")
    assert calls == 1


@pytest.mark.parametrize("key", ["", "two words", "ü", "x" * 257])
async def test_a_malformed_key_is_refused(site: Site, key: str) -> None:
    told = b"POST /v1/hosts/x:drain HTTP/1.1\r\nHost: h\r\nConnection: close\r\n"
    secret = site.secrets["admin"].encode()
    answer = await site.raw(
        told + b"Authorization: Bearer %s\r\nIdempotency-Key: %s\r\n\r\n" % (secret, key.encode())
    )
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert msgspec.json.decode(body)["pointer"] == "Idempotency-Key"


async def test_a_request_whose_host_was_killed_is_never_run_again(site: Site) -> None:
    """What a host leaves that is killed between the effect and the answer."""
    clock = Clock(site.services.app.database)
    await submit(site, "order-9", {})
    await site.services.app.database.write(
        "update relevo.idempotency_key set state = 'running', answer = null"
    )
    busy = await submit(site, "order-9", {})
    assert (busy.status, busy.json["code"]) == (409, "idempotency_key_in_use")
    await clock.advance(limits.IDEMPOTENCY_RUNNING_SECONDS)
    lost = await submit(site, "order-9", {})
    assert (lost.status, lost.json["code"]) == (503, "earlier_outcome_unknown")
    assert "Retry-After" not in lost.headers
    assert (await site.ask("GET", "/v1/jobs/count", key="admin")).json["jobs"] == 1


async def test_a_late_answer_of_a_frozen_host_changes_nothing_of_a_newer_request(
    site: Site,
) -> None:
    kept = site.services.app.idempotency
    clock = Clock(site.services.app.database)
    old = KeyedRequest(principal="p", key="k", fingerprint=b"1")
    assert await kept.begin(old) is None
    assert await kept.begin(old) is None  # repeated after an unknown outcome: still its own
    await clock.advance(limits.IDEMPOTENCY_SECONDS + 1)
    new = KeyedRequest(principal="p", key="k", fingerprint=b"2")
    assert await kept.begin(new) is None
    await kept.end(old, "answered", b"old")
    await kept.withdraw(old)
    earlier = await kept.begin(KeyedRequest(principal="p", key="k", fingerprint=b"2"))
    assert earlier is not None
    assert (earlier.state, earlier.fingerprint, earlier.answer) == ("running", b"2", None)


def test_every_post_of_v1_takes_a_key() -> None:
    keyed = {each.name for each in OPERATIONS if each.takes_key}
    posts = {one.name for one in OPERATIONS if one.method == "POST" and one.path.startswith("/v1")}
    assert keyed == posts
    assert {one.name for one in OPERATIONS if one.knows_repeats} == {"actors.call", "pools.lease"}


async def test_the_document_has_the_header_at_every_operation(site: Site) -> None:
    reply = await site.ask("GET", "/openapi.json")
    for path, item in reply.json["paths"].items():
        for method, described in item.items():
            named = [one for one in described["parameters"] if one["name"] == "Idempotency-Key"]
            assert len(named) == (method == "post" and path.startswith("/v1/")), path
            assert bool(named) == ("422" in described["responses"])


@pytest.mark.parametrize("breaks", [1, None])
async def test_our_own_client_repeats_what_a_broken_connection_left_open(
    site: Site, breaks: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_calls, "_REPEAT_SECONDS", (0.0, 0.0, 0.0))
    submitting = operation("jobs.submit")
    values = fields.values(submitting, {"handler": "mail", "data": {"to": "ana"}})
    with Proxy((site.address.host, site.address.port)) as proxy:
        proxy.on_bytes("downstream", b"HTTP/1.1 201", proxy.reset, times=breaks)
        url = f"http://127.0.0.1:{proxy.port}"
        async with remote_calls.over_http(url, site.secrets["admin"]) as remote:
            if breaks is None:
                with pytest.raises(OutcomeUnknown, match="check before you repeat it"):
                    await remote.call(submitting, values)
            else:
                assert (await remote.call(submitting, values)).status == 201
    assert (await site.ask("GET", "/v1/jobs/count", key="admin")).json["jobs"] == 1
