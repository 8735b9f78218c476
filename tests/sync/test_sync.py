"""The blocking client: jobs, messages, items, transactions, threads and forks."""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import psycopg
import pytest

import relevo
import relevo.sync
from relevo import errors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from relevo.settings import Settings


class Shop:
    """A program with a handler, its host in a thread, and a client of the same database."""

    def __init__(self, settings: Settings) -> None:
        program = relevo.App(settings=settings)

        @program.job("receipt")
        def receipt(ctx: relevo.JobContext, order: int) -> str:
            return f"receipt for order {order}"

        self.program, self.receipt = program, receipt
        self.client = relevo.sync.App(relevo.App(settings=settings))
        self._ready, self._over = threading.Event(), asyncio.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        async with self.program.host():
            self._ready.set()
            await self._over.wait()

    def __enter__(self) -> Shop:
        self._thread.start()
        assert self._ready.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()


@pytest.fixture
def shop(relevo_settings: Settings) -> Iterator[Shop]:
    with Shop(relevo_settings) as shop:
        yield shop


def test_jobs_messages_and_items_without_await(shop: Shop) -> None:
    client = shop.client
    job = client.submit("receipt", {"order": 1})
    assert job.wait(timeout=60) == "receipt for order 1"
    assert job.get().status == "succeeded"
    assert [one.wait(60) for one in client.submit_many("receipt", [{"order": 2}])] == [
        "receipt for order 2"
    ]
    with client.batch(then=shop.receipt, data={"order": 9}, condition="succeeded") as batch:
        batch.submit("receipt", {"order": 3})
        batch.submit_many("receipt", [{"order": 4}])
        client.submit("receipt", {"order": 5}, batch=batch.handle)
    assert batch.wait(timeout=60).succeeded == 3
    ends = {end.result for end in client.find_batch(batch.id).results()}
    assert ends == {f"receipt for order {n}" for n in (3, 4, 5)}
    with pytest.raises(errors.RelevoError, match="no job"):
        client.job("018bcfe5-687b-7000-8000-000000000000").get()

    queue = client.queue("render")
    queue.send({"frame": 1}, priority=7)
    [message] = queue.receive(wait=10)
    assert (message.body, message.message.priority) == ({"frame": 1}, 7)
    message.complete()
    assert queue.receive(wait=0) == []

    orders = client.container("orders", partition_key="/city")
    stored = orders.create({"id": "1", "city": "Vigo", "dish": "soup"})
    assert orders.read("1", "Vigo").etag == stored.etag
    found = client.iterate(client.app.container("orders").query())
    assert [item.body["dish"] for item in found] == ["soup"]
    assert client.run(client.app.jobs.views.counts()) is not None

    # Many threads share one client; and a definition is checked by its signature.
    with ThreadPoolExecutor(8) as threads:
        receipts = list(threads.map(lambda n: client.submit("receipt", {"order": n}), range(40)))
        assert len({one.id for one in receipts}) == 40
        assert receipts[-1].wait(timeout=60) == "receipt for order 39"


def test_submits_and_sends_are_part_of_the_callers_transaction(shop: Shop) -> None:
    client = shop.client
    queue = client.queue("orders")
    queue.ensure()
    mine = relevo.App(settings=shop.program.settings)

    @mine.job("receipt")
    def receipt(order: int) -> str:
        return ""

    own = relevo.sync.App(mine)
    with psycopg.connect(client.database_url) as connection:
        with connection.transaction(force_rollback=True):
            lost = own.submit(receipt.using(tx=connection), order=1)
        with connection.transaction():
            kept = own.submit(receipt.using(tx=connection), order=2)
            queue.send({"order": 2}, tx=connection)
            assert queue.receive(wait=0) == []
    assert kept.wait(timeout=60) == "receipt for order 2"
    with pytest.raises(relevo.JobMissing):
        lost.get()
    [message] = queue.receive(wait=10)
    assert message.body == {"order": 2}
    own.close()


def test_a_transaction_that_waits_for_another_delays_no_other_call(shop: Shop) -> None:
    client, url = shop.client, shop.client.database_url
    with psycopg.connect(url) as first, psycopg.connect(url) as second:
        first.execute("lock table relevo.job in access exclusive mode")
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(client.submit, "receipt", {"order": 1}, tx=second)
            client.queue("free").send("not held up")
            first.rollback()
            job = waiting.result(timeout=60)
            second.commit()
    assert job.wait(timeout=60) == "receipt for order 1"


def test_it_refuses_to_block_an_event_loop_and_says_what_to_do(
    relevo_settings: Settings,
) -> None:
    client = relevo.sync.App(relevo.App(settings=relevo_settings))

    async def view() -> None:
        client.submit("receipt", {"order": 1})

    with pytest.raises(errors.Conflict, match="use the async API"):
        asyncio.run(view())
    with pytest.raises(TypeError, match="pool_size"):
        relevo.sync.App(client.app, pool_size=3)


def test_an_app_that_another_loop_has_connected_is_refused(relevo_settings: Settings) -> None:
    async def main() -> None:
        async with relevo.App(settings=relevo_settings) as app:
            client = relevo.sync.App(app)
            with pytest.raises(errors.Conflict, match="another event loop"):
                await asyncio.to_thread(client.connect)

    asyncio.run(main())


def test_close_ends_calls_under_way_and_a_later_call_connects_again(shop: Shop) -> None:
    client = relevo.sync.App(relevo.App(settings=shop.program.settings))
    begun = threading.Event()

    async def endless() -> None:
        begun.set()
        await asyncio.Event().wait()

    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(client.run, endless())
        assert begun.wait(60)
        client.close()
        with pytest.raises(errors.Closed):
            waiting.result(timeout=60)
    assert client.now().tzinfo is not None
    client.close()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_connects_for_itself_and_leaves_the_parent_alone(shop: Shop) -> None:
    client = shop.client
    orders = client.container("orders", partition_key="/city")
    orders.create({"id": "1", "city": "Vigo"})
    child = os.fork()
    if child == 0:
        code = 1
        try:
            orders.create({"id": "2", "city": "Vigo"})
            code = int(client.submit("receipt", {"order": 2}).wait(60) != "receipt for order 2")
        finally:
            client.close()
            os._exit(code)
    orders.create({"id": "3", "city": "Vigo"})
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    found = client.iterate(client.app.container("orders").query())
    assert {item.id for item in found} == {"1", "2", "3"}


def typed(client: relevo.sync.App) -> None:
    """What mypy must accept and refuse; never run."""
    app = relevo.App()

    @app.job("double")
    async def double(n: int) -> int:
        return 2 * n

    number: int = client.submit(double, n=1).wait()
    client.submit(double, n="1")  # type: ignore[call-overload]
    client.queue("a").send("body", priority=number)
    client.queue("a").send("body", prioriti=1)  # type: ignore[call-arg]
    body: dict[str, object] = client.container("c").read("1", "Vigo").body
    del body
