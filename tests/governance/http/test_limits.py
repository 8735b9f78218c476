"""Rate limits over HTTP: made and seen by operators, charged by programs in any language."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from relevo.governance import Rate

if TYPE_CHECKING:
    from tests.governance.http.conftest import Bench

pytestmark = pytest.mark.anyio

HOURLY = [{"amount": 3, "per": 3_600}]


async def test_an_operator_makes_and_changes_a_limit(bench: Bench) -> None:
    operator = bench.wire("operator")
    assert await operator.put("limits/mail", {"rates": HOURLY}) == {"created": True}
    assert await operator.put("limits/mail", {"rates": HOURLY}, 200) == {"created": False}
    await operator.put("limits/mail", {"rates": [*HOURLY, {"amount": 1}], "burst": 2}, 200)
    found = await bench.wire("viewer").get("limits/mail")
    assert found == {
        "name": "mail", "rates": [{"amount": 3, "per": 3_600}, {"amount": 1, "per": 1}],
        "burst": 2, "keys": 0, "waiting": 0,
    }  # fmt: skip
    assert await bench.events_of("limit/mail") == [
        ("limit.created", "operator"), ("limit.changed", "operator"),
    ]  # fmt: skip


async def test_costs_are_charged_until_the_limit_is_reached(bench: Bench) -> None:
    await bench.wire().put("limits/api", {"rates": HOURLY})
    worker = bench.wire("worker")
    assert await worker.post("limits/api:acquire", {"cost": 2}) == {"cost": 2}
    assert await worker.post("limits/api:acquire") == {"cost": 1}
    reply = await worker.ask("POST", "limits/api:acquire", {}, status=503)  # I46
    assert reply.json["code"] == "pool_exhausted"
    assert 0 < int(reply.headers["Retry-After"]) <= 3_700
    await worker.post("limits/api:acquire", {"key": "other"})  # each key has the rates for itself
    assert (await bench.wire().get("limits/api"))["keys"] == 2
    for _ in range(2):  # charged once
        await worker.post("limits/api:acquire", {"key": "once", "cost": 2, "id": "a"})
    await worker.post("limits/api:acquire", {"key": "once", "cost": 1})


async def test_a_request_waits_until_it_is_admitted(bench: Bench) -> None:
    await bench.wire().put("limits/soon", {"rates": [{"amount": 1, "per": 0.5}]})
    for _ in range(3):
        await bench.wire().post("limits/soon:acquire", {"wait_seconds": 30})
    await bench.wire().put("limits/late", {"rates": HOURLY})
    await bench.wire().post("limits/late:acquire", {"cost": 3})
    asked = asyncio.create_task(bench.wire().post("limits/late:acquire", {"wait_seconds": 30}))
    while (await bench.wire().get("limits/late"))["waiting"] != 1:
        await asyncio.sleep(0.01)
    await bench.wire().put("limits/late", {"rates": [{"amount": 4, "per": 3_600}]}, 200)
    assert await asked == {"cost": 1}


async def test_a_removed_limit_is_gone_but_what_was_spent_counts(bench: Bench) -> None:
    await bench.wire().put("limits/gone", {"rates": HOURLY})
    await bench.wire().post("limits/gone:acquire", {"cost": 3})
    await bench.wire("operator").ask("DELETE", "limits/gone", status=204)
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", ":acquire")):
        body: Any = {} if method == "POST" else None
        await bench.wire().refused(method, f"limits/gone{path}", body, 404, "not_found")
    page = await bench.wire().get("limits")
    assert "gone" not in {one["name"] for one in page["items"]}
    assert (await bench.events_of("limit/gone"))[-1] == ("limit.deleted", "operator")
    await bench.wire().put("limits/gone", {"rates": HOURLY})
    await bench.wire().refused("POST", "limits/gone:acquire", {}, 503, "pool_exhausted")  # I46


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("GET", "limits/none", None, 404, "not_found"),
        ("POST", "limits/none:acquire", {}, 404, "not_found"),
        ("PUT", "limits/new", {}, 400, "missing_field"),
        ("PUT", "limits/new", {"rates": []}, 400, "invalid_value"),
        ("PUT", "limits/new", {"rates": [{"amount": 0}]}, 400, "invalid_value"),
        ("PUT", "limits/new", {"rates": [{"amount": 1, "per": 0}]}, 400, "invalid_value"),
        ("PUT", "limits/new", {"rates": [{"amount": 1}] * 9}, 400, "invalid_value"),
        ("PUT", "limits/new", {"rates": HOURLY, "burst": -1}, 400, "invalid_value"),
        ("PUT", "limits/new%00", {"rates": HOURLY}, 400, "invalid_value"),
        ("POST", "limits/bad:acquire", {"cost": 0}, 400, "invalid_value"),
        ("POST", "limits/bad:acquire", {"cost": 4}, 400, "invalid_value"),
        ("POST", "limits/bad:acquire", {"wait_seconds": -1}, 400, "invalid_value"),
    ],
)
async def test_bad_requests_are_refused_and_change_nothing(
    bench: Bench, method: str, path: str, body: Any, status: int, code: str
) -> None:
    limit = bench.app.governance.limit("bad", rates=[Rate(3, per=3_600)])
    await limit.view()
    await bench.wire().refused(method, path, body, status, code)
    await bench.wire().get("limits/new", 404)
    assert (await limit.view()).options.rates == (Rate(3, per=3_600),)


async def test_each_role_does_what_it_may(bench: Bench) -> None:
    await bench.wire().put("limits/roles", {"rates": HOURLY})
    await bench.wire("worker").ask("PUT", "limits/roles", {"rates": HOURLY}, status=403)
    await bench.wire("viewer").ask("POST", "limits/roles:acquire", {}, status=403)
    await bench.wire("worker").ask("GET", "limits", status=403)
