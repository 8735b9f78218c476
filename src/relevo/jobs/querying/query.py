"""Queries over system jobs in Python: `await app.jobs.query().where(state=READY).top(50)`.

Conditions become the tree that OData and FetchXML are read into, and the same planner makes SQL of
it: equal conditions find equal rows, and no value reaches SQL but as a parameter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from relevo.errors import InvalidValue
from relevo.jobs.model import Job
from relevo.jobs.querying.conditions import (
    CATALOGUE,
    JOBS,
    age,
    all_of,
    column_of,
    compared,
    condition,
)
from relevo.kernel import cpu
from relevo.kernel.postgres import catalog, clock
from relevo.kernel.querying.model import Caller, Item, Order, Position, Query
from relevo.kernel.querying.odata.filters import Reader
from relevo.kernel.querying.planning import plan, plan_count
from relevo.kernel.querying.reading import reading

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Generator, Sequence
    from datetime import datetime, timedelta

    from relevo.kernel.expressions.tree import Expression
    from relevo.kernel.postgres import Database

SQL = catalog.load("relevo.jobs")
PAGE_ROWS: Final = 500
EVERYBODY: Final = Caller(user_id=UUID(int=0), scope="all", may_read_payload=True)
"""The caller in Python: code with access to the database sees every row."""


class JobPage(Struct, frozen=True):
    """A page of jobs, and where the next one starts."""

    jobs: list[Job]
    position: Position | None


class JobQuery:
    """A query that is awaited for its jobs, or iterated over; every method returns a new one.

    >>> late = await app.jobs.query().where(state=READY).older_than(minutes=10)  # doctest: +SKIP
    """

    def __init__(
        self, database: Database, caller: Caller = EVERYBODY, query: Query | None = None
    ) -> None:
        self._database = database
        # Code that has the database may let it work as long as it likes.
        self._statements = database if caller is EVERYBODY else database.user_queries
        self._caller = caller
        self._query = query or Query(table=JOBS.name)
        self._conditions: tuple[Expression, ...] = ()
        self._texts: tuple[str, ...] = ()
        self._age: timedelta | None = None

    @property
    def caller(self) -> Caller:
        """The caller, with the rows that it may see."""
        return self._caller

    def where(self, **columns: Any) -> JobQuery:
        """Keep jobs whose columns have these values; several values are alternatives, None is null.

        Columns go by the names of `Job` or by logical names: `where(token="index")` or
        `where(dependencytoken="index")`. Raises `InvalidValue` for an impossible value.
        """
        return self._with(*(condition(name, value) for name, value in columns.items()))

    def filter(self, text: str) -> JobQuery:
        """Keep jobs that an OData filter holds for, as `"statecode eq 3 and depth gt 1"`."""
        made = self._with()
        made._texts = (*self._texts, text)
        return made

    def older_than(
        self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0
    ) -> JobQuery:
        """Keep jobs that were created longer ago than this, by the clock of the database."""
        made = self._with()
        made._age = age(days=days, hours=hours, minutes=minutes, seconds=seconds)
        return made

    def created(self, *, after: datetime | None = None, before: datetime | None = None) -> JobQuery:
        """Keep jobs created from `after` on, and before `before`."""
        bounds: list[Expression] = []
        if after is not None:
            bounds.append(compared(">=", "createdon", after, "after"))
        if before is not None:
            bounds.append(compared("<", "createdon", before, "before"))
        return self._with(*bounds)

    def id_begins(self, text: str) -> JobQuery:
        """Keep jobs whose id begins with these hexadecimal digits; dashes do not count."""
        digits = text.replace("-", "")
        first, last = (UUID(digits.ljust(32, end)) for end in "0f")
        return self._with(
            compared(">=", "asyncoperationid", first, "id_prefix"),
            compared("<=", "asyncoperationid", last, "id_prefix"),
        )

    def order_by(self, *names: str) -> JobQuery:
        """Sort by columns; a minus before a name turns its order round: `"-createdon"`."""
        orders = tuple(
            Order(path=(column_of(name.removeprefix("-")),), descending=name.startswith("-"))
            for name in names
        )
        return self._asking(orders=orders)

    def top(self, rows: int) -> JobQuery:
        """Return at most `rows` jobs."""
        return self._asking(top=_rows(rows, "top"))

    async def count(self) -> int:
        """Return how many jobs there are; more than 5,000 are counted as 5,001."""
        query = await self.ready()
        statement = await reading(self._size, plan_count, query, CATALOGUE, self._caller)
        (row,) = await self._statements.fetch(statement.sql, *statement.parameters)
        return cast("int", row["count"])

    async def first(self) -> Job | None:
        """Return the first job, None if there is none."""
        found = await self.top(1).page(1)
        return found.jobs[0] if found.jobs else None

    async def page(
        self, rows: int, position: Position | None = None, *, payload: bool = True
    ) -> JobPage:
        """Return up to `rows` jobs behind a position, within the byte limit of a page.

        Without `payload` they come without data, state, result and message.
        """
        query = replace(await self.ready(), page_size=_rows(rows, "page"), position=position)
        statement = await reading(self._size, plan, query, CATALOGUE, self._caller)
        shape = statement.shape
        found = await self._statements.fetch(statement.sql, *statement.parameters)
        assert shape.key_cell is not None  # rows, not groups
        keys = [row[shape.key_cell] for row in found[: shape.rows_max]]
        jobs, taken = await self._read(keys, payload=payload)
        if taken == len(found):
            return JobPage(jobs, None)
        values = tuple(found[taken - 1][key.cell] for key in shape.sort)
        return JobPage(jobs, Position(values, shape.taken + taken))

    def __await__(self) -> Generator[Any, None, list[Job]]:
        """Return all the jobs."""
        return self._all().__await__()

    async def __aiter__(self) -> AsyncIterator[Job]:
        """Yield jobs, page by page; concurrent changes shift nothing."""
        position: Position | None = None
        while True:
            found = await self.page(PAGE_ROWS, position)
            for job in found.jobs:
                yield job
            position = found.position
            if position is None:
                return

    async def _all(self) -> list[Job]:
        return [job async for job in self]

    async def _read(self, ids: Sequence[UUID], *, payload: bool) -> tuple[list[Job], int]:
        """The records in this order, and how many of the ids that were.

        Jobs removed meanwhile are missing; jobs beyond the byte limit come on the next page.
        """
        if not ids:
            return [], 0
        most = self._database.page_bytes
        rows = await self._database.fetch(SQL.read_job_page, ids, payload, most)
        cut = bool(rows) and rows[-1]["followed"]
        size = sum(len(row[name] or "") for row in rows for name in ("data", "saved", "result"))
        jobs = await cpu.decoded(size, lambda: [Job.of(row) for row in rows])
        return jobs, rows[-1]["place"] if cut else len(ids)

    @property
    def _size(self) -> int:
        return sum(map(len, self._texts))

    async def ready(self) -> Query:
        """The query with all its conditions, as of now."""
        conditions = list(self._conditions)
        links = self._query.links
        if self._age is not None or self._texts:
            now = await clock.now(self._database)
            reader = Reader(CATALOGUE, self._caller, now)
            for text in self._texts:
                read = await reading(len(text), reader.filter, text, JOBS)
                conditions.append(read.tree)
                links += read.links
            if self._age is not None:
                conditions.append(compared("<", "createdon", now - self._age))
        orders = self._query.orders or (Order(path=("createdon",)), Order(path=("sequence",)))
        key = (Item(path=(JOBS.key,)),)
        return replace(
            self._query, items=key, filter=all_of(conditions), links=links, orders=orders
        )

    def _with(self, *conditions: Expression) -> JobQuery:
        made = JobQuery(self._database, self._caller, self._query)
        made._conditions = (*self._conditions, *conditions)
        made._texts, made._age = self._texts, self._age
        return made

    def _asking(self, **changes: Any) -> JobQuery:
        made = self._with()
        made._query = replace(self._query, **changes)
        return made


def _rows(rows: int, what: str) -> int:
    if type(rows) is not int or rows < 1:
        raise InvalidValue(f"{what} takes 1 job or more, not {rows!r:.64}", pointer=what)
    return rows
