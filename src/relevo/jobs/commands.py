"""Commands on jobs: cancel, pause, resume, postpone, retry, delete, change the recurrence.

Commands ride in groups. One transaction locks the gates of its jobs, then their rows, judges each
by the table of `relevo.jobs.states`, and moves those that may.
"""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from msgspec import UNSET, Struct

from relevo.errors import InvalidRecurrence, RelevoError
from relevo.jobs import parcels, series_rows, states
from relevo.jobs.core import codes, series
from relevo.jobs.core.operation_types import is_platform
from relevo.jobs.core.patches import PatchCommand
from relevo.jobs.errors import JobMissing, JobRefused, PlatformJob, StaleJob
from relevo.jobs.states import CommandRefusal, JobMove
from relevo.kernel import cpu
from relevo.kernel.postgres import catalog, clock
from relevo.kernel.postgres.grouping import Group

if TYPE_CHECKING:
    from collections.abc import Sequence

    from relevo.kernel.postgres import Database, Transaction, Wakeups

SQL = catalog.load("relevo.jobs")
HOST_TOPIC: Final = "jobs:host:{}"
"""Wakes the host that runs a job: something is asked of it."""


class CommandScope(Struct, frozen=True):
    """The owners whose jobs a caller sees; None is all."""

    owners: frozenset[UUID] | None = None


class Ask(Struct, frozen=True, kw_only=True):
    """One command of one caller on one job; `version` is that of `If-Match`."""

    id: UUID
    command: str
    until: datetime | None = None
    change: PatchCommand | None = None
    version: int | None = None
    user: UUID | None = None
    scope: CommandScope = CommandScope()


class JobCommands:
    """Carries out commands; returns a status or a refusal for each."""

    def __init__(self, database: Database, wakeups: Wakeups, *, strict: frozenset[str]) -> None:
        self._database = database
        self._wakeups = wakeups
        self._strict = strict
        self._group: Group[Ask, int | None] = Group(
            "job command", self._together, key=lambda ask: ask.id, metrics=database.metrics
        )

    async def give(self, ask: Ask) -> int:
        """Carry out a command; returns the status that the job has then, -1 if it is gone."""
        status = await self._group.call(ask)
        if status is None:  # another transaction holds the row: wait for it alone
            (status,) = await self._at_once([ask])
        return status

    async def give_all(self, asks: Sequence[Ask]) -> None:
        """Carry out commands in one transaction, all or none (UpdateMultiple)."""
        await self._at_once(asks)

    async def give_each(self, asks: Sequence[Ask]) -> list[int | Exception]:
        """Carry out commands in one transaction, those that may; a refusal concerns no other."""
        woken: set[str] = set()
        answers = (
            await self._database.run(lambda tx: self._apply(tx, asks, woken, SQL.lock_jobs))
            if asks
            else []
        )
        self._wakeups.send("jobs", *woken)
        return answers

    async def _at_once(self, asks: Sequence[Ask]) -> list[int]:
        woken: set[str] = set()

        async def work(tx: Transaction) -> list[int]:
            answers = await self._apply(tx, asks, woken, SQL.lock_jobs)
            for answer in answers:
                if isinstance(answer, Exception):
                    raise answer
            return answers

        answers = await self._database.run(work)
        self._wakeups.send("jobs", *woken)
        return answers

    async def close(self) -> None:
        """Wait for calls under way."""
        await self._group.close()

    async def _together(self, asks: Sequence[Ask]) -> list[int | Exception | None]:
        woken: set[str] = set()
        answers = await self._database.run(
            lambda tx: self._apply(tx, asks, woken, SQL.lock_free_jobs)
        )
        self._wakeups.send("jobs", *woken)
        return answers

    async def _apply(
        self, tx: Transaction, asks: Sequence[Ask], woken: set[str], lock: str
    ) -> list[Any]:
        ids = [ask.id for ask in asks]
        gates = await tx.fetch(SQL.gates_of, ids)
        keys = sorted(
            {f"c{gate['chain']}" for gate in gates if gate["chain"]}
            | {gate["owner_key"] for gate in gates if gate["owner_key"]}
        )
        if keys:
            await tx.execute(SQL.lock_gates, keys)
        if lock == SQL.lock_jobs:
            await parcels.unpack(tx, ids)  # before rows, in the order in which hosts lock
        rows = {row["id"]: row for row in await tx.fetch(lock, ids)}
        missing = [id_ for id_ in ids if id_ not in rows]
        if missing and lock == SQL.lock_jobs:  # perhaps put into a parcel meanwhile
            await parcels.unpack(tx, missing)
            rows |= {row["id"]: row for row in await tx.fetch(lock, missing)}
        over = {row["id"]: row for row in await tx.fetch(SQL.completed_jobs, missing)}
        now = await clock.now(tx)
        answers: list[Any] = []
        moves = _Moves(tx, keys)
        for ask in asks:
            row = rows.get(ask.id) or over.get(ask.id)
            if row is None and lock == SQL.lock_free_jobs:
                answers.append(None)
                continue
            judged = self._judge(ask, row)
            if isinstance(judged, JobMove):
                judged = await self._prepare(tx, ask, judged, rows.get(ask.id), now, moves)
            answers.append(judged)
        woken |= await moves.carry_out()
        return answers

    def _judge(self, ask: Ask, row: Any) -> Any:
        """Return the move, or why there is none."""
        if row is None or row.get("deleted") or not _sees(ask.scope, row["owner"]):
            return JobMissing(f"there is no job {ask.id}")
        if ask.version is not None and ask.version != row["version"]:
            return StaleJob(
                f"job {ask.id} is version {row['version']}, not {ask.version}; read it again"
            )
        platform = is_platform(row["operation_type"], system=row["system"])
        if platform and (refusal := states.platform_refusal(row["status"], ask.command)):
            return PlatformJob(refusal.code, refusal.text)
        if ask.change is not None:
            if refused := _recurrence_refusal(row):
                return refused
            if platform and ask.change.ends_series:  # the same as canceling the next run
                return PlatformJob(codes.PLATFORM_CANCEL, codes.TEXTS[codes.PLATFORM_CANCEL])
        if not ask.command:
            return JobMove(row["status"], "")
        found = states.outcome(row["status"], ask.command, strict=self._strict)
        if isinstance(found, CommandRefusal):
            return JobRefused(found.code, f"{found.text} (job {ask.id})")
        if ask.command == "rerun" and row["series"] is not None and row["attempt"] == 0:
            return JobRefused(
                codes.CANNOT_CHANGE,
                f"job {ask.id} was canceled before it began, and its series goes on or has ended;"
                " submit the job anew",
            )
        return found

    async def _prepare(
        self, tx: Transaction, ask: Ask, move: JobMove, row: Any, now: datetime, moves: _Moves
    ) -> int | Exception:  # fmt: skip
        """Note the move of a job; `row` is None if it is completed. Returns its status then."""
        if ask.change is not None and row is not None:
            try:
                await self._change_recurrence(tx, ask, row, now)
            except InvalidRecurrence as error:
                return JobRefused(series.code_of(error), error.message)
        if not ask.command or (
            row is not None
            and move.to_status == row["status"]
            and ask.command in ("cancel", "pause")
        ):
            return move.to_status  # nothing changes
        if row is not None and ask.command == "resume" and row["series"] and row["attempt"] == 0:
            try:
                await self._tell_next(tx, ask.id, now)
            except RelevoError as error:  # a zone or a pattern that this host does not know
                return JobRefused(codes.BAD_PATTERN, error.message)
        await moves.add(ask, row)
        return move.to_status

    async def _tell_next(self, tx: Transaction, id_: UUID, now: datetime) -> None:
        """Prepare a waiting row of a series for its claim; it is about to be resumed."""
        stored = await tx.fetchrow(SQL.recurrence_of, id_)
        if stored is not None and stored["series"] is not None:  # else it has just been ended
            found = await cpu.off_loop(series_rows.resumed, stored, now)
            await series_rows.make_ready(tx, [(stored, found)], status=states.WAITING)

    async def _change_recurrence(self, tx: Transaction, ask: Ask, row: Any, now: datetime) -> None:
        """Give a waiting row another pattern or start; an empty pattern ends the series."""
        change = ask.change
        assert change is not None  # the caller looked
        stored = await tx.fetchrow(SQL.recurrence_of, ask.id)
        if stored is None:
            return
        pattern = stored["pattern"] if change.pattern is UNSET else (change.pattern or "")
        if not pattern:
            await tx.execute(SQL.stop_recurring, ask.id, ask.user)
            await tx.execute(SQL.announce_series_ends, [stored["series"]])
            return
        anchor = stored["anchor"] if change.anchor is UNSET else (change.anchor or now)
        plan = partial(
            series.plan, pattern, anchor=anchor, operation_type=row["operation_type"],
            zone=stored["zone"],
        )  # fmt: skip
        at = await cpu.off_loop(lambda: series.restarted(plan(), now))
        await tx.execute(
            SQL.change_recurrence, ask.id, pattern, anchor, at.nominal, at.ordinal, ask.user
        )


