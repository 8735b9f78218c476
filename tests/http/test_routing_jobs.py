"""`/routing/jobs` on the wire: statuses, headers, bodies, wrong states, whatever may be sent."""

from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

import anyio.to_thread
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relevo.http.access.key_model import NewKey
from tests.conftest import EXAMPLES
from tests.http.routing import JOB, NOBODY, WORKER, Wire
from tests.http.table import code

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.http.conftest import Reply, Site

pytestmark = pytest.mark.anyio


@pytest.fixture
async def wire(site: Site) -> Wire:
    """A site with a queue, where nobody matches."""
    wire = Wire(site)
    await wire.queue()
    return wire


@pytest.fixture
async def matched(wire: Wire) -> AsyncIterator[Wire]:
    """The same, with a host that matches."""
    async with wire.site.services.app.host():
        yield wire


async def events(wire: Wire) -> list[tuple[str, str]]:
    """Return the names and subjects of all that was announced."""
    reply = await wire.site.ask("GET", "/v1/router/events?limit=10000", key=wire.key)
    return [(one["type"].rpartition(".")[2], one["subject"]) for one in reply.json["items"]]


async def test_created_changed_and_read_with_tag_and_time(wire: Wire) -> None:
    made = await wire.patch("jobs/j", {**JOB, "unknown": [1]}, Content_Type="application/json")
    assert (made.status, made.json["status"]) == (201, "created")
    changed = await wire.patch("jobs/j", {"priority": 5})
    read = await wire.get("jobs/j")
    for reply in (made, changed, read):
        assert re.fullmatch(r'"[^"]+"', reply.headers["ETag"])
        assert reply.json["etag"] == reply.headers["ETag"]
        assert reply.headers["Last-Modified"].endswith(" GMT")
        assert reply.headers["Content-Type"] == "application/json; charset=utf-8"
    assert (changed.status, read.status, read.json) == (200, 200, changed.json)
    head = await wire.ask("HEAD", "jobs/j")
    assert (head.status, head.headers["ETag"]) == (200, read.headers["ETag"])
    since = read.headers["Last-Modified"]
    assert (await wire.patch("jobs/j", {"priority": 6}, If_Unmodified_Since=since)).status == 200


async def test_unset_is_left_out_and_empty_is_there(wire: Wire) -> None:
    await wire.patch("jobs/j", JOB)
    assert (await wire.get("jobs/j")).json.keys() == {
        "id", "etag", "status", "channelId", "queueId", "priority", "enqueuedAt",
        "requestedWorkerSelectors", "attachedWorkerSelectors", "labels", "tags", "notes",
        "matchingMode", "assignments",
    }  # fmt: skip


async def test_enumerations_in_any_case_and_answers_in_one(wire: Wire) -> None:
    selector = {"key": "a", "labelOperator": "GREATERTHAN", "value": 1}
    mode = {"kind": "SUSPEND"}
    told = {**JOB, "requestedWorkerSelectors": [selector], "matchingMode": mode}
    made = await wire.patch("jobs/j", told)
    assert made.json["matchingMode"] == {"kind": "suspend"}
    assert made.json["requestedWorkerSelectors"][0] == {
        "key": "a", "labelOperator": "greaterThan", "value": 1, "expedite": False,
        "status": "active",
    }  # fmt: skip
    listed = await wire.get("jobs?status=WAITINGFORACTIVATION")
    assert [one["id"] for one in listed.json["value"]] == ["j"]


async def test_conditions_come_before_the_body(wire: Wire) -> None:
    await wire.patch("jobs/j", JOB)
    for body in (b"{", b'{"priority": []}', b"[]"):
        reply = await wire.patch("jobs/j", body, If_Match='"stale"')
        assert (reply.status, code(reply)) == (412, "ConditionNotMet")
    for body, expected in ((b"{", "InvalidJson"), (b"[]", "InvalidValue")):
        reply = await wire.patch("jobs/j", body, If_Match="*")
        assert (reply.status, code(reply)) == (400, expected)


async def test_a_tag_changes_exactly_when_the_job_does(wire: Wire) -> None:
    # J15
    tags = [(await wire.patch("jobs/j", {**JOB, "labels": {"a": 1}})).json["etag"]]
    read = (await wire.get("jobs/j")).json
    for change, changes in (
        ({}, False),
        (read, False),
        ({"labels": {"a": 1}}, False),
        ({"labels": {"a": 2}}, True),
        ({"tags": {"a": None}}, False),
        ({"priority": None}, False),
        ({"priority": 2}, True),
        ({"id": "other", "status": "closed", "etag": "x"}, False),
        ({"notes": [{"message": "m", "addedAt": "0001-01-01T00:00:00Z"}]}, True),
        ({"notes": [{"message": "m", "addedAt": "0001-01-01T00:00:00+00:00"}]}, False),
    ):
        before = (await wire.get("jobs/j")).json
        after = await wire.patch("jobs/j", change)
        assert after.status == 200, after.body
        assert (after.json["etag"] != before["etag"]) is changes, change
        assert (after.json != before) is changes, change
        tags.append(after.json["etag"])
    assert (await wire.post("jobs/j:cancel")).status == 200
    assert (await wire.get("jobs/j")).json["etag"] not in tags


