"""Consumers of queues with sessions: a held session goes on after a pause."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from relevo.messaging.operating import consumers
from tests.jobs.office import until
from tests.messaging.consumers.depot import Handler

if TYPE_CHECKING:
    from tests.messaging.consumers.depot import Depot

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("sources", [("talks",), ("plain", "talks")])
async def test_a_session_goes_on_when_the_pause_ends_in_which_it_is_held(
    depot: Depot, sources: tuple[str, ...]
) -> None:
    # M20, M34
    await depot.queue("talks", requires_session=True)
    await depot.queue("plain")
    sent = await depot.send(0, 1, to="talks", session_id="a")
    handler = Handler(waits=True)
    await depot.serve(handler, sources=sources)
    await handler.until_seen(1)
    end = await depot.database.fetchval("select relevo.now()") + timedelta(hours=1)
    await consumers.pause(depot.database, "drawers", until=end)
    handler.go.set()
    await depot.until_gone(sent[0])
    [row] = await depot.rows()  # nobody else may have it: this host holds the session
    assert (row["sequence"], row["state"]) == (sent[1], 6)
    assert handler.bodies == [0]
    over = "update relevo.message_consumers set until = relevo.now() - interval '1 second'"
    await depot.database.write(over)  # which wakes nobody
    await handler.until_seen(2)
    await depot.until_gone(*sent)
    assert handler.most == 1

    async def is_free() -> bool:
        sql = "select exists (select from relevo.message_session where held)"
        return not await depot.database.fetchval(sql)

    await until(is_free, "the session is still held")
