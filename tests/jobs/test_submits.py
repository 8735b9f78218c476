"""What is asked for at submit counts in every way of submitting, or is refused (12)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import product
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import asyncpg
import psycopg
import pytest
from psycopg.rows import class_row, dict_row
from sqlalchemy.orm import Session

from relevo.errors import InvalidValue
from relevo.jobs.model import Recurrence
from relevo.jobs.registry import described
from relevo.jobs.submitting import submission
from relevo.jobs.submitting.submission import SQL
from tests.jobs.test_foreign_submits import by_psycopg, by_sqlalchemy_session

if TYPE_CHECKING:
    from relevo import App
    from tests.jobs.office import Office

pytestmark = pytest.mark.anyio
START = datetime(2040, 5, 6, 7, 8, tzinfo=UTC)


# Transactions of the caller.


async def test_a_named_cursor_of_psycopg_stands_for_its_connection(office: Office) -> None:  # A1
    with psycopg.connect(office.url) as connection, connection.cursor("mine") as cursor:
        job = await office.jobs.submit("work", tx=cursor)
    assert await office.status(job) == 0
    async with (
        await psycopg.AsyncConnection.connect(office.url) as other,
        other.cursor("mine") as named,
    ):
        job = await office.jobs.submit("work", tx=named)
    assert await office.status(job) == 0


async def test_a_cursor_of_the_caller_keeps_its_rows(office: Office) -> None:
    with psycopg.connect(office.url) as connection, connection.cursor() as cursor:
        cursor.execute("select 7")
        await office.jobs.submit("work", tx=cursor)
        assert cursor.fetchone() == (7,)


@pytest.mark.parametrize("factory", [dict_row, class_row(int)])
async def test_rows_of_any_kind_will_do(office: Office, factory: Any) -> None:
    with psycopg.connect(office.url, row_factory=factory) as connection:
        job = await office.jobs.submit("work", tx=connection)
    assert await office.status(job) == 0


async def test_subclasses_are_known_by_what_they_are(office: Office) -> None:
    class Mine(asyncpg.Connection):
        pass

    class Yours(psycopg.Connection[Any]):
        pass

    class Theirs(Session):
        pass

    connection = await asyncpg.connect(office.url, connection_class=Mine)
    async with connection.transaction():
        jobs = [await office.jobs.submit("work", tx=connection)]
    await connection.close()
    with Yours.connect(office.url) as sync:
        jobs.append(await office.jobs.submit("work", tx=sync))
    async for session in by_sqlalchemy_session(office.url):
        with Theirs(session.get_bind()) as own, own.begin():
            jobs.append(await office.jobs.submit("work", tx=own))
    assert [await office.status(one) for one in jobs] == [0, 0, 0]


# Tokens.


async def test_the_token_of_a_handler_counts_however_it_is_submitted(app: App) -> None:  # 4.2
    @app.job("rebuild", token=lambda shard: f"shard {shard}")
    async def rebuild(ctx: Any, shard: UUID, force: bool = False) -> None: ...

    shard = uuid4()
    data = {"shard": str(shard)}
    async with app.database.transaction() as tx:
        jobs = [
            await rebuild.submit(shard),
            await rebuild.submit(shard, force=True),
            await app.jobs.submit("rebuild", data),
            await app.jobs.submit("rebuild", {"shard": shard}, tx=tx),
            *await app.jobs.submit_many("rebuild", [data, {"shard": uuid4()}]),
            await app.jobs.submit("rebuild", data, token="own"),
            await rebuild.using(token="own").submit(shard),
            await app.jobs.submit("rebuild", data, token=""),
        ]
        rows = await tx.fetch("select id, token from relevo.job")
        tokens = {row["id"]: row["token"] for row in rows}
    wanted = f"shard {shard}"
    found = [tokens[one.id] for one in jobs]
    assert found[:5] == [wanted] * 5
    assert found[5].startswith("shard ")
    assert found[5] != wanted
    assert found[6:] == ["own", "own", None]


async def test_a_token_has_the_defaults_of_the_handler(app: App) -> None:  # 4.2
    @app.job("both", token=lambda shard, part: f"{shard}/{part}")
    async def both(ctx: Any, shard: int, part: int = 7) -> None: ...

    @app.job("rest", token=lambda **all_of_it: ",".join(all_of_it))
    async def rest(ctx: Any, /, shard: int, **more: int) -> None: ...

    found = [
        (await (await both.submit(3)).get()).token,
        (await (await app.jobs.submit("both", {"shard": 3})).get()).token,
        (await (await rest.submit(3, a=1)).get()).token,
    ]
    assert found == ["3/7", "3/7", "shard,a"]


async def test_data_from_which_no_token_follows_is_refused(app: App) -> None:
    @app.job("work", token=lambda shard: str(shard))
    async def work(ctx: Any, shard: int) -> None: ...

    for wrong in (None, [1], {}, {"shard": "x"}, {"shard": 1, "other": 2}):
        with pytest.raises(InvalidValue, match="work"):
            await app.jobs.submit("work", wrong)
    assert await app.database.fetchval("select count(*) from relevo.jobs") == 0


# Arguments.


async def test_keyword_arguments_arrive_as_they_were_given(office: Office) -> None:
    app = office.new_app()

    @app.job("any")
    async def any_(ctx: Any, /, a: int, **more: int) -> dict[str, int]:
        return {"a": a, **more}

    def bare(*args: Any, **kwargs: Any) -> dict[str, Any]:
        return {"args": len(args), **kwargs}

    wrapped = app.job("wrapped")(bare)
    await office.serve(app)
    assert await (await any_.submit(1, b=2)).wait(20) == {"a": 1, "b": 2}
    assert await (await wrapped.submit(b=2)).wait(20) == {"args": 1, "b": 2}
    with pytest.raises(InvalidValue, match="give arguments by name"):
        await wrapped.submit(3)


def test_parameters_without_a_name_are_refused_at_once() -> None:
    def positional(ctx: Any, a: int, /) -> None: ...

    def several(ctx: Any, *rest: int) -> None: ...

    def context(ctx: Any, /, a: int) -> None: ...

    for function in (positional, several):
        with pytest.raises(InvalidValue, match="by name"):
            described("work", function)
    assert described("work", context).required == {"a"}


# Recurrence.


async def test_start_and_zone_complete_a_recurrence(office: Office) -> None:  # 7
    daily = Recurrence(pattern="FREQ=DAILY")
    told: Any = {"start": START, "timezone": "Europe/Madrid"}
    for recurrence, options in (
        ("FREQ=DAILY", told), (daily, told), (Recurrence(pattern="FREQ=DAILY", **told), {}),
        (Recurrence(pattern="FREQ=DAILY", **told), told),
    ):  # fmt: skip
        row = await office.row(await office.jobs.submit("work", recurrence=recurrence, **options))
        assert (row["anchor"], row["zone"]) == (START, "Europe/Madrid")


async def test_contradictions_are_refused(office: Office) -> None:  # 7
    told = Recurrence(pattern="FREQ=DAILY", start=START, timezone="Europe/Madrid")
    for options in (
        {"recurrence": told, "start": START + timedelta(days=1)},
        {"recurrence": told, "timezone": "Europe/Paris"},
        {"timezone": "Europe/Paris"},
        {"recurrence": 5},
    ):  # fmt: skip
        with pytest.raises(InvalidValue):
            await office.jobs.submit("work", **options)
    assert await office.database.fetchval("select count(*) from relevo.jobs") == 0


# Many.


async def test_many_take_the_options_of_one(office: Office) -> None:  # 12
    owner = uuid4()
    options: Any = {
        "name": "n", "token": "t", "start": START, "lane": "bulk", "priority": 7, "owner": owner,
        "retain": True, "on_failure": "hold", "system": True, "options": {"depth": 3},
    }  # fmt: skip
    one = await office.jobs.submit("work", {"n": 0}, **options)
    jobs = await office.jobs.submit_many("work", [{"n": 1}, {"n": 2}], **options)
    rows = [dict(await office.row(job)) for job in (one, *jobs)]
    own = ("id", "sequence", "rank", "created_at", "modified_at", "data", "correlation",
           "correlation_at")  # fmt: skip
    assert [row.pop("data") for row in rows] == ['{"n":0}', '{"n":1}', '{"n":2}']
    common = [{key: row[key] for key in row if key not in own} for row in rows]
    assert common[0] == common[1] == common[2]
    with pytest.raises(InvalidValue, match="on_failure"):
        await office.jobs.submit_many("work", [{}], on_failure="stop")


async def test_many_series(office: Office) -> None:  # 7.3
    jobs = await office.jobs.submit_many(
        "work", [{}] * 2, recurrence="FREQ=DAILY", start=START, timezone="Europe/Madrid"
    )
    for job in jobs:
        row = await office.row(job)
        assert (row["series"], row["anchor"], row["zone"]) == (job.id, START, "Europe/Madrid")


async def test_many_are_of_a_transaction(office: Office) -> None:  # A1
    async for tx in by_psycopg(office.url):
        jobs = await office.jobs.submit_many("work", [{"n": n} for n in range(1500)], tx=tx)
        assert await office.database.fetchval("select count(*) from relevo.jobs") == 0
    rows = await office.database.fetch("select id, data from relevo.jobs order by sequence")
    assert [row["id"] for row in rows] == [job.id for job in jobs]
    assert rows[-1]["data"] == '{"n":1499}'
    assert await office.jobs.submit_many("work", []) == []


# Lanes.


async def test_a_lane_in_which_nobody_serves_the_handler_is_refused(office: Office) -> None:  # 4.1
    async def work(ctx: Any) -> str:
        return "done"

    app = await office.host({"work": work})
    for jobs in (app.jobs, office.jobs):  # by what is registered here, and by what hosts have told
        with pytest.raises(InvalidValue, match="'default'"):
            await jobs.submit("work", lane="bulk")
        with pytest.raises(InvalidValue, match="'default'"):
            await jobs.submit_many("work", [{}], lane="bulk")
        async with office.app.database.transaction() as tx:
            with pytest.raises(InvalidValue, match="'default'"):
                await jobs.submit("work", lane="bulk", tx=tx)
        assert await (await jobs.submit("work", lane="default")).wait(20) == "done"
    await office.database.write(
        "update relevo.job_handler set served_at = relevo.now() - interval '1 hour'"
    )
    await office.jobs.submit("work", lane="bulk")  # a host to come may serve it there


async def test_a_submit_in_a_transaction_needs_no_second_connection(office: Office) -> None:
    app = office.new_app(pool_size=1)
    async with app, app.database.transaction() as tx:
        await app.jobs.submit("elsewhere", lane="default", tx=tx)
        job = await app.jobs.submit("elsewhere", recurrence="FREQ=DAILY", tx=tx)
    assert (await office.row(job))["series"] == job.id


async def test_an_empty_pattern_is_none(office: Office) -> None:  # 7.1
    job = await office.jobs.submit("work", recurrence="")
    assert (await office.row(job))["series"] is None


# Values.

FAR = datetime.max.replace(tzinfo=UTC)


@pytest.mark.parametrize(
    "wrong",
    [
        {"handler": None}, {"handler": 5}, {"handler": "\ud800"}, {"name": 5}, {"name": "\ud800"},
        {"token": 5}, {"token": "a\0"}, {"lane": 5}, {"lane": "\0"}, {"priority": 3.5},
        {"priority": "3"}, {"priority": True}, {"owner": "nope"}, {"owner": 5},
        {"start": "2030-01-01T00:00:00Z"}, {"start": 5}, {"start": FAR}, {"options": 5},
        {"timezone": 5, "recurrence": "FREQ=DAILY"},
        {"options": {"a": object()}}, {"options": {"message_name": "\0"}},
    ],
    ids=lambda wrong: next(iter(wrong)),
)  # fmt: skip
async def test_wrong_types_are_refused_by_name(office: Office, wrong: dict[str, Any]) -> None:
    (name, *_) = wrong
    with pytest.raises(InvalidValue, match=name):
        await office.jobs.submit(**{"handler": "work", **wrong})
    with pytest.raises(InvalidValue, match=name):
        await office.jobs.submit_many(**{"handler": "work", "data": [{}], **wrong})


async def test_keys_are_uuids_or_their_text(office: Office) -> None:
    owner = uuid4()
    assert (await office.row(await office.jobs.submit("work", owner=str(owner))))["owner"] == owner  # type: ignore[arg-type]
    for wrong in (5, None, "x", b"x" * 16):
        with pytest.raises(InvalidValue, match="UUID"):
            office.jobs.handle(wrong)  # type: ignore[arg-type]


async def test_an_instant_is_a_datetime(office: Office) -> None:
    job = await office.jobs.submit("nobody")
    with pytest.raises(InvalidValue, match="until"):
        await job.postpone("2030-01-01")  # type: ignore[arg-type]


async def test_text_that_only_looks_like_a_null_character_is_data(office: Office) -> None:
    for text in ("\\u0000", "\\\\u0000", "a\\\\\\u0000"):
        assert (await (await office.jobs.submit("work", {"a": text})).get()).data == {"a": text}
    for text in ("\0", "\\\0", "\\\\\0"):
        with pytest.raises(InvalidValue, match="null character"):
            await office.jobs.submit("work", {"a": text})


async def test_a_single_submit_stores_the_row_that_the_function_stores(office: Office) -> None:
    """The statement for single submits, and the function behind all others, mean the same."""
    await office.database.write(
        "insert into relevo.job_lane (name, priority) values ('urgent', true), ('plain', false)"
    )
    await office.database.write(
        "insert into relevo.job_handler (name, lane, priority, operation_type, auto_delete) values"
        " ('known', 'urgent', 7, 54, true), ('usual', 'plain', null, 12, false)"
    )
    handlers, lanes = ("known", "usual", "unknown"), (None, "urgent", "plain")
    for handler, lane, priority, name in product(handlers, lanes, (None, 0, 9), (None, "A name")):
        fields: dict[str, Any] = {
            "handler": handler,
            "lane": lane,
            "priority": priority,
            "name": name,
        }
        job = submission.checked(data={"n": 1}, **fields)
        arrays = submission.columns([job])
        rows = submission.rows_of(arrays)
        assert rows is not None
        single = await stored(office, SQL.submit_rows, *rows)
        assert single == await stored(office, *submission.statement(arrays)), fields
        token = submission.columns([submission.checked(data={"n": 1}, token="t", **fields)])
        chained = await stored(office, *submission.statement(token))
        assert single == {**chained, "token": None, "chain": None, "chained": False}, fields


async def stored(office: Office, sql: str, *arguments: Any) -> dict[str, Any]:
    """Return the row that a statement stores, without what differs from submit to submit."""
    await office.database.write(sql, *arguments)
    row = dict((await office.database.fetch("delete from relevo.job returning *"))[0])
    at = row.pop("created_at")
    assert at == row.pop("modified_at") == row.pop("correlation_at")
    assert row.pop("id") == row.pop("correlation")
    row["rank"] += -int(at.timestamp() * 1_000_000)
    row["rank"] = round(row["rank"] / 1_000_000)  # floats know no microseconds
    return {name: value for name, value in row.items() if name != "sequence"}
