"""Live pages: the parts of a page that changed are sent to everyone who has it open.

Viewers of the same page share one sampler, and all samplers of a host share one turn: they load one
after the other, each followed by a pause of one second for every call it made. So a host makes at
most one call per second, however many pages are open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import TYPE_CHECKING, Final

import structlog
from msgspec import Struct

from relevo.errors import RelevoError
from relevo.kernel.operation import Sent

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_log = structlog.get_logger(__name__)
SECONDS_PER_CALL: Final = 1.0
QUIET_SECONDS: Final = 15.0
"""How often a stream says that it is alive when nothing changes."""


class Rendered(Struct, frozen=True):
    """The live parts of a page by their element's id, and how many calls they took."""

    parts: dict[str, str]
    calls: int


Render = Callable[[], Awaitable[Rendered]]


class _Sampler:
    """Renders one page again and again while it has viewers."""

    def __init__(self) -> None:
        self.viewers = 0
        self.parts: dict[str, str] = {}
        self.number = 0
        """How often it has rendered."""
        self.changed = asyncio.Event()
        self.task: asyncio.Task[None] | None = None


class Samplers:
    """The open pages of a host."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._open: dict[Hashable, _Sampler] = {}

    async def follow(self, key: Hashable, render: Render) -> AsyncIterator[Sent | None]:
        """Yield the parts of a page that changed; pages of the same key are rendered once."""
        sampler = self._open.get(key)
        if sampler is None:
            sampler = self._open[key] = _Sampler()
            sampler.task = asyncio.create_task(self._sample(sampler, render), name="live page")
        sampler.viewers += 1
        seen: dict[str, str] = {}
        number = 0
        try:
            while True:
                if sampler.number == number:
                    try:
                        async with asyncio.timeout(QUIET_SECONDS):
                            await sampler.changed.wait()
                    except TimeoutError:
                        yield None
                        continue
                number = sampler.number
                parts = {
                    name: text for name, text in sampler.parts.items() if seen.get(name) != text
                }
                seen = sampler.parts
                yield Sent(event="parts", data=parts)
        finally:
            sampler.viewers -= 1
            if not sampler.viewers:
                if self._open.get(key) is sampler:
                    del self._open[key]
                assert sampler.task is not None
                sampler.task.cancel()

    async def _sample(self, sampler: _Sampler, render: Render) -> None:
        while True:
            async with self._turn:
                calls = 1
                try:
                    rendered = await render()
                    calls = rendered.calls
                    sampler.parts = rendered.parts
                    sampler.number += 1
                    sampler.changed.set()
                    sampler.changed = asyncio.Event()
                except RelevoError as error:
                    _log.info("live_page_failed", reason=str(error))
                except Exception:
                    _log.exception("live_page_failed")
                await asyncio.sleep(SECONDS_PER_CALL * max(1, calls))
