"""Resolvers over HTTP: partitions and resources for operators, resolutions for programs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.governance.http.conftest import Bench

pytestmark = pytest.mark.anyio

QUICK = {"max_stale": 0.1, "use_ttl": 0.1}
"""A move then waits for about a second until uses that nobody reports must be over."""


async def make(bench: Bench, name: str, **options: Any) -> str:
    """Make a resolver with two databases and a partition on the first; returns its path."""
    path = f"resolvers/{name}"
    await bench.wire().put(path, {**QUICK, **options})
    for database in ("db1", "db2"):
        body = {"data": {"dsn": database}}
        await bench.wire().ask("PUT", f"{path}/resources/{database}", body, status=204)
    await bench.wire().ask("PUT", f"{path}/partitions/eu", {"on": "db1"}, status=204)
    return path


async def test_an_operator_makes_a_resolver_and_programs_resolve(bench: Bench) -> None:
    path = await make(bench, "orders")
    again = await bench.wire().put(path, QUICK, 200)
    assert again == {"created": False}
    await bench.wire().refused("PUT", path, {"assign": "range"}, 409, "settings_mismatch")
    worker = bench.wire("worker")
    found = await worker.post(f"{path}:resolve", {"entity": "alice"})
    assert found["generation"] > 0
    assert found | {"generation": 0} == {
        "entity": "alice", "partition": "eu", "resource": "db1", "data": {"dsn": "db1"},
        "generation": 0, "use_within_seconds": 0.1,
    }  # fmt: skip
    viewer = bench.wire("viewer")
    shown = await viewer.get(path)
    assert (shown["assign"], shown["entities"], shown["moves"]) == ("hash", 1, [])
    resources = (await viewer.get(f"{path}/resources"))["items"]
    assert [(one["name"], one["partitions"]) for one in resources] == [("db1", 1), ("db2", 0)]
    assert all("data" not in one for one in resources)  # it may hold secrets
    (listed,) = [one for one in (await viewer.get("resolvers"))["items"] if one["name"] == "orders"]
    assert (listed["entities"], listed["partitions"], listed["resources"]) == (1, 1, 2)
    assert [kind for kind, _ in await bench.events_of("resolver/orders")] == [
        "resolver.created", "resolver.resource_put", "resolver.resource_put",
        "resolver.partition_put",
    ]  # fmt: skip


async def test_a_partition_moves_when_uses_of_outsiders_must_be_over(bench: Bench) -> None:
    path = await make(bench, "moved", use_ttl=1.0)
    first = await bench.wire().post(f"{path}:resolve", {"entity": "alice"})
    body = {"partition": "eu", "to": "db2", "wait_seconds": 0}
    assert await bench.wire().post(f"{path}:move", body, 202) == {"ended": False}
    while not (await bench.wire().get(path))["moves"]:
        await asyncio.sleep(0.01)
    await bench.wire().refused("POST", f"{path}:resolve", {"entity": "bob"}, 503, "moving")  # I40
    body = {"partition": "eu", "to": "db2", "wait_seconds": 30}
    assert await bench.wire().post(f"{path}:move", body) == {"ended": True}
    later = await bench.wire().post(f"{path}:resolve", {"entity": "alice"})
    assert (later["resource"], later["generation"] > first["generation"]) == ("db2", True)
    assert ("resolver.partition_moved", "admin") in await bench.events_of("resolver/moved")


async def test_a_drained_resource_is_emptied_by_a_plan_and_removed(bench: Bench) -> None:
    path = await make(bench, "drained")
    operator = bench.wire("operator")
    await operator.ask("POST", f"{path}/resources/db1:drain", {}, status=204)
    await operator.refused("DELETE", f"{path}/resources/db1", None, 409, "in_use")
    plan = await bench.wire("viewer").get(f"{path}/plan")
    assert [(one["partition"], one["target"]) for one in plan["items"]] == [("eu", "db2")]
    assert await operator.post(f"{path}:apply", {"items": [
        {"partition": "eu", "target": "db2"}
    ]}) == {"ended": True}  # fmt: skip
    await operator.ask("DELETE", f"{path}/resources/db1", status=204)
    parts = (await bench.wire().get(f"{path}/partitions"))["items"]
    assert [(one["name"], one["resource"]) for one in parts] == [("eu", "db2")]


async def test_partitions_are_split_and_merged_and_entities_move_alone(bench: Bench) -> None:
    path = await make(bench, "parts", assign="range")
    for entity in ("ann", "bob", "cid", "dan"):
        await bench.wire().post(f"{path}:resolve", {"entity": entity})
    split = await bench.wire().post(f"{path}/partitions/eu:split", {"into": "eu-2", "at": "cid"})
    assert split == {"entities": 2}
    moved = {"entity": "ann", "to": "db2"}
    assert await bench.wire().post(f"{path}:move", moved) == {"ended": True}
    at = {}
    for entity in ("ann", "bob", "cid"):
        found = await bench.wire().post(f"{path}:resolve", {"entity": entity})
        at[entity] = (found["partition"], found["resource"])
    assert at["ann"][1] == "db2"
    assert (at["bob"], at["cid"]) == (("eu", "db1"), ("eu-2", "db1"))
    await bench.wire().post(f"{path}/partitions/eu-2:merge", {"into": "eu"})
    await bench.wire().post(f"{path}:move", {"resource": "db1", "to": "db2"})
    found = await bench.wire().post(f"{path}:resolve", {"entity": "cid"})
    assert (found["partition"], found["resource"]) == ("eu", "db2")
    kinds = [kind for kind, _ in await bench.events_of("resolver/parts")]
    assert kinds[4:7] == [
        "resolver.partition_split",
        "resolver.entity_pinned",
        "resolver.partition_moved",
    ]
    assert kinds[7:] == ["resolver.partition_merged", "resolver.partition_moved"]  # fmt: skip


async def test_an_entity_is_pinned_before_its_first_use(bench: Bench) -> None:
    path = await make(bench, "pinned", assign="explicit")
    body = {"entity": "carol"}
    await bench.wire().refused("POST", f"{path}:resolve", body, 404, "unassigned_entity")
    await bench.wire().ask("PUT", f"{path}/entities/carol", {"partition": "eu"}, status=204)
    assert (await bench.wire().post(f"{path}:resolve", body))["partition"] == "eu"


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("GET", "resolvers/none", None, 404, "not_found"),
        ("POST", "resolvers/none:resolve", {"entity": "a"}, 404, "not_found"),
        ("PUT", "resolvers/none/resources/db", {}, 404, "not_found"),
        ("PUT", "resolvers/new", {"assign": "luck"}, 400, "invalid_value"),
        ("PUT", "resolvers/new", {"use_ttl": 0}, 400, "invalid_value"),
        ("POST", "resolvers/bad:resolve", {"entity": ""}, 400, "invalid_value"),
        ("POST", "resolvers/bad:resolve", {"entity": "x" * 257}, 400, "invalid_value"),
        ("POST", "resolvers/bad:move", {"partition": "eu", "to": "db9"}, 404, "not_found"),
        ("POST", "resolvers/bad:move", {"partition": "us", "to": "db2"}, 404, "not_found"),
        ("POST", "resolvers/bad:move", {"resource": "db9", "to": "db2"}, 404, "not_found"),
        ("POST", "resolvers/bad:move", {"entity": "ann", "to": "db9"}, 404, "not_found"),
        ("POST", "resolvers/bad:move", {"to": "db2"}, 400, "invalid_value"),
        (
            "POST", "resolvers/bad:move",
            {"partition": "eu", "entity": "a", "to": "db2"}, 400, "invalid_value",
        ),
        ("POST", "resolvers/bad/partitions/us:split", {"into": "x"}, 404, "not_found"),
        ("POST", "resolvers/bad/partitions/eu:merge", {"into": "x"}, 404, "not_found"),
        ("POST", "resolvers/bad/partitions/eu:merge", {"into": "eu"}, 409, "conflict"),
        ("PUT", "resolvers/bad/partitions/us", {"on": "db9"}, 404, "not_found"),
        ("PUT", "resolvers/bad/entities/a", {"partition": "us"}, 404, "not_found"),
        ("PUT", "resolvers/bad/resources/db3", {"capacity": 0}, 400, "invalid_value"),
        ("POST", "resolvers/bad/resources/db9:drain", {}, 404, "not_found"),
        ("DELETE", "resolvers/bad/resources/db9", None, 404, "not_found"),
        ("DELETE", "resolvers/bad/resources/db1", None, 409, "in_use"),
        (
            "POST", "resolvers/bad:apply",
            {"items": [{"partition": "eu", "target": "db2"}, {"partition": "x", "target": "db2"}]},
            404, "not_found",
        ),
    ],
)  # fmt: skip
async def test_bad_requests_are_refused_and_change_nothing(
    bench: Bench, method: str, path: str, body: Any, status: int, code: str
) -> None:
    if "resolvers/bad" in path and "bad" not in str(await bench.wire().get("resolvers")):
        await make(bench, "bad")
    await bench.wire().refused(method, path, body, status, code)
    await bench.wire().get("resolvers/new", 404)
    if "resolvers/bad" in path:
        shown = await bench.wire().get("resolvers/bad")
        counts = (shown["entities"], shown["partitions"], shown["resources"], shown["moves"])
        assert counts == (0, 1, 2, [])
        (part,) = (await bench.wire().get("resolvers/bad/partitions"))["items"]
        assert part["resource"] == "db1"


async def test_each_role_does_what_it_may(bench: Bench) -> None:
    path = await make(bench, "roles")
    await bench.wire("viewer").ask("POST", f"{path}:resolve", {"entity": "a"}, status=403)
    await bench.wire("worker").ask("PUT", path, {}, status=403)
    await bench.wire("worker").ask("GET", f"{path}/resources", status=403)
