"""Stateless event processors in front of exclusive CSV writers, on two hosts."""

from __future__ import annotations

import asyncio
import csv
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import Struct

from relevo import App, CsvSink, settings
from relevo.actors import Actor, Interface

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.anyio
EVENTS = 2_000


class SomeEvent(Struct):
    id: int
    type: int
    text: str


class EventProcessor(Interface):
    async def process_event(self, event: SomeEvent) -> int: ...


class Site:
    """A host, and what its processors do."""

    def __init__(self, url: str, home: Path, name: str) -> None:
        chosen = {"database_url": url, "home": home / "home", "host_name": name}
        self.app = App(settings=settings.load(chosen, environ={}))
        self.live = self.most = self.processed = 0
        writer = self.app.governance.writer(
            "events", sink=CsvSink(home / "{key}.csv", ["id", "text"]), max_delay=0.02
        )
        site = self

        @self.app.stateless("event-processor", implements=EventProcessor, max_local=4)
        class EventProcessorActor(Actor[None]):
            async def on_activate(self) -> None:
                site.live += 1
                site.most = max(site.most, site.live)

            async def on_deactivate(self, reason: str) -> None:
                site.live -= 1

            async def process_event(self, event: SomeEvent) -> int:
                site.processed += 1
                receipt = await writer[f"type-{event.type}"].write(
                    {"id": event.id, "text": event.text.upper()}, id=str(event.id)
                )
                assert receipt.number is not None
                return receipt.number


async def test_events_are_processed_in_parallel_and_written_by_one_writer_each(
    relevo_url: str, tmp_path: Path
) -> None:
    sites = [Site(relevo_url, tmp_path, name) for name in ("one", "two")]
    chosen = {"database_url": relevo_url, "home": tmp_path / "home"}
    client = App(settings=settings.load(chosen, environ={}))
    async with sites[0].app.host(), sites[1].app.host(), client:
        processor: Any = client.stateless(EventProcessor, type="event-processor")
        events = [SomeEvent(number, number % 3, f"event {number}") for number in range(EVENTS)]
        numbers = await asyncio.gather(*(
            processor.with_(timeout=60).process_event(event) for event in events
        ))  # fmt: skip
    for kind in range(3):
        with (tmp_path / f"type-{kind}.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        expected = {(str(one.id), one.text.upper()) for one in events if one.type == kind}
        assert {(row["id"], row["text"]) for row in rows} == expected
        assert len(rows) == len(expected)  # I41: each event once
        for event in events:
            if event.type == kind:  # I43: its place is that which its caller was told
                assert rows[numbers[event.id] - 1]["id"] == str(event.id)
    assert all(1 <= site.most <= 4 for site in sites)  # I38
    assert sum(site.processed for site in sites) >= EVENTS
