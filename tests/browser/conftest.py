"""One host with a dashboard, and one Chromium, for all tests of a module."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.dashboard.conftest import Desk, open_desk

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from playwright.async_api import Browser, Page

    from relevo.testing.databases import TestDatabases

CHROMIUM = Path("/usr/bin/chromium")


@pytest.fixture(scope="module")
async def desk(
    relevo_databases: TestDatabases, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Desk]:
    url = relevo_databases.create()
    async with open_desk(url, tmp_path_factory.mktemp("desk")) as opened:
        yield opened
    relevo_databases.drop(url)


@pytest.fixture(scope="module")
async def chromium(desk: Desk) -> AsyncIterator[Browser]:
    if not CHROMIUM.exists():
        pytest.skip("there is no /usr/bin/chromium; tests/packages.sh installs it on Debian")
    from playwright.async_api import async_playwright

    arguments = ["--no-sandbox", "--disable-background-networking", "--disable-gpu"]
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield browser
        await browser.close()


@pytest.fixture
async def page(desk: Desk, chromium: Browser) -> AsyncIterator[Page]:
    """A page that is signed in as an administrator; faults in scripts fail the test."""
    context = await chromium.new_context(viewport={"width": 1280, "height": 800}, locale="en-GB")
    opened = await context.new_page()
    faults: list[str] = []
    opened.on("pageerror", lambda error: faults.append(str(error)))
    opened.on(
        "console", lambda said: faults.append(said.text) if "Security Policy" in said.text else None
    )
    opened.on(
        "request",
        lambda sent: None if sent.url.startswith(desk.base) else faults.append(sent.url),
    )
    await opened.goto(f"{desk.base}/sign-in?code={await desk.dashboard.link_code()}")
    yield opened
    await context.close()
    assert faults == []
