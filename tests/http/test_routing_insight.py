"""`/v1/router`: explanations, the dry run of a classification, channels, how queues stand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.http.routing import JOB, WORKER, Wire
from tests.http.table import code

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.http.conftest import Reply, Site

pytestmark = pytest.mark.anyio

POLICY = {
    "queueSelectorAttachments": [
        {
            "kind": "conditional",
            "condition": {"kind": "expression", "expression": "job.Vip = true"},
            "queueSelectors": [{"key": "Id", "labelOperator": "equal", "value": "q"}],
        }
    ],
    "workerSelectorAttachments": [
        {"kind": "passThrough", "key": "Language", "labelOperator": "equal"}
    ],
    "prioritizationRule": {"kind": "expression", "expression": "If(job.Vip = true, 50, 1)"},
}


@pytest.fixture
async def wire(site: Site) -> Wire:
    """A site with a queue, where nobody matches."""
    wire = Wire(site)
    await wire.queue()
    return wire


@pytest.fixture
async def matched(wire: Wire) -> AsyncIterator[Wire]:
    async with wire.site.services.app.host():
        yield wire


async def v1(
    wire: Wire, path: str, method: str = "GET", body: Any = None, key: str = "admin"
) -> Reply:
    return await wire.site.ask(method, f"/v1/router/{path}", key=key, json=body)


async def test_a_job_says_who_is_next_and_what_rules_out_the_others(wire: Wire) -> None:
    await wire.patch("workers/ana", {**WORKER, "capacity": 2})
    await wire.patch("workers/ben", {**WORKER, "availableForOffers": False})
    english = {"key": "English", "labelOperator": "greaterThan", "value": 5}
    await wire.patch("jobs/first", JOB)
    await wire.patch("jobs/j", {**JOB, "requestedWorkerSelectors": [english]})
    told = (await v1(wire, "jobs/j/explanation", key="reader")).json  # J20
    assert (told["status"], told["position"], told["verdict"]) == ("queued", 2, "nobody")
    ruled_out = {one["reason"]: one for one in told["ruled_out"]}
    assert ruled_out["selector"]["selector"] == {
        "key": "English", "label_operator": "greaterThan", "value": 5,
    }  # fmt: skip
    assert ruled_out["selector"]["workers"] == ["ana"]
    assert ruled_out["unavailable"]["workers"] == ["ben"]
    first = (await v1(wire, "jobs/first/explanation")).json
    assert first["verdict"] == "chosen"
    assert [one["worker_id"] for one in first["candidates"]] == ["ana"]
    assert first["candidates"][0]["idle_since"].endswith("Z")
    assert "ana" in first["says"]


async def test_a_job_says_whom_it_was_offered_to(matched: Wire) -> None:
    await matched.patch("workers/ana", WORKER)
    await matched.patch("jobs/j", JOB)
    assignment = await matched.accept("ana")
    told = (await v1(matched, "jobs/j/explanation")).json
    assert (told["status"], told["verdict"], told["position"]) == ("assigned", None, None)
    assert [(one["worker_id"], one["state"]) for one in told["offers"]] == [("ana", "assigned")]
    assert assignment not in str(told)


async def test_a_worker_says_which_jobs_it_could_get(wire: Wire) -> None:
    await wire.patch("workers/ana", WORKER)
    await wire.patch("jobs/fits", JOB)
    await wire.patch("jobs/other", {**JOB, "channelId": "chat"})
    told = (await v1(wire, "workers/ana/explanation")).json  # J20
    assert (told["state"], told["eligible_for"]) == ("active", ["fits"])
    assert [(one["reason"], one["channel_id"], one["jobs"]) for one in told["ruled_out"]] == [
        ("channel", "chat", ["other"])
    ]


async def test_what_is_not_there_is_not_found(wire: Wire) -> None:
    for path in ("jobs/none/explanation", "workers/none/explanation"):
        reply = await v1(wire, path)
        assert (reply.status, code(reply)) == (404, "not_found")
    reply = await v1(wire, "classification-policies/none:try", "POST", {})
    assert (reply.status, code(reply)) == (404, "not_found")


async def test_a_dry_run_tells_every_step_and_makes_nothing(wire: Wire) -> None:
    await wire.patch("classificationPolicies/c", POLICY)
    body = {"labels": {"Vip": True, "Language": "es"}}
    told = (await v1(wire, "classification-policies/c:try", "POST", body)).json
    assert told["classified"]
    assert (told["queue_id"], told["queue_by"], told["priority"]) == ("q", "selectors", 50)
    assert told["attached"] == [{"key": "Language", "label_operator": "equal", "value": "es"}]
    assert [one["place"] for one in told["trail"]] == [
        "/queueSelectorAttachments/0", "/workerSelectorAttachments/0", "/prioritizationRule",
    ]  # fmt: skip
    assert told["trail"][0]["value"] is True
    assert (await wire.get("jobs")).json["value"] == []


async def test_a_dry_run_that_finds_no_queue_says_why(wire: Wire) -> None:
    await wire.patch("classificationPolicies/c", POLICY)
    told = (await v1(wire, "classification-policies/c:try", "POST", {"labels": {}})).json
    assert (told["classified"], told["queue_id"]) == (False, None)
    assert [one["code"] for one in told["errors"]] == ["QueueNotFound"]
    named = {"queue_id": "q"}
    told = (await v1(wire, "classification-policies/c:try", "POST", named)).json
    assert (told["classified"], told["queue_by"]) == (True, "job")


@pytest.mark.parametrize(
    "body", [{"labels": {"a": [1]}}, {"labels": 1}, {"priority": 101}, {"labels": {"": 1}}]
)
async def test_a_dry_run_refuses_what_no_job_could_have(wire: Wire, body: Any) -> None:
    await wire.patch("classificationPolicies/c", POLICY)
    reply = await v1(wire, "classification-policies/c:try", "POST", body)
    assert reply.status == 400, reply.body  # J21


async def test_channels_are_listed_and_given_names(wire: Wire) -> None:
    made = await v1(wire, "channels/MakePizza", "PUT", {"name": "Make a pizza"})
    assert made.json == {"id": "MakePizza", "name": "Make a pizza", "managed": False}
    found = (await v1(wire, "channels", key="reader")).json["items"]
    assert {"id": "MakePizza", "name": "Make a pizza", "managed": False} in found
    assert {one["id"] for one in found if one["managed"]} == {
        "AcsChatChannel", "AcsVoiceChannel", "AcsSMSChannel",
    }  # fmt: skip


async def test_the_overview_counts_jobs_offers_and_workers(matched: Wire) -> None:
    await matched.patch("queues/empty", {"distributionPolicyId": "d"})
    await matched.patch("workers/ana", {**WORKER, "capacity": 2})
    await matched.patch("workers/off", {**WORKER, "availableForOffers": False})
    await matched.patch("jobs/taken", JOB)
    await matched.accept("ana")
    await matched.patch("jobs/offered", {**JOB, "channelId": "voice"})
    await matched.offer("ana")
    empty, q = (await v1(matched, "queues", key="viewer")).json["items"]
    assert (q["waiting"], q["offers"], q["assigned"]) == (1, 1, 1)
    assert (q["workers_active"], q["workers_draining"], q["workers_inactive"]) == (1, 0, 1)
    assert q["longest_wait_seconds"] >= 0
    assert (empty["queue_id"], empty["waiting"], empty["longest_wait_seconds"]) == (
        "empty", 0, None,
    )  # fmt: skip
    await matched.patch("workers/ana", {"availableForOffers": False})
    one = (await v1(matched, "queues?queue=q")).json["items"]
    assert [(row["workers_active"], row["workers_draining"]) for row in one] == [(0, 1)]


async def test_the_overview_comes_in_pages(wire: Wire) -> None:
    for name in ("a", "b", "c"):
        await wire.patch(f"queues/{name}", {"distributionPolicyId": "d"})
    found, cursor = [], ""
    while True:
        page = (await v1(wire, f"queues?limit=2{cursor}")).json
        found += [one["queue_id"] for one in page["items"]]
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"
    assert found == ["a", "b", "c", "q"]


@pytest.mark.parametrize(
    ("path", "method", "body"),
    [
        ("jobs/j/explanation", "GET", None),
        ("workers/ana/explanation", "GET", None),
        ("channels", "GET", None),
        ("queues", "GET", None),
        ("classification-policies/c:try", "POST", {}),
        ("channels/x", "PUT", {"name": "x"}),
    ],
)
async def test_a_worker_key_sees_nothing_of_it(
    wire: Wire, path: str, method: str, body: Any
) -> None:
    reply = await v1(wire, path, method, body, key="worker")
    assert (reply.status, code(reply)) == (403, "forbidden")  # J22


@pytest.mark.parametrize("path", ["classification-policies/c:try", "channels/x"])
async def test_a_reader_neither_defines_channels_nor_has_rules_called(
    wire: Wire, path: str
) -> None:
    method = "PUT" if path.startswith("channels") else "POST"
    reply = await v1(wire, path, method, {"name": "x"}, key="reader")
    assert reply.status == 403


async def test_secrets_are_not_in_a_dry_run(wire: Wire) -> None:
    rule = {
        "kind": "function", "functionUri": "http://127.0.0.1:9/score",
        "credential": {"functionKey": "hush-hush"},
    }  # fmt: skip
    await wire.patch(
        "classificationPolicies/c", {"fallbackQueueId": "q", "prioritizationRule": rule}
    )
    reply = await v1(wire, "classification-policies/c:try", "POST", {})
    assert not reply.json["classified"]  # the address is not allowed: a failure, not a 5xx
    assert b"hush-hush" not in reply.body  # J23


async def test_open_offers_of_all_workers_are_listed_the_newest_first(matched: Wire) -> None:
    for worker in ("ana", "ben", "eva"):
        await matched.patch(f"jobs/for-{worker}", JOB)
        await matched.patch(f"workers/{worker}", {**WORKER, "capacity": 1})
        await matched.offer(worker)
    shown = (await v1(matched, "open-offers", key="reader")).json["items"]
    assert sorted(offer["worker_id"] for offer in shown) == ["ana", "ben", "eva"]
    assert [offer["offered_at"] for offer in shown] == sorted(
        (offer["offered_at"] for offer in shown), reverse=True
    )
    assert {offer["queue_id"] for offer in shown} == {"q"}
    pages, cursor = [], ""
    for _ in range(3):
        page = (await v1(matched, f"open-offers?limit=1{cursor}")).json
        pages += page["items"]
        cursor = f"&cursor={page['next']}"
    assert (pages, page["next"]) == (shown, None)
    await matched.accept("ana")
    left = (await v1(matched, "open-offers")).json["items"]
    assert sorted(offer["worker_id"] for offer in left) == ["ben", "eva"]
