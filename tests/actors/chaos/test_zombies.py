"""A host that stands still before or in a sink write, past the end of its lease."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from relevo.actors import ActorRef
from relevo.errors import RelevoError
from tests.actors.chaos.programs import FOLDER, define
from tests.actors.hosts.site import open_site

if TYPE_CHECKING:
    from pathlib import Path

    from relevo.governance.writers import KeyWriter
    from relevo.kernel.postgres import Database

pytestmark = pytest.mark.anyio
WRITER = ActorRef.of("relevo.writer", "direct:x")
EVENTS = 5


async def write(writer: KeyWriter, event: str) -> None:
    """Write an event until it is accepted; its id makes it single."""
    while True:
        try:
            await writer.write(event, id=event)
        except RelevoError:
            await asyncio.sleep(0.1)
        else:
            return


@pytest.mark.parametrize(
    "point", ["before_flush", "mid_sink_write", "before_sink_record", "after_flush"]
)
async def test_a_writer_that_stood_still_leaves_each_event_once(
    database: Database, relevo_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:  # I4, I6, I41, I42, I43
    monkeypatch.setenv(FOLDER, str(tmp_path))
    program = "tests.actors.chaos.programs:everything"
    async with open_site(
        database, relevo_url, program, environment={FOLDER: str(tmp_path)}
    ) as site:
        await site.start("a", "b")
        writer = define(site.app).direct["x"]
        await write(writer, "first")
        faults = site.cluster.faults
        faults.arm(point, "stop")  # whoever owns the writer by then: its slot may be on its way
        writes = [asyncio.create_task(write(writer, f"e{n}")) for n in range(EVENTS)]
        await faults.reached(point)
        faults.disarm(point)
        owner = await site.app.actors.owner(WRITER)
        assert owner is not None

        async def moved() -> bool:
            return await site.app.actors.owner(WRITER) not in (None, owner)

        await site.cluster.until(moved, "another host owns the writer")
        later = asyncio.create_task(write(writer, "later"))
        site.cluster.nodes[owner].thaw()
        async with asyncio.timeout(90):
            await asyncio.gather(*writes, later)
        lines = (tmp_path / "direct-x.log").read_text().splitlines()
        assert lines[0] == "first"
        assert sorted(lines) == sorted(["first", "later", *(f"e{n}" for n in range(EVENTS))])
