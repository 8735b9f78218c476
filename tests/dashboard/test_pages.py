"""Every page of lists and facts, over real data of all parts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from relevo.dashboard.pages import PAGES
from tests.dashboard.conftest import HOSTILE

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
}
LISTS = [page for page in PAGES if page.area == "lists" and not page.parameters]


@pytest.fixture(scope="module")
async def filled(desk: Desk) -> Desk:
    """Something of every kind, with names that try to be more than text."""
    app = desk.app
    router = app.router
    await router.set_distribution_policy("fair", mode="longestIdle", offer_ttl=60)
    await router.set_queue("calls", distribution_policy="fair")
    await router.register_worker("ana", queues=["calls"], capacity=1, channels={"voice": 1})
    await router.create_job("voice", queue="calls", job_id="order/1", labels={"who": HOSTILE})
    render = app.queue("render/large")
    await render.send(b"{}", priority=7, message_id=HOSTILE[:20])
    await app.topic("orders").subscription("urgent").describe()
    dishes = app.container("dishes", partition_key="/kind")
    await dishes.upsert({"id": "1", "kind": "soup"})
    await app.governance.pool("payments", size=3).resize(3)
    return desk


@pytest.fixture
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


@pytest.mark.parametrize("path", [path for name, path in DETAILS.items() if name != "feed"])
async def test_every_page_of_details_shows_one_thing(admin: Browser, path: str) -> None:
    answer = await admin.get(path)
    assert answer.status == 200, answer.text
    assert 'role="alert"' not in answer.text
    assert "<script>alert" not in answer.text


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
    page = await admin.get("/leases")
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
    return await desk.app.directory.leases()


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
