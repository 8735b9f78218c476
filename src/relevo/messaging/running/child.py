"""The messages of a handler with `process=True` in its process; the host carries out its calls."""

from __future__ import annotations

import asyncio
import inspect
import time
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from relevo.errors import Conflict, InvalidValue
from relevo.kernel import callables, checking
from relevo.kernel.running.places import found_at
from relevo.messaging.running.claims import Delivery
from relevo.messaging.running.context import EntityNames, Received
from relevo.messaging.running.processes import encoded

if TYPE_CHECKING:
    from datetime import timedelta

    from relevo.kernel.running.child import ChildRun

LOOK_SECONDS: Final = 0.25
"""How often a handler that waits to be asked for its slot looks."""


class ChildReceived(Received):
    """A message as a handler in its own process sees it.

    In a coroutine its calls are awaited; in a plain function they wait until they are done.
    """

    def __init__(self, run: ChildRun, number: int, data: dict[str, Any]) -> None:
        delivery = msgspec.convert(data["delivery"], Delivery, strict=False)
        names = msgspec.convert(data["names"], EntityNames, strict=False, str_keys=True)
        super().__init__(delivery, _NO_SETTLING, names)
        self._run = run
        self._number = number

    @property
    def preempt_requested(self) -> bool:  # type: ignore[override]
        """As `Received.preempt_requested`; asks the host."""
        return self.preempt_deadline is not None

    @property
    def preempt_deadline(self) -> datetime | None:  # type: ignore[override]
        """As `Received.preempt_deadline`; asks the host."""
        text = self._run.ask("preempt", of=self._number)
        return None if text is None else datetime.fromisoformat(text)

    def complete(self, *, tx: Any = None) -> Any:
        """As `Received.complete`."""
        return self._ask("complete", tx)

    def abandon(
        self,
        *,
        delay: float | timedelta | None = None,
        until: datetime | None = None,
        tx: Any = None,
    ) -> Any:
        """As `Received.abandon`."""
        seconds = None if delay is None else checking.seconds(delay)
        return self._ask("abandon", tx, delay=seconds, until=until and until.isoformat())

    def defer(self, *, tx: Any = None) -> Any:
        """As `Received.defer`."""
        return self._ask("defer", tx)

    def dead_letter(
        self, reason: str | None = None, description: str | None = None, *, tx: Any = None
    ) -> Any:
        """As `Received.dead_letter`."""
        return self._ask("dead_letter", tx, reason=reason, description=description)

    def release(self, *, tx: Any = None) -> Any:
        """As `Received.release`."""
        return self._ask("release", tx)

    def suspend(self, checkpoint: bytes | None = None) -> Any:
        """As `Received.suspend`."""
        return self._ask("suspend", checkpoint=encoded(checkpoint))

    def renew(self) -> Any:
        """As `Received.renew`."""
        return self._ask("renew")

    def save(self, checkpoint: bytes) -> Any:
        """As `Received.save`."""
        self.checkpoint = checkpoint
        return self._ask("save", checkpoint=encoded(checkpoint))

    def preempted(self) -> Any:
        """As `Received.preempted`."""
        return asyncio.to_thread(self._look) if _loop_runs() else self._look()

    def _look(self) -> None:
        while not self.preempt_requested:
            time.sleep(LOOK_SECONDS)

    def transaction(self) -> Any:
        """Refused: the connection belongs to the host's process."""
        raise _elsewhere("msg.transaction")

    def _ask(self, kind: str, tx: Any = None, **fields: Any) -> Any:
        if tx is not None:
            raise _elsewhere("tx")
        ask = partial(self._run.ask, kind, of=self._number, **fields)
        return asyncio.to_thread(ask) if _loop_runs() else ask()


def _loop_runs() -> bool:
    try:
        return asyncio.get_running_loop() is not None
    except RuntimeError:
        return False


def _elsewhere(what: str) -> Conflict:
    return Conflict(
        f"{what} is not available with process=True, because the host has the connection; leave"
        " out process=True"
    )


_NO_SETTLING: Any = None


def called(run: ChildRun, order: dict[str, Any]) -> Any:
    """Call the handler that an order names, and return its result."""
    function = _resolved(order["handler"], order["main"])
    messages = [ChildReceived(run, n, data) for n, data in enumerate(order["messages"])]
    given: Any = messages if order["batch"] else messages[0]
    if callables.is_async(function):
        return asyncio.run(callables.call(function, given))
    value = function(given)
    return asyncio.run(callables.settled(value)) if inspect.isawaitable(value) else value


def _resolved(path: str, main: str | None) -> Any:
    """Return the handler that stands at `module:name`, or behind consumers that stand there."""
    found = found_at(path, main)
    function = getattr(found, "function", found)
    if not callable(function):
        raise InvalidValue(f"{path} is not a function in the process of the handler: {found!r}")
    return function
