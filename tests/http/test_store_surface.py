"""Containers and items over HTTP: what users may do with them, and who."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from relevo.http.access.key_model import NewKey
from tests.http.table import code

if TYPE_CHECKING:
    from tests.http.conftest import Opens, Reply, Site

pytestmark = pytest.mark.anyio

ORDERS = "/v1/containers/orders"
ITEMS = f"{ORDERS}/items"
VIGO = "partition_key=%22Vigo%22"


async def make(site: Site, **options: Any) -> Reply:
    told = {"name": "orders", "partition_key": ["/city"], "ranges": 2, **options}
    return await site.ask("POST", "/v1/containers", key="admin", json=told)


def order(number: str, **members: Any) -> dict[str, Any]:
    return {"id": number, "city": "Vigo", **members}


async def put(site: Site, number: str, key: str = "admin", **members: Any) -> Reply:
    return await site.ask("PUT", ITEMS, key=key, json={"item": order(number, **members)})


async def test_a_container_is_made_shown_listed_and_dropped(site: Site) -> None:
    made = await make(site, versions_seconds=3600, previous_images=True, ttl_seconds=-1)
    assert made.status == 201
    assert made.json["versions_seconds"] == 3600.0
    assert (await site.ask("GET", ORDERS, key="viewer")).json == made.json
    assert (await make(site)).json == made.json, "again changes nothing"
    assert code(await make(site, partition_key=["/zip"])) == "conflict"
    listed = await site.ask("GET", "/v1/containers", key="viewer")
    assert [one["name"] for one in listed.json["items"]] == ["orders"]
    assert (await site.ask("DELETE", ORDERS, key="admin")).status == 204
    assert (await site.ask("DELETE", ORDERS, key="admin")).status == 404
    assert (await site.ask("GET", ORDERS, key="admin")).status == 404


async def test_containers_come_in_pages(site: Site) -> None:
    for name in ("a", "b", "c"):
        await make(site, name=name)
    names, target = [], "/v1/containers?limit=2"
    while True:
        page = (await site.ask("GET", target, key="viewer")).json
        names.append([one["name"] for one in page["items"]])
        if page["next"] is None:
            break
        target = f"/v1/containers?limit=2&cursor={page['next']}"
    assert names == [["a", "b"], ["c"]]


async def test_a_range_is_split(site: Site) -> None:
    await make(site)
    first = (await site.ask("GET", f"{ORDERS}/ranges", key="viewer")).json["items"][0]
    target = f"{ORDERS}/ranges/{first['id']}:split"
    done = await site.ask("POST", target, key="admin", json={})
    assert [one["parents"] for one in done.json["items"]] == [[first["id"]]] * 2
    assert code(await site.ask("POST", target, key="admin", json={})) == "conflict"
    after = (await site.ask("GET", f"{ORDERS}/ranges?limit=1", key="viewer")).json
    assert (after["items"][0]["open"], after["next"] is None) == (False, False)


async def test_an_item_from_creation_to_deletion(site: Site) -> None:
    await make(site)
    created = await site.ask("POST", ITEMS, key="admin", json={"item": order("1", n=1)})
    assert (created.status, "body" in created.json) == (201, False)
    again = await site.ask("POST", ITEMS, key="admin", json={"item": order("1")})
    assert (again.status, code(again)) == (409, "item_exists")
    read = await site.ask("GET", f"{ITEMS}/1?{VIGO}", key="consumer")
    assert (read.json["body"], read.json["etag"]) == (order("1", n=1), created.json["etag"])
    change = {"partition_key": "Vigo", "operations": [{"op": "incr", "path": "/n", "value": 2}]}
    patched = await site.ask("PATCH", f"{ITEMS}/1", key="admin", json=change)
    assert patched.status == 200
    stale = {"item": order("1"), "if_match": created.json["etag"]}
    assert code(await site.ask("PUT", f"{ITEMS}/1", key="admin", json=stale)) == "condition_not_met"
    fresh = {"item": {"city": "Vigo", "n": 9}, "if_match": patched.json["etag"]}
    assert (await site.ask("PUT", f"{ITEMS}/1", key="admin", json=fresh)).status == 200
    assert (await site.ask("GET", f"{ITEMS}/1?{VIGO}", key="admin")).json["body"]["n"] == 9
    refused = await site.ask("DELETE", f"{ITEMS}/1?{VIGO}&if_match=x", key="admin")
    assert refused.status == 412
    assert (await site.ask("DELETE", f"{ITEMS}/1?{VIGO}", key="admin")).status == 204
    assert (await site.ask("GET", f"{ITEMS}/1?{VIGO}", key="admin")).status == 404


async def test_an_id_in_the_path_and_another_in_the_item_is_refused(site: Site) -> None:
    await make(site)
    reply = await site.ask("PUT", f"{ITEMS}/1", key="admin", json={"item": order("2")})
    assert (reply.status, reply.json["pointer"]) == (400, "/item/id")


async def test_a_partition_key_may_be_any_value_and_none(site: Site) -> None:
    await make(site)
    cities: list[Any] = ["5", 5, True, None, 1.5, {}]
    for city in cities:
        item = {"id": "1", "city": city} if city != {} else {"id": "1"}
        put = await site.ask("PUT", ITEMS, key="admin", json={"item": item})
        assert put.json["partition_key"] == city
        told = {"partition_key": city}
        found = await site.ask("POST", f"{ITEMS}:query", key="admin", json=told)
        assert [one["body"] for one in found.json["items"]] == [item]
    missing = await site.ask("GET", f"{ITEMS}/1?partition_key=%7B%7D", key="admin")
    assert missing.json["body"] == {"id": "1"}
    bare = await site.ask("GET", f"{ITEMS}/1?partition_key=Vigo", key="admin")
    assert (bare.status, bare.json["pointer"]) == (400, "/partition_key")


async def test_a_query_goes_on_behind_its_cursor(site: Site) -> None:
    await make(site)
    for number in range(5):
        await put(site, str(number), n=number)
    told: dict[str, Any] = {"where": [{"path": "n", "op": ">", "value": 0}], "limit": 3}
    first = (await site.ask("POST", f"{ITEMS}:query", key="consumer", json=told)).json
    told["cursor"] = first["next"]
    second = (await site.ask("POST", f"{ITEMS}:query", key="consumer", json=told)).json
    assert [[one["id"] for one in page["items"]] for page in (first, second)] == [
        ["1", "2", "3"],
        ["4"],
    ]
    assert second["next"] is None
    told["cursor"] = "nonsense"
    refused = await site.ask("POST", f"{ITEMS}:query", key="consumer", json=told)
    assert code(refused) == "bad_continuation"


async def test_a_batch_happens_whole_or_not_at_all(site: Site) -> None:
    await make(site)
    steps: list[dict[str, Any]] = [
        {"kind": "create", "item": order("1", n=1)},
        {"kind": "patch", "id": "1", "operations": [{"op": "incr", "path": "/n", "value": 1}]},
        {"kind": "read", "id": "1"},
        {"kind": "delete", "id": "1"},
    ]
    told = {"partition_key": "Vigo", "steps": steps}
    done = (await site.ask("POST", f"{ITEMS}:batch", key="admin", json=told)).json["results"]
    assert [one and one.get("body") for one in done] == [None, None, order("1", n=2), None]
    steps[3:] = [{"kind": "replace", "item": order("9")}]
    refused = await site.ask("POST", f"{ITEMS}:batch", key="admin", json=told)
    assert (refused.status, refused.json["pointer"]) == (404, "/steps/3")
    assert (await site.ask("GET", f"{ITEMS}/1?{VIGO}", key="admin")).status == 404


async def test_a_batch_that_reads_more_than_fits_changes_nothing(open_site: Opens) -> None:
    async with open_site(page_bytes=1_024) as site:
        await make(site)
        text = "x" * 180
        for n in range(9):
            await put(site, str(n), text=text)

        async def batch(*steps: dict[str, Any]) -> Reply:
            told = {"partition_key": "Vigo", "steps": steps}
            return await site.ask("POST", f"{ITEMS}:batch", key="admin", json=told)

        incr = [{"op": "incr", "path": "/n", "value": 1}]
        write = {"kind": "upsert", "item": order("new", text=text * 2)}
        reads = [{"kind": "read", "id": str(n)} for n in range(9)]
        patches = [{"kind": "patch", "id": str(n), "operations": incr} for n in range(9)]
        again = [{"kind": "read", "id": "new"}] * 9
        for steps in (reads, patches, again):
            refused = await batch(write, *steps)
            assert (refused.status, code(refused)) == (413, "too_large"), refused
            assert refused.json["pointer"].startswith("/steps/")
        done = await batch(write, reads[0], patches[0], {"kind": "delete", "id": "new"})
        assert done.status == 200, done
        assert (
            await batch({"kind": "create", "item": order("large", text=text * 9)})
        ).status == 200
        alone = await batch({"kind": "read", "id": "large"})  # as on a page of a list
        assert alone.json["results"][0]["body"] == order("large", text=text * 9)
        stored = [one.body async for one in site.services.app.container("orders").query()]
        others = [order(str(n), text=text) for n in range(1, 9)]
        assert stored == [order("0", text=text, n=1), *others, order("large", text=text * 9)]


async def test_a_bulk_write_says_what_each_item_came_to(site: Site) -> None:
    await make(site)
    items = [order("1"), {"city": "Vigo"}, order("2")]
    done = await site.ask("POST", f"{ITEMS}:bulk", key="producer", json={"items": items})
    assert (done.status, done.json["written"], done.json["refused"]) == (200, 2, 1)
    assert [one["error"] and one["error"]["pointer"] for one in done.json["items"]] == [
        None,
        "/id",
        None,
    ]


async def test_who_may_only_write_never_sees_a_body(site: Site) -> None:
    await make(site)
    await put(site, "1", secret=7)
    operations = [{"op": "set", "path": "/x", "value": 1}]
    change = {"partition_key": "Vigo", "operations": operations}
    read = {"partition_key": "Vigo", "steps": [{"kind": "read", "id": "1"}]}
    for method, target, body in (
        ("PATCH", f"{ITEMS}/1", change),
        ("PUT", f"{ITEMS}/1", {"item": order("1", secret=7)}),
        ("GET", f"{ITEMS}/1?{VIGO}", None),
        ("POST", f"{ITEMS}:query", {}),
        ("POST", f"{ITEMS}:batch", read),
        ("POST", f"{ORDERS}/changes:read", {}),
    ):
        reply = await site.ask(method, target, key="producer", json=body)
        assert b"secret" not in reply.body, target
        assert reply.status == (200 if method in ("PATCH", "PUT") else 403), target


@pytest.mark.parametrize("role", ["viewer", "operator", "supervisor", "worker"])
async def test_seeing_everything_does_not_include_items(site: Site, role: str) -> None:
    await make(site)
    await put(site, "1")
    assert (await site.ask("GET", f"{ITEMS}/1?{VIGO}", key=role)).status == 403
    assert (await site.ask("POST", f"{ORDERS}/changes:read", key=role, json={})).status == 403
    assert (await put(site, "1", key=role)).status == 403


async def test_a_key_may_be_limited_to_some_containers(site: Site) -> None:
    await make(site)
    await make(site, name="bills")
    made = await site.services.keys.create(
        NewKey(name="k", roles=("producer",), scopes=("container:ord*",))
    )
    assert (await put(site, "1", key=made.secret)).status == 200
    bills = {"item": order("1")}
    refused = await site.ask("PUT", "/v1/containers/bills/items", key=made.secret, json=bills)
    assert refused.status == 403


async def test_unknown_containers_and_damaged_items_are_named(site: Site) -> None:
    gone = await site.ask("PUT", ITEMS, key="admin", json={"item": order("1")})
    assert (gone.status, code(gone)) == (404, "not_found")
    await make(site)
    for item, pointer in (({"city": "x"}, "/id"), ({"id": "1", "city": []}, "/city")):
        refused = await site.ask("PUT", ITEMS, key="admin", json={"item": item})
        assert (refused.status, refused.json["pointer"]) == (400, pointer)
