"""How the parts of a worker run beside each other: they wake each other, and end together."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


class Pulse:
    """Wakes everybody who waits when something has changed; whoever wakes looks what it was."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def beat(self) -> None:
        """Wake all who wait now."""
        self._event.set()
        self._event = asyncio.Event()

    async def wait(self) -> None:
        """Wait for the next beat."""
        await self._event.wait()


async def together(
    parts: list[Coroutine[Any, Any, None]],
    end: Callable[[], None],
    patient: tuple[type[Exception], ...],
) -> None:
    """Run all parts to their end, which the first that fails brings about; its error is raised.

    `end` asks the others to end. They may take their time if the error is a `patient` one; with any
    other they are cancelled.
    """
    tasks = [asyncio.ensure_future(part) for part in parts]
    pending, errors = set(tasks), list[BaseException]()
    try:
        while pending and all(isinstance(one, patient) for one in errors):
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_EXCEPTION)
            errors += [error for one in done if (error := one.exception()) is not None]
            if errors:
                end()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    if errors:
        raise next((one for one in errors if not isinstance(one, patient)), errors[0])
