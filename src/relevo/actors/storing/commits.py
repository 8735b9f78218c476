"""The commit pipeline of a host: turns of many actors in one statement and one commit."""

from __future__ import annotations

import asyncio
import random
import time
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import msgspec

from relevo import limits
from relevo.actors.core.folding import fold, parts
from relevo.errors import (
    Closed,
    Conflict,
    DatabaseUnavailable,
    LeaseLost,
    OutcomeUnknown,
    RelevoError,
)
from relevo.kernel import faults
from relevo.kernel.backoff import Backoff
from relevo.kernel.postgres import catalog
from relevo.kernel.postgres.grouping import Group

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from relevo.actors.core.deltas import Delta
    from relevo.actors.core.folding import Folded
    from relevo.kernel.postgres import Database, Wakeups

SQL = catalog.load("relevo.actors")
TOPIC: Final = "actors:{}"
"""Wakes the hosts of a placement group: durable messages have arrived."""
STATEMENT_BYTES: Final = 16 * limits.MIB
BACKOFF: Final = Backoff(first=0.05, longest=2.0)


class CommitConflict(Conflict):
    """The turn builds on a state that is not the stored one; it was not stored."""

    code = "commit_conflict"


class Commits:
    """Stores deltas; those of one actor, and of one slot, in the order in which they are given."""

    def __init__(self, database: Database, wakeups: Wakeups, may_act: Callable[[], bool]) -> None:
        self._database = database
        self._wakeups = wakeups
        self._may_act = may_act
        self._random = random.Random()  # noqa: S311 - neither jitter nor a number is a secret
        self._group: Group[Delta, None] = Group(
            "commit turns", self._store, lane=lambda delta: delta.slot, lanes=limits.ACTOR_LANES,
            calls_max=limits.ACTOR_DELTAS_MAX, metrics=database.metrics,
        )  # fmt: skip

    async def commit(self, delta: Delta) -> None:
        """Return when a delta is durable.

        Raises `LeaseLost` if the slot has another owner and `CommitConflict` if the delta does not
        build on what is stored: it was not stored then. `DatabaseUnavailable` says the same,
        `OutcomeUnknown` that nobody knows.
        """
        await self._group.call(delta)

    def commit_soon(self, delta: Delta) -> asyncio.Future[None]:
        """Store a delta after those given before; the future ends as `commit` does."""
        return self._group.put(delta)

    async def close(self) -> None:
        """Finish the commits that were accepted."""
        await self._group.close()

    async def _store(self, deltas: Sequence[Delta]) -> list[Exception | None]:
        """Answer each delta; it never raises, so that the group does not divide what is folded."""
        changes, refused = fold(deltas)
        answers: list[Exception | None] = [None] * len(deltas)
        for place in refused:
            answers[place] = _conflict(deltas[place].actor)
        await faults.point("before_turn_commit")
        for part in parts([one for one in changes if one.places], STATEMENT_BYTES):
            number = self._random.getrandbits(63)
            for change, answer in zip(part, await self._write(part, number), strict=True):
                for place in change.places:
                    answers[place] = answer
        await faults.point("after_turn_commit")
        return answers

    async def _write(self, part: Sequence[Folded], number: int) -> list[Exception | None]:
        """Write changes; repeats while the host may act, since that does nothing twice."""
        sql, arguments = statement_of(part)
        unknown, begun = False, time.perf_counter()
        for attempt in range(1_000_000):
            try:
                rows = await self._database.write(sql, number, *arguments)
                break
            except Closed as error:
                return [error] * len(part)
            except (DatabaseUnavailable, OutcomeUnknown) as error:
                unknown = unknown or isinstance(error, OutcomeUnknown)
                if not self._may_act():
                    return [_given_up(error, unknown=unknown)] * len(part)
            except Exception as error:
                return await self._write_halves(part, number, error)
            await asyncio.sleep(BACKOFF.delay(attempt, self._random))
        metrics = self._database.metrics
        metrics.actor_commit_seconds.observe(time.perf_counter() - begun)
        answers: list[Exception | None] = [None] * len(part)
        for row in rows:
            answers[row["nth"] - 1] = _refusal(
                part[row["nth"] - 1], row["outcome"], unknown=unknown
            )
        stored = [change for change, answer in zip(part, answers, strict=True) if answer is None]
        metrics.actor_commit_turns.inc(sum(len(change.places) for change in stored))
        metrics.actor_fence_rejections.inc(sum(isinstance(one, LeaseLost) for one in answers))
        self._wake(stored)
        return answers

    async def _write_halves(
        self, part: Sequence[Folded], number: int, error: Exception
    ) -> list[Exception | None]:
        """Find the actor whose data the database refuses; its neighbours are stored."""
        if len(part) == 1:
            return [error]
        middle = len(part) // 2
        first = await self._write(part[:middle], number)
        return first + await self._write(part[middle:], number)

    def _wake(self, written: Iterable[Folded]) -> None:
        groups = {one.placement_group for change in written for one in change.messages}
        self._wakeups.send(*(TOPIC.format(group) for group in groups))


