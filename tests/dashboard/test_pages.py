"""Every page of lists and facts, over real data of all parts."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

import pytest
from yarl import URL

from relevo.dashboard.pages import PAGES
from tests.dashboard.world import fill

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.dashboard.conftest import Browser, Desk

pytestmark = pytest.mark.anyio
DETAILS = {
    "router_job": "/router/jobs/order%2F1",
    "router_worker": "/router/workers/ana",
    "queue": "/queues/render%2Flarge",
    "topic": "/topics/orders",
    "subscription": "/topics/orders/subscriptions/urgent",
    "feed": "/feeds/dishes/kitchen",
    "pool": "/governance/pools/payments",
    "actor_type": "/actors/account",
    "actor": "/actors/account/s:ana",
    "consumer": "/consumers/readers",
    "lease": "/leases/feed/leases%2Fdishes%2Fkitchen/{lease}",
    "resolver": "/governance/resolvers/servers",
    "webhook": "/webhooks/shop",
    "schedule": "/schedules/report",
}
"""A page of each kind that is about one thing; those of system jobs have tests of their own."""
OWN_TESTS = {"job", "again"}
LISTS = [
    page for page in PAGES if not page.parameters and page.name not in ("matching", "router_policy")
]


@pytest.fixture(scope="module")
async def filled(desk: Desk) -> Desk:
    await fill(desk)
    return desk


@pytest.fixture(scope="module")
async def admin(filled: Desk) -> AsyncIterator[Browser]:
    async with filled.browser("admin") as browser:
        yield browser


@pytest.mark.parametrize("path", [page.path for page in LISTS])
async def test_every_list_shows_its_rows_in_both_languages(admin: Browser, path: str) -> None:
    for language in ("en", "es"):
        answer = await admin.get(path, **{"Accept-Language": language})
        assert answer.status == 200, answer.text
        assert 'role="alert"' not in answer.text
        assert "<script>alert" not in answer.text


@pytest.mark.parametrize("path", [path for path in DETAILS.values() if "{" not in path])
async def test_every_page_of_details_shows_one_thing(admin: Browser, path: str) -> None:
    answer = await admin.get(path)
    assert answer.status == 200, answer.text
    assert 'role="alert"' not in answer.text
    assert "<script>alert" not in answer.text


def test_no_page_of_details_is_left_out() -> None:
    assert {page.name for page in PAGES if page.parameters} == DETAILS.keys() | OWN_TESTS


@pytest.mark.parametrize(
    "path",
    [page.path for page in LISTS if page.live]
    + [path for path in DETAILS.values() if "{" not in path],
)
async def test_every_live_page_sends_its_parts(admin: Browser, path: str) -> None:
    headers = {"Accept": "text/event-stream"}
    url = URL(admin.base + path, encoded=True)
    async with asyncio.timeout(20), admin.session.get(url, headers=headers) as stream:
        async for line in stream.content:
            if line.startswith(b"data:"):
                break
        assert b"live_" in line


async def test_a_router_job_tells_why_it_waits_or_whom_it_was_offered(admin: Browser) -> None:
    page = await admin.get(DETAILS["router_job"])
    assert re.search(r"ana|worker", page.text)
    board = await admin.get("/router")
    assert 'href="/router/workers/ana"' in board.text


async def test_a_queue_shows_its_properties_and_what_it_serves_next(admin: Browser) -> None:
    page = await admin.get(DETAILS["queue"])
    assert re.search(r"<dt>Waiting</dt><dd>1\b", page.text)
    assert re.search(r'<td class="number">7\b', page.text)


async def test_a_thing_with_several_names_is_acted_upon(filled: Desk, admin: Browser) -> None:
    page = await admin.get("/leases?kind=matcher")
    (thing, *_) = re.findall(r'value="(matcher/[^"]+)"', page.text)
    form: dict[str, Any] = {"csrf": page.csrf, "next": "/leases", "do": f"leases.pause {thing}"}
    preview = await admin.post("/act", **form)
    assert "leases.pause" in preview.text
    done = await admin.post("/act", **form, confirmed="1")
    assert done.status == 200
    found = {f"{one.kind}/{one.unit}/{one.name}": one.state for one in await leases(filled)}
    assert found[thing] == "paused"
    await admin.post("/act", **form | {"do": f"leases.resume {thing}"})
    found = {f"{one.kind}/{one.unit}/{one.name}": one.state for one in await leases(filled)}
    assert found[thing] == "active"
    audit = await admin.get("/audit?operation=leases.pause")
    assert "admin" in audit.text
    assert "leases.pause" in audit.text


async def leases(desk: Desk) -> Any:
    return await desk.app.directory.leases(kind="matcher")


async def test_a_lease_of_a_feed_is_moved_from_its_page(filled: Desk, admin: Browser) -> None:
    feed = await admin.get(DETAILS["feed"])
    (path, *_) = re.findall(r'href="(/leases/feed/leases%2Fdishes%2Fkitchen/[^"]+)"', feed.text)
    page = await admin.get(path)
    assert page.status == 200
    name = path.rpartition("/")[2]
    thing = f"feed/leases%2Fdishes%2Fkitchen/{name}"
    sent: dict[str, Any] = {"csrf": page.csrf, "next": path, "do": f"leases.move {thing}"}
    refused = await admin.post("/act", **sent, to="nobody")
    assert "nobody" in refused.notice
    (host,) = [each for each in await filled.app.directory.hosts() if each.live]
    moved = await admin.post("/act", **sent, to=host.name)
    assert "Move to a host: 1 done." in moved.notice or host.name in moved.notice


async def test_consumers_are_paused_with_a_reason_and_an_end(filled: Desk, admin: Browser) -> None:
    page = await admin.get("/consumers/readers")
    sent: dict[str, Any] = {
        "csrf": page.csrf, "next": "/consumers/readers", "do": "consumers.pause readers",
        "reason": "the ledger moves", "in.until": "600",
    }  # fmt: skip
    paused = await admin.post("/act", **sent)
    assert paused.notice == "Pause: 1 done."
    assert "the ledger moves" in paused.text
    assert '<dt>Until</dt><dd><time datetime="' in paused.text
    await admin.post(
        "/act", **sent | {"do": "consumers.resume readers", "reason": "", "in.until": ""}
    )
    assert "the ledger moves" not in (await admin.get("/consumers/readers")).text


async def test_secrets_are_shown_once_and_never_in_urls_or_cookies(
    filled: Desk, admin: Browser
) -> None:
    page = await admin.get("/keys")
    sent: dict[str, Any] = {
        "csrf": page.csrf, "next": "/keys", "do": "keys.create", "name": "till",
        "list.roles": "viewer", "in.expires_at": "3600",
    }  # fmt: skip
    made = await admin.post("/act", **sent, follow=False)
    assert made.status == 200
    (secret,) = re.findall(r'<pre class="command"><code>([^<]+)</code>', made.text)
    assert "Set-Cookie" not in made.headers
    assert secret not in (await admin.get("/keys")).text
    async with filled.browser() as other:
        assert (await other.sign_in(secret)).status == 200
    rotated = await admin.post(
        "/act", csrf=page.csrf, next="/webhooks/shop", do="webhooks.rotate shop"
    )
    assert "<code>whsec_" in rotated.text
    hook: dict[str, Any] = {
        "csrf": page.csrf, "next": "/webhooks", "do": "webhooks.create", "name": "second",
        "url": "https://example.com/second", "list.types": "relevo.job.failed",
    }  # fmt: skip
    created = await admin.post("/act", **hook)
    assert "<code>whsec_" in created.text
    gone = await admin.post(
        "/act", csrf=page.csrf, next="/", do="webhooks.delete second", confirmed="1"
    )
    assert gone.notice == "Delete: 1 done."
    wrong = await admin.post("/act", **sent | {"list.roles": "kings"})
    assert "1 refused" in wrong.notice


async def test_actors_and_partitions_are_moved_about(filled: Desk, admin: Browser) -> None:
    where = DETAILS["actor"]
    page = await admin.get(where)
    assert "In memory" in page.text
    done = await admin.post(
        "/act", csrf=page.csrf, next=where, do="actors.deactivate account/s:ana"
    )
    assert done.notice == "Deactivate: 1 done."
    board = await admin.get("/actors")
    assert re.search(r'class="number heat5">\d+<', board.text)
    where = DETAILS["resolver"]
    sent: dict[str, Any] = {"csrf": page.csrf, "next": where, "confirmed": "1"}
    moved = await admin.post(
        "/act", **sent, do="resolvers.move servers", partition="part-one", to="two"
    )
    assert moved.notice == "Move: 1 done."
    drain: dict[str, Any] = {"do": "resolvers.drain servers", "json.draining": "true"}
    drained = await admin.post("/act", **sent, **drain, resource="one")
    assert drained.notice == "Drain a resource: 1 done."
    merged = await admin.post(
        "/act", **sent, do="resolvers.merge servers", partition="part-one", into="part-two"
    )
    assert merged.notice == "Merge partitions: 1 done."


async def test_an_action_on_a_selection_shows_it_first(filled: Desk, admin: Browser) -> None:
    jobs = [await filled.ended("bad") for _ in range(2)]
    csrf = (await admin.get("/jobs")).csrf
    form = {"csrf": csrf, "next": "/jobs", "do": "jobs.retry", "selected": jobs[0]}
    preview = await admin.post("/act", **form)  # type: ignore[arg-type]
    assert "Nothing has been done yet" in preview.text
    alone: dict[str, Any] = {"csrf": csrf, "next": "/jobs", "do": f"jobs.retry {jobs[1]}"}
    assert (await admin.post("/act", **alone)).notice == "Retry: 1 done."


async def test_a_pool_is_resized_by_its_form(filled: Desk, admin: Browser) -> None:
    page = await admin.get(DETAILS["pool"])
    await admin.post(
        "/act", csrf=page.csrf, next=DETAILS["pool"], do="pools.resize payments", size="5"
    )
    page = await admin.get(DETAILS["pool"])
    assert re.search(r"<dt>Size</dt><dd>5", page.text)


async def test_a_name_that_names_nothing_is_refused(admin: Browser) -> None:
    page = await admin.get("/leases")
    form: dict[str, Any] = {
        "csrf": page.csrf,
        "next": "/leases",
        "do": "leases.pause only-one",
        "confirmed": "1",
    }
    answer = await admin.post("/act", **form)
    assert answer.status == 400
    assert "kind/unit/name" in answer.text
    assert (await admin.get("/queues/nothing-here")).status == 404


async def test_a_viewer_sees_pages_and_no_buttons(filled: Desk) -> None:
    async with filled.browser("viewer") as viewer:
        hosts = await viewer.get("/hosts")
        assert hosts.status == 200
        assert "hosts.drain" not in hosts.text
        assert (await viewer.get("/keys")).status == 403
        form: dict[str, Any] = {
            "csrf": hosts.csrf,
            "next": "/",
            "do": "keys.revoke x",
            "confirmed": "1",
        }
        assert (await viewer.post("/act", **form)).status == 403
