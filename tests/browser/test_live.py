"""Live parts in a real browser: rows that come, go and move."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.async_api import expect

if TYPE_CHECKING:
    from playwright.async_api import Page

    from tests.dashboard.conftest import Desk

pytestmark = pytest.mark.anyio
ROWS = "#section_served_next tbody tr"
MORPH = """async ([html, assets]) => {
  const { morph } = await import(`${assets}/morph.js`);
  const element = document.createElement("ul");
  element.innerHTML =
    '<li data-key="a">1</li><li data-key="a">2</li><li data-key="b">3</li><li>4</li>';
  const b = element.children[2];
  morph(element, html);
  return [element.innerHTML, element.contains(b)];
}"""


async def test_the_peek_of_a_queue_keeps_all_its_rows(desk: Desk, page: Page) -> None:
    queue = desk.app.queue("peeked")
    for number in range(3):
        await queue.send(b"{}", message_id=f"first-{number}")
    await page.goto(f"{desk.base}/queues/peeked")
    await expect(page.locator(ROWS)).to_have_count(3)
    await queue.send(b"{}", message_id="second")
    await expect(page.locator(ROWS)).to_have_count(4, timeout=30_000)
    texts = await page.locator(f"{ROWS} td:nth-child(2)").all_inner_texts()
    assert texts == ["first-0", "first-1", "first-2", "second"]


async def test_a_node_is_taken_once_where_two_rows_have_the_same_key(
    desk: Desk, page: Page
) -> None:
    await page.goto(f"{desk.base}/jobs")
    assets = await page.locator("script[type=module]").get_attribute("src")
    assert assets is not None
    folder = f"{desk.base}{assets.rpartition('/')[0]}"
    for html in (
        '<li data-key="b">3</li><li data-key="a">5</li><li data-key="a">6</li><li>7</li>',
        '<li data-key="a">5</li><li data-key="b">3</li><li data-key="c">6</li><li>8</li>',
        '<li>8</li><li data-key="b">3</li>',
    ):
        assert await page.evaluate(MORPH, [html, folder]) == [html, True]
