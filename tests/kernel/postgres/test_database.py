"""Transactions, repetitions, and whose error is whose, on a sound network."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from relevo import limits, settings
from relevo.errors import DatabaseUnavailable
from relevo.kernel.postgres.database import Database
from tests.kernel.postgres.conftest import Ledger, retries

if TYPE_CHECKING:
    from relevo.kernel.postgres.database import Transaction

pytestmark = pytest.mark.anyio

FAILING = """
create sequence tries;
create function fail(code text, times bigint) returns text language plpgsql as $$
begin
  if nextval('tries') <= times then
    raise exception 'told to fail' using errcode = code;
  end if;
  return 'done';
end $$
"""


async def test_a_transaction_commits_as_a_whole_or_not_at_all(ledger: Ledger) -> None:
    async def work(tx: Transaction, *, fail: bool) -> str:
        await tx.execute(Ledger.PUT, f"first {fail}")
        await tx.execute(Ledger.PUT, f"second {fail}")
        if fail:
            raise LookupError("no")
        return "yes"

    assert await ledger.database.run(lambda tx: work(tx, fail=False)) == "yes"
    with pytest.raises(LookupError):
        await ledger.database.run(lambda tx: work(tx, fail=True))
    with pytest.raises(LookupError):
        async with ledger.database.transaction() as tx:
            await work(tx, fail=True)
    assert await ledger.notes() == ["first False", "second False"]


async def test_reads_give_rows_a_row_or_a_value(database: Database) -> None:
    sql = "select n, -n as minus from generate_series(1, $1::int) n"
    assert [tuple(row) for row in await database.fetch(sql, 2)] == [(1, -1), (2, -2)]
    row = await database.fetchrow(sql, 2)
    assert row is not None
    assert row["minus"] == -1
    assert await database.fetchval(sql, 2) == 1
    assert await database.fetchrow(sql, 0) is None
    assert await database.fetchval(sql, 0) is None


async def test_a_write_returns_its_rows(ledger: Ledger) -> None:
    rows = await ledger.database.write("insert into note (id) values ('a') returning id, place")
    assert [tuple(row) for row in rows] == [("a", 1)]


# --- what is repeated -------------------------------------------------------------------------


@pytest.mark.parametrize("code", ["40001", "40P01", "25006", "53300", "55P03"])
async def test_what_was_aborted_or_refused_is_repeated(database: Database, code: str) -> None:
    async with database.transaction() as tx:
        await tx.execute(FAILING)
    rows = await database.write("select fail($1, 2)", code)
    assert rows[0][0] == "done"
    assert retries(database) == 2


@pytest.mark.usefixtures("impatient")
async def test_what_is_refused_again_and_again_is_unavailable(database: Database) -> None:
    async with database.transaction() as tx:
        await tx.execute(FAILING)
    with pytest.raises(DatabaseUnavailable, match="did not take the call: told to fail"):
        await database.write("select fail('40001', 100)")
    assert await database.fetchval("select last_value from tries") == limits.ATTEMPTS_MAX


@pytest.mark.parametrize(
    ("code", "error"),
    [("53100", DatabaseUnavailable), ("22012", asyncpg.DivisionByZeroError)],
)
async def test_a_full_disk_and_a_fault_are_not_repeated(
    database: Database, code: str, error: type[Exception]
) -> None:
    async with database.transaction() as tx:
        await tx.execute(FAILING)
    with pytest.raises(error):
        await database.write("select fail($1, 1)", code)
    assert retries(database) == 0


async def test_two_transactions_that_lock_each_other_out_both_succeed(ledger: Ledger) -> None:
    database = ledger.database
    await database.write("insert into note (id) values ('left'), ('right')")
    both_hold_one = asyncio.Barrier(2)
    tries: list[str] = []

    async def work(tx: Transaction, first: str, second: str) -> None:
        tries.append(first)
        lock = "select from note where id = $1 for update"
        await tx.execute(lock, first)
        if tries.count(first) == 1:
            await both_hold_one.wait()
        await tx.execute(lock, second)
        await tx.execute(Ledger.PUT, first.upper())

    async with asyncio.timeout(60):
        await asyncio.gather(
            database.run(lambda tx: work(tx, "left", "right")),
            database.run(lambda tx: work(tx, "right", "left")),
        )
    assert len(tries) == 3
    assert sorted(await ledger.notes()) == ["LEFT", "RIGHT", "left", "right"]


async def test_two_transactions_that_cannot_be_put_in_a_row_both_succeed(ledger: Ledger) -> None:
    database = ledger.database
    await database.write("create table account (id int primary key, balance int)")
    await database.write("insert into account values (1, 0)")
    both_have_read = asyncio.Barrier(2)
    tries: list[int] = []

    async def work(tx: Transaction, number: int) -> None:
        tries.append(number)
        await tx.execute("set transaction isolation level serializable")
        balance = await tx.fetchval("select balance from account")
        if tries.count(number) == 1:
            await both_have_read.wait()
        await tx.execute("update account set balance = $1", balance + number)

    async with asyncio.timeout(60):
        await asyncio.gather(
            database.run(lambda tx: work(tx, 1)), database.run(lambda tx: work(tx, 10))
        )
    assert await database.fetchval("select balance from account") == 11
    assert len(tries) == 3


async def backend_at_work(database: Database, text: str) -> int:
    async with asyncio.timeout(30):
        while True:
            found: int | None = await database.fetchval(
                "select pid from pg_stat_activity"
                " where datname = current_database() and query like $1 and state = 'active'"
                " and pid <> pg_backend_pid()",
                f"%{text}%",
            )
            if found is not None:
                return found


async def test_a_backend_that_is_terminated_at_work_did_not_commit_and_is_replaced(
    ledger: Ledger,
) -> None:
    database = ledger.database
    async with database.transaction() as tx:
        await tx.execute("lock table note")
        waiting = asyncio.ensure_future(database.write(Ledger.PUT, "a"))
        pid = await backend_at_work(database, "insert into note")
        assert await database.fetchval("select pg_terminate_backend($1, 5000)", pid)
    await waiting
    assert retries(database) == 1
    assert await ledger.notes() == ["a"]


async def test_a_transaction_whose_backend_is_terminated_is_repeated(ledger: Ledger) -> None:
    tries: list[int] = []

    async def work(tx: Transaction) -> None:
        await tx.execute(Ledger.PUT, "a")
        tries.append(await tx.fetchval("select pg_backend_pid()"))
        if len(tries) == 1:
            await ledger.database.fetchval("select pg_terminate_backend($1, 5000)", tries[0])
        await tx.execute(Ledger.PUT, "b")

    await ledger.database.run(work)
    assert len(set(tries)) == 2
    assert await ledger.notes() == ["a", "b"]


async def test_a_connection_to_a_node_that_became_read_only_is_left_for_a_new_one(
    ledger: Ledger, relevo_url: str
) -> None:
    name = await ledger.database.fetchval("select current_database()")
    read_only = f'alter database "{name}" set default_transaction_read_only = '
    await ledger.database.write(f"{read_only} on")
    told = settings.load({"database_url": relevo_url, "pool_size": 1}, environ={})
    async with await Database.open(told) as database:
        assert await database.fetchval("show transaction_read_only") == "on"
        await ledger.database.write(f"{read_only} off")
        await database.write(Ledger.PUT, "a")
        assert retries(database) == 1
    assert await ledger.notes() == ["a"]


async def test_a_plan_that_no_longer_fits_is_made_anew(ledger: Ledger) -> None:
    database = ledger.database
    await database.write(Ledger.PUT, "a")

    async def work(tx: Transaction) -> int:
        return len(dict((await tx.fetch("select * from note"))[0]))

    assert await database.run(work) == 2
    await database.write("alter table note add column third text")
    assert await database.run(work) == 3


# --- whose error ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [FileNotFoundError("no such file"), TimeoutError("mine"), ConnectionError("elsewhere")],
    ids=lambda error: type(error).__name__,
)
async def test_an_error_of_the_body_itself_is_raised_as_it_is(
    database: Database, error: Exception
) -> None:
    tries = []

    async def work(tx: Transaction) -> None:
        tries.append(tx)
        raise error

    with pytest.raises(type(error)) as run:
        await database.run(work)
    with pytest.raises(type(error)) as block:
        async with database.transaction():
            raise error
    assert run.value is block.value is error
    assert len(tries) == 1


async def test_a_time_limit_that_the_body_sets_itself_is_its_own(database: Database) -> None:
    async def work(tx: Transaction) -> None:
        async with asyncio.timeout(0.05):
            await tx.execute("select pg_sleep(60)")

    with pytest.raises(TimeoutError):
        await database.run(work)
    assert retries(database) == 0
    assert await database.fetchval("select 1") == 1


async def test_a_statement_that_takes_too_long_makes_the_database_unavailable(
    relevo_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "STATEMENT_SECONDS_MAX", 0.1)
    monkeypatch.setattr(limits, "RETRY_SECONDS_MAX", 0.05)

    async def work(tx: Transaction) -> None:
        await tx.execute("select pg_sleep(60)")

    told = settings.load({"database_url": relevo_url}, environ={})
    async with await Database.open(told) as database:
        with pytest.raises(DatabaseUnavailable, match="not answered in its time"):
            await database.run(work)


async def test_an_argument_that_does_not_fit_is_a_fault_whatever_it_says(ledger: Ledger) -> None:
    odd: Any = ["the connection is closed", "released back to the pool"]
    with pytest.raises(asyncpg.DataError, match="invalid input for query argument"):
        await ledger.database.write(Ledger.PUT, odd)
    assert retries(ledger.database) == 0


async def test_an_error_that_the_body_swallowed_never_passes_for_a_commit(ledger: Ledger) -> None:
    async def work(tx: Transaction) -> str:
        await tx.execute(Ledger.PUT, "a")
        try:
            await tx.execute(Ledger.PUT, "a")
        except asyncpg.UniqueViolationError:
            return "done"
        return "never"

    with pytest.raises(asyncpg.InFailedSQLTransactionError, match="was rolled back"):
        await ledger.database.run(work)
    assert await ledger.notes() == []


async def test_a_savepoint_may_fail_inside_a_transaction_that_commits(ledger: Ledger) -> None:
    async def work(tx: Transaction) -> None:
        await tx.execute(Ledger.PUT, "a")
        with pytest.raises(asyncpg.UniqueViolationError):
            async with tx.transaction():
                await tx.execute(Ledger.PUT, "a")
        await tx.execute(Ledger.PUT, "b")

    await ledger.database.run(work)
    assert await ledger.notes() == ["a", "b"]
