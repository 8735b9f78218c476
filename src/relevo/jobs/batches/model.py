"""The nouns of batches: the record, and how one of its jobs ended."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal
from uuid import UUID

import msgspec
from msgspec import Struct

from relevo.jobs import states
from relevo.jobs.errors import BatchClosed, BatchMissing
from relevo.kernel import error_text
from relevo.kernel.postgres import failures

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    import asyncpg

    from relevo.errors import RelevoError

BatchState = Literal["open", "closed", "ended"]
Condition = Literal["ended", "succeeded"]
REFUSALS: Final[Mapping[str, type[RelevoError]]] = {"RV016": BatchMissing, "RV017": BatchClosed}
"""By the state that `relevo.enter_batches` raises."""


def naming_refusals() -> AbstractContextManager[None]:
    """Raise by its name what the database refuses about batches."""
    return failures.naming_refusals(REFUSALS)


class JobBatch(Struct, frozen=True, kw_only=True):
    """A batch with its counts, all of one moment.

    `total` is `waiting + running + succeeded + failed + canceled`. Jobs that wait for a time or for
    a retry count as waiting, and deleted ones as canceled.
    """

    id: UUID
    name: str | None
    state: BatchState
    """`open` takes more jobs, `closed` does not, `ended` is closed and all of its jobs have."""
    total: int
    waiting: int
    running: int
    succeeded: int
    failed: int
    canceled: int
    then: str | None
    """The handler of the job that runs when all have ended."""
    condition: Condition
    """When that runs: whatever became of the jobs, or only if all have succeeded."""
    callback: UUID | None
    """That job, once it is submitted."""
    owner: UUID | None
    created_at: datetime
    closed_at: datetime | None
    canceled_at: datetime | None
    ended_at: datetime | None
    version: int

    @property
    def done(self) -> bool:
        """Whether it is closed and none of its jobs waits or runs."""
        return self.state == "ended"

    @property
    def progress(self) -> float:
        """How much of it has ended, 0 to 1; an empty batch is done."""
        return 1.0 - (self.waiting + self.running) / self.total if self.total else 1.0

    @classmethod
    def of(cls, row: asyncpg.Record) -> JobBatch:
        """Return the batch that a row holds."""
        left = row["waiting"] + row["running"]
        state: BatchState = "open" if row["closed_at"] is None else "closed" if left else "ended"
        plain = {name: row[name] for name in _PLAIN}
        return cls(**plain, state=state, then=row["handler"])


_PLAIN: Final = tuple(name for name in JobBatch.__struct_fields__ if name not in ("state", "then"))


class BatchResult(Struct, frozen=True, kw_only=True):
    """How a job of a batch ended."""

    id: UUID
    handler: str
    name: str
    status: str
    """`succeeded`, `failed` or `canceled`."""
    result: Any
    """What the handler returned, if it has succeeded."""
    error: str | None
    """Why it has not."""

    @property
    def ok(self) -> bool:
        """Whether it has succeeded."""
        return self.status == states.WORDS[states.SUCCEEDED]

    @classmethod
    def of(cls, row: asyncpg.Record) -> BatchResult:
        """Return the end that a record holds."""
        succeeded = row["status"] == states.SUCCEEDED
        return cls(
            id=row["id"], handler=row["handler"], name=row["name"],
            status=states.status_word(row["status"]),
            result=msgspec.json.decode(row["result"]) if row["result"] else None,
            error=None if succeeded or row["text"] is None else error_text.headline(row["text"]),
        )  # fmt: skip
