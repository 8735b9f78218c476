"""A part of an app and its life, and the connection that all parts of an app share.

Users hold a part's *service*, such as `app.jobs`; the app holds the `Part`, which does for that
service what belongs to its life. So no user meets `start` or `close`, and a new part is one line:

    self.jobs = self.parts.add(JobsPart(Jobs(connection, settings), settings))
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from relevo.errors import Conflict, RelevoError
from relevo.kernel.supervision import Draining

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from relevo.kernel.leases.loops import Duty
    from relevo.kernel.leases.service import Leases
    from relevo.kernel.postgres.database import Database
    from relevo.kernel.postgres.wakeups import Wakeups
    from relevo.kernel.supervision import Supervisor

S = TypeVar("S")
T = TypeVar("T")
P = TypeVar("P", bound="Part[Any]")


class Connection:
    """The database and wake-ups of an app, from `async with app` on; both are refused before.

    Services are defined before their app connects, so they get this instead of a database.
    """

    def __init__(self, database: Database | None = None, wakeups: Wakeups | None = None) -> None:
        self._opened = (database, wakeups) if database and wakeups else None

    def open(self, database: Database, wakeups: Wakeups) -> None:
        """Connect, or connect anew."""
        self._opened = (database, wakeups)

    @property
    def is_open(self) -> bool:
        """Whether the app has connected."""
        return self._opened is not None

    @property
    def opened(self) -> tuple[Database, Wakeups]:
        """The last opened connection; after the app is closed, it refuses calls."""
        if self._opened is None:
            raise Conflict("the app is not connected; use it inside `async with app`")
        return self._opened


class Service:
    """The public object of a part; it has a database while its app is connected."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    @property
    def database(self) -> Database:
        """The pool; raises `Conflict` before the app is connected."""
        return self.connection.opened[0]

    @property
    def wakeups(self) -> Wakeups:
        """Hints to and from other processes; raises `Conflict` before the app is connected."""
        return self.connection.opened[1]


class PerConnection(Generic[T]):
    """A value that a service has only while its app is connected: made once per connection."""

    def __init__(self, connection: Connection, make: Callable[[Database, Wakeups], T]) -> None:
        self._connection = connection
        self._make = make
        self._made: tuple[tuple[Database, Wakeups], T] | None = None

    def __call__(self) -> T:
        """Return it; raises `Conflict` before the app is connected."""
        opened = self._connection.opened
        if self._made is None or self._made[0] is not opened:
            self._made = (opened, self._make(*opened))
        return self._made[1]


@dataclass(frozen=True, slots=True)
class Host:
    """The means of a part to serve: the host's leases, and the supervisor of its loops."""

    leases: Leases
    supervisor: Supervisor


class Part(Generic[S]):
    """The life of a service; each step does nothing unless a part says otherwise."""

    def __init__(self, service: S) -> None:
        self.service = service

    def duties(self) -> list[Duty]:
        """Return the periodic duties that one host does for all."""
        return []

    async def declare(self) -> None:
        """Record the handlers of this host; all parts do so before any starts."""

    async def start(self, host: Host) -> None:
        """Serve on a host; returns when that has begun."""

    async def stop(self, timeout: float) -> None:
        """Serve no longer; work that has begun may end within so many seconds."""

    def at_work(self) -> Sequence[str]:
        """Return the names of the work that `stop` waits for."""
        return ()

    async def close(self) -> None:
        """Finish calls that were accepted, and refuse further ones; the app disconnects."""


class Parts:
    """The parts of an app. They start in the order in which they were added, and stop in reverse:
    a part may use those before it.
    """

    def __init__(self) -> None:
        self._parts: list[Part[Any]] = []
        self._stopping: tuple[Part[Any], float] | None = None

    def add(self, part: Part[S]) -> S:
        """Take a part in; returns its service, for users."""
        self._parts.append(part)
        return part.service

    def of(self, kind: type[P]) -> P:
        """Return the part of a class; for hosts and tests."""
        for part in self._parts:
            if isinstance(part, kind):
                return part
        raise Conflict(f"this app has no {kind.__name__}")

    def duties(self) -> list[Duty]:
        """Return the duties of all parts."""
        return [duty for part in self._parts for duty in part.duties()]

    async def start(self, host: Host) -> None:
        """Start all parts, after all have declared their handlers."""
        for part in self._parts:
            await part.declare()
        for part in self._parts:
            await part.start(host)

    async def stop(self, timeout: float) -> None:
        """Stop all parts, even if one fails to."""
        try:
            for part in reversed(self._parts):
                self._stopping = part, time.monotonic() + timeout
                with contextlib.suppress(RelevoError):
                    await part.stop(timeout)
        finally:
            self._stopping = None

    @property
    def draining(self) -> Draining | None:
        """What the part that stops now waits for; None while no part stops."""
        if self._stopping is None:
            return None
        part, until = self._stopping
        return Draining(tuple(part.at_work()), until)

    async def close(self) -> None:
        """Close all."""
        for part in reversed(self._parts):
            await part.close()
