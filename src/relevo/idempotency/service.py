"""`app.idempotency`: requests that carry an `Idempotency-Key`, kept for 24 hours.

A request is stored before it runs. Its answer follows when it has run, sealed with the master key,
for it may show a secret. Between the two commits lies the effect, in a commit of its own: if the
host is killed there, Relevo cannot know whether the effect happened. Such a request is never run
again; its repeats are told that its outcome is unknown.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final, Literal

import msgspec
from msgspec import Struct

from relevo import limits
from relevo.kernel.leases.loops import Duty
from relevo.kernel.part import Part, PerConnection, Service
from relevo.kernel.postgres import catalog
from relevo.kernel.postgres.grouping import Group
from relevo.kernel.postgres.repeating import until_fewer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from relevo.kernel.part import Connection
    from relevo.kernel.postgres.database import Database

SQL = catalog.load("relevo.idempotency")
FORGET_ROWS_MAX: Final = 2_000
RequestState = Literal["running", "answered", "too_large", "unknown", "own"]
"""`own`: the operation itself recognises repeats, so nothing but the fingerprint is kept."""


class KeyedRequest(Struct, frozen=True, kw_only=True):
    """A request with an `Idempotency-Key`."""

    principal: str
    """The id of its caller; the keys of two callers have nothing to do with each other."""
    key: str
    fingerprint: bytes
    """Two requests with the same one ask for the same."""
    own: bool = False
    """Whether its operation recognises repeats itself."""
    token: int = msgspec.field(default_factory=lambda: secrets.randbits(63))


class EarlierRequest(Struct, frozen=True, kw_only=True):
    """What is known of an earlier request with the same key."""

    fingerprint: bytes
    state: RequestState
    age_seconds: float
    """Since it began."""
    answer: bytes | None


class _EndedRequest(Struct, frozen=True):
    """How a request has ended; without a state it is forgotten."""

    request: KeyedRequest
    state: RequestState | None
    answer: bytes | None


class _RequestGroups:
    """Concurrent beginnings share a statement and its commit, and so do ends."""

    def __init__(self, database: Database) -> None:
        self._database = database
        metrics = database.metrics
        self.begins: Group[KeyedRequest, EarlierRequest | None] = Group(
            "begin requests", self._begin, key=lambda one: (one.principal, one.key), metrics=metrics
        )
        self.ends: Group[_EndedRequest, None] = Group("end requests", self._end, metrics=metrics)

    async def _begin(self, requests: Sequence[KeyedRequest]) -> list[EarlierRequest | None]:
        rows = await self._database.write(
            SQL.begin_requests,
            [one.principal for one in requests],
            [one.key for one in requests],
            [one.fingerprint for one in requests],
            ["own" if one.own else "running" for one in requests],
            [one.token for one in requests],
            limits.IDEMPOTENCY_SECONDS,
            idempotent=True,
        )
        return [
            None if row["begun"] else _earlier(request, dict(row))
            for request, row in zip(requests, rows, strict=True)
        ]

    async def _end(self, ended: Sequence[_EndedRequest]) -> list[None]:
        await self._database.write(
            SQL.end_requests,
            [one.request.principal for one in ended],
            [one.request.key for one in ended],
            [one.request.token for one in ended],
            [one.state for one in ended],
            [one.answer for one in ended],
            idempotent=True,
        )
        return [None] * len(ended)


def _earlier(request: KeyedRequest, row: dict[str, object]) -> EarlierRequest:
    """Return the earlier request; one that was forgotten a moment ago counts as running."""
    del row["begun"]
    if row["state"] is None:
        return EarlierRequest(
            fingerprint=request.fingerprint, state="running", age_seconds=0.0, answer=None
        )
    return msgspec.convert(row, EarlierRequest)


class Idempotency(Service):
    """The requests with an `Idempotency-Key` of an installation."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self._groups = PerConnection(connection, lambda database, _: _RequestGroups(database))

    async def begin(self, request: KeyedRequest) -> EarlierRequest | None:
        """Store that a request begins, or return the earlier one with its key."""
        return await self._groups().begins.call(request)

    async def end(
        self, request: KeyedRequest, state: RequestState, answer: bytes | None = None
    ) -> None:
        """Store how a request that runs has ended."""
        await self._groups().ends.call(_EndedRequest(request, state, answer))

    async def withdraw(self, request: KeyedRequest) -> None:
        """Forget a request that runs: nothing has happened, so its key is free again."""
        await self._groups().ends.call(_EndedRequest(request, None, None))

    async def forget(self) -> None:
        """Remove requests that are older than they are kept."""

        async def step() -> int:
            bounds = limits.IDEMPOTENCY_SECONDS, FORGET_ROWS_MAX
            return len(await self.database.write(SQL.forget_requests, *bounds))

        await until_fewer(FORGET_ROWS_MAX, step)

    async def close(self) -> None:
        """Finish what was accepted."""
        groups = self._groups()
        await groups.begins.close()
        await groups.ends.close()


class IdempotencyPart(Part[Idempotency]):
    """Keeps the requests within their time."""

    def duties(self) -> list[Duty]:
        """Return the duty of the leader."""
        return [Duty("forget requests", 600.0, self.service.forget)]

    async def close(self) -> None:
        """Finish the statements under way."""
        await self.service.close()
