"""Every page in a real browser: no fault, no request elsewhere, accessible, readable on a phone.

The pages are those of the table of pages, so a new one is looked at by itself. Screenshots go into
the folder that RELEVO_SCREENSHOTS names, else into pytest's.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from playwright.async_api import expect

from tests.dashboard.test_pages import DETAILS, LISTS
from tests.dashboard.world import HOSTILE, fill

if TYPE_CHECKING:
    from playwright.async_api import Page

    from tests.dashboard.conftest import Desk

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]
WIDE, NARROW = (1_280, 800), (420, 800)
LOOKS: Final = (("light", "en"), ("dark", "es"), ("dark", "en"), ("light", "es"))
SERIOUS: Final = {"serious", "critical"}
TOO_WIDE: Final = """() => {
  const root = document.documentElement;
  if (root.scrollWidth <= root.clientWidth) return [];
  const wide = [...document.querySelectorAll("main *")].filter(
    (each) => each.getBoundingClientRect().right > root.clientWidth + 1 &&
      each.parentElement.scrollWidth === each.parentElement.clientWidth);
  return [`${root.scrollWidth} px wide`, ...wide.slice(0, 3).map((each) => each.outerHTML)];
}"""
"""What is wider than the window, where the page scrolls to the side as a whole."""


async def test_every_page_is_free_of_faults_and_reads_on_a_phone(
    desk: Desk, page: Page, tmp_path: Path
) -> None:
    faults = _faults(page)
    for number, (name, path) in enumerate((await _paths(desk)).items()):
        await _look(desk, page, LOOKS[number % 2])
        for label, (width, height) in (("narrow", NARROW), ("wide", WIDE)):
            await page.set_viewport_size({"width": width, "height": height})
            answer = await page.goto(f"{desk.base}{path}")
            assert answer is not None
            if answer.status != 200:
                faults.append(f"{path}: status {answer.status}")
            if await page.locator("main script").count():
                faults.append(f"{path}: text became a script")
            faults += [f"{path} {label}: {each}" for each in await page.evaluate(TOO_WIDE)]
            folder = Path(os.environ.get("RELEVO_SCREENSHOTS", tmp_path))
            await page.screenshot(path=folder / f"{name}-{label}.png")
    assert faults == []


@pytest.mark.parametrize("looks", [LOOKS[:2], pytest.param(LOOKS, marks=pytest.mark.soak)])
async def test_no_page_has_a_serious_fault_of_accessibility(
    desk: Desk, page: Page, looks: tuple[tuple[str, str], ...]
) -> None:
    axe = pytest.importorskip("axe_playwright_python.async_playwright").Axe()
    found: list[str] = []
    for number, path in enumerate((await _paths(desk)).values()):
        # In `make test` each page is looked at once, every second one dark and in Spanish.
        for look in looks if looks == LOOKS else (looks[number % 2],):
            await _look(desk, page, look)
            await page.goto(f"{desk.base}{path}")
            answer = (await axe.run(page)).response
            assert answer["passes"], path
            found += [
                f"{path} {look}: {fault['id']}: {fault['help']}: {fault['nodes'][0]['html'][:200]}"
                for fault in answer["violations"]
                if fault["impact"] in SERIOUS
            ]
    assert found == []


async def _paths(desk: Desk) -> dict[str, str]:
    """The path of every page by its name, over data of all parts."""
    if not await desk.app.jobs.query().where(handler="bad").count():
        await fill(desk)
        await desk.app.history.take_sample()
    job = await desk.ended("bad", name=HOSTILE, token=HOSTILE)
    sent = await desk.ended("mail", data={"to": HOSTILE}, name=HOSTILE)
    lists = {page.name: page.path for page in LISTS}
    jobs = {"job": f"/jobs/{job}", "job_data": f"/jobs/{sent}", "again": f"/jobs/{sent}/again"}
    return lists | DETAILS | jobs


async def _look(desk: Desk, page: Page, look: tuple[str, str]) -> None:
    theme, language = look
    cookies: Any = [
        {"name": f"relevo_{name}", "value": value, "url": desk.base}
        for name, value in (("theme", theme), ("language", language))
    ]
    await page.context.add_cookies(cookies)


def _faults(page: Page) -> list[str]:
    """What scripts complain of, and dialogs that hostile text would open."""
    faults: list[str] = []
    page.on(
        "console",
        lambda said: (
            faults.append(f"{page.url}: {said.text}") if said.type in ("error", "warning") else None
        ),
    )
    page.on("dialog", lambda dialog: faults.append(f"{page.url}: dialog {dialog.message}"))
    return faults


async def test_actions_run_by_a_button_a_form_a_preview_and_a_typed_number(
    desk: Desk, page: Page
) -> None:
    faults = _faults(page)
    await _paths(desk)
    await page.goto(f"{desk.base}{DETAILS['schedule']}")
    await page.get_by_role("button", name="Run now", exact=True).click()
    await expect(page.locator(".notice")).to_have_text("Run now: 1 done.")

    await page.goto(f"{desk.base}{DETAILS['pool']}")
    await page.locator("summary", has_text="Resize").click()
    await page.locator('input[name="size"]').fill("4")
    await page.keyboard.press("Enter")
    await expect(page.locator("dl.facts").first).to_contain_text("Size4")

    await page.goto(f"{desk.base}/hosts")
    await page.locator('td input[type="checkbox"]').first.check()
    await page.get_by_role("button", name="Drain", exact=True).click()
    await expect(page.locator(".things li")).to_have_count(1)
    await page.get_by_role("link", name="Back, change nothing").click()
    await expect(page.locator("h1")).to_have_text("Hosts")

    await desk.ended("mail")
    mails = await desk.app.jobs.query().where(handler="mail").count()
    await page.goto(f"{desk.base}/jobs/matching?handler=mail")
    await page.locator('select[name="do"]').select_option("jobs.delete")
    await page.locator('input[name="typed"]').fill(str(mails))
    await page.keyboard.press("Enter")
    await expect(page.locator(".notice")).to_contain_text(f"{mails} done")
    assert await desk.app.jobs.query().where(handler="mail").count() == 0
    assert faults == []
