"""One poll per host asks for all of its loops whether they have anything to do.

A loop that waits for work registers a question: a statement that says whether something waits, or
in how many seconds something is due. All questions of a process travel in one statement, so that
an idle host costs two transactions a second, however much it serves. The loop is woken as if by a
wake-up, and then looks for itself.

While wake-ups arrive, the poll finds only what was submitted without one, and lost ones; it then
asks half as often as without a listener, except for a while after it found something. If the poll
fails or hangs, each loop polls for itself.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import asyncpg
import msgspec
from msgspec import Struct

from relevo.errors import RelevoError
from relevo.kernel.postgres import catalog
from relevo.kernel.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Iterator

    from relevo.kernel.postgres.database import Database
    from relevo.kernel.postgres.wakeups import Wakeups

log = get_logger(__name__)
LISTENING_SECONDS: Final = 0.5
"""How often a host with a listener asks: submits in callers' transactions send no wake-up."""
OFTEN_SECONDS: Final = 0.25
"""How often a host asks that hears no wake-ups, as through PgBouncer, or that found work lately."""
LATELY_SECONDS: Final = 10.0
"""How long after it found work it asks often: what comes without a wake-up seldom comes alone."""
ASKED_SECONDS: Final = 30.0
"""How often a loop looks for itself although its question is asked."""
SHORTEST_SECONDS: Final = 0.1
"""How soon it asks again for work that is due in between: what is due later by less comes along."""
ANSWER_SECONDS_MAX: Final = 2.0
"""How long the poll may wait, as for another session's lock on a table; then it has failed."""
_PARAMETER: Final = re.compile(r"\$(\d+)")


class Question(Struct, frozen=True, eq=False):
    """A statement that says whether a loop has anything to do."""

    sql: str
    """One row: true or 0 means now, a number the seconds until then, false or null never. If
    `of_rows`, any row means now."""
    arguments: Callable[[], Sequence[Any]] = tuple
    every: float | None = None
    """Seconds between two times it is asked; None is as often as the poll asks."""
    of_rows: bool = False


class _Asked:
    """A question, and who waits for its answer."""

    def __init__(self, question: Question, tell: Callable[[], None]) -> None:
        self.question = question
        self.tell = tell
        self.next = 0.0
        """When to ask, by the loop's clock."""


class Polling:
    """The questions of a process, and the loop that asks them."""

    def __init__(self, database: Database, wakeups: Wakeups) -> None:
        self._database = database
        self._wakeups = wakeups
        self._asked: dict[Question, _Asked] = {}
        self._text: tuple[tuple[Question, ...], str] = ((), "")
        self.answers = False
        """Whether questions are being answered; else loops poll for themselves."""
        self._often_until = 0.0

    def interval(self, now: float) -> float:
        """Return how often to ask, in seconds; `now` is the time of the loop's clock."""
        idle = self._wakeups.listening and now >= self._often_until
        return LISTENING_SECONDS if idle else OFTEN_SECONDS

    def patience(self, seconds: float) -> float:
        """Return how long a loop may wait that would poll every so many seconds by itself."""
        return max(seconds, ASKED_SECONDS) if self.answers else seconds

    @contextmanager
    def asking(self, question: Question, tell: Callable[[], None]) -> Iterator[None]:
        """Ask a question during the block; `tell` is called when there is something to do.

        The next poll asks it for the first time. A loop looks for itself when it begins to wait.
        """
        self._asked[question] = _Asked(question, tell)
        try:
            yield
        finally:
            del self._asked[question]

    async def run(self) -> None:
        """Ask for as long as the host serves; moved time and a lost listener make it ask anew.

        The first poll comes after a pause, so that a host that starts plans one statement.
        """
        clock = asyncio.get_running_loop().time
        soonest = clock() + LISTENING_SECONDS
        try:
            with self._wakeups.signal() as everybody:
                while True:
                    if await everybody.wait(max(soonest - clock(), 0.001)):
                        for asked in self._asked.values():
                            asked.next = 0.0
                    await self._round(clock)
                    now = clock()
                    soonest = min(
                        [now + self.interval(now), *(one.next for one in self._asked.values())]
                    )
        finally:
            self.answers = False

    async def _round(self, clock: Callable[[], float]) -> None:
        """Ask what is due soon; those whose time is near come along."""
        now = clock()
        usual = self.interval(now)
        due = [one for one in self._asked.values() if one.next <= now + usual / 2]
        try:
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                answers = await self._ask(due) if due else []
        except (RelevoError, asyncpg.PostgresError, TimeoutError) as error:
            if self.answers:
                log.warning("polling.failed", error=str(error)[:500] or "no answer in time")
            self.answers = False
            for one in self._asked.values():
                one.next = clock() + usual
                one.tell()
            return
        self.answers = True
        given = list(zip(due, answers, strict=True))
        if any(seconds == 0 and one.question.every is None for one, seconds in given):
            self._often_until = now + LATELY_SECONDS
            usual = self.interval(now)
        for one, seconds in given:
            every = one.question.every or usual
            if seconds is None or seconds > every:
                one.next = now + every
            elif seconds > 0:
                one.next = now + max(seconds, SHORTEST_SECONDS)
            else:
                one.next = now + every
                one.tell()

    async def _ask(self, due: Sequence[_Asked]) -> list[float | None]:
        """Return in how many seconds each has something to do; None if nothing is known."""
        questions, wanted = tuple(self._asked), {one.question for one in due}
        given = [(question in wanted, *question.arguments()) for question in questions]
        if self._text[0] != questions:
            self._text = questions, composed(questions, [len(some) - 1 for some in given])
        text: str = await self._database.fetchval(self._text[1], *chain.from_iterable(given))
        by_question = dict(zip(questions, msgspec.json.decode(text), strict=True))
        return [_seconds(by_question[one.question]) for one in due]


def _seconds(answer: bool | float | dict[str, bool | float | None] | None) -> float | None:
    """Return the earliest of what a row says.

    >>> _seconds({"lost": False, "due": 3.5}), _seconds({"lost": True}), _seconds(None)
    (3.5, 0.0, None)
    """
    values = answer.values() if isinstance(answer, dict) else (answer,)
    known = [0.0 if one is True else one for one in values if one is not None and one is not False]
    return min(known, default=None)


def _renumbered(base: int, found: re.Match[str]) -> str:
    return f"${base + int(found[1])}"


def composed(questions: Sequence[Question], counts: Sequence[int]) -> str:
    """Return the statement for all questions; each has a switch, then its own parameters.

    >>> print(composed([Question("select $1::int > 0 as due"), Question("select 1", of_rows=True)], [1, 0]))
    /* relevo postgres.poll */ select json_build_array(
    case when $1::boolean then (select to_json(q) from (select $2::int > 0 as due) q) end,
    case when $3::boolean then to_json(exists (select 1)) end)::text
    """  # noqa: E501 - an output
    parts, at = [], 0
    for question, count in zip(questions, counts, strict=True):
        at += 1
        sql = _PARAMETER.sub(partial(_renumbered, at), question.sql)
        kind = "to_json(exists ({}))" if question.of_rows else "(select to_json(q) from ({}) q)"
        parts.append(f"case when ${at}::boolean then {kind.format(sql)} end")
        at += count
    joined = ",\n".join(parts)
    return catalog.own("postgres.poll", f"select json_build_array(\n{joined})::text")
