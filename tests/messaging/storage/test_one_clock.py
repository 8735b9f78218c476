"""One clock decides about locks, lives and schedules, whatever the clocks of machines say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import relevo.messaging
from relevo.kernel.postgres import clock as store_clock
from relevo.messaging import Message

if TYPE_CHECKING:
    from relevo import App
    from relevo.testing import Clock
    from tests.messaging.conftest import Post

pytestmark = pytest.mark.anyio

SQL = Path(relevo.messaging.__file__).parent / "sql"
OTHER_CLOCKS = re.compile(
    r"(?<!relevo\.)\bnow\(\)|(?:clock|statement|transaction)_timestamp|timeofday"
    r"|\b(?:current|local)_?time(?:stamp)?\b",
    re.IGNORECASE,
)


def test_statements_ask_no_other_clock() -> None:  # M25
    files = sorted(SQL.rglob("*.sql"))
    assert len(files) > 50
    found = [
        f"{file.relative_to(SQL)}:{number}"
        for file in files
        for number, line in enumerate(file.read_text().splitlines(), 1)
        if OTHER_CLOCKS.search(line)
    ]
    assert not found


async def test_a_server_clock_that_is_set_back_prolongs_nothing(
    app: App, clock: Clock, post: Post
) -> None:  # M25, M16, M19
    queue = app.queue("q", lock_duration=100)
    await queue.send_many([Message(body="held"), Message(body="brief", ttl=100)])
    (held,) = await queue.receive()
    due = (await clock.now()).replace(microsecond=0)
    await queue.schedule(Message(body="later"), due.replace(year=due.year + 1))
    before = {one.body: (one.locked_until, one.expires_at) for one in await queue.peek()}

    await store_clock.raise_mark(app.database)  # as the leading host does each second
    await clock.server_falls_behind(300)
    await store_clock.raise_mark(app.database)
    await post.tend()
    assert {one.body: (one.locked_until, one.expires_at) for one in await queue.peek()} == before
    assert [one.state for one in await queue.peek()] == ["locked", "active", "scheduled"]
    await held.renew()

    await clock.advance(101)
    await post.tend()
    left = {one.body: (one.state, one.delivery_count) for one in await queue.peek()}
    assert left == {"held": ("active", 1), "later": ("scheduled", 0)}
