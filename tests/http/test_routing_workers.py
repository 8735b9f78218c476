"""`/routing/workers`, their offers, and keys for one worker; `/v1/router/offers` and `/events`."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec
import pytest
from yarl import URL

from relevo.http.access.key_model import NewKey
from relevo.http.application import RequestBounds
from relevo.router import watching
from relevo.router.wire.envelopes import NAMES
from tests.http.routing import JOB, NOBODY, PATIENCE, PREVIEW, VOICE, WORKER, Wire
from tests.http.table import code

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import aiohttp

    from tests.http.conftest import Opens, Site

pytestmark = pytest.mark.anyio

ANA = "8:acs:ana_1"
ANA_PATH = quote(ANA, safe="")


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


async def test_created_changed_and_read_with_tag_and_time(wire: Wire) -> None:
    made = await wire.patch("workers/w", {**WORKER, "capacity": 3})
    assert (made.status, made.json["state"]) == (201, "active")
    changed = await wire.patch("workers/w", {"tags": {"a": 1}})
    read = await wire.get("workers/w")
    for reply in (made, changed, read):
        assert reply.json["etag"] == reply.headers["ETag"]
        assert reply.headers["Last-Modified"].endswith(" GMT")
    assert (changed.status, read.json) == (200, changed.json)
    assert read.json == {
        "id": "w", "etag": read.headers["ETag"], "state": "active", "queues": ["q"],
        "capacity": 3, "labels": {"Id": "w"}, "tags": {"a": 1}, "channels": [VOICE],
        "availableForOffers": True, "offers": [], "assignedJobs": [], "loadRatio": 0.0,
    }  # fmt: skip
    back = await wire.patch("workers/w", read.json)
    assert back.json == read.json  # J15


async def test_the_limit_of_offers_is_shown_to_callers_of_the_preview_only(wire: Wire) -> None:
    preview = Wire(wire.site, version=PREVIEW)
    written = await wire.patch("workers/w", {"maxConcurrentOffers": 2})
    assert "maxConcurrentOffers" not in written.json
    assert (await preview.get("workers/w")).json["maxConcurrentOffers"] == 2
    assert "maxConcurrentOffers" not in (await wire.get("workers/w")).json
    for asked, shown in ((wire, False), (preview, True)):
        (listed,) = (await asked.get("workers")).json["value"]
        assert ("maxConcurrentOffers" in listed) is shown
    assert (await preview.patch("workers/w", {"capacity": 4})).json["maxConcurrentOffers"] == 2


async def test_the_label_id_belongs_to_the_service(wire: Wire) -> None:
    made = await wire.patch("workers/w", {"labels": {"Id": "other", "a": 1}})
    assert made.json["labels"] == {"Id": "w", "a": 1}
    again = await wire.patch("workers/w", {"labels": {"Id": None}})
    assert again.json == made.json


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"capacity": 0}, "/capacity"),
        ({"capacity": 2**31}, "/capacity"),
        ({"capacity": "1"}, "/capacity"),
        ({"queues": "q"}, "/queues"),
        ({"queues": [""]}, "/queues/0"),
        ({"channels": [{"channelId": "a"}]}, "/channels/0/capacityCostPerJob"),
        ({"channels": [VOICE, VOICE]}, "/channels/1/channelId"),
        ({"channels": [{**VOICE, "maxNumberOfJobs": 0}]}, "/channels/0/maxNumberOfJobs"),
        ({"labels": {"a": {}}}, "/labels/a"),
        ({"availableForOffers": "yes"}, "/availableForOffers"),
    ],
)
async def test_what_is_refused(wire: Wire, change: dict[str, Any], pointer: str) -> None:
    # J14
    reply = await wire.patch("workers/w", change)
    assert (reply.status, reply.json["error"]["target"]) == (400, pointer)
    assert (await wire.get("workers/w")).status == 404


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        ("state=ACTIVE", 200),
        ("state=nonsense", 400),
        ("hasCapacity=true", 200),
        ("hasCapacity=maybe", 400),
        ("queueId=x&channelId=y", 200),
    ],
)
async def test_arguments_of_lists(wire: Wire, arguments: str, status: int) -> None:
    assert (await wire.get(f"workers?{arguments}")).status == status


async def test_offers_that_cannot_be_answered(matched: Wire) -> None:
    wire = matched
    await wire.patch("workers/w", WORKER)
    await wire.patch("workers/v", {})
    await wire.patch("jobs/j", JOB)
    offer = await wire.offer("w")
    for path in (f"workers/v/offers/{offer}", f"workers/w/offers/{NOBODY}", "workers/w/offers/x"):
        for verb in ("accept", "decline"):
            assert code(await wire.post(f"{path}:{verb}")) == "NotFound"
    for body in (b'{"retryOfferAt": "soon"}', b'{"retryOfferAt": 5}', b"[]"):
        assert (await wire.post(f"workers/w/offers/{offer}:decline", body)).status == 400
    assert (await wire.post("jobs/j:cancel")).status == 200
    for verb in ("accept", "decline"):
        reply = await wire.post(f"workers/w/offers/{offer}:{verb}")
        assert (reply.status, code(reply)) == (409, "OfferGone")
    assert (await wire.get("workers/w")).json["offers"] == []


async def test_deregistering_takes_offers_back_in_the_same_answer(matched: Wire) -> None:
    # J6
    wire = matched
    await wire.patch("workers/w", {**WORKER, "capacity": 2})
    await wire.patch("jobs/j", JOB)
    await wire.accept("w")
    await wire.patch("jobs/k", JOB)
    await wire.offer("w")
    gone = await wire.patch("workers/w", {"availableForOffers": False})
    assert (gone.json["state"], gone.json["offers"]) == ("draining", [])
    assert gone.json["loadRatio"] == 0.5
    assert [one["jobId"] for one in gone.json["assignedJobs"]] == ["j"]


async def test_a_key_for_one_worker(matched: Wire) -> None:
    # J22
    wire = matched
    for worker in (ANA, "bob", "8:acs:ana_12"):
        await wire.patch(f"workers/{quote(worker, safe='')}", WORKER)
    told = {"name": "ana's", "roles": [f"worker:{ANA}"]}
    made = await wire.site.ask("POST", "/v1/keys", key="admin", json=told)
    assert made.status == 201
    ana = wire.as_(made.json["secret"])
    for number in range(3):
        await wire.patch(f"jobs/j{number}", JOB)
    offers = {one: await wire.offer(one) for one in (ANA, "bob", "8:acs:ana_12")}
    assert (await ana.get(f"workers/{ANA_PATH}")).status == 200
    before = [(await wire.get(path)).body for path in ("workers", "jobs")]
    for method, path in (
        ("GET", "workers/bob"), ("GET", "workers/8:acs:ana_12"), ("GET", "workers"),
        ("GET", "jobs"), ("GET", "jobs/j0"), ("GET", "jobs/j0/position"), ("GET", "queues"),
        ("GET", "queues/q/statistics"), ("PATCH", f"workers/{ANA_PATH}"),
        ("DELETE", f"workers/{ANA_PATH}"), ("PATCH", "workers/bob"), ("POST", "jobs/j0:cancel"),
        ("POST", f"workers/bob/offers/{offers['bob']}:accept"),
        ("POST", f"workers/bob/offers/{offers['bob']}:decline"),
        ("POST", f"workers/bob/offers/{offers[ANA]}:accept"),
    ):  # fmt: skip
        reply = await ana.ask(method, path, {} if method != "GET" else None)
        assert (reply.status, code(reply)) == (403, "Forbidden"), path
    assert (await ana.offers("bob")).status == 403
    assert (await wire.site.ask("GET", "/v1/router/events", key=ana.key)).status == 403
    assert code(await ana.post(f"workers/{ANA_PATH}/offers/{offers['bob']}:accept")) == "NotFound"
    assert [(await wire.get(path)).body for path in ("workers", "jobs")] == before
    foreign = (await wire.post(f"workers/bob/offers/{offers['bob']}:accept")).json
    for job, assignment in (
        (foreign["jobId"], foreign["assignmentId"]),
        (foreign["jobId"], NOBODY),
        ("missing", foreign["assignmentId"]),
    ):
        for verb in ("complete", "close", "unassign"):
            reply = await ana.post(f"jobs/{job}/assignments/{assignment}:{verb}")
            assert (reply.status, code(reply)) == (403, "Forbidden")
    own = (await ana.post(f"workers/{ANA_PATH}/offers/{offers[ANA]}:accept")).json
    at = f"jobs/{own['jobId']}/assignments/{own['assignmentId']}"
    assert (await ana.post(f"{at}:unassign")).json["unassignmentCount"] == 1
    again = await ana.offer(ANA)
    mine = (await ana.post(f"workers/{ANA_PATH}/offers/{again}:accept")).json
    at = f"jobs/{mine['jobId']}/assignments/{mine['assignmentId']}"
    assert (await ana.post(f"{at}:complete", {"note": "done"})).status == 200
    assert (await ana.post(f"{at}:close")).status == 200


@pytest.mark.parametrize("role", ["worker:", "worker", "worker:a*"])
async def test_a_role_for_one_worker_means_exactly_that_one(wire: Wire, role: str) -> None:
    # J22
    await wire.patch("workers/ab", {})
    told = {"name": "k", "roles": [role]}
    made = await wire.site.ask("POST", "/v1/keys", key="admin", json=told)
    assert made.status == (400 if role == "worker:" else 201)
    if made.status == 201:
        reply = await wire.as_(made.json["secret"]).get("workers/ab")
        assert reply.status == (200 if role == "worker" else 403)


async def test_offers_are_waited_for_and_gone_on_from(matched: Wire) -> None:
    wire = matched
    await wire.patch("workers/w", {**WORKER, "capacity": 2})
    empty = await wire.offers("w", wait_seconds=0)
    assert empty.json["items"] == []

    waiting = asyncio.create_task(wire.offers("w", continuation=empty.json["continuation"]))
    await wire.patch("jobs/j", {**JOB, "labels": {"vip": True}, "priority": 4})
    first = (await waiting).json
    (offer,) = first["items"]
    assert (offer["job_id"], offer["worker_id"], offer["capacity_cost"]) == ("j", "w", 1)
    assert (offer["job_labels"], offer["job_priority"]) == ({"vip": True}, 4)
    again = await wire.offers("w")
    assert again.json["items"] == [offer]
    later = await wire.offers("w", wait_seconds=0, continuation=first["continuation"])
    assert later.json["items"] == []
    await wire.patch("jobs/k", JOB)
    second = await wire.offers("w", continuation=first["continuation"])
    assert [one["job_id"] for one in second.json["items"]] == ["k"]


async def test_what_is_wrong_with_a_wait(wire: Wire) -> None:
    await wire.patch("workers/w", {})
    missing = await wire.offers("nobody", wait_seconds=0)
    assert (missing.status, code(missing)) == (404, "not_found")
    for told in ({"continuation": "x"}, {"wait_seconds": -1}, {"wait_seconds": 61}, {"what": 1}):
        assert (await wire.offers("w", **{"wait_seconds": 0, **told})).status == 400
    foreign = "WyIwIiw1XQ"  # of another log: begins anew with what is open
    assert (await wire.offers("w", wait_seconds=0, continuation=foreign)).json["items"] == []


class Listener:
    """Reads a stream of server-sent events."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response

    async def next(self) -> dict[str, str]:
        """Return the fields of the next event; comments have none and are skipped."""
        fields: dict[str, str] = {}
        async with asyncio.timeout(PATIENCE):
            while True:
                line = (await self.response.content.readline()).decode()
                assert line, "the stream has ended"
                if line == "\n" and fields:
                    return fields
                if line != "\n" and not line.startswith(":"):
                    name, _, value = line.rstrip("\n").partition(": ")
                    fields[name] = value


