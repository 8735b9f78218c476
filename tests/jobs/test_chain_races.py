"""Two sides at one chain: who submits, ends, cancels or deletes at the same moment (4.2, 4.4)."""

from __future__ import annotations

import asyncio
import contextlib
import random
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from relevo.jobs.errors import JobMissing, JobRefused
from tests.jobs.office import Worker, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from uuid import UUID

    from tests.jobs.office import Office

pytestmark = pytest.mark.anyio
GATES = 1380273160


class Bench:
    """An office, workers, and connections that stop in the middle of a transaction."""

    def __init__(self, office: Office, stack: AsyncExitStack) -> None:
        self.office = office
        self._stack = stack

    async def connect(self) -> asyncpg.Connection:
        connection = await asyncpg.connect(self.office.url)
        self._stack.push_async_callback(connection.close, timeout=5)
        return connection

    async def worker(self) -> Worker:
        return await Worker(await self.connect()).join()

    async def submit(self, token: str = "t", **options: Any) -> UUID:
        return (await self.office.jobs.submit("work", token=token, **options)).id

    async def submit_in(self, connection: asyncpg.Connection, token: str = "t") -> UUID:
        made: UUID = await connection.fetchval(
            "select relevo.submit_job('work', token => $1)", token
        )
        return made

    async def until_waits(self, count: int = 1) -> None:
        """Wait until so many statements wait for a gate."""

        async def waits() -> bool:
            found = await self.office.database.fetchval(
                "select count(*) from pg_locks where locktype = 'advisory' and classid = $1"
                " and not granted and database = (select oid from pg_database"
                " where datname = current_database())",
                GATES,
            )
            return bool(found >= count)

        await until(waits, f"{count} wait for a gate")

    async def hold_gate(self, token: str = "t") -> asyncpg.transaction.Transaction:
        """Take the gate of a chain, as somebody does who ends its head; roll back to let go."""
        connection = await self.connect()
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("select relevo.lock_job_gates(array[$1])", f"ct{token}")
        return transaction


@pytest.fixture
async def bench(office: Office) -> AsyncIterator[Bench]:
    async with AsyncExitStack() as stack:
        yield Bench(office, stack)


def ids(rows: list[Any]) -> list[UUID]:
    return [row["id"] for row in rows]


async def test_a_submit_that_commits_after_the_head_ended_is_found(bench: Bench) -> None:  # A6
    worker, client = await bench.worker(), await bench.connect()
    first = await bench.submit()
    (head,) = await worker.work(1)
    async with client.transaction():
        second = await bench.submit_in(client)
        assert await worker.work(1, settle=[(head, "done")]) == []  # not committed: not there
    assert ids(await worker.work(1)) == [second]
    assert head["id"] == first


async def test_a_submit_that_commits_while_the_end_is_not_committed_is_found(
    bench: Bench,
) -> None:  # A6, A7
    worker, other = await bench.worker(), await bench.worker()
    await bench.submit()
    (head,) = await worker.work(1)
    async with worker.connection.transaction():
        await worker.work(0, settle=[(head, "done")])
        second = await bench.submit()
        assert await other.work(1) == []  # the end may be rolled back
    assert ids(await other.work(1)) == [second]


async def test_a_submit_that_commits_while_the_end_waits_for_the_gate_is_found_by_it(
    bench: Bench,
) -> None:  # A6
    worker = await bench.worker()
    await bench.submit()
    (head,) = await worker.work(1)
    held = await bench.hold_gate()
    ending = asyncio.ensure_future(worker.work(1, settle=[(head, "done")]))
    await bench.until_waits()
    second = await bench.submit()
    await held.rollback()
    assert ids(await ending) == [second]


async def test_an_end_that_is_rolled_back_opens_nothing(bench: Bench) -> None:  # A7
    worker, other = await bench.worker(), await bench.worker()
    await bench.submit()
    await bench.submit()
    (head,) = await worker.work(1)
    transaction = worker.connection.transaction()
    await transaction.start()
    assert len(await worker.work(1, settle=[(head, "done")])) == 1
    await transaction.rollback()
    assert await other.work(10) == []
    assert len(await worker.work(10, settle=[(head, "done")])) == 1


