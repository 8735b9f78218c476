"""Commands on all jobs that match a query: in the order of submits, 500 in a statement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from msgspec import Struct, field
from msgspec.structs import replace

from relevo.errors import RelevoError
from relevo.jobs.commands import Ask, CommandScope

if TYPE_CHECKING:
    from relevo.jobs.commands import JobCommands
    from relevo.jobs.querying.query import JobQuery
    from relevo.kernel.querying.model import Position

CHUNK_ROWS: Final = 500
"""Jobs of one transaction."""
REFUSALS_SHOWN: Final = 20


class CommandedJobs(Struct, kw_only=True):
    """What has become of the jobs that matched."""

    matched: int = 0
    done: int = 0
    """How many a command was carried out on; 0 for a preview."""
    refused: int = 0
    refusals: dict[UUID, str] = {}
    """Why, for the first of them."""
    handlers: Counter[str] = field(default_factory=Counter)
    """How many matched, by handler."""

    def add(self, asks: Sequence[Ask], answers: Sequence[int | Exception]) -> None:
        """Count the answers to some commands."""
        for ask, answer in zip(asks, answers, strict=True):
            if isinstance(answer, RelevoError):
                self.refused += 1
                if len(self.refusals) < REFUSALS_SHOWN:
                    self.refusals[ask.id] = answer.message
            elif isinstance(answer, Exception):
                raise answer
            else:
                self.done += 1


class MatchingCommand(Struct, frozen=True, kw_only=True):
    """A command for all jobs that match; without a `command` they are only counted."""

    command: str | None
    until: datetime | None = None
    user: UUID | None = None
    scope: Callable[[Sequence[UUID]], Awaitable[CommandScope]] | None = None
    """The owners whose jobs the caller may change, among those of some jobs."""


async def command_some(
    commands: JobCommands, query: JobQuery, asked: MatchingCommand, most: int,
    position: Position | None = None,
) -> tuple[CommandedJobs, Position | None]:  # fmt: skip
    """Command at most `most` jobs behind a position; returns what has become of them, and where
    the next ones begin, None if there are none.

    Each chunk is a transaction of its own: what is done stays done if a later one fails.
    """
    total = CommandedJobs()
    query = query.order_by("createdon", "sequence")
    while total.matched < most:
        page = await query.page(min(CHUNK_ROWS, most - total.matched), position, payload=False)
        total.matched += len(page.jobs)
        total.handlers.update(job.handler for job in page.jobs)
        if asked.command is not None and page.jobs:
            scope = CommandScope()
            if asked.scope is not None:
                scope = await asked.scope([job.id for job in page.jobs])
            same = Ask(
                id=page.jobs[0].id, command=asked.command, until=asked.until, user=asked.user,
                scope=scope,
            )  # fmt: skip
            asks = [replace(same, id=job.id) for job in page.jobs]
            total.add(asks, await commands.give_each(asks))
        position = page.position
        if position is None:
            break
    return total, position


def merged(first: CommandedJobs, second: CommandedJobs) -> CommandedJobs:
    """Return the sum of two."""
    refusals: dict[UUID, Any] = first.refusals | second.refusals
    return CommandedJobs(
        matched=first.matched + second.matched, done=first.done + second.done,
        refused=first.refused + second.refused, handlers=first.handlers + second.handlers,
        refusals=dict(list(refusals.items())[:REFUSALS_SHOWN]),
    )  # fmt: skip
