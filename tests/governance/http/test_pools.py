"""Pools over HTTP: made and seen by operators, used by programs in any language."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from relevo import App
from relevo.errors import SettingsMismatch

if TYPE_CHECKING:
    from tests.governance.http.conftest import Bench

pytestmark = pytest.mark.anyio


async def waiting(bench: Bench, pool: str, count: int) -> Any:
    """Return the pool when so many wait for it."""
    while (found := await bench.wire().get(f"pools/{pool}"))["waiting"] != count:
        await asyncio.sleep(0.01)
    return found


async def test_an_operator_makes_and_changes_a_pool(bench: Bench) -> None:
    operator = bench.wire("operator")
    assert await operator.put("pools/erp", {"size": 2, "per_key": 1}) == {"created": True}
    assert await operator.put("pools/erp", {"size": 2, "per_key": 1}, 200) == {"created": False}
    await operator.put("pools/erp", {"size": 3, "per_key": 2, "burst": True}, 200)
    await operator.ask("POST", "pools/erp:resize", {"size": 5}, status=204)
    found = await bench.wire("viewer").get("pools/erp")
    assert found == {
        "name": "erp", "size": 5, "in_use": 0, "waiting": 0, "items": None, "per_key": 2,
        "burst": True, "max_waiters": 10_000, "waiters": [],
    }  # fmt: skip
    assert await bench.events_of("pool/erp") == [
        ("pool.created", "operator"), ("pool.changed", "operator"), ("pool.changed", "operator"),
    ]  # fmt: skip


async def test_a_program_that_declared_the_pool_may_go_on_after_a_change(bench: Bench) -> None:
    await bench.wire().put("pools/declared", {"size": 1})
    async with App(settings=bench.app.settings) as client:
        assert (await client.governance.pool("declared", size=1).view()).size == 1
        await bench.wire().put("pools/declared", {"size": 4}, 200)
        assert (await client.governance.pool("declared", size=1).view()).size == 4
    async with App(settings=bench.app.settings) as client:
        assert (await client.governance.pool("declared", size=1).view()).size == 4
        with pytest.raises(SettingsMismatch, match="size=4"):
            await client.governance.pool("declared", size=9).view()


async def test_programs_take_renew_and_release_permits(bench: Bench) -> None:
    await bench.wire().put("pools/db", {"size": 2})
    worker = bench.wire("worker")
    one = await worker.post("pools/db/permits", {"key": "acme", "ttl_seconds": 5}, 201)
    two = await worker.post("pools/db/permits", {}, 201)
    assert two["number"] == one["number"] + 1
    assert 4 < one["seconds_left"] <= 5 < two["seconds_left"] <= 30
    problem = await worker.refused("POST", "pools/db/permits", {}, 503, "pool_exhausted")
    assert "no permit" in problem["detail"]  # I44
    found = await bench.wire("viewer").get("pools/db/permits")
    assert [(each["number"], each["key"], each["id"]) for each in found["items"]] == [
        (one["number"], "acme", one["id"]), (two["number"], "", two["id"]),
    ]  # fmt: skip
    renewed = await worker.post(f"pools/db/permits/{one['id']}:renew", {"ttl_seconds": 60})
    assert renewed["number"] == one["number"]
    assert renewed["seconds_left"] > 50
    for _ in range(2):  # a repeat changes nothing
        path = f"pools/db/permits/{one['id']}:release"
        await worker.ask("POST", path, {}, status=204)
    await worker.refused("POST", f"pools/db/permits/{one['id']}:renew", {}, 404, "not_found")
    assert (await bench.wire().get("pools/db"))["in_use"] == 1
    await worker.post("pools/db/permits", {}, 201)


async def test_metrics_show_what_is_in_use(bench: Bench) -> None:
    await bench.wire().put("pools/seen", {"size": 3})
    await bench.wire().post("pools/seen/permits", {"weight": 2}, 201)
    await bench.wire().put("limits/seen", {"rates": [{"amount": 3, "per": 3_600}]})
    await bench.wire().post("limits/seen:acquire", {"cost": 3})
    await bench.wire().post("limits/seen:acquire", {"cost": 1}, 503)
    shown = set(bench.app.measure().decode().splitlines())
    assert shown >= {
        'relevo_pool_size{pool="seen"} 3.0', 'relevo_pool_in_use{pool="seen"} 2.0',
        'relevo_pool_waiting{pool="seen"} 0.0', 'relevo_pool_permits_total{pool="seen"} 1.0',
        'relevo_limit_cost_total{limit="seen",outcome="admitted"} 3.0',
        'relevo_limit_cost_total{limit="seen",outcome="refused"} 1.0',
    }  # fmt: skip


async def test_permits_are_listed_in_pages_with_the_hosts_that_have_them(bench: Bench) -> None:
    await bench.wire().put("pools/paged", {"size": 9})
    async with bench.app.governance.pool("paged").lease("here") as permit:
        for _ in range(4):
            await bench.wire().post("pools/paged/permits", {}, 201)
        found: list[Any] = []
        cursor = ""
        while True:
            page = await bench.wire().get(f"pools/paged/permits?limit=2{cursor}")
            assert len(page["items"]) <= 2
            found += page["items"]
            if page["next"] is None:
                break
            cursor = f"&cursor={page['next']}"
        assert [one["number"] for one in found] == [permit.fence.number + n for n in range(5)]
        assert (found[0]["host"], found[0]["id"], found[0]["expires_at"]) == ("alpha", None, None)
        assert all(one["host"] is None and one["id"] for one in found[1:])


async def test_a_permit_that_is_not_renewed_ends(bench: Bench) -> None:
    await bench.wire().put("pools/brief", {"size": 1})
    await bench.wire().post("pools/brief/permits", {"ttl_seconds": 1}, 201)
    await bench.wire().post("pools/brief/permits", {"wait_seconds": 20}, 201)  # I44


async def test_a_repeated_request_gets_the_same_permit(bench: Bench) -> None:
    await bench.wire().put("pools/once", {"size": 2})
    ask = bench.wire("producer").ask
    path = "pools/once/permits"
    first = await ask("POST", path, {}, status=201, Idempotency_Key="load-7")
    again = await ask("POST", path, {}, status=201, Idempotency_Key="load-7")
    assert again.json["id"] == first.json["id"]
    assert (await bench.wire().get("pools/once"))["in_use"] == 1
    other = await bench.wire().ask("POST", path, {}, status=201, Idempotency_Key="load-7")
    assert other.json["id"] != first.json["id"]  # another caller's key is another request
    reused = await ask("POST", path, {"weight": 2}, status=422, Idempotency_Key="load-7")
    assert reused.json["code"] == "idempotency_key_reused"
    refused = await ask("POST", path, {}, status=503, Idempotency_Key="load-8")
    assert refused.json["code"] == "pool_exhausted"
    released = f"{path}/{first.json['id']}:release"
    await ask("POST", released, {}, status=204)
    await ask("POST", path, {}, status=201, Idempotency_Key="load-8")  # a refusal is not kept


async def test_a_request_waits_for_its_turn_and_shows_who_waits(bench: Bench) -> None:
    await bench.wire().put("pools/turns", {"size": 1})
    held = await bench.wire().post("pools/turns/permits", {}, 201)
    asked = asyncio.create_task(
        bench.wire().post("pools/turns/permits", {"key": "acme", "wait_seconds": 30}, 201)
    )
    (waiter,) = (await waiting(bench, "turns", 1))["waiters"]
    assert (waiter["key"], waiter["callers"], waiter["weight"]) == ("acme", 1, 1)
    await bench.wire().ask("POST", f"pools/turns/permits/{held['id']}:release", {}, status=204)
    assert (await asked)["number"] == held["number"] + 1


async def test_a_client_that_leaves_waits_no_longer(bench: Bench) -> None:
    await bench.wire().put("pools/left", {"size": 1})
    held = await bench.wire().post("pools/left/permits", {}, 201)
    body = {"wait_seconds": 30}
    asked = asyncio.create_task(bench.wire().post("pools/left/permits", body, 201))
    await waiting(bench, "left", 1)
    asked.cancel()
    await waiting(bench, "left", 0)
    await bench.wire().ask("POST", f"pools/left/permits/{held['id']}:release", {}, status=204)
    assert (await bench.wire().get("pools/left"))["in_use"] == 0


async def test_a_pool_of_items_leases_each_of_them_once(bench: Bench) -> None:
    await bench.wire().put("pools/licences", {"items": ["red", "blue"]})
    leased = [await bench.wire().post("pools/licences/permits", {}, 201) for _ in range(2)]
    assert {one["item"] for one in leased} == {"red", "blue"}
    await bench.wire().refused("POST", "pools/licences:resize", {"size": 5}, 400, "invalid_value")
    body = {"size": 5}
    await bench.wire().refused("PUT", "pools/licences", body, 400, "invalid_value")
    assert (await bench.wire().get("pools/licences"))["items"] == ["red", "blue"]


async def test_pools_are_listed_in_pages(bench: Bench) -> None:
    for name in ("list-a", "list-b", "list-c"):
        await bench.wire().put(f"pools/{name}", {"size": 1})
    await bench.wire().ask("DELETE", "pools/list-b", status=204)
    found: list[Any] = []
    cursor = ""
    while True:
        page = await bench.wire("viewer").get(f"pools?limit=1{cursor}")
        found += page["items"]
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"
    listed = [one for one in found if one["name"].startswith("list-")]
    assert listed == [
        {"name": "list-a", "size": 1, "in_use": 0, "waiting": 0},
        {"name": "list-c", "size": 1, "in_use": 0, "waiting": 0},
    ]


async def test_a_pool_is_removed_when_nothing_is_in_use(bench: Bench) -> None:
    await bench.wire().put("pools/gone", {"size": 1})
    permit = await bench.wire().post("pools/gone/permits", {}, 201)
    problem = await bench.wire().refused("DELETE", "pools/gone", None, 409, "in_use")
    assert "1 permits" in problem["detail"]
    await bench.wire().ask("POST", f"pools/gone/permits/{permit['id']}:release", {}, status=204)
    await bench.wire("operator").ask("DELETE", "pools/gone", status=204)
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/permits"), ("POST", ":resize")):
        body = {"size": 1} if path == ":resize" else {}
        sent = None if method in ("GET", "DELETE") else body
        await bench.wire().refused(method, f"pools/gone{path}", sent, 404, "not_found")
    assert (await bench.events_of("pool/gone"))[-1] == ("pool.deleted", "operator")
    await bench.wire().put("pools/gone", {"size": 1})
    later = await bench.wire().post("pools/gone/permits", {}, 201)
    assert later["number"] > permit["number"]  # fences never begin anew


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("GET", "pools/none", None, 404, "not_found"),
        ("POST", "pools/none/permits", {}, 404, "not_found"),
        ("PUT", "pools/new", {}, 400, "invalid_value"),
        ("PUT", "pools/new", {"size": 1, "items": ["a"]}, 400, "invalid_value"),
        ("PUT", "pools/new", {"size": -1}, 400, "invalid_value"),
        ("PUT", "pools/new", {"size": 1_000_001}, 400, "invalid_value"),
        ("PUT", "pools/new", {"items": []}, 400, "invalid_value"),
        ("PUT", "pools/new", {"items": ["a", "a"]}, 400, "invalid_value"),
        ("PUT", "pools/new", {"size": 1, "per_key": 0}, 400, "invalid_value"),
        ("PUT", "pools/new", {"size": 1, "per_kee": 1}, 400, "invalid_value"),
        ("PUT", "pools/new%0a", {"size": 1}, 400, "invalid_value"),
        ("PUT", f"pools/{'x' * 257}", {"size": 1}, 400, "invalid_value"),
        ("POST", "pools/bad/permits", {"weight": 3}, 400, "invalid_value"),
        ("POST", "pools/bad/permits", {"weight": 0}, 400, "invalid_value"),
        ("POST", "pools/bad/permits", {"priority": 10}, 400, "invalid_value"),
        ("POST", "pools/bad/permits", {"ttl_seconds": 0}, 400, "invalid_value"),
        ("POST", "pools/bad/permits", {"wait_seconds": 1e9}, 400, "invalid_value"),
        ("POST", "pools/bad/permits", {"key": "x" * 257}, 400, "invalid_value"),
    ],
)
async def test_bad_requests_are_refused_and_change_nothing(
    bench: Bench, method: str, path: str, body: Any, status: int, code: str
) -> None:
    await bench.app.governance.pool("bad", size=2).view()
    await bench.wire().refused(method, path, body, status, code)
    await bench.wire().get("pools/new", 404)
    assert (await bench.wire().get("pools/bad"))["in_use"] == 0


async def test_each_role_does_what_it_may(bench: Bench) -> None:
    await bench.wire().put("pools/roles", {"size": 1})
    for role in ("viewer", "worker", "producer"):
        await bench.wire(role).ask("PUT", "pools/roles", {"size": 9}, status=403)
        await bench.wire(role).ask("DELETE", "pools/roles", status=403)
    await bench.wire("viewer").ask("POST", "pools/roles/permits", {}, status=403)
    await bench.wire("operator").ask("POST", "pools/roles/permits", {}, status=403)
    await bench.wire("worker").ask("GET", "pools/roles", status=403)
