"""Nothing of Relevo's is compiled just in time, which takes longer than to run a quick claim.

The server has `jit = on`, like Debian's and most vendors', and here compiles every statement that
it may. `auto_explain` notes those that it did compile.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import asyncpg
import pytest

from relevo import App, settings
from tests.kernel.postgres.errand import run_errands
from tests.kernel.postgres.servers import debian_server, pgbouncer

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.anyio

ACCESS: Final = "local all all trust\nhost all all 127.0.0.1/32 trust\n"
EAGER: Final = {
    "jit": "on", "jit_above_cost": "0", "max_connections": "50", "logging_collector": "on",
    "shared_preload_libraries": "auto_explain", "auto_explain.log_min_duration": "0",
    "auto_explain.log_analyze": "on", "auto_explain.log_nested_statements": "on",
}  # fmt: skip
_CALL: Final = re.compile(r"\s*Query Text: (/\*relevo |select .*?relevo\.\w+\()")
"""A statement of the caller's, which only calls a function."""
JOBS: Final = 1_000
"""Enough for several parcels."""


@contextmanager
def way(url: str, through: str) -> Iterator[str]:
    if through == "direct":
        yield url
    else:
        with pgbouncer(url) as bounced:
            yield bounced


async def compiled(admin: asyncpg.Connection) -> list[str]:
    """The statements that were compiled so far."""
    log = await admin.fetchval("select pg_read_file(pg_current_logfile())")
    entries = log.split("duration: ")[1:]
    assert entries, "auto_explain notes nothing"
    return [entry.partition("\n")[2][:300] for entry in entries if "\n\tJIT:" in entry]


@pytest.mark.parametrize("through", ["direct", "pooler"])
async def test_no_statement_of_a_host_is_compiled(through: str) -> None:
    with debian_server(ACCESS, EAGER, {}) as port:
        direct = f"postgresql://relevo@127.0.0.1:{port}/relevo"
        with way(direct, through) as url:
            await run_errands(url)
            app = App(settings=settings.load({"database_url": url}, environ={}))
            done = asyncio.Semaphore(0)

            @app.job("quick")
            async def quick(ctx: object) -> None:
                done.release()

            async with app.host(), asyncio.timeout(120):
                await app.jobs.submit_many("quick", [{}] * JOBS)
                for _ in range(JOBS):
                    await done.acquire()
        admin = await asyncpg.connect(direct, statement_cache_size=0)
        assert [one for one in await compiled(admin) if "relevo" in one] == []
        await admin.close()


async def test_functions_for_callers_compile_nothing_in_their_sessions() -> None:
    with debian_server(ACCESS, EAGER, {}) as port:
        url = f"postgresql://relevo@127.0.0.1:{port}/relevo"
        async with App(settings=settings.load({"database_url": url}, environ={})) as app:
            orders, mail = app.container("orders", partition_key="/city"), app.queue("mail")
            await orders.upsert({"id": "0", "city": "Vigo"})
            await mail.ensure()
            caller = await asyncpg.connect(url, statement_cache_size=0)
            await caller.execute("select count(*) from pg_class /* of the caller */")
            for text in (
                "select relevo.submit_job('receipt', '{}')",
                """select relevo.put_item('orders', '{"id": "1", "city": "Vigo"}')""",
                "select relevo.send_message('mail', 'first')",
            ):
                await caller.execute(text)
            async with caller.transaction():
                await app.jobs.submit("receipt", tx=caller)
                await orders.upsert({"id": "2", "city": "Vigo"}, tx=caller)
                await mail.send(b"second", tx=caller)
            found = await compiled(caller)
            await caller.close()
    assert any("of the caller" in one for one in found)  # which shows that this test sees it
    inner = [one for one in found if "relevo." in one and not _CALL.match(one)]
    assert [text.split("\n", 1)[0] for text in inner] == []
