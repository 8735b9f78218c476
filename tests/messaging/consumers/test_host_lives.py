"""Consumers over the lives of a host: none is served that is over, no claim is forgotten."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest

from relevo.kernel.running import rounds
from relevo.testing.proxy import Proxy
from tests.jobs.office import until
from tests.messaging.consumers.depot import Depot, Handler

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from uuid import UUID

    from relevo import App
    from relevo.kernel.postgres import Database

pytestmark = pytest.mark.anyio


END_YOUNGEST = """
select pg_terminate_backend(pid) from pg_stat_activity
where datname = current_database() and wait_event_type = 'Lock' and query like '%serve_messages%'
order by query_start desc limit 1
"""


async def end_life(database: Database, app: App) -> None:
    """Let a host lapse, and wait until its next life has begun."""
    ended: UUID = app.leases.life.incarnation
    await database.write(
        "update relevo.host set ended_at = relevo.now(), end_reason = 'lapsed'"
        " where incarnation = $1",
        ended,
    )
    await until(
        lambda: app.leases.may_act and app.leases.life.incarnation != ended, "another life begins"
    )


async def until_blocked(database: Database, statement: str, *, sessions: int = 1) -> None:
    """Wait until so many sessions wait for a lock in a statement that contains this text."""

    async def waits() -> bool:
        return bool(
            await database.fetchval(
                "select count(*) >= $2 from pg_stat_activity where datname = current_database()"
                " and wait_event_type = 'Lock' and query like '%' || $1 || '%'",
                statement, sessions,
            )
        )  # fmt: skip

    await until(waits, f"{statement} waits for a lock")


async def test_a_life_that_ends_while_consumers_are_declared_is_not_served(  # M27
    depot: Depot,
) -> None:
    await depot.queue()
    handler = Handler()
    app = await depot.serve(handler)
    async with depot.database.transaction() as tx:
        await tx.execute("select from relevo.message_consumers for update")
        await end_life(depot.database, app)
        await until_blocked(depot.database, "declare_consumers")  # for the second life
        await end_life(depot.database, app)
    numbers = await depot.send("one")
    await depot.until_gone(*numbers)


async def test_what_a_host_drops_before_a_late_renewal_is_delivered_again(  # M27
    depot: Depot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "SWEEP_SECONDS", float("inf"))  # which finds it much later
    await depot.queue()
    handler = Handler(waits=True)
    (number,) = await depot.send("one")
    app = await depot.serve(handler, concurrency=2)  # with room for more
    await handler.until_seen(1)

    def is_cut_off() -> bool:
        app.leases.life.deadline.renew(float("-inf"))
        return handler.running == 0

    async with depot.database.transaction() as tx:
        await tx.execute("lock table relevo.message_arrival")  # a round takes long
        await until_blocked(depot.database, "serve_messages")
        await until(is_cut_off, "the handler is cut off")
        await until(lambda: app.leases.may_act, "the renewal succeeds")
    handler.go.set()
    await depot.until_gone(number)


@pytest.fixture
def proxy(relevo_url: str) -> Iterator[Proxy]:
    with Proxy.to(relevo_url) as proxy:
        yield proxy


@pytest.fixture
async def far(depot: Depot, proxy: Proxy) -> AsyncIterator[Depot]:
    """A depot whose hosts reach the database by way of the proxy."""
    async with AsyncExitStack() as stack:
        yield Depot(proxy.url(depot.url), depot.client, stack)


async def test_a_claim_whose_answer_is_lost_is_looked_up_and_run(  # M27
    far: Depot, proxy: Proxy
) -> None:
    await far.queue()
    handler = Handler()
    await far.serve(handler)
    cut = proxy.on_bytes("downstream", b"needle", proxy.reset)
    (number,) = await far.send("needle")
    await far.until_gone(number)
    assert cut.fired == 1
    assert [msg.delivery_count for msg in handler.seen] == [0]


async def test_a_claim_that_commits_after_it_was_looked_up_is_returned(  # M27
    far: Depot, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "SWEEP_SECONDS", 0.05)
    await far.queue()
    handler = Handler()
    await far.serve(handler)
    async with far.database.transaction() as tx:
        await tx.execute("lock table relevo.message_arrival")
        await until_blocked(far.database, "serve_messages")
        proxy.reset()
        await until_blocked(far.database, "serve_messages", sessions=2)  # the first was looked up
        proxy.refuse()
        proxy.reset()  # also what has connected for something else meanwhile
        await far.database.write(END_YOUNGEST)
        (number,) = await far.send("one")
    await far.until_row(number, "state = 1")  # for a host that hears nothing of it
    proxy.heal()
    await far.until_gone(number)
    assert [msg.delivery_count for msg in handler.seen] == [0]