async def test_overlapping_submits_start_one_after_the_other(bench: Bench) -> None:  # A6, 4.2
    worker, one, two = await bench.worker(), await bench.connect(), await bench.connect()
    async with one.transaction():
        first = await bench.submit_in(one)
        async with two.transaction():
            second = await bench.submit_in(two)
        (head,) = await worker.work(10)  # older by number, and not committed: it comes second
        assert head["id"] == second
    assert await worker.work(10) == []
    assert ids(await worker.work(10, settle=[(head, "done")])) == [first]


async def test_acknowledged_submits_start_in_their_order(bench: Bench) -> None:  # A6, 4.2
    worker = await bench.worker()
    made = [await bench.submit() for _ in range(5)]
    order: list[UUID] = []
    settle: list[Any] = []
    while claimed := await worker.work(10, settle=settle):
        order += ids(claimed)
        settle = [(claimed[0], "done")]
    assert order == made


@pytest.mark.parametrize("command", ["cancel", "delete"])
async def test_a_command_on_the_next_while_the_head_ends(
    bench: Bench, command: str
) -> None:  # A6, A7
    worker = await bench.worker()
    await bench.submit()
    second, third = await bench.submit(), await bench.submit()
    (head,) = await worker.work(1)
    held = await bench.hold_gate()
    asked = asyncio.ensure_future(bench.office.jobs.command(second, command))
    await bench.until_waits(1)
    ending = asyncio.ensure_future(worker.work(1, settle=[(head, "done")]))
    await bench.until_waits(2)
    await held.rollback()
    status, claimed = await asyncio.gather(asked, ending)
    # Whoever came first: the second was canceled before it started, or is asked to stop.
    if ids(claimed) == [second]:
        assert status in (22, 20)
    else:
        assert ids(claimed) == [third]
        assert status in (32, -1)


@pytest.mark.parametrize("command", ["cancel", "delete"])
async def test_a_command_on_a_ready_head_lets_the_next_start(
    bench: Bench, command: str
) -> None:  # 4.2
    worker = await bench.worker()
    first, second = await bench.submit(), await bench.submit()
    await bench.office.jobs.command(first, command)
    assert ids(await worker.work(10)) == [second]


async def test_a_cancel_of_the_head_while_it_settles_leaves_one_head(bench: Bench) -> None:  # A6
    worker = await bench.worker()
    first, second = await bench.submit(), await bench.submit()
    (head,) = await worker.work(1)
    held = await bench.hold_gate()
    asked = asyncio.ensure_future(bench.office.jobs.command(first, "cancel"))
    await bench.until_waits(1)
    ending = asyncio.ensure_future(worker.work(1, settle=[(head, "done")]))
    await bench.until_waits(2)
    await held.rollback()
    try:
        assert await asked == 22
        end = 32  # A11
    except JobRefused:
        end = 30
    assert ids(await ending) == [second]
    assert (await bench.office.row(first))["status"] == end


async def test_a_postponed_head_holds_its_chain_and_no_other(bench: Bench) -> None:  # A7, A9
    worker = await bench.worker()
    first, second = await bench.submit(), await bench.submit()
    now = await bench.office.app.now()
    await bench.office.jobs.command(first, "postpone", until=now.replace(year=now.year + 1))
    other = await bench.submit("u")
    assert ids(await worker.work(10)) == [other]
    await bench.office.jobs.command(first, "resume")
    (head,) = await worker.work(10)
    assert head["id"] == first
    assert ids(await worker.work(10, settle=[(head, "done")])) == [second]


async def test_a_retrying_head_holds_its_chain(bench: Bench) -> None:  # A7
    worker = await bench.worker()
    first, _ = await bench.submit(), await bench.submit()
    (head,) = await worker.work(10)
    assert await worker.work(10, settle=[(head, "retry")], delays=[3600.0]) == []
    assert (await bench.office.row(first))["status"] == 10


async def test_a_failed_head_with_hold_suspends_the_rest(bench: Bench) -> None:  # S18
    worker = await bench.worker()
    await bench.submit(on_failure="hold")
    rest = [await bench.submit() for _ in range(3)]
    (head,) = await worker.work(1)
    assert await worker.work(10, settle=[(head, "fail")]) == []
    rows = [await bench.office.row(one) for one in rest]
    assert [(row["status"], row["postpone_until"]) for row in rows] == [(10, None)] * 3
    for one in reversed(rest):  # in any order; they start in that of the chain
        await bench.office.jobs.command(one, "resume")
    (second,) = await worker.work(10)
    assert second["id"] == rest[0]


