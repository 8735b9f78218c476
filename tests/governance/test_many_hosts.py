"""The kit over two hosts and a client: one bound, one writer, whoever calls."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from relevo import App
from relevo.actors import Actor, Interface
from relevo.actors.definitions import NoState
from relevo.governance.core.windows import Rate
from relevo.governance.sinks import FileSink

if TYPE_CHECKING:
    from pathlib import Path


class Plain(Interface):
    async def greet(self) -> str: ...


class PlainActor(Actor[NoState]):
    async def greet(self) -> str:
        return "hello"


pytestmark = pytest.mark.anyio


async def test_hosts_and_clients_share_pools_limits_and_writers(
    relevo_url: str, tmp_path: Path
) -> None:
    apps = [App(relevo_url, host_name=name) for name in ("first", "second", "client")]
    pools = [app.governance.pool("erp", size=4) for app in apps]
    limits = [app.governance.limit("mail", rates=[Rate(10, per=86_400)]) for app in apps]
    sink = FileSink(tmp_path / "{key}.log")
    writers = [app.governance.writer("log", sink=sink) for app in apps]
    running = most = 0

    async def use(number: int) -> bool:
        nonlocal running, most
        async with pools[number].lease(f"host {number}", timeout=60):
            running += 1
            most = max(most, running)
            await writers[number]["all"].write(str(number))
            running -= 1
        return bool(await limits[number].try_acquire())

    first, second, client = apps
    async with first, first.host(), second, second.host(), client:
        admitted = await asyncio.gather(*(use(number % 3) for number in range(60)))
        owners = {
            lease.owner for lease in await first.directory.leases(kind="actors", unit="relevo")
        }
    assert most <= 4  # I44
    assert sum(admitted) == 10  # I46
    assert owners <= {"first", "second"}
    lines = (tmp_path / "all.log").read_text().splitlines()
    assert sorted(lines) == sorted(str(number % 3) for number in range(60))  # I41


async def test_all_hosts_serve_pools_and_only_some_serve_what_their_programs_define(
    relevo_url: str, tmp_path: Path
) -> None:
    """A host that uses a pool, one that writes, and one that uses nothing of the kit itself."""
    writing, pooling, plain = (App(relevo_url, host_name=name) for name in ("w", "p", "n"))
    writer = writing.governance.writer("log", sink=FileSink(tmp_path / "{key}.log"))
    users = writing.governance.resolver("users", assign=lambda user: f"p{len(user) % 2}")
    pool = pooling.governance.pool("erp", size=4)
    plain.actor("plain", implements=Plain)(PlainActor)

    async def owners(unit: str) -> set[str | None]:
        return {one.owner for one in await plain.directory.leases(kind="actors", unit=unit)}

    async with plain, plain.host(), pooling, pooling.host(), writing, writing.host():
        async with asyncio.timeout(60):
            while await owners("relevo") != {"w", "p", "n"}:
                await asyncio.sleep(0.05)
        await users.add_resource("db")
        await users.add_partition("p0", on="db")
        await users.add_partition("p1", on="db")

        async def use(number: int) -> None:
            async with pool.lease(f"key {number}"):
                await writer[f"{number}"].write("x")

        await asyncio.gather(*map(use, range(40)))
        assert (await users.resolve("ana")).partition == "p1"
        assert await owners("relevo.defined") == {"w"}
