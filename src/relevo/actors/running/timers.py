"""Timers of an activation: turns after a delay, or again and again while it is in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from relevo.actors.running.turn import FunctionWork
from relevo.errors import InvalidValue
from relevo.kernel import error_text
from relevo.kernel.telemetry.logs import get_logger

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from relevo.actors.running.activation import Activation

log = get_logger(__name__)
SECONDS_MIN: Final = 0.001


class _Timer:
    __slots__ = ("arguments", "every", "handle", "is_over", "keep_alive", "method", "name")

    def __init__(
        self, name: str, method: Callable[..., Any], arguments: tuple[Any, ...],
        every: float | None, *, keep_alive: bool,
    ) -> None:  # fmt: skip
        self.name = name
        self.method = method
        self.arguments = arguments
        self.every = every
        self.keep_alive = keep_alive
        self.handle: asyncio.TimerHandle | None = None
        self.is_over = False


class Timers:
    """The timers of one activation, by name; they stop when it is deactivated."""

    def __init__(self, activation: Activation) -> None:
        self._activation = activation
        self._timers: dict[str, _Timer] = {}
        self._closed = False

    def set(
        self,
        name: str,
        method: Callable[..., Any],
        *arguments: Any,
        every: float | None = None,
        after: float | None = None,
        keep_alive: bool = False,
    ) -> None:
        """Call a method as a turn after `after` seconds, then `every` so many; replaces its name.

        The period counts from the end of a tick to the start of the next, so that ticks never
        overlap. Without `keep_alive` ticks alone do not keep the actor in memory.
        """
        if every is None and after is None:
            raise InvalidValue("a timer needs every= or after=, in seconds")
        for seconds in (every, after):
            if seconds is not None and not seconds >= (0.0 if seconds is after else SECONDS_MIN):
                raise InvalidValue(f"a timer cannot run after {seconds!r} seconds")
        self.cancel(name)
        timer = _Timer(name, method, arguments, every, keep_alive=keep_alive)
        self._timers[name] = timer
        first = after if after is not None else every
        assert first is not None
        self._schedule(timer, first)

    def cancel(self, name: str) -> bool:
        """Stop a timer; False if there is none of that name."""
        timer = self._timers.pop(name, None)
        if timer is None:
            return False
        self._end(timer)
        return True

    def close(self) -> None:
        """Stop all, for good."""
        self._closed = True
        for timer in self._timers.values():
            self._end(timer)
        self._timers.clear()

    @property
    def names(self) -> list[str]:
        """The timers that are set."""
        return sorted(self._timers)

    def _end(self, timer: _Timer) -> None:
        timer.is_over = True
        if timer.handle is not None:
            timer.handle.cancel()

    def _schedule(self, timer: _Timer, seconds: float) -> None:
        if not self._closed:
            timer.handle = self._activation.home.call_later(seconds, self._tick, timer)

    def _tick(self, timer: _Timer) -> None:
        async def begin(_: Any) -> None:
            if not timer.is_over:
                await self._activation.home.invoke(timer.method, *timer.arguments)

        def finish(_: Any, error: BaseException | None) -> None:
            if error is not None:
                log.warning(
                    "actor.timer_failed", actor=self._activation.canonical, timer=timer.name,
                    error=error_text.shown(error),
                )  # fmt: skip
            if timer.every is None:
                if self._timers.get(timer.name) is timer:
                    del self._timers[timer.name]
            elif not timer.is_over:
                self._schedule(timer, timer.every)

        if timer.keep_alive:
            self._activation.touch()
        self._activation.admit(FunctionWork(f"timer {timer.name}", function=begin, ended=finish))
