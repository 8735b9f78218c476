"""Jobs in a real browser: live rows, selection, the query bar, keys, themes and languages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.async_api import expect

from tests.dashboard.conftest import HOSTILE

if TYPE_CHECKING:
    from playwright.async_api import Page

    from tests.dashboard.conftest import Desk

pytestmark = pytest.mark.anyio


async def test_a_page_that_is_open_shows_new_jobs_and_keeps_what_is_selected(
    desk: Desk, page: Page
) -> None:
    first = await desk.ended("bad", name=HOSTILE)
    await page.goto(f"{desk.base}/jobs?status=failed")
    await page.locator(f'tr[data-key="{first}"] input').check()
    second = await desk.ended("bad")
    await expect(page.locator(f'tr[data-key="{second}"]')).to_be_visible(timeout=20_000)
    await expect(page.locator(f'tr[data-key="{first}"] input')).to_be_checked()
    await expect(page.locator(f'tr[data-key="{first}"] td.name a')).to_contain_text("<script>")
    await page.get_by_role("button", name="Pause", exact=True).first.click()
    await expect(page.locator("#live")).to_have_attribute("data-state", "paused")
    await page.locator("input[data-all]").check()
    await page.get_by_role("button", name="Delete", exact=True).click()
    await expect(page.locator(".things li")).to_have_count(2)
    await page.get_by_role("button", name="Delete", exact=True).click()
    await expect(page.locator(".notice")).to_have_text("Delete: 2 done.")


async def test_the_query_bar_completes_words_and_the_palette_finds_pages(
    desk: Desk, page: Page
) -> None:
    await page.goto(f"{desk.base}/jobs")
    await page.keyboard.press("/")
    bar = page.locator("input[name=filter]")
    await expect(bar).to_be_focused()
    await page.keyboard.type("retryc")
    await expect(page.locator(".completions li").first).to_have_text("retrycount")
    await page.keyboard.press("Tab")
    await page.keyboard.type("ge 0")
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(f"{desk.base}/jobs?filter=retrycount+ge+0")
    await page.locator("h1").click()
    await page.keyboard.press("Control+k")
    await page.keyboard.type("overv")
    await page.keyboard.press("Enter")
    await expect(page.locator("h1")).to_have_text("Overview")
    await expect(page.locator(".figure").first).to_be_visible()


async def test_a_job_reads_in_spanish_in_the_dark_and_on_a_phone(desk: Desk, page: Page) -> None:
    job = await desk.ended("bad")
    await page.set_viewport_size({"width": 420, "height": 800})
    await page.goto(f"{desk.base}/jobs/{job}")
    await page.get_by_role("button", name="Dark", exact=True).click()
    await page.locator('button[name="language"][value="es"]').click()
    await expect(page.locator("html")).to_have_attribute("lang", "es")
    await expect(page.locator(".states .now text")).to_have_text("Error")
    dark = await page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    assert dark == "rgb(18, 23, 27)"
    wider = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
    assert not await page.evaluate(wider)


async def test_pages_read_and_act_without_scripts(desk: Desk, page: Page) -> None:
    job = await desk.ended("bad")
    browser = page.context.browser
    assert browser is not None
    cookies = await page.context.storage_state()
    context = await browser.new_context(java_script_enabled=False, storage_state=cookies)
    plain = await context.new_page()
    await plain.goto(f"{desk.base}/jobs/{job}")
    await expect(plain.locator("time").first).to_contain_text("UTC")
    await plain.get_by_role("button", name="Retry", exact=True).click()
    await expect(plain.locator(".notice")).to_have_text("Retry: 1 done.")
    await context.close()
