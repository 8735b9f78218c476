"""`app.jobs.batches`: many jobs under one id, whose ends are counted."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from relevo import limits
from relevo.errors import InvalidValue
from relevo.jobs.batches.handles import BatchHandle
from relevo.jobs.batches.model import BatchResult, Condition, JobBatch
from relevo.jobs.commands import Ask
from relevo.jobs.errors import BatchMissing
from relevo.jobs.model import DATA_BYTES_MAX, NAME_LENGTH_MAX
from relevo.jobs.registry import JobDefinition
from relevo.jobs.running.ledger import ENDED
from relevo.jobs.submitting import submission
from relevo.kernel import checking
from relevo.kernel.postgres import catalog, foreign
from relevo.kernel.postgres.foreign import Function
from relevo.kernel.postgres.repeating import until_fewer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from relevo.jobs.service import Jobs
    from relevo.kernel.postgres import Database

SQL = catalog.load(__package__)
FOLDED_ROWS: Final = 5_000
CANCELED_AT_ONCE: Final = 500
ENDS_PAGE: Final = 500
FORGOTTEN_ROWS: Final = 1_000
OVERLAP: Final = timedelta(seconds=10)
"""How far a stream looks back: ends may commit in another order than that of their times."""
LOOK_SECONDS: Final = 0.5
_BEFORE_ALL: Final = (datetime.min.replace(tzinfo=UTC), UUID(int=0))
_CREATE_IN: Final = Function(
    name="relevo.create_batches",
    types=("uuid[]", "text[]", "uuid[]", "text[]", "text[]", "text[]"),
    otherwise=", or call the SQL function relevo.create_batches yourself",
)  # fmt: skip
_CLOSE_IN: Final = Function(
    name="relevo.close_batches", types=("uuid[]", "bool[]"),
    otherwise=", or call the SQL function relevo.close_batches yourself",
)  # fmt: skip


async def forget(database: Database, age: timedelta) -> int:
    """Remove batches that ended so long ago, and of which no record of a job is left."""

    async def some() -> int:
        return len(await database.write(SQL.forget, age, FORGOTTEN_ROWS))

    return await until_fewer(FORGOTTEN_ROWS, some)


class Batches:
    """The batches of an app."""

    def __init__(self, jobs: Jobs, schema: str) -> None:
        self.jobs = jobs
        self._schema = schema

    async def create(
        self, name: str | None = None, *, then: str | JobDefinition[..., Any] | None = None,
        data: Any = None, condition: Condition = "ended", owner: UUID | None = None, tx: Any = None,
    ) -> BatchHandle:  # fmt: skip
        """Make an open batch; see `Jobs.batch`."""
        checking.text("name", name, NAME_LENGTH_MAX, of="a batch")
        handler = then.name if isinstance(then, JobDefinition) else then
        checking.text("then", handler, NAME_LENGTH_MAX, of="a batch")
        if condition not in ("ended", "succeeded"):
            raise InvalidValue(
                f"condition is ended or succeeded, not {condition!r}", pointer="condition"
            )
        if handler is None and (data is not None or condition != "ended"):
            raise InvalidValue(
                "data and condition are those of the job that runs at the end; name its handler:"
                " then=...",
                pointer="then",
            )
        if data is not None and not isinstance(data, dict):
            raise InvalidValue(
                "data of a batch is a mapping of arguments, to which the counts are added as"
                f" `batch`; not {type(data).__name__}",
                pointer="data",
            )
        text = None if data is None else checking.json("data", data, DATA_BYTES_MAX, of="a batch")
        if owner is not None:
            owner = checking.uuid("owner", owner, of="a batch")
        row = (submission.new_id(), name, owner, handler or None, text, condition)
        if tx is None:
            await self.jobs.database.write(SQL.create, *row)
        else:
            tx = foreign.in_schema(tx, self._schema)
            await _CREATE_IN.call(tx, [[value] for value in row], self._schema)
        return BatchHandle(self, row[0])

    def handle(self, id: UUID | str) -> BatchHandle:  # noqa: A002 - the word of the API
        """Return a handle of a batch by its id."""
        return BatchHandle(self, checking.uuid("id", id, of="a batch"))

    async def get(self, id: UUID) -> JobBatch:  # noqa: A002 - the word of the API
        """Return a batch with its counts; raises `BatchMissing` if there is none."""
        rows = await self.jobs.database.fetch(SQL.read, [id])
        if not rows:
            raise BatchMissing(f"there is no batch {id}")
        return JobBatch.of(rows[0])

    async def list(
        self, *, after: tuple[datetime, UUID] | None = None, limit: int = limits.PAGE_ROWS_DEFAULT,
        ended: bool | None = None, owners: Sequence[UUID] | None = None,
    ) -> list[JobBatch]:  # fmt: skip
        """Return batches, the newest first, after the time and id of one."""
        at, id_ = after or (None, None)
        found = await self.jobs.database.fetch(
            SQL.page, at, id_, None if ended is None else not ended, owners, limit
        )
        ids = [row["id"] for row in found]
        rows = {row["id"]: row for row in await self.jobs.database.fetch(SQL.read, ids)}
        return [JobBatch.of(rows[id_]) for id_ in ids if id_ in rows]

    async def close(self, id: UUID, *, tx: Any = None) -> None:  # noqa: A002
        """Let a batch take no more jobs."""
        await self._close(id, tx, cancel=False)

    async def cancel(self, id: UUID) -> int:  # noqa: A002 - the word of the API
        """Close a batch and cancel its jobs; returns how many were canceled or asked to stop."""
        await self._close(id, None, cancel=True)

        async def some() -> int:
            rows = await self.jobs.database.fetch(SQL.canceling_of, id, CANCELED_AT_ONCE)
            return await self._cancel([row["id"] for row in rows])

        return await until_fewer(CANCELED_AT_ONCE, some)

    async def _close(self, id: UUID, tx: Any, *, cancel: bool) -> None:  # noqa: A002
        if tx is None:
            rows = await self.jobs.database.write(SQL.close, id, cancel)
            exists = rows[0][0]
        else:
            tx = foreign.in_schema(tx, self._schema)
            exists = await _CLOSE_IN.call(tx, [[id], [cancel]], self._schema)
        if not exists:
            raise BatchMissing(f"there is no batch {id}")

    async def wait(self, id: UUID, timeout: float | None) -> JobBatch:  # noqa: A002
        """Return a batch once it has ended."""
        async with asyncio.timeout(None if timeout is None else max(timeout, 0.0)) as limit:
            with self.jobs.wakeups.signal(ENDED) as ended:
                while True:
                    if timeout == 0:
                        limit.reschedule(None)
                    batch = await self.get(id)
                    if batch.done and batch.ended_at is None:
                        await self._fold()  # rather than wait for the leader
                        batch = await self.get(id)
                    if batch.done and batch.ended_at is not None:
                        return batch
                    if timeout == 0:
                        raise TimeoutError
                    await ended.wait(LOOK_SECONDS)

    async def results(self, id: UUID) -> AsyncIterator[BatchResult]:  # noqa: A002
        """Yield how the jobs of a batch ended, each once."""
        seen, after = set[int](), _BEFORE_ALL
        with self.jobs.wakeups.signal(ENDED) as ended:
            while True:
                # Its counts are read first: what has ended by then is found by the pages after it.
                over = (await self.get(id)).done
                position = _BEFORE_ALL if over else after
                while True:
                    rows = await self.jobs.database.fetch(SQL.ends, id, *position, ENDS_PAGE)
                    for row in rows:
                        if row["id"].int not in seen:
                            seen.add(row["id"].int)
                            yield BatchResult.of(row)
                    if len(rows) < ENDS_PAGE:
                        break
                    position = (rows[-1]["completed_at"], rows[-1]["id"])
                if over:
                    return
                if rows:
                    after = (rows[-1]["completed_at"] - OVERLAP, UUID(int=0))
                await ended.wait(LOOK_SECONDS)

    async def tend(self) -> None:
        """Add up what has ended, and cancel jobs of canceled batches; the leader's."""
        rows = await self.jobs.database.fetch(SQL.canceling, CANCELED_AT_ONCE)
        await self._cancel([row["id"] for row in rows])
        await self._fold()

    async def _fold(self) -> None:
        async def fold() -> int:
            folded = await self.jobs.database.write(SQL.fold, FOLDED_ROWS)
            return int(folded[0][0])

        if await until_fewer(FOLDED_ROWS, fold):
            self.jobs.wakeups.send(submission.TOPIC, ENDED)

    async def _cancel(self, ids: Sequence[UUID]) -> int:
        """Cancel jobs; returns how many were, or have been asked to stop."""
        answers = await self.jobs.commands.give_each([Ask(id=id_, command="cancel") for id_ in ids])
        return sum(1 for answer in answers if isinstance(answer, int))
