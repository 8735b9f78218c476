"""Databases as their administrators made them: few connections, other encodings and collations."""

from __future__ import annotations

import asyncio
from typing import Final

import asyncpg
import pytest

from relevo import App, settings
from tests.kernel.postgres.errand import run_errands
from tests.kernel.postgres.servers import debian_server

pytestmark = pytest.mark.anyio

ACCESS: Final = "local all all trust\nhost all all 127.0.0.1/32 trust\n"
KINDS: Final = {
    "LATIN1": "encoding 'LATIN1' locale 'C'",
    "ICU": "encoding 'UTF8' locale_provider icu icu_locale 'es' locale 'C'",
    "ICU, its own order": (
        "encoding 'UTF8' locale_provider icu icu_locale 'da-u-kf-upper' locale 'C'"
    ),
}


async def test_everything_works_in_databases_of_other_encodings_and_collations() -> None:
    with debian_server(ACCESS, {}, {}) as port:
        place = f"postgresql://relevo@127.0.0.1:{port}"
        admin = await asyncpg.connect(f"{place}/relevo")
        for number, options in enumerate(KINDS.values()):
            await admin.execute(f"create database odd{number} {options} template template0")
            await run_errands(f"{place}/odd{number}")
        await admin.close()


@pytest.mark.parametrize(("connections", "pool_size"), [(4, 2), (20, 10)])
async def test_a_host_works_with_few_connections_in_all(connections: int, pool_size: int) -> None:
    with debian_server(ACCESS, {}, {}) as port:
        admin = await asyncpg.connect(f"postgresql://relevo@127.0.0.1:{port}/relevo")
        await admin.execute(f"create role modest login connection limit {connections}")
        await admin.execute("grant create on database relevo to modest")
        await admin.execute("create schema place authorization modest")
        url = f"postgresql://modest@127.0.0.1:{port}/relevo"
        await run_errands(url, table="place.receipt", pool_size=pool_size)
        app = App(settings=settings.load({"database_url": url, "pool_size": pool_size}, environ={}))

        @app.job("quick")
        async def quick(ctx: object, number: int) -> int:
            return number

        async with app.host(), asyncio.timeout(120):
            jobs = await asyncio.gather(*(quick.submit(number=n) for n in range(200)))
            results = await asyncio.gather(*(job.wait(timeout=100) for job in jobs))
            assert results == list(range(200))
        await admin.close()