class _Moves:
    """Moves of jobs that one transaction carries out, in one statement for all of a kind."""

    def __init__(self, tx: Transaction, keys: Sequence[str]) -> None:
        self._tx = tx
        self._keys = keys
        self._asks: dict[UUID, tuple[Ask, Any]] = {}
        self._hosts: set[str] = set()

    async def add(self, ask: Ask, row: Any) -> None:
        """Note a move; `row` is that of the job, None if it is completed."""
        if ask.id in self._asks:  # a second command on it comes after the first
            await self._write()
        self._asks[ask.id] = (ask, row)
        if row is not None and row["host"] is not None:
            self._hosts.add(HOST_TOPIC.format(row["host"]))

    async def carry_out(self) -> set[str]:
        """Write the moves; returns the topics of the hosts that run some of the jobs."""
        await self._write()
        return self._hosts

    async def _write(self) -> None:
        kinds: dict[tuple[str, UUID | None], list[Ask]] = {}
        for ask, row in self._asks.values():
            kind = "command" if row is not None else ask.command
            kinds.setdefault((kind, ask.user), []).append(ask)
        self._asks = {}
        for (kind, user), asks in kinds.items():
            ids = [ask.id for ask in asks]
            if kind == "delete":
                await self._tx.execute(SQL.delete_completed, ids)
            elif kind == "rerun":
                await self._tx.execute(SQL.rerun, ids, user)
            else:
                commands, untils = [ask.command for ask in asks], [ask.until for ask in asks]
                await self._tx.execute(SQL.command, ids, commands, untils, user, self._keys)


def _sees(scope: CommandScope, owner: UUID | None) -> bool:
    return scope.owners is None or owner in scope.owners


def _recurrence_refusal(row: Any) -> JobRefused | None:
    refusal = series.change_refusal(row["operation_type"], recurring=row["series"] is not None)
    if refusal is not None:
        return JobRefused(refusal.code, refusal.text)
    if row["status"] not in (states.READY, states.WAITING) or row["attempt"] > 0:
        return JobRefused(
            codes.CANNOT_CHANGE,
            "the run has started; change the recurrence on the waiting job of its series",
        )
    return None
