"""Live pages: the parts of a page that changed are sent to everyone who has it open.

Viewers of the same page who may do the same share one sampler, and all samplers of a host share one
pace: each rendering is followed by a pause of one second for every statement that the page needs.
So a host sends at most one statement per second, however many pages are open. A slow page holds up
no other: it is given up after `RENDER_SECONDS`, and a few pages load side by side.
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
SECONDS_PER_STATEMENT: Final = 1.0
RENDER_SECONDS: Final = 10.0
"""How long a page may take; a page that takes longer rests for as long."""
SIDE_BY_SIDE: Final = 3
"""Pages that a host renders at the same time: as many connections they use at most."""
QUIET_SECONDS: Final = 15.0
"""How often a stream says that it is alive when nothing changes."""


class Rendered(Struct, frozen=True):
    """The live parts of a page by their element's id, and how many statements they took."""

    parts: dict[str, str]
    statements: int


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


class _Pace:
    """Lets pages begin one after the other, at most one statement per second."""

    def __init__(self, seconds_per_statement: float) -> None:
        self._seconds_per_statement = seconds_per_statement
        self._turn = asyncio.Lock()
        self._free_at = 0.0

    async def wait(self, statements: int) -> None:
        """Return when a page that needs so many statements may begin."""
        async with self._turn:
            loop = asyncio.get_running_loop()
            await asyncio.sleep(self._free_at - loop.time())
            self._free_at = loop.time() + self._seconds_per_statement * max(1, statements)


class Samplers:
    """The open pages of a host."""

    def __init__(
        self,
        *,
        seconds_per_statement: float = SECONDS_PER_STATEMENT,
        render_seconds: float = RENDER_SECONDS,
    ) -> None:
        self._pace = _Pace(seconds_per_statement)
        self._render_seconds = render_seconds
        self._rendering = asyncio.Semaphore(SIDE_BY_SIDE)
        self._open: dict[Hashable, _Sampler] = {}

    def __len__(self) -> int:
        return len(self._open)

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
        statements = 1
        while True:
            await self._pace.wait(statements)
            try:
                async with self._rendering, asyncio.timeout(self._render_seconds):
                    rendered = await render()
            except TimeoutError:
                _log.info("live_page_slow", seconds=self._render_seconds)
                await asyncio.sleep(self._render_seconds)
            except RelevoError as error:
                _log.info("live_page_failed", reason=str(error))
            except Exception:
                _log.exception("live_page_failed")
            else:
                statements = rendered.statements
                sampler.parts = rendered.parts
                sampler.number += 1
                sampler.changed.set()
                sampler.changed = asyncio.Event()