async def test_transient_statuses_are_reported_by_the_call_that_leads_there(wire: Wire) -> None:
    await wire.patch("classificationPolicies/c", {"fallbackQueueId": "q"})
    schedule = {"kind": "scheduleAndSuspend", "scheduleAt": "2100-01-01T00:00:00.123Z"}
    for name, told, reported, then in (
        ("direct", JOB, "created", "queued"),
        ("policy", {"channelId": "v", "classificationPolicyId": "c"},
         "pendingClassification", "pendingClassification"),
        ("later", {**JOB, "matchingMode": schedule}, "pendingSchedule", "scheduled"),
        ("resting", {**JOB, "matchingMode": {"kind": "suspend"}}, "created",
         "waitingForActivation"),
    ):  # fmt: skip
        assert (await wire.patch(f"jobs/{name}", told)).json["status"] == reported
        assert (await wire.get(f"jobs/{name}")).json["status"] == then
    active = await wire.patch("jobs/later", {"matchingMode": {"kind": "queueAndMatch"}})
    assert active.json["status"] == "queued"
    assert active.json["scheduledAt"] == "2100-01-01T00:00:00.123000Z"
    again = await wire.patch("jobs/direct", {"matchingMode": schedule})
    assert again.json["status"] == "pendingSchedule"


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (None, {}),
        (b"", {"Content-Type": "application/json"}),
        (b"", {"Content-Type": "application/octet-stream"}),
        (b"{}", {}),
        (b'{"note": null, "dispositionCode": null, "what": 1, "id": "x"}', {}),
    ],
)
async def test_actions_with_and_without_a_body(
    wire: Wire, body: bytes | None, headers: dict[str, str]
) -> None:
    await wire.patch("jobs/j", JOB)
    told = {name.replace("-", "_"): value for name, value in headers.items()}
    for colon in (":", "%3A"):
        reply = await wire.ask("POST", f"jobs/j{colon}cancel", body, **told)
        assert (reply.status, reply.json) == (200, {})
    job = (await wire.get("jobs/j")).json
    assert (job["status"], job["dispositionCode"], job["notes"]) == ("cancelled", "Cancelled", [])


async def test_bodies_of_actions_that_are_refused(wire: Wire) -> None:
    # J14, J21
    await wire.patch("jobs/j", JOB)
    for body, expected in (
        (b"[]", "InvalidValue"),
        (b"{", "InvalidJson"),
        (b'{"note": 5}', "InvalidValue"),
        (b'{"note": "\\u0000"}', "InvalidValue"),
        (b'{"dispositionCode": {}}', "InvalidValue"),
    ):
        reply = await wire.post("jobs/j:cancel", body)
        assert (reply.status, code(reply)) == (400, expected), body
    reply = await wire.ask("POST", "jobs/j:cancel", b"{}", Content_Type="text/plain")
    assert (reply.status, code(reply)) == (415, "UnsupportedMediaType")
    assert (await wire.get("jobs/j")).json["status"] == "queued"


async def test_verbs_are_recognised_at_the_end_of_posts_only(wire: Wire) -> None:
    for name in ("x:cancel", "8:acs:a_b", "a/b", "j:unknown"):
        path = f"jobs/{quote(name, safe='')}"
        assert (await wire.patch(path, JOB)).json["id"] == name
        assert (await wire.get(f"jobs/{quote(name, safe=':')}")).json["id"] == name
        assert (await wire.post(f"{path}:cancel")).status == 200
        assert (await wire.get(path)).json["status"] == "cancelled"
        assert (await wire.delete(path)).status == 204
    assert (await wire.post("jobs/j:unknown")).status == 405
    assert code(await wire.patch("jobs/a%0Ab", JOB)) == "InvalidValue"
    assert code(await wire.patch(f"jobs/{'x' * 257}", JOB)) == "InvalidValue"


