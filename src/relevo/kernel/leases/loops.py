"""Leader-only housekeeping: small periodic duties that one host of the installation does.

It runs under a lease like everything else; its owner does the duties, in turn, and a duty
that fails is logged and tried again at its next time.
"""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec import structs

from relevo.kernel.leases.model import SINGLETON
from relevo.kernel.postgres import catalog, clock
from relevo.kernel.postgres.polling import Question
from relevo.kernel.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from relevo.kernel.leases.held import Lease
    from relevo.kernel.leases.service import Leases
    from relevo.kernel.postgres.database import Database
    from relevo.kernel.postgres.wakeups import Wakeups

SQL = catalog.load(__package__)
log = get_logger(__name__)
RARE_SECONDS: Final = 60.0
"""How often a duty is done at least whose question the poll answers."""
FIRST_SECONDS: Final = 5.0
"""Duties that no question asks for measure or clean up, and have time: a new leader first catches
up with the others, and a host that starts gets to its handlers."""


class Duty:
    """Something to be done every so many seconds by one host.

    With a `question` the host's poll asks it as often, and the work is done when the answer says
    so, and once a minute.
    """

    def __init__(
        self, name: str, every: float, work: Callable[[], Awaitable[object]],
        question: Question | None = None,
    ) -> None:  # fmt: skip
        self.name = name
        self.every = every
        self.work = work
        self.question = None if question is None else structs.replace(question, every=every)
        self.failures = 0

    @property
    def first(self) -> float:
        """Seconds until a new leader does it."""
        return min(self.every, FIRST_SECONDS) if self.question is None else 0.0


class Housekeeping:
    """The duties of the leader; parts add theirs before the host starts."""

    def __init__(self, database: Database, wakeups: Wakeups) -> None:
        self._wakeups = wakeups
        self.duties = [
            Duty(
                "raise the clock's mark", 1.0, lambda: clock.raise_mark(database),
                Question(clock.MARK_BEHIND),
            ),
            Duty(
                "end lapsed hosts", 5.0, lambda: database.write(SQL.end_lapsed_hosts),
                Question(SQL.lapsed_hosts),
            ),
            Duty(
                "forget ended hosts", 5.0, lambda: database.write(SQL.forget_hosts),
                Question(SQL.forgettable_hosts),
            ),
        ]  # fmt: skip

    async def join(self, leases: Leases) -> None:
        """Be a candidate for leading."""
        await leases.join("housekeeping", "main", self._lead, leases=["leader"], settings=SINGLETON)

    async def _lead(self, lease: Lease) -> None:
        loop = asyncio.get_running_loop()
        due = {duty: loop.time() + duty.first for duty in sorted(self.duties, key=_first)}
        with self._wakeups.signal() as woken, contextlib.ExitStack() as asking:

            def tell(duty: Duty) -> None:
                due[duty] = 0.0
                woken.set()

            for duty in self.duties:
                if duty.question is not None:
                    asking.enter_context(
                        self._wakeups.polling.asking(duty.question, partial(tell, duty))
                    )
            while not lease.stopping.is_set():
                for duty in due:
                    if due[duty] <= loop.time() and lease.may_act:
                        due[duty] = loop.time() + self._seconds_between(duty)
                        await self._do(duty)
                await lease.until_stopping(woken, max(0.05, min(due.values()) - loop.time()))

    def _seconds_between(self, duty: Duty) -> float:
        """Return how long nothing needs to be done unless the poll says so."""
        asked = duty.question is not None and self._wakeups.polling.answers
        return max(duty.every, RARE_SECONDS) if asked else duty.every

    async def _do(self, duty: Duty) -> None:
        try:
            await duty.work()
            duty.failures = 0
        except Exception as error:
            duty.failures += 1
            log.warning(
                "housekeeping.failed", duty=duty.name, error=f"{type(error).__name__}: {error}"
            )


def _first(duty: Duty) -> float:
    return duty.first
