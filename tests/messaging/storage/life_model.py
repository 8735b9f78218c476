"""What a message ought to be, by the table of states, and the site on which that is tried."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from relevo import App
from relevo.messaging import SqlRule
from relevo.messaging.core import times
from relevo.messaging.model import PriorityClass
from relevo.messaging.states import ACTIVE, DEAD, LOCKED, RELOCKED, next_state
from tests.jobs.office import told
from tests.messaging.storage.rows import Rows

if TYPE_CHECKING:
    from collections.abc import Coroutine

DELIVERIES = 3
HELD = (LOCKED, RELOCKED)
RULES: dict[str, str | SqlRule] = {
    "even": "n % 2 = 0", "large": "n > 1", "marked": SqlRule("n > 1", "SET marked = TRUE"),
    "broken": "6 / n = 6",
}  # fmt: skip


def copies(rules: set[str], n: int) -> tuple[int, int]:
    """How many copies of a message there are, and how many dead letters of failed rules."""
    plain = ("even" in rules and n % 2 == 0) or ("large" in rules and n > 1)
    plain = plain or ("broken" in rules and n == 1)
    return plain + ("marked" in rules and n > 1), int("broken" in rules and n == 0)


class Model(Struct):
    """What a message ought to be; times are steps of the clock."""

    place: int
    number: int
    state: str
    expires: int | None
    of: PriorityClass
    priority: int
    tenant: str
    buried: bool = False
    """Whether it is in the dead-letter queue."""
    count: int = 0
    preempts: int = 0
    visible: int | None = None
    token: int | None = None
    host: bool = False
    locked_at: int = 0

    def move(self, event: str) -> None:
        self.state = next_state(self.state, event, in_dead_letters=self.buried)
        if self.state == DEAD:
            self.state, self.buried, self.expires, self.visible = ACTIVE, True, None, None
        if self.state not in HELD:
            self.token, self.host = None, False

    def hold(self, token: int, at: int, *, host: bool = False) -> None:
        self.token, self.locked_at, self.host = token, at, host

    def fail(self, event: Any, time: int, *, keeps_expired: bool, delayed: bool = False) -> None:
        """A delivery failed; `times.failed_delivery` says what that makes of the message."""
        found = times.failed_delivery(
            event, now=times.instant(time), delivery_count=self.count, visible_at=None,
            expires=None if self.expires is None else times.instant(self.expires),
            deferred=self.state == RELOCKED,
            rules=times.DeliveryRules(
                max_delivery_count=DELIVERIES, dead_letter_on_expiration=keeps_expired,
                in_dead_letters=self.buried,
            ),
        )  # fmt: skip
        self.count = found.delivery_count
        if found.event.startswith("expire"):  # it is as if it came back and then expired
            self.move(event)
        self.move(found.event)
        if delayed and self.state == ACTIVE and found.event == "abandon":
            self.visible = time + 1


class Site:
    """A database, a client of it and a connection beside, on a loop of their own."""

    def __init__(self, url: str) -> None:
        self.runner = asyncio.Runner()
        self.stack = AsyncExitStack()
        self.rows = self.do(Rows.open(url))
        self.app = self.do(self.stack.enter_async_context(App(settings=told(url))))

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(work)

    def close(self) -> None:
        self.do(self.stack.aclose())
        self.do(self.rows.db.close())
        self.runner.close()
