"""Who sees and does what on the dashboard, and what browsers are told to refuse."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from relevo.dashboard import Dashboard
from relevo.http.server import serving
from tests.dashboard.conftest import HOSTILE, Browser

if TYPE_CHECKING:
    from tests.dashboard.conftest import Desk

pytestmark = pytest.mark.anyio


async def status_of(desk: Desk, job: str) -> str:
    found = await desk.app.jobs.query().where(id=job).first()
    assert found is not None
    return found.status


async def test_strangers_are_led_to_the_sign_in_and_back(desk: Desk) -> None:
    async with desk.browser() as browser:
        asked = await browser.get("/jobs?status=failed")
        assert 'name="next" value="/jobs?status=failed"' in asked.text
        wrong = await browser.sign_in("relevo_wrong_key")
        assert (wrong.status, "unknown, revoked or expired" in wrong.text) == (401, True)
        elsewhere = await browser.post(
            "/sign-in", key=desk.keys["viewer"], next="//evil.example/", follow=False
        )
        assert elsewhere.headers["Location"] == "/"
        cookie = elsewhere.headers["Set-Cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        assert desk.keys["viewer"] not in cookie


async def test_a_link_signs_in_once(desk: Desk) -> None:
    code = await desk.dashboard.link_code()
    async with desk.browser() as browser:
        assert "local administrator" in (await browser.get(f"/sign-in?code={code}")).text
    async with desk.browser() as browser:
        assert (await browser.get(f"/sign-in?code={code}")).status == 401


async def test_a_session_ends_with_its_key_and_at_the_sign_out(desk: Desk) -> None:
    async with desk.browser("viewer") as browser:
        page = await browser.get("/jobs")
        await browser.post("/sign-out", csrf=page.csrf)
        assert "Access key" in (await browser.get("/jobs")).text


async def test_a_viewer_cannot_act_even_with_forms_made_by_hand(desk: Desk) -> None:
    job = await desk.ended("bad", name=HOSTILE)
    async with desk.browser("viewer") as browser:
        page = await browser.get("/jobs")
        assert "jobs.retry" not in page.text
        sent: dict[str, Any] = {"csrf": page.csrf, "do": f"jobs.retry {job}", "next": "/jobs"}
        assert (await browser.post("/act", **sent)).status == 403
        assert await status_of(desk, job) == "failed"
    async with desk.browser("producer") as browser:  # which may submit, and sees nothing
        assert (await browser.get("/jobs")).status == 403


async def test_an_operator_acts_with_the_token_of_the_session_from_the_same_site(
    desk: Desk,
) -> None:
    job = await desk.ended("bad", name=HOSTILE)
    async with desk.browser("operator") as browser:
        page = await browser.get("/jobs")
        sent: dict[str, Any] = {"do": f"jobs.delete {job}", "next": "/jobs"}
        assert (await browser.post("/act", csrf="x", **sent)).status == 403
        for origin in ("https://evil.example", "null", None):
            refused = await browser.post("/act", csrf=page.csrf, origin=origin, **sent)
            assert refused.status == 403, origin
        preview = await browser.post("/act", csrf=page.csrf, **sent)
        assert "Nothing has been done yet" in preview.text
        assert await status_of(desk, job) == "failed"
        done = await browser.post("/act", csrf=page.csrf, confirmed="1", **sent)
        assert "Delete: 1 done." in done.text
        assert await desk.app.jobs.query().where(id=job).first() is None
        unknown = await browser.post("/act", csrf=page.csrf, do="keys.get x", next="/jobs")
        assert unknown.status == 400
        large = await browser.post("/act", csrf=page.csrf, do="x" * 300_000)
        assert large.status == 413


async def test_stored_text_shows_as_text(desk: Desk) -> None:
    await desk.ended("bad", name=HOSTILE)
    async with desk.browser("viewer") as browser:
        page = await browser.get("/jobs")
    assert "<script>alert" not in page.text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;⟨U+202E⟩␇&amp;amp;" in page.text
    assert "\u202e" not in page.text


async def test_browsers_are_told_to_load_nothing_from_elsewhere_or_inline(desk: Desk) -> None:
    async with desk.browser("viewer") as browser:
        page = await browser.get("/")
        policy = page.headers["Content-Security-Policy"]
        assert "default-src 'self'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert page.headers["X-Content-Type-Options"] == "nosniff"
        assert page.headers["Cache-Control"] == "no-store"
        for inline in (" style=", "<style", "onclick=", "javascript:", "http://", "https://"):
            assert inline not in page.text.partition('<details class="copy"')[0], inline


async def test_pages_come_in_the_language_and_theme_of_the_visitor(desk: Desk) -> None:
    async with desk.browser("viewer") as browser:
        spanish = await browser.get("/jobs", **{"Accept-Language": "es-ES, en;q=0.5"})
        assert '<html lang="es" data-theme="auto">' in spanish.text
        chosen = await browser.post("/preferences", theme="dark", next="/jobs")
        assert '<html lang="en" data-theme="dark">' in chosen.text


async def test_a_bad_filter_is_explained_on_the_page(desk: Desk) -> None:
    async with desk.browser("viewer") as browser:
        page = await browser.get("/jobs?filter=nonsense%20eq%201")
        assert page.status == 200
        assert "nonsense" in page.text.partition('role="alert"')[2][:300]


async def test_the_dashboard_is_mounted_under_a_prefix_of_another_application(desk: Desk) -> None:
    from starlette.applications import Starlette
    from starlette.routing import Mount

    mounted = Starlette(routes=[Mount("/ops", Dashboard(desk.app))])

    class Served:
        async def __call__(self, scope: object, receive: object, send: object) -> None:
            await mounted(scope, receive, send)  # type: ignore[arg-type]

        def stop(self) -> None:
            """Nothing to stop."""

        refuse = None

    async with serving(Served(), "127.0.0.1", 0) as address:  # type: ignore[arg-type]
        browser = Browser(address.url)
        try:
            page = await browser.post("/ops/sign-in", key=desk.keys["viewer"], next="/jobs")
            assert page.status == 200, page.text
            assert 'href="/ops/jobs"' in page.text
            assert 'href="/ops/assets/' in page.text
            assert 'href="/jobs"' not in page.text
        finally:
            await browser.session.close()


async def test_the_parts_of_an_open_page_that_change_are_sent(desk: Desk) -> None:
    async with desk.browser("viewer") as browser:
        headers = {"Accept": "text/event-stream"}
        async with browser.session.get(browser.base + "/jobs", headers=headers) as stream:
            job = await desk.ended("bad", name=HOSTILE)
            async for line in stream.content:
                if line.startswith(b"data:") and job.encode() in line:
                    break
            assert b"live_jobs" in line
            assert b"csrf" not in line


async def test_forms_made_by_hand_are_refused_with_a_reason(desk: Desk) -> None:
    async with desk.browser("admin") as browser:
        csrf = (await browser.get("/jobs")).csrf
        for form, reason in (
            ({"do": "hosts.drain", "matching": "live=1"}, "cannot be run on all that match"),
            ({"do": "jobs.postpone x", "in.until": "²"}, "is not a number of seconds"),
            ({"do": "jobs.retry x", "wings": "2"}, "has no field"),
            ({"do": "jobs.retry x", "in.": "2"}, "has no field"),
            ({"do": "jobs.postpone x", "json.until": "[[["}, "is not JSON"),
        ):
            sent: dict[str, Any] = {"csrf": csrf, "next": "/jobs", "confirmed": "1", **form}
            refused = await browser.post("/act", **sent)
            assert refused.status == 400, (form, refused.text)
            assert reason in refused.text, form


async def test_viewers_with_the_same_permissions_share_what_is_sent_again(desk: Desk) -> None:
    async with desk.browser("viewer") as one, desk.browser("viewer 2") as other:
        headers = {"Accept": "text/event-stream"}
        async with (
            one.session.get(f"{one.base}/hosts", headers=headers) as first,
            other.session.get(f"{other.base}/hosts", headers=headers) as second,
        ):
            for stream in (first, second):
                async for line in stream.content:
                    if line.startswith(b"data:"):
                        break
            assert desk.dashboard.open_pages == 1