async def test_repeats_add_no_event_and_no_note(matched: Wire) -> None:
    # J13
    wire = matched
    await wire.patch("workers/w", WORKER)
    await wire.patch("jobs/j", JOB)
    offer = await wire.offer("w")
    accepts = [await wire.post(f"workers/w/offers/{offer}:accept") for _ in range(2)]
    assert accepts[0].json == accepts[1].json
    at = f"jobs/j/assignments/{accepts[0].json['assignmentId']}"
    for verb in ("complete", "close"):
        for _ in range(2):
            reply = await wire.post(f"{at}:{verb}", {"note": verb})
            assert (reply.status, reply.json) == (200, {})
    await wire.patch("jobs/k", JOB)
    second = await wire.offer("w")
    for _ in range(2):
        reply = await wire.post(f"workers/w/offers/{second}:decline")
        assert (reply.status, reply.json) == (200, {})
    for _ in range(2):
        assert (await wire.post("jobs/k:cancel", {"note": "n"})).status == 200
    for _ in range(2):
        assert (await wire.delete("jobs/k")).status == 204
    notes = [one["message"] for one in (await wire.get("jobs/j")).json["notes"]]
    assert notes == ["complete", "close"]
    names = [name for name, _ in await events(wire)]
    assert sorted(names) == sorted(
        ["RouterWorkerRegistered", "RouterJobReceived", "RouterJobQueued",
         "RouterWorkerOfferIssued", "RouterWorkerOfferAccepted", "RouterJobCompleted",
         "RouterJobClosed", "RouterJobReceived", "RouterJobQueued", "RouterWorkerOfferIssued",
         "RouterWorkerOfferDeclined", "RouterJobCancelled", "RouterJobDeleted"]
    )  # fmt: skip


async def test_wrong_states(matched: Wire) -> None:
    """The table of section 4, from the beginning of a job's life to its end."""
    wire = matched
    await wire.patch("classificationPolicies/c", {"fallbackQueueId": "q"})

    async def check(method: str, path: str, status: int, expected: str, body: Any = None) -> None:
        before = await wire.get("jobs/j")
        reply = await wire.ask(method, path, body)
        assert (reply.status, code(reply)) == (status, expected), path
        assert reply.headers["x-ms-error-code"] == expected
        assert (await wire.get("jobs/j")).body == before.body  # J14

    await wire.patch("jobs/j", JOB)
    unknown = f"jobs/j/assignments/{NOBODY}"
    for verb in ("complete", "close", "unassign"):
        await check("POST", f"{unknown}:{verb}", 404, "NotFound")
    await check("POST", "jobs/j:reclassify", 400, "InvalidValue")
    await check("DELETE", "jobs/j", 409, "InvalidState")
    await wire.patch("workers/w", WORKER)
    assignment = await wire.accept("w")
    at = f"jobs/j/assignments/{assignment}"
    await check("POST", f"{at}:close", 409, "InvalidState")
    await check("GET", "jobs/j/position", 409, "InvalidState")
    await check("PATCH", "jobs/j", 409, "InvalidState", {"channelId": "chat"})
    await check("PATCH", "jobs/j", 409, "InvalidState", {"matchingMode": {"kind": "suspend"}})
    await check("PATCH", "jobs/j", 409, "InvalidState", {"classificationPolicyId": "c"})
    await check("DELETE", "workers/w", 409, "InUse")
    assert (await wire.patch("jobs/j", {"labels": {"x": 1}})).json["status"] == "assigned"
    assert (await wire.post(f"{at}:complete")).status == 200
    await check("POST", f"{at}:unassign", 409, "InvalidState")
    await check("POST", "jobs/j:cancel", 409, "InvalidState")
    await check("DELETE", "jobs/j", 409, "InvalidState")
    assert (await wire.post(f"{at}:close")).status == 200
    await check("POST", f"{at}:complete", 409, "InvalidState")
    await check("POST", f"{at}:unassign", 409, "InvalidState")
    await check("POST", "jobs/j:cancel", 409, "InvalidState")
    await check("PATCH", "jobs/j", 409, "InvalidState", {"priority": 9})
    late = {"notes": [], "tags": {"a": 1}, "dispositionCode": "x", "channelReference": "r"}
    assert (await wire.patch("jobs/j", late)).status == 200
    assert (await wire.delete("jobs/j")).status == 204