async def test_a_failed_head_without_hold_lets_the_next_start(bench: Bench) -> None:  # 4.2
    worker = await bench.worker()
    await bench.submit()
    second = await bench.submit()
    (head,) = await worker.work(1)
    assert ids(await worker.work(10, settle=[(head, "fail")])) == [second]


async def test_a_deleted_running_head_blocks_until_it_stopped(bench: Bench) -> None:  # A31
    worker = await bench.worker()
    first, second = await bench.submit(), await bench.submit()
    (head,) = await worker.work(1)
    await bench.office.jobs.command(first, "delete")
    with pytest.raises(JobMissing):
        await bench.office.jobs.get(first)
    assert await worker.work(10) == []
    assert ids(await worker.work(10, settle=[(head, "fail")])) == [second]


async def test_a_claimer_passes_over_gates_that_are_held(bench: Bench) -> None:  # 4.4
    worker = await bench.worker()
    held = await bench.hold_gate()
    first, other = await bench.submit(), await bench.submit("u")
    assert ids(await worker.work(10)) == [other]  # at once, although somebody has the gate of t
    await held.rollback()
    assert ids(await worker.work(10)) == [first]


async def test_an_open_foreign_transaction_holds_up_nobody(bench: Bench) -> None:  # D10, 4.4
    worker, client = await bench.worker(), await bench.connect()
    await bench.submit()
    (head,) = await worker.work(1)
    async with client.transaction():
        await bench.submit_in(client)
        second = await bench.submit()
        assert ids(await worker.work(1, settle=[(head, "done")])) == [second]


async def test_no_deadlock_and_no_two_heads_under_random_hands(bench: Bench) -> None:  # A2, A6, A7
    seed = random.randrange(2**32)
    print("seed", seed)
    dice = random.Random(seed)
    office, tokens = bench.office, ["a", "b", "c", None]
    made: list[UUID] = []
    stop = asyncio.Event()

    async def submits() -> None:
        for _ in range(150):
            many = [
                office.jobs.submit("work", token=dice.choice(tokens))
                for _ in range(dice.choice([1, 3]))
            ]
            made.extend([one.id for one in await asyncio.gather(*many)])

    async def commands() -> None:
        while not stop.is_set():
            some = [dice.choice(made) for _ in range(dice.choice([1, 2, 8]))] if made else []
            await asyncio.gather(*(command(one) for one in some))
            await asyncio.sleep(0.001)

    async def command(one: UUID) -> None:
        name = dice.choice(["cancel", "pause", "resume", "delete", "postpone"])
        until = await office.app.now() if name == "postpone" else None
        with contextlib.suppress(JobRefused, JobMissing):
            await office.jobs.command(one, name, until=until)

    async def works(worker: Worker) -> None:
        while not stop.is_set():
            ends = ["done", "fail", "retry", "yield", "return"]
            held = list(worker.held.values())
            dice.shuffle(held)
            settle = [(row, dice.choice(ends)) for row in held if dice.random() < 0.7]
            await worker.work(dice.choice([1, 4]), settle=settle, delays=[0.0] * len(settle))

    async def checks() -> None:
        while not stop.is_set():
            two = await office.database.fetch(
                "select chain from relevo.job where status >= 20 and chain is not null"
                " group by chain having count(*) > 1"
            )
            assert two == []
            await asyncio.sleep(0.002)

    workers = [await bench.worker() for _ in range(2)]
    rest = [asyncio.ensure_future(one) for one in (commands(), commands(), checks())]
    rest += [asyncio.ensure_future(works(one)) for one in workers]
    await asyncio.gather(*(submits() for _ in range(3)))
    stop.set()
    await asyncio.gather(*rest)
    deadlocks = await office.database.fetchval(
        "select deadlocks from pg_stat_database where datname = current_database()"
    )
    assert deadlocks == 0
    await drained(bench, workers)


async def drained(bench: Bench, workers: list[Worker]) -> None:
    """Everything that is left runs to its end: nothing was forgotten behind a gate."""
    database = bench.office.database
    await database.write(
        "update relevo.job set postpone_until = relevo.now(), waiting_event = false"
        " where status = 10 returning 1"
    )
    for _ in range(2_000):
        for worker in workers:
            await worker.work(50, settle=[(row, "done") for row in worker.held.values()])
        if not await database.fetchval("select exists (select from relevo.job)"):
            return
    left = await database.fetch("select status, chain, chained, capped, deleted from relevo.job")
    raise AssertionError(f"forgotten: {left[:10]}")