def statement_of(changes: Sequence[Folded]) -> tuple[str, list[Any]]:
    """Return the statement that writes changes, and its arguments but for the batch's number.

    A document of one actor, which is what a call on an idle system changes, has one of its own: to
    bind and unnest the arrays of a batch takes as long as the rest.
    """
    if len(changes) > 1 or not changes[0].is_document_alone:
        return SQL.commit_turns, columns(changes)
    (one,) = changes
    return SQL.commit_document, [
        *one.fence, one.actor, one.placement_group, one.slot, one.base, one.revision,
        one.incarnation, one.schema, one.document,
    ]  # fmt: skip


def columns(changes: Sequence[Folded]) -> list[list[Any]]:
    """Return the arrays of `relevo.commit_turns`."""
    fences = {fence: n for n, fence in enumerate(sorted({one.fence for one in changes}), 1)}
    placed = list(enumerate(changes, 1))
    rows = [_actor_row(one, fences[one.fence]) for one in changes]
    handled = [(n, number) for n, one in placed for number in one.handled]
    occurred = [
        (n, one.actor, name, due) for n, one in placed for name, due in one.occurrences.items()
    ]
    entries = [
        (n, one.actor, entry.map, entry.key, entry.value)
        for n, one in placed
        for entry in one.entries.values()
    ]
    reminders = [
        (
            n, one.actor, one.placement_group, one.slot, each.name, each.due, each.method,
            each.schedule, each.payload, each.attempt,
        )
        for n, one in placed
        for each in one.reminders.values()
    ]  # fmt: skip
    calls = [
        (n, one.actor, call.call_id, call.method, call.digest, call.answer)
        for n, one in placed
        for call in one.recorded.values()
    ]
    logged = [(n, *event) for n, one in placed for event in one.logged]
    messages = [(n, *message_row(message)) for n, one in placed for message in one.messages]
    tables = (
        (rows, 12),
        (handled, 2),
        (occurred, 4),
        (entries, 5),
        (reminders, 10),
        (calls, 6),
        (messages, 11),
        (logged, 6),
    )
    return [
        [lease for lease, _ in fences],
        [epoch for _, epoch in fences],
        *chain.from_iterable(transposed(table, width) for table, width in tables),
    ]


def _actor_row(change: Folded, fence: int) -> tuple[Any, ...]:
    return (
        fence, change.actor, change.placement_group, change.slot, change.base, change.revision,
        change.old_incarnation, change.incarnation, change.wiped, change.deleted, change.schema,
        change.document,
    )  # fmt: skip


def message_row(message: Any) -> tuple[Any, ...]:
    """Return the columns of a message that is sent."""
    return (
        message.receiver, message.sender, message.placement_group, message.slot, message.method,
        message.body, message.digest, msgspec.json.encode(message.headers).decode(),
        message.attempts, message.on_dead,
    )  # fmt: skip


def transposed(rows: Sequence[tuple[Any, ...]], width: int) -> list[list[Any]]:
    """Return the columns of rows."""
    return (
        [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in range(width)]
    )


def _conflict(actor: str) -> CommitConflict:
    return CommitConflict(
        f"the turn of {actor} builds on a state that is not the stored one, or the message or"
        " reminder that it handled is gone; it was not stored, and the actor is loaded again"
    )


def _refusal(change: Folded, outcome: str, *, unknown: bool) -> RelevoError:
    if outcome == "conflict":
        return _conflict(change.actor)
    if unknown:
        return OutcomeUnknown(
            f"the slot of {change.actor} has another owner, and an attempt to commit its turn was"
            " not answered before; it may or may not have been stored"
        )
    return LeaseLost(f"the slot of {change.actor} has another owner; its turn was not stored")


def _given_up(error: RelevoError, *, unknown: bool) -> RelevoError:
    if not unknown or isinstance(error, OutcomeUnknown):
        return error
    return OutcomeUnknown(
        f"an attempt to commit was not answered, and the host may not act any longer: {error}"
    )