async def test_a_job_with_a_policy_is_not_classified_again_where_it_cannot_be(wire: Wire) -> None:
    await wire.patch("classificationPolicies/c", {"fallbackQueueId": "q"})
    told = {"channelId": "v", "classificationPolicyId": "c"}
    for name, mode in (
        ("resting", {"kind": "suspend"}),
        ("later", {"kind": "scheduleAndSuspend", "scheduleAt": "2100-01-01T00:00:00Z"}),
    ):
        await wire.patch(f"jobs/{name}", {**told, "matchingMode": mode})
        reply = await wire.post(f"jobs/{name}:reclassify", {})
        assert (reply.status, code(reply)) == (409, "InvalidState")
    assert (await wire.post("jobs/missing:reclassify")).status == 404


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        ("status=nonsense", 400),
        ("scheduledBefore=yesterday", 400),
        ("scheduledBefore=0001-01-01T00:00:00Z", 200),
        ("scheduledBefore=0001-01-01T00:00:00", 200),
        ("scheduledBefore=0001-01-01T00:00:00%2B14:00", 400),
        ("scheduledAfter=2023-11-15T10:00:00.123%2B00:00", 200),
        ("scheduledAfter=9999-12-31T23:59:59.999999Z", 200),
        ("queueId=nowhere&channelId=none&classificationPolicyId=no", 200),
        ("maxpagesize=0", 400),
        ("continuation=x", 400),
        ("queueId=%00", 400),
    ],
)
async def test_arguments_of_lists(wire: Wire, arguments: str, status: int) -> None:
    reply = await wire.get(f"jobs?{arguments}")
    assert reply.status == status, reply.body
    assert (code(reply) == "InvalidValue") if status == 400 else reply.json == {"value": []}


async def test_pages_keep_their_filters(wire: Wire) -> None:
    # J16
    for number in range(5):
        await wire.patch(f"jobs/j{number}", JOB)
    await wire.post("jobs/j1:cancel")
    path, seen = "jobs?status=queued&queueId=q&maxpagesize=2", []
    while path:
        reply = (await wire.get(path)).json
        seen.append([one["id"] for one in reply["value"]])
        await wire.patch(f"jobs/new{len(seen)}", {**JOB, "channelId": "chat"})
        await wire.post("jobs/j3:cancel")
        link = reply.get("nextLink")
        path = f"jobs?{urlsplit(link).query.replace(wire.version, '').lstrip('&')}" if link else ""
    found = [one for page in seen for one in page]
    assert found[:3] == ["j0", "j2", "j4"]
    assert len(found) == len(set(found))


async def test_statistics(wire: Wire) -> None:
    assert (await wire.get("queues/q/statistics")).json == {"queueId": "q", "length": 0}
    for name, priority in (("a", 1), ("b", 1), ("c", 9)):
        await wire.patch(f"jobs/{name}", {**JOB, "priority": priority})
    await wire.patch("jobs/d", {**JOB, "matchingMode": {"kind": "suspend"}})
    told = (await wire.get("queues/q/statistics")).json
    assert told["length"] == 3
    assert told["estimatedWaitTimeMinutes"].keys() == {"1", "9"}
    assert told["longestJobWaitTimeMinutes"] >= 0
    places = [(await wire.get(f"jobs/{name}/position")).json["position"] for name in "cab"]
    assert places == [1, 2, 3]
    assert code(await wire.get("queues/none/statistics")) == "NotFound"


async def test_the_first_and_the_last_instant_stop_nobody(matched: Wire) -> None:
    # J21: the driver has no other words for infinity
    wire = matched
    for name, at in (("first", "0001-01-01T00:00:00"), ("last", "9999-12-31T23:59:59.999999")):
        mode = {"kind": "scheduleAndSuspend", "scheduleAt": f"{at}Z"}
        made = await wire.patch(f"jobs/{name}", {**JOB, "matchingMode": mode})
        assert made.status == 201
        again = await wire.patch(f"jobs/{name}", {"matchingMode": mode})
        assert again.json["etag"] == (await wire.get(f"jobs/{name}")).json["etag"]
        await wire.patch(f"workers/{name}", WORKER)
        await wire.patch(f"jobs/for-{name}", JOB)
        offer = await wire.offer(name)
        told = {"retryOfferAt": f"{at}Z"}
        assert (await wire.post(f"workers/{name}/offers/{offer}:decline", told)).status == 200
        if name == "last":
            await wire.patch("workers/other", WORKER)
        assignment = await wire.accept("other" if name == "last" else name)
        done = f"jobs/for-{name}/assignments/{assignment}"
        assert (await wire.post(f"{done}:complete")).status == 200
        assert (await wire.post(f"{done}:close", {"closeAt": f"{at}Z"})).status == 200
        closed = (await wire.get(f"jobs/for-{name}")).json["status"]
        assert closed == ("completed" if name == "last" else "closed")
        await wire.delete(f"workers/{name}")
    await wire.patch("workers/fresh", WORKER)
    await wire.patch("jobs/afterwards", JOB)
    assert (await wire.offers("fresh")).json["items"]