@asynccontextmanager
async def listening(wire: Wire, target: str, **headers: str) -> AsyncIterator[Listener]:
    """Open a stream."""
    sent = {
        "Authorization": f"Bearer {wire.site.secrets.get(wire.key, wire.key)}",
        "Accept": "text/event-stream",
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    url = URL(wire.site.address.url + target, encoded=True)
    async with wire.site.session.get(url, headers=sent) as response:
        assert response.status == 200, await response.read()
        assert response.content_type == "text/event-stream"
        yield Listener(response)


async def test_a_stream_of_offers(matched: Wire) -> None:
    wire = matched
    await wire.patch("workers/w", {**WORKER, "capacity": 3})
    await wire.patch("jobs/a", JOB)
    await wire.offer("w")
    async with listening(wire, "/v1/router/offers?worker=w") as stream:
        opened = await stream.next()
        assert opened["event"] == "offer"
        assert msgspec.json.decode(opened["data"])["job_id"] == "a"
        await wire.patch("jobs/b", JOB)
        issued = await stream.next()
        assert msgspec.json.decode(issued["data"])["job_id"] == "b"
        await wire.post("jobs/a:cancel")
        ended = await stream.next()
        told = msgspec.json.decode(ended["data"])
        assert (ended["event"], told["job_id"]) == ("ended", "a")
        assert (told["outcome"], told["reason"]) == ("revoked", "jobCancelled")
    await wire.patch("jobs/c", JOB)
    async with listening(wire, "/v1/router/offers?worker=w", Last_Event_ID=issued["id"]) as stream:
        seen = [await stream.next() for _ in range(2)]
        jobs = [(one["event"], msgspec.json.decode(one["data"])["job_id"]) for one in seen]
        assert jobs == [("ended", "a"), ("offer", "c")]


async def test_who_is_cut_off_among_open_offers_gets_them_all_again(matched: Wire) -> None:
    wire = matched
    await wire.patch("workers/w", {**WORKER, "capacity": 2})
    for name in ("a", "b"):
        await wire.patch(f"jobs/{name}", JOB)
    page = (await wire.offers("w")).json
    while len(page["items"]) < 2:
        await wire.offers("w", continuation=page["continuation"])
        page = (await wire.offers("w")).json
    async with listening(wire, "/v1/router/offers?worker=w") as stream:
        first, last = await stream.next(), await stream.next()
    assert "id" not in first, "it would skip the second"
    assert "id" in last


async def test_a_stream_is_refused_like_any_request(wire: Wire) -> None:
    accept = {"Accept": "text/event-stream"}
    for target, key, status in (
        ("/v1/router/offers?worker=nobody", "admin", 404),
        ("/v1/router/offers", "admin", 400),
        ("/v1/router/offers?worker=w", "producer", 403),
        ("/v1/router/events?continuation=x", "admin", 400),
        ("/v1/router/events?start=yesterday", "admin", 400),
    ):
        reply = await wire.site.ask("GET", target, key=key, headers=accept)
        assert (reply.status, reply.type) == (status, "application/problem+json"), target


async def test_a_stream_says_that_it_lives(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "SIGN_OF_LIFE_SECONDS", 0.0)
    await wire.patch("workers/w", {})
    async with listening(wire, "/v1/router/offers?worker=w") as stream:
        lines = [await stream.response.content.readline() for _ in range(4)]
    assert lines == [b": still here\n", b"\n"] * 2


async def test_there_are_only_so_many_streams(open_site: Opens) -> None:
    async with open_site(bounds=RequestBounds(streams=1)) as site:
        wire = Wire(site)
        await wire.patch("workers/w", {})
        async with listening(wire, "/v1/router/offers?worker=w") as stream:
            await stream.response.content.readline()
            accept = {"Accept": "text/event-stream"}
            target = "/v1/router/offers?worker=w"
            reply = await site.ask("GET", target, key="admin", headers=accept)
            assert (reply.status, code(reply)) == (503, "overloaded")
            assert (await site.ask("GET", target, key="admin")).status == 200


async def test_streams_end_when_the_server_stops(open_site: Opens) -> None:
    async with open_site() as site:
        wire = Wire(site)
        await wire.patch("workers/w", {})
        head = (
            "GET /v1/router/offers?worker=w HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n"
            f"Authorization: Bearer {site.secrets['admin']}\r\n\r\n"
        )
        reader, writer = await asyncio.open_connection(site.address.host, site.address.port)
        writer.write(head.encode())
        await reader.readuntil(b": still here")
    rest = await reader.read()
    assert rest.endswith(b"0\r\n\r\n"), "it was cut off"
    writer.close()
    await writer.wait_closed()


async def test_events_in_both_envelopes(matched: Wire) -> None:
    # J12
    wire = matched
    await wire.patch("workers/w", WORKER)
    await wire.patch("jobs/j", {**JOB, "labels": {"n": 1, "yes": True}})
    assignment = await wire.accept("w")
    await wire.post(f"jobs/j/assignments/{assignment}:complete")
    await wire.post(f"jobs/j/assignments/{assignment}:close", {"dispositionCode": "Sold"})
    cloud, grid = [await _all(wire, envelope) for envelope in ("cloud_events", "event_grid")]
    assert [one["id"] for one in cloud] == [one["id"] for one in grid]
    names = [one["type"] for one in cloud]
    assert set(names) < set(NAMES.values())
    about_job = [one for one in cloud if one["subject"].startswith("job/j")]
    assert [(one["type"].rpartition("Router")[2], one["subject"]) for one in about_job] == [
        ("JobReceived", "job/j/channel/voice"),
        ("JobQueued", "job/j/channel/voice/queue/q"),
        ("JobCompleted", f"job/j/channel/voice/assignment/{assignment}"),
        ("JobClosed", f"job/j/channel/voice/assignment/{assignment}"),
    ]
    about_worker = [one["subject"] for one in cloud if one["subject"].startswith("worker/")]
    assert about_worker == ["worker/w", "worker/w/job/j", "worker/w/job/j"]
    received = about_job[0]
    assert received["data"]["labels"] == {"n": "1", "yes": "true"}
    assert received["data"]["jobStatus"] == "Created"
    assert (received["specversion"], received["source"].split("/")[1]) == ("1.0", "relevo")
    wrapped = next(one for one in grid if one["id"] == received["id"])
    assert wrapped == {
        "id": received["id"], "topic": received["source"], "subject": received["subject"],
        "eventType": received["type"], "eventTime": received["time"], "dataVersion": "1.0",
        "metadataVersion": "1", "data": received["data"],
    }  # fmt: skip


async def _all(wire: Wire, envelope: str) -> list[dict[str, Any]]:
    """Walk the log in small steps."""
    found: list[dict[str, Any]] = []
    at = ""
    while True:
        target = f"/v1/router/events?limit=2&envelope={envelope}{at}"
        page = (await wire.site.ask("GET", target, key=wire.key)).json
        found += page["items"]
        if page["caught_up"]:
            return found
        at = f"&continuation={page['continuation']}"


async def test_what_is_only_for_the_matcher_is_never_delivered(wire: Wire) -> None:
    await wire.patch("workers/w", {})  # touches, and announces nothing
    page = (await wire.site.ask("GET", "/v1/router/events?wait_seconds=0", key="reader")).json
    assert page["items"] == []
    assert page["caught_up"] is True


async def test_events_are_waited_for(wire: Wire) -> None:
    now = await wire.site.ask("GET", "/v1/router/events?start=now", key="reader")
    at = now.json["continuation"]
    target = f"/v1/router/events?wait_seconds={PATIENCE}&continuation={at}"
    waiting = asyncio.create_task(wire.site.ask("GET", target, key="reader"))
    await wire.patch("jobs/j", JOB)
    names = [one["type"].rpartition(".")[2] for one in (await waiting).json["items"]]
    assert names[0] == "RouterJobReceived"


async def test_a_stream_of_events(wire: Wire) -> None:
    await wire.patch("jobs/a", JOB)
    async with listening(wire, "/v1/router/events?envelope=event_grid") as stream:
        seen = [await stream.next() for _ in range(2)]
        names = [msgspec.json.decode(one["data"])["eventType"] for one in seen]
        assert [name.rpartition(".")[2] for name in names] == [
            "RouterJobReceived", "RouterJobQueued",
        ]  # fmt: skip
    await wire.post("jobs/a:cancel")
    target = "/v1/router/events"
    async with listening(wire, target, Last_Event_ID=seen[-1]["id"]) as stream:
        told = msgspec.json.decode((await stream.next())["data"])
        assert told["type"] == "Microsoft.Communication.RouterJobCancelled"
        assert told["subject"] == "job/a/channel/voice/disposition/Cancelled"


async def test_a_key_with_a_pattern_of_workers(matched: Wire) -> None:
    # J22
    wire = matched
    new = NewKey(name="team", roles=("worker",), scopes=("worker:team-*",))
    team = wire.as_((await wire.site.services.keys.create(new)).secret)
    await wire.patch("workers/team-1", WORKER)
    await wire.patch("jobs/j", JOB)
    assignment = await team.accept("team-1")
    assert (await team.post(f"jobs/j/assignments/{assignment}:complete")).status == 200
    assert (await team.get("workers/other")).status == 403


async def test_paths_of_workers(wire: Wire) -> None:
    for name in ("8:acs:a_b", "a/b", "x:accept", "ä"):
        path = f"workers/{quote(name, safe='')}"
        assert (await wire.patch(path, {})).json["id"] == name
        assert (await wire.delete(path)).status == 204
        assert (await wire.delete(path)).status == 204
