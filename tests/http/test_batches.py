"""Batches over HTTP, and many jobs in one request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from tests.http.table import code
from tests.http.test_jobs import served

if TYPE_CHECKING:
    from tests.http.conftest import Site

pytestmark = pytest.mark.anyio
BATCHES = "/v1/batches"


async def test_a_batch_is_made_filled_closed_and_waited_for(site: Site) -> None:
    async with served(site):
        made = await site.ask(
            "POST", BATCHES, key="producer",
            json={"name": "may", "then": "mail", "data": {"to": "boss"}, "condition": "succeeded"},
        )  # fmt: skip
        assert made.status == 201, made.body
        batch = made.json["id"]
        one = {"handler": "mail", "data": {"to": "eve"}, "batch": batch}
        assert (await site.ask("POST", "/v1/jobs", key="producer", json=one)).status == 201
        many = {"handler": "mail", "data": [{"to": "ana"}, {}], "batch": batch}
        made = await site.ask("POST", "/v1/jobs:batch", key="producer", json=many)
        assert (made.status, len(made.json["ids"]), made.json["existed"]) == (201, 2, [])
        way = f"{BATCHES}/{batch}"
        opened = await site.ask("GET", f"{way}/end?wait_seconds=0", key="viewer")
        assert (opened.json["state"], opened.json["total"]) == ("open", 3)
        assert (await site.ask("POST", f"{way}:close", key="producer")).status == 204
        ended = (await site.ask("GET", f"{way}/end", key="viewer")).json
        assert (ended["state"], ended["succeeded"], ended["progress"]) == ("ended", 3, 1.0)
        again = await site.ask("POST", "/v1/jobs:batch", key="producer", json=many)
        assert (again.status, code(again)) == (409, "batch_closed")
        listed = await site.ask("GET", f"/v1/jobs?batch={batch}", key="viewer")
        assert {item["batch"] for item in listed.json["items"]} == {batch}
        assert len(listed.json["items"]) == 3
    page = await site.ask("GET", f"{BATCHES}?limit=1", key="viewer")
    assert [item["id"] for item in page.json["items"]] == [batch]
    assert page.json["next"] is None


async def test_a_batch_is_canceled_and_missing_ones_are_named(site: Site) -> None:
    batch = (await site.ask("POST", BATCHES, key="producer", json={})).json["id"]
    job: dict[str, Any] = {"handler": "never", "data": [{}, {}, {}], "batch": batch}
    made = await site.ask("POST", "/v1/jobs:batch", key="producer", json=job)
    assert "never" in made.json["warning"]
    assert (await site.ask("POST", f"{BATCHES}/{batch}:cancel", key="operator")).status == 204
    found = (await site.ask("GET", f"{BATCHES}/{batch}", key="viewer")).json
    assert (found["state"], found["canceled"]) == ("ended", 3)
    assert found["canceled_at"] is not None
    missing = uuid4()
    for method, way in (("GET", ""), ("POST", ":close"), ("POST", ":cancel"), ("GET", "/end")):
        reply = await site.ask(method, f"{BATCHES}/{missing}{way}", key="admin")
        assert (reply.status, code(reply)) == (404, "batch_missing"), way
    reply = await site.ask(
        "POST", "/v1/jobs:batch", key="producer", json={**job, "batch": str(missing)}
    )
    assert (reply.status, code(reply)) == (404, "batch_missing")


async def test_bad_batches_are_refused(site: Site) -> None:
    for body, pointer in (
        ({"data": {"a": 1}}, "then"), ({"then": "relevo.retention"}, None),
        ({"condition": "never"}, None), ({"colour": 1}, None),
    ):  # fmt: skip
        reply = await site.ask("POST", BATCHES, key="admin", json=body)
        assert reply.status in (400, 403, 422), (body, reply.body)
        assert pointer is None or pointer in reply.body.decode()
    empty = {"handler": "mail", "data": []}
    assert (await site.ask("POST", "/v1/jobs:batch", key="producer", json=empty)).status in (
        400,
        422,
    )