async def test_who_may(wire: Wire) -> None:
    assert (await wire.as_("router").patch("jobs/j", JOB)).status == 201
    for key in ("reader", "viewer", "supervisor", "router", "operator"):
        assert (await wire.as_(key).get("jobs/j")).status == 200, key
    for key in ("reader", "viewer", "operator", "worker", "consumer"):
        for reply in (
            await wire.as_(key).patch("jobs/j", {"priority": 3}),
            await wire.as_(key).post("jobs/j:cancel"),
            await wire.as_(key).delete("jobs/j"),
        ):
            assert (reply.status, code(reply)) == (403, "Forbidden"), key
    new = NewKey(name="s", roles=("router",), scopes=("job:mine-*",))
    secret = (await wire.site.services.keys.create(new)).secret
    mine = wire.as_(secret)
    assert (await mine.patch("jobs/mine-1", JOB)).status == 201
    assert (await mine.patch("jobs/other", JOB)).status == 403
    assert (await mine.get("jobs")).status == 403
    assert code(await mine.post(f"jobs/mine-1/assignments/{NOBODY}:close")) == "NotFound"
    assert code(await mine.post(f"jobs/j/assignments/{NOBODY}:close")) == "Forbidden"


NAMES = st.sampled_from(
    ["channelId", "queueId", "classificationPolicyId", "priority", "labels", "tags", "notes",
     "matchingMode", "requestedWorkerSelectors", "dispositionCode", "kind", "scheduleAt", "key",
     "labelOperator", "value", "expiresAfterSeconds", "expedite", "message", "addedAt", "status",
     "capacity", "queues", "channels", "channelId", "capacityCostPerJob", "maxNumberOfJobs",
     "availableForOffers", "maxConcurrentOffers", "note", "closeAt", "retryOfferAt",
     "suspendMatching", "Id"]
)  # fmt: skip
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(allow_nan=False),
    st.text(max_size=20),
    st.sampled_from(["q", "voice", "c", "suspend", "queueAndMatch", "scheduleAndSuspend", "equal",
                     "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00+14:00",
                     "9999-12-31T23:59:59-14:00", "\x00", "\ud800", "x" * 5_000]),
)  # fmt: skip
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)
BODIES = st.lists(st.dictionaries(NAMES, VALUES, max_size=6), min_size=25, max_size=25)


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()  # which writes what others refuse to


class Fuzz:
    """Sends bodies to every endpoint; keeps what was answered as it should not have been."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.statuses: set[int] = set()

    async def send(self, body: dict[str, Any]) -> None:
        for base, told in (("jobs/f", JOB), ("workers/f", WORKER), ("jobs/new", JOB)):
            for sent in (body, {**told, **body}):
                self.check(await self.wire.patch(base, _json(sent)), sent)
        for path in (
            "jobs/f:cancel", "jobs/f:reclassify", f"jobs/f/assignments/{NOBODY}:close",
            f"jobs/f/assignments/{NOBODY}:complete", f"jobs/f/assignments/{NOBODY}:unassign",
            f"workers/f/offers/{NOBODY}:decline", f"workers/f/offers/{NOBODY}:accept",
        ):  # fmt: skip
            self.check(await self.wire.post(path, _json(body)), body)
        self.check(await self.wire.delete("jobs/f"), body)
        self.check(await self.wire.delete("workers/f"), body)

    def check(self, reply: Reply, sent: Any) -> None:
        self.statuses.add(reply.status)
        assert reply.status < 500, (sent, reply.body)
        if reply.status >= 400:
            error = msgspec.json.decode(reply.body)["error"]
            assert reply.headers["x-ms-error-code"] == error["code"], sent
            assert error["message"], sent


async def test_whatever_is_sent_is_never_our_fault(matched: Wire) -> None:
    # J21
    await matched.patch("classificationPolicies/c", {"fallbackQueueId": "q"})
    fuzz, loop = Fuzz(matched), asyncio.get_running_loop()
    for body in (
        {"channelId": "c", "queueId": "q"},
        {"capacity": 0, "priority": "high"},
        {"classificationPolicyId": "c"},
    ):
        await fuzz.send(body)

    @settings(max_examples=EXAMPLES // 20, deadline=None, database=None)
    @given(BODIES)
    def check(bodies: list[dict[str, Any]]) -> None:
        async def all_() -> None:
            for body in bodies:
                await fuzz.send(body)

        asyncio.run_coroutine_threadsafe(all_(), loop).result()

    await anyio.to_thread.run_sync(check)
    assert {200, 201, 204, 400, 404, 409} <= fuzz.statuses, "nothing much was tried"
