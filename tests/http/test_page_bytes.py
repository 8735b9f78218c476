"""Every list ends its pages at a number of bytes and leads on: walked on a host with small pages.

A list operation that is in neither table below fails here: give it pages, and add how it is asked.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, get_origin
from urllib.parse import quote, urlencode, urlsplit

import msgspec
import pytest
from msgspec import Struct

from relevo.actors.core.schedules import ReminderSchedule
from relevo.dataverse.bulk import RowQuery
from relevo.dataverse.http.rows import Rows
from relevo.http.operations import OPERATIONS, operation
from relevo.http.paging import Page
from relevo.kernel.backoff import Backoff
from relevo.kernel.operation import Reply as OwnReply
from relevo.messaging import Message
from relevo.router.http.surface import Listing
from tests.http.routing import JOB, WORKER, Wire

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from uuid import UUID

    from relevo.kernel.operation import Operation
    from tests.http.conftest import Opens, Reply, Site

pytestmark = pytest.mark.anyio

PAGE_BYTES = 1_024
ROWS = 12
LONG = "x" * 180
LATER = datetime(2099, 1, 1, tzinfo=UTC)
V = "api-version=2023-11-01"

WHOLE = {
    "lanes.list": "hosts configure lanes",
    "jobs.views.counts": "a row for each state, status and type",
    "jobs.views.waiting": "a row for each lane and age",
    "jobs.views.running": "as many rows as are asked for, of names and numbers",
    "jobs.views.suspended": "as many rows as are asked for, of names and numbers",
    "jobs.views.failures": "as many rows as are asked for, of names and numbers",
    "jobs.views.chains": "as many rows as are asked for, of names and numbers",
    "jobs.views.volumes": "as many rows as are asked for, of names and numbers",
    "feeds.ranges": "a container has at most 1,024 ranges, and no more parts can be asked for",
    "feeds.repair": "as many tokens as fit into an answer, and the number of all",
    "dataverse.entities.list": "tables are registered by the program",
    "dataverse.attributes.list": "tables are registered by the program",
    "dataverse.attributes.cast": "tables are registered by the program",
    "dataverse.service": "tables are registered by the program",
    "dataverse.root": "tables are registered by the program",
    "items.batch": "refused if the items that it reads do not fit into an answer",
    "items.bulk": "one answer for each item that was sent",
    "bulk_deletes.preview": "a sample of 10 rows",
    "router.explain.job": "the first few of each reason",
    "router.explain.worker": "the first few of each reason",
    "router.classify": "a step for each part of one policy",
    **dict.fromkeys(
        [
            "messages.claim", "messages.claim_any", "dead_letters.claim", "sessions.claim",
            "subscriptions.messages.claim", "subscriptions.dead_letters.claim",
            "subscriptions.sessions.claim",
        ],
        "what does not fit into an answer is released: see tests/messaging/http",
    ),
    "actors.errors": "200 at most, each with a bounded text",
    "actors.figures": "a row for each host and each type",
    **dict.fromkeys(
        [
            "limits.list", "pools.list", "pools.permits", "resolvers.list", "resolvers.partitions",
            "resolvers.resources",
        ],
        "pages, which need a host that serves the kit: see tests/governance/http",
    ),
    "router.board.read": "500 queues and 50 skills at most",
    "settings.read": "a row for each setting",
    "history.read": "720 samples at most, of numbers",
    "resolvers.plan": "moves of partitions, of which a resolver has a bounded number",
    "jobs.submit_many": "an id for each job that was sent",
    "jobs.payload": "20 attempts, each with a bounded text, beside the data of one job",
    **dict.fromkeys(
        [
            "jobs.cancel_all", "jobs.delete_all", "jobs.pause_all", "jobs.postpone_all",
            "jobs.resume_all", "jobs.retry_all",
        ],
        "20 refusals, and a number for each handler of up to 5,000 jobs",
    ),
    "messages.send_batch": "a receipt for each message that was sent",
    "topics.messages.send_batch": "a receipt for each message that was sent",
}  # fmt: skip
"""Lists that have no pages, and what bounds them."""
SINGLE = {
    "dataverse.entities.get",
    "dataverse.attributes.get",
    "dataverse.rows.get",
    "dataverse.execute",
}
"""Answers that have no type of their own, and are one row or one result."""


class Walk(Struct, frozen=True):
    """How a list is asked for, and what tells its items apart."""

    path: str
    key: tuple[str | int, ...] = ("id",)
    body: dict[str, Any] | None = None
    limit: str = "limit"
    """What says how many items a page has; none if nothing does."""
    items: str = "items"


WALKS: dict[str, Walk] = {
    "hosts.list": Walk("/v1/hosts", ("name", "incarnation")),
    "leases.list": Walk("/v1/leases", ("kind", "unit", "name")),
    "keys.list": Walk("/v1/keys"),
    "containers.list": Walk("/v1/containers", ("name",)),
    "containers.ranges": Walk("/v1/containers/wide/ranges"),
    "items.query": Walk("/v1/containers/many/items:query", body={}),
    "feeds.changes": Walk("/v1/containers/many/changes:read", ("change_id",), body={}),
    "feeds.list": Walk("/v1/feeds", ("container", "name")),
    "feeds.get": Walk("/v1/feeds/many/kitchen0", ("lease_token",)),
    "feeds.export": Walk("/v1/feeds/wide/kitchen:export", (1,), limit="", items="places"),
    "feeds.snapshots": Walk("/v1/feeds/many/kitchen0/snapshots", ("name",)),
    "letters.list": Walk("/v1/feeds/many/kitchen0/dead-letters"),
    "users.list": Walk("/v1/users"),
    "teams.list": Walk("/v1/teams"),
    "units.list": Walk("/v1/units"),
    "router.distribution_policies.list": Walk("/routing/distributionPolicies", limit="maxpagesize"),
    "router.classification_policies.list": Walk(
        "/routing/classificationPolicies", limit="maxpagesize"
    ),
    "router.exception_policies.list": Walk("/routing/exceptionPolicies", limit="maxpagesize"),
    "router.queues.list": Walk("/routing/queues", limit="maxpagesize"),
    "router.jobs.list": Walk("/routing/jobs", limit="maxpagesize"),
    "router.workers.list": Walk("/routing/workers", limit="maxpagesize"),
    "router.offers.list": Walk("/v1/router/offers?worker=w0", ("offer_id",), limit=""),
    "router.events.read": Walk("/v1/router/events"),
    "router.channels.list": Walk("/v1/router/channels"),
    "router.queues.overview": Walk("/v1/router/queues", ("queue_id",)),
    "router.offers.open": Walk("/v1/router/open-offers", ("offer_id",)),
    "jobs.list": Walk("/v1/jobs"),
    "queues.list": Walk("/v1/queues", ("name",)),
    "topics.list": Walk("/v1/topics", ("name",)),
    "subscriptions.list": Walk("/v1/topics/t0/subscriptions", ("name",)),
    "rules.list": Walk("/v1/topics/t0/subscriptions/s0/rules", ("name",)),
    "messages.figures": Walk("/v1/messages:figures", ("path",)),
    "messages.peek": Walk("/v1/queues/q0/messages", ("sequence_number",)),
    "dead_letters.peek": Walk("/v1/queues/q0/dead-letters/messages", ("sequence_number",)),
    "dead_letters.transfers.peek": Walk(
        "/v1/queues/q0/transfer-dead-letters/messages", ("sequence_number",)
    ),
    "subscriptions.dead_letters.transfers.peek": Walk(
        "/v1/topics/t0/subscriptions/s0/transfer-dead-letters/messages", ("sequence_number",)
    ),
    "subscriptions.messages.peek": Walk(
        "/v1/topics/t0/subscriptions/s0/messages", ("sequence_number",)
    ),
    "subscriptions.dead_letters.peek": Walk(
        "/v1/topics/t0/subscriptions/s0/dead-letters/messages", ("sequence_number",)
    ),
    "sessions.list": Walk("/v1/queues/talks/sessions", ("session_id",)),
    "subscriptions.sessions.list": Walk(
        "/v1/topics/t0/subscriptions/talks/sessions", ("session_id",)
    ),
    "consumers.list": Walk("/v1/consumers", ("name",)),
    "actors.list": Walk("/v1/actors/till"),
    "actors.letters.list": Walk("/v1/actor-letters"),
    "actors.quarantine.list": Walk("/v1/actor-quarantine"),
    "actors.reminders.list": Walk("/v1/actors/till/s:0/reminders", ("name",)),
    "audit.list": Walk("/v1/audit"),
    "events.read": Walk("/v1/events"),
    "batches.list": Walk("/v1/batches"),
    "schedules.list": Walk("/v1/schedules", ("name",)),
    "webhooks.list": Walk("/v1/webhooks", ("name",)),
    "webhooks.deliveries.list": Walk("/v1/webhooks/hook0/deliveries"),
    "bulk_deletes.list": Walk("/v1/bulk-deletes"),
    "bulk_deletes.failures": Walk("/v1/bulk-deletes/{delete}/failures", ("row_id",)),
    "dataverse.rows.list": Walk("/api/data/v9.2/asyncoperations", ("asyncoperationid",)),
    "dataverse.related.list": Walk(
        "/api/data/v9.2/systemusers({user})/SystemUser_AsyncOperations", ("asyncoperationid",)
    ),
}


def is_list(one: Operation) -> bool:
    """Whether an answer has a number of things that depends on what is stored."""
    if get_origin(one.response) in (Page, Listing) or one.response is Rows:
        return True
    kind: Any = one.response
    if kind is None or one.name in SINGLE:
        return False
    if get_origin(kind) is dict or kind in (dict, OwnReply):
        return True
    shape = msgspec.inspect.type_info(kind)
    arrays = (msgspec.inspect.ListType, msgspec.inspect.VarTupleType, msgspec.inspect.DictType)
    return one.method in ("GET", "POST") and any(
        isinstance(field.type, arrays) for field in getattr(shape, "fields", ())
    )


SHORT = {
    "keys.create": "what a key was made with",
    "keys.get": "what a key was made with",
    "containers.create": "its settings",
    "containers.get": "its settings",
    "containers.split": "two ranges",
    "users.get": "a user's teams and rights",
    "users.create": "a user's teams and rights",
    "users.move": "a user's teams and rights",
    "users.disable": "a user's teams and rights",
    "users.enable": "a user's teams and rights",
    "bulk_deletes.get": "one bulk delete",
    "schedules.get": "100 next runs at most",
    "jobs.explain": "one job and what it waits for",
    "letters.get": "one dead letter",
    "actors.letters.get": "one dead letter",
    "queues.get": "its properties and classes",
    "topics.get": "its properties and classes",
    "subscriptions.get": "its properties and classes",
    "consumers.get": "its sources and hosts",
    "consumers.pause": "its sources and hosts",
    "consumers.resume": "its sources and hosts",
    "pools.get": "its settings and the first callers that wait",
    "resolvers.get": "its settings",
    "webhooks.get": "its types, waits and secrets, which are few",
    "webhooks.pause": "its types, waits and secrets, which are few",
    "webhooks.resume": "its types, waits and secrets, which are few",
    "system.readyz": "the reasons of one host",
    "system.health": "the reasons of one host",
}
"""Answers about one thing that has a few texts."""


def test_every_list_has_pages_or_a_bound() -> None:
    found = {one.name for one in OPERATIONS if is_list(one)}
    one_thing = {name for name in found if name.startswith("router.") and _is_resource(name)}
    unknown = found - WALKS.keys() - WHOLE.keys() - SHORT.keys() - one_thing
    assert not unknown, f"these lists have no byte bound: {sorted(unknown)}"
    gone = (WALKS.keys() | WHOLE.keys() | SHORT.keys() | SINGLE) - {one.name for one in OPERATIONS}
    assert not gone


def _is_resource(name: str) -> bool:
    """Whether an operation answers with one document, whose size is bounded when it is written."""
    return operation(name).path.startswith("/routing/") and not name.endswith(".list")


@pytest.fixture
async def full(open_site: Opens) -> AsyncIterator[tuple[Site, dict[str, str]]]:
    """A host with small pages and several of everything."""
    async with open_site(page_bytes=PAGE_BYTES) as site:
        values = {**await _people(site), **await _jobs(site)}
        await _queues(site)
        await _actors(site)
        await _webhooks(site)
        async with _feeds(site):
            await _router(site)
            await _hosts(site)  # at the end: leases would wait for hosts that are none
            yield site, values


async def _people(site: Site) -> dict[str, str]:
    app = site.services.app
    for n in range(ROWS):
        await app.users.create_user(f"{LONG}{n}")
        await app.users.create_team(f"{LONG}{n}")
        await app.users.create_unit(f"{LONG}{n}")
    return {"user": str(await app.users.create_user("Ana"))}


async def _hosts(site: Site) -> None:
    await site.services.app.database.write(
        "insert into relevo.host (incarnation, name, lease_until, started_at, version)"
        " select gen_random_uuid(), $1 || n, relevo.now() + interval '1 day', relevo.now(), '1'"
        " from generate_series(1, $2) as n",
        LONG,
        ROWS,
    )


async def _nothing() -> None: ...


async def _jobs(site: Site) -> dict[str, str]:
    app = site.services.app
    user = (await app.users.list(None, 500))[-1].id
    about = {"regarding_type": "systemuser", "regarding_id": str(user)}
    await app.jobs.submit_many("work", [{"text": LONG * 3}] * ROWS, options=about)
    for n in range(ROWS):
        await app.jobs.batch(f"{LONG}{n}")
        app.job(f"{LONG}{n}", cron="0 3 * * *")(_nothing)
    await app.jobs.schedules.declare(app.jobs.registry.handlers)
    deletes = [
        await app.bulk.delete(RowQuery(container="many"), name=f"{LONG}{n}", start=LATER)
        for n in range(ROWS)
    ]
    await app.database.write(
        "insert into relevo.bulk_failure (job, row_id, query_index, code, message)"
        " select $1, $2 || n, 0, 1, $2 from generate_series(1, $3) as n",
        deletes[0].id,
        LONG,
        ROWS,
    )
    return {"delete": str(deletes[0].id), "user": str(user)}


async def _actors(site: Site) -> None:
    """Actors in quarantine, and reminders and messages that are not tried any more."""
    database = site.services.app.database
    await database.write(
        "insert into relevo.actor (id, placement_group, slot, revision, commit_number, updated_at,"
        " quarantined_at, quarantine_error)"
        " select 'till/s:' || $1 || n, 'default', 0, 1, 1, relevo.now(), relevo.now(), $1"
        " from generate_series(1, $2) as n",
        LONG, ROWS,
    )  # fmt: skip
    await database.write(
        "insert into relevo.actor_reminder (actor, name, placement_group, slot, due, method,"
        " schedule, payload, dead_at, error)"
        " select 'till/s:0', $1 || n, 'default', 0, relevo.now(), 'ring', $3, ''::bytea,"
        " relevo.now(), $1 from generate_series(1, $2) as n",
        LONG, ROWS, msgspec.msgpack.encode(ReminderSchedule(start=LATER)),
    )  # fmt: skip
    await database.write(
        "insert into relevo.actor_message (dead_at, slot, attempts, on_dead, placement_group,"
        " receiver, sender, method, digest, headers, body, error)"
        " select relevo.now(), 0, 1, 'continue', 'default', 'till/s:0', '', 'add', '', '{}',"
        " ''::bytea, $1 from generate_series(1, $2) as n",
        LONG, ROWS,
    )  # fmt: skip


async def _webhooks(site: Site) -> None:
    """Webhooks, and dead letters of one of them."""
    app = site.services.app
    for n in range(ROWS):
        await app.webhooks.create(f"hook{n}", f"https://hooks.example/{LONG}")
    await app.webhooks.pause("hook0")
    await app.database.write(
        "insert into relevo.webhook_delivery (webhook_id, event_id, stripe, lsn, at, type, schema,"
        " subject, version, data, state)"
        " select id, n, 0, n, relevo.now(), 'a.b', 1, $1, 1, '{}', 'dead'"
        " from relevo.webhook, generate_series(1, $2) as n where name = 'hook0'",
        LONG, ROWS,
    )  # fmt: skip


async def _queues(site: Site) -> None:
    """Queues and subscriptions with messages, dead letters, sessions, rules and consumers."""
    app = site.services.app
    for n in range(ROWS):
        await app.queue(f"q{n}", user_metadata=LONG).ensure()
        await app.topic(f"t{n}", user_metadata=LONG).ensure()
        await app.topic("t0").subscription(f"s{n}", user_metadata=LONG).ensure()
        subscription = app.topic("t0").subscription("s0")
        await subscription.set_rule(f"r{n}", f"Id <> '{LONG}'")
        await app.database.write(
            "insert into relevo.message_consumers (name, definition, sources)"
            " select $1, '{}', array[id] from relevo.message_entity where path = 'q0'",
            f"{LONG[:100]}{n}",
        )
    talks = app.topic("t0").subscription("talks", requires_session=True)
    await talks.ensure()
    await app.queue("talks", requires_session=True).ensure()
    for source, destination in (
        (app.queue("q0"), app.queue("q0")),
        (subscription, app.topic("t0")),
    ):
        for _ in range(2):
            await destination.send_many(
                [Message(body=LONG * 3, session_id=f"{LONG[:100]}{n}") for n in range(ROWS)]
            )
            for message in await source.receive(ROWS):
                await message.dead_letter("bad")
        await destination.send_many([Message(body=LONG * 3) for _ in range(ROWS)])
    await app.database.write(  # as if every second one had failed to be forwarded
        "update relevo.message set sub_queue = 2 where sub_queue = 1 and sequence % 2 = 0"
    )
    messages = [Message(body="x", session_id=f"{LONG[:100]}{n}") for n in range(ROWS)]
    await app.queue("talks").send_many(messages)


class Spoilt(Exception):
    """What the handler raises."""


@asynccontextmanager
async def _feeds(site: Site) -> AsyncIterator[None]:
    """Containers with items, and a host whose processors have given up on each of them."""
    app = site.services.app
    for n in range(ROWS):
        await app.container(f"{LONG[:100]}{n}", partition_key="/id").describe()
    wide = app.container("wide", partition_key="/id", ranges=64)
    many = app.container("many", partition_key="/id", ranges=16)
    await many.bulk([{"id": f"item{n}", "text": LONG * 3} for n in range(ROWS)])
    given_up = asyncio.Semaphore(0)

    async def fail(batch: list[Any]) -> None:
        raise Spoilt(f"{len(batch)} of taste")

    wide.processor("kitchen", fail)

    async def note(*_: Any) -> None:
        given_up.release()

    for n in range(ROWS):
        processor = many.processor(
            f"kitchen{n}", fail, start="beginning", dead_letter=True, max_attempts=1,
            backoff=Backoff(first=0.01, longest=0.01),
        )  # fmt: skip
        if n == 0:
            processor.on_dead_lettered(note)
    async with app.host(name="a"):
        async with asyncio.timeout(120):
            for _ in range(ROWS):
                await given_up.acquire()
        for n in range(ROWS):
            path = f"/v1/feeds/many/kitchen0/snapshots/{LONG}{n}"
            assert (await site.ask("PUT", path, key="admin", json={})).status == 200
        yield


async def _router(site: Site) -> None:
    """Policies, queues, channels and workers, and jobs that are all offered to one worker."""
    wire = Wire(site)
    labels = {"text": LONG}
    for n in range(ROWS):
        await wire.patch(f"distributionPolicies/d{n}", {"name": LONG})
        await wire.patch(f"classificationPolicies/c{n}", {"name": LONG})
        await wire.patch(f"exceptionPolicies/e{n}", {"name": LONG})
        queue = {"name": LONG, "distributionPolicyId": "d0"}
        assert (await wire.patch(f"queues/q{n}", queue)).status in (200, 201)
        path = f"/v1/router/channels/channel{n}"
        assert (await site.ask("PUT", path, key="admin", json={"name": LONG})).status == 200
        idle = {**WORKER, "queues": ["q1"], "capacity": 1, "labels": labels}
        await wire.patch(f"workers/idle{n}", {**idle, "availableForOffers": False})
    offered = {**WORKER, "queues": ["q0"], "capacity": ROWS, "maxConcurrentOffers": ROWS}
    assert (await wire.patch("workers/w0", offered)).status in (200, 201)
    for n in range(ROWS):
        job = {**JOB, "queueId": "q0", "labels": labels, "tags": {"more": LONG}}
        assert (await wire.patch(f"jobs/j{n}", job)).status in (200, 201)
    async with asyncio.timeout(60):
        while len([one async for one in _items(site, WALKS["router.offers.list"], {})]) < ROWS:
            await asyncio.sleep(0.05)


async def _pages(site: Site, walk: Walk, values: dict[str, str], rows: int | None) -> Any:
    """Yield the items of page after page, as a client that follows what it is given."""
    path = walk.path.format(**values)
    query: dict[str, Any] = {}
    headers: dict[str, str] = {}
    if path.startswith("/api/"):
        headers = {} if rows is None else {"Prefer": f"odata.maxpagesize={rows}"}
    elif rows is not None and walk.limit:
        query[walk.limit] = rows
    if path.startswith("/routing/"):
        query["api-version"] = "2023-11-01"
    target = path
    while True:
        reply = await _ask(site, target, query, walk.body, headers)
        assert reply.status == 200, (walk.path, reply.body)
        page = reply.json
        items = page[walk.items] if walk.items in page else page["value"]
        yield items
        link = page.get("nextLink") or page.get("@odata.nextLink")
        if link is not None:
            parts = urlsplit(link)
            target, query = f"{parts.path}?{parts.query}", {}
        elif page.get("next") is not None:
            query["cursor"] = page["next"]
        elif "continuation" in page and page.get("caught_up", not items) is False:
            query["continuation"] = page["continuation"]
        else:
            return


async def _ask(
    site: Site, target: str, query: dict[str, Any], body: Any, headers: dict[str, str]
) -> Reply:
    if body is not None:
        return await site.ask("POST", target, key="admin", json={**body, **query}, headers=headers)
    sign = "&" if "?" in target else "?"
    target = f"{target}{sign}{urlencode(query, quote_via=quote)}" if query else target
    return await site.ask("GET", target, key="admin", headers=headers)


async def _items(site: Site, walk: Walk, values: dict[str, str]) -> AsyncIterator[Any]:
    async for items in _pages(site, walk, values, None):
        for item in items:
            yield item


def _keys(walk: Walk, items: Iterator[Any]) -> list[tuple[Any, ...]]:
    return [tuple(item[name] for name in walk.key) for item in items]


async def test_every_list_ends_at_its_bytes_and_leads_on(
    full: tuple[Site, dict[str, UUID]],
) -> None:
    site, values = full
    texts = {name: str(value) for name, value in values.items()}
    for name, walk in WALKS.items():
        pages = [items async for items in _pages(site, walk, texts, None)]
        sizes = [sum(len(msgspec.json.encode(one)) for one in items) for items in pages]
        for items, size in zip(pages, sizes, strict=True):
            assert len(items) <= 1 or size <= 1.5 * PAGE_BYTES, (name, len(items), size)
        found = _keys(walk, (item for items in pages for item in items))
        assert len(found) >= ROWS - 4, (name, len(found))
        assert len(pages) > 1, name
        assert len(set(found)) == len(found), name
        # One by one, no page ends at its bytes.
        single = [items async for items in _pages(site, walk, texts, 1)]
        assert sorted(_keys(walk, (one for items in single for one in items))) == sorted(found), (
            name
        )
