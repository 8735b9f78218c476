"""Calls through a bad network: each ends in its result, in *not happened* or in *unknown*."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import asyncpg
import pytest

from relevo import limits
from relevo.errors import DatabaseUnavailable, OutcomeUnknown
from relevo.kernel.postgres.grouping import Group
from tests.kernel.postgres.conftest import Ledger, retries

if TYPE_CHECKING:
    from collections.abc import Sequence

    from relevo.kernel.postgres.database import Database, Transaction
    from relevo.testing.proxy import Proxy

pytestmark = pytest.mark.anyio


class Work:
    """A transaction that puts one note, and counts how often it was tried."""

    def __init__(self, note: str, sql: str = Ledger.PUT) -> None:
        self.tries = 0
        self._note = note
        self._sql = sql

    async def __call__(self, tx: Transaction) -> int:
        self.tries += 1
        await tx.execute(self._sql, self._note)
        return self.tries


# --- the commit's fate ------------------------------------------------------------------------


async def test_the_answer_of_a_commit_is_lost_and_run_says_unknown(
    proxy: Proxy, proxied: Database, ledger: Ledger
) -> None:
    work = Work("a")
    proxy.on_bytes("downstream", b"COMMIT\0", proxy.reset)
    with pytest.raises(OutcomeUnknown, match="may or may not have happened"):
        await proxied.run(work)
    assert work.tries == 1
    assert await ledger.notes() == ["a"]  # this time it had


async def test_a_commit_never_arrives_and_run_says_unknown(
    proxy: Proxy, proxied: Database, ledger: Ledger
) -> None:
    work = Work("a")
    proxy.on_bytes("upstream", b"COMMIT;", proxy.reset)
    with pytest.raises(OutcomeUnknown):
        await proxied.run(work)
    assert work.tries == 1
    assert await ledger.notes() == []  # this time it had not


async def test_the_answer_of_a_commit_is_lost_and_an_idempotent_run_is_repeated(
    proxy: Proxy, proxied: Database, ledger: Ledger
) -> None:
    work = Work("a", Ledger.PUT_AGAIN)
    proxy.on_bytes("downstream", b"COMMIT\0", proxy.reset)
    assert await proxied.run(work, idempotent=True) == 2
    assert await ledger.notes() == ["a"]


async def test_the_answer_of_a_write_is_lost_and_it_says_unknown(
    proxy: Proxy, proxied: Database, ledger: Ledger
) -> None:
    proxy.on_bytes("downstream", b"INSERT 0 1", proxy.reset)
    with pytest.raises(OutcomeUnknown):
        await proxied.write(Ledger.PUT, "a")
    assert await ledger.notes() == ["a"]


async def test_the_answer_of_an_idempotent_write_is_lost_and_it_is_repeated(
    proxy: Proxy, proxied: Database, ledger: Ledger
) -> None:
    proxy.on_bytes("downstream", b"INSERT 0 1", proxy.reset)
    await proxied.write(Ledger.PUT_AGAIN, "a", idempotent=True)
    assert await ledger.notes() == ["a"]
    assert retries(proxied) == 1


async def test_the_answer_of_a_block_is_lost_and_it_says_unknown(
    proxy: Proxy, proxied: Database, ledger: Ledger
) -> None:
    proxy.on_bytes("downstream", b"COMMIT\0", proxy.reset)
    with pytest.raises(OutcomeUnknown):
        async with proxied.transaction() as tx:
            await tx.execute(Ledger.PUT, "a")
    assert await ledger.notes() == ["a"]


@pytest.mark.usefixtures("impatient")
async def test_what_may_have_happened_stays_unknown_though_the_repetitions_could_not_connect(
    proxy: Proxy, proxied: Database, ledger: Ledger
) -> None:
    def vanish() -> None:
        proxy.refuse()
        proxy.reset()

    proxy.on_bytes("downstream", b"INSERT 0 1", vanish)
    with pytest.raises(OutcomeUnknown):
        await proxied.write(Ledger.PUT_AGAIN, "a", idempotent=True)
    assert await ledger.notes() == ["a"]
    assert retries(proxied) == limits.ATTEMPTS_MAX - 1


@pytest.mark.usefixtures("impatient")
async def test_a_write_without_an_answer_is_unknown_after_its_time(
    proxy: Proxy, proxied: Database, ledger: Ledger
) -> None:
    await proxied.fetchval("select 1")
    proxy.on_bytes("upstream", b"insert into note", proxy.cut_downstream)
    with pytest.raises(OutcomeUnknown):
        await proxied.write(Ledger.PUT, "a")
    proxy.heal(drop=True)


# --- known not to have happened ---------------------------------------------------------------


async def test_a_transaction_that_breaks_before_its_commit_is_repeated(
    proxy: Proxy, proxied: Database, ledger: Ledger
) -> None:
    work = Work("a")
    proxy.on_bytes("downstream", b"INSERT 0 1", proxy.reset)  # done, but not committed
    assert await proxied.run(work) == 2
    assert await ledger.notes() == ["a"]


async def test_a_block_that_breaks_before_its_commit_is_known_not_to_have_happened(
    proxy: Proxy, proxied: Database, ledger: Ledger
) -> None:
    proxy.on_bytes("downstream", b"INSERT 0 1", proxy.reset)
    with pytest.raises(DatabaseUnavailable):
        async with proxied.transaction() as tx:
            await tx.execute(Ledger.PUT, "a")
    assert await ledger.notes() == []


async def test_a_body_that_swallows_the_loss_of_its_connection_is_repeated(
    proxy: Proxy, proxied: Database, ledger: Ledger
) -> None:
    tries = []

    async def work(tx: Transaction) -> None:
        tries.append(tx)
        try:
            await tx.execute(Ledger.PUT, "a")
        except asyncpg.PostgresError:
            return  # so that a commit is asked for on a connection that is gone

    proxy.on_bytes("downstream", b"INSERT 0 1", proxy.reset)
    await proxied.run(work)
    assert len(tries) == 2
    assert await ledger.notes() == ["a"]


async def test_a_read_is_repeated(proxy: Proxy, proxied: Database) -> None:
    await proxied.fetchval("select 1")
    proxy.on_bytes("upstream", b"select 41", proxy.reset)
    assert await proxied.fetchval("select 41 + 1") == 42
    assert retries(proxied) == 1


async def test_connections_that_broke_while_idle_do_not_show(
    proxy: Proxy, proxied: Database, ledger: Ledger
) -> None:
    await asyncio.gather(*(proxied.fetchval("select pg_sleep(0.01)") for _ in range(10)))
    assert proxy.connections > 1
    proxy.reset()
    await proxied.run(Work("a"))
    assert await ledger.notes() == ["a"]


@pytest.mark.usefixtures("impatient")
async def test_a_database_that_is_down_is_unavailable_after_bounded_tries(
    proxy: Proxy, proxied: Database, ledger: Ledger
) -> None:
    proxy.refuse()
    proxy.reset()
    for call in (
        proxied.fetch("select 1"),
        proxied.write(Ledger.PUT, "a"),
        proxied.run(Work("a")),
        proxied.write(Ledger.PUT, "a", idempotent=True),
    ):
        with pytest.raises(DatabaseUnavailable, match=r"cannot connect to the database at 127"):
            await call
    assert retries(proxied) == 4 * (limits.ATTEMPTS_MAX - 1)
    assert await ledger.notes() == []


@pytest.mark.usefixtures("impatient")
async def test_a_database_that_does_not_even_refuse_is_unavailable(
    proxy: Proxy, proxied: Database
) -> None:
    proxy.cut()
    with pytest.raises(DatabaseUnavailable, match="TimeoutError"):
        await proxied.fetch("select 1")
    proxy.heal(drop=True)
    assert await proxied.fetchval("select 1") == 1


async def test_a_call_outlasts_a_short_outage(
    proxy: Proxy, proxied: Database, ledger: Ledger
) -> None:
    proxy.refuse()
    proxy.reset()
    call = asyncio.ensure_future(proxied.write(Ledger.PUT, "a"))
    async with asyncio.timeout(30):
        while retries(proxied) == 0:
            await asyncio.sleep(0.001)
    proxy.heal()
    await call
    assert await ledger.notes() == ["a"]


@pytest.mark.usefixtures("impatient")
async def test_a_statement_of_a_transaction_without_an_answer_is_known_not_to_have_happened(
    proxy: Proxy, proxied: Database, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "RETRY_SECONDS_MAX", 0.2)
    proxy.on_bytes("upstream", b"insert into note", proxy.cut)
    with pytest.raises(DatabaseUnavailable):
        await proxied.run(Work("a"))
    proxy.heal(drop=True)
    assert await ledger.notes() == []


# --- groups -----------------------------------------------------------------------------------


async def test_the_fate_of_a_group_is_told_to_all_its_callers_and_to_nobody_else(
    proxy: Proxy, proxied: Database, ledger: Ledger
) -> None:
    async def statement(notes: Sequence[str]) -> list[None]:
        await proxied.write("insert into note (id) select unnest($1::text[])", list(notes))
        return [None] * len(notes)

    group: Group[str, None] = Group("notes", statement)
    await group.call("first")
    proxy.on_bytes("downstream", b"INSERT 0 9", proxy.reset)
    answers = await asyncio.gather(
        *(group.call(str(number)) for number in range(9)), return_exceptions=True
    )
    assert [type(answer) for answer in answers] == [OutcomeUnknown] * 9
    await group.call("last")
    assert await ledger.notes() == ["first", *map(str, range(9)), "last"]


async def test_one_bad_row_does_not_fail_its_neighbours(proxied: Database, ledger: Ledger) -> None:
    async def statement(notes: Sequence[str]) -> list[None]:
        await proxied.write("insert into note (id) select unnest($1::text[])", list(notes))
        return [None] * len(notes)

    group: Group[str, None] = Group("notes", statement)
    await group.call("b")
    answers = await asyncio.gather(*(group.call(note) for note in "abcde"), return_exceptions=True)
    assert [type(answer).__name__ for answer in answers] == [
        "NoneType",
        "UniqueViolationError",
        *["NoneType"] * 3,
    ]
    assert sorted(await ledger.notes()) == ["a", "b", "c", "d", "e"]
