"""Queries over system jobs in Python: `await app.jobs.query().where(state=READY).top(50)`.

Conditions become the tree that OData and FetchXML are read into, and the same planner makes SQL of
it: equal conditions find equal rows (A24), and no value reaches SQL but as a parameter (A23).
"""

from __future__ import annotations

from datetime import timedelta
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from relevo.core.expressions.tree import (
    Compare,
    Constant,
    Expression,
    In,
    IsNull,
    List,
    Logic,
    Name,
)
from relevo.errors import InvalidValue
from relevo.jobs import states
from relevo.jobs.catalogue import JOBS
from relevo.jobs.model import Job, aware
from relevo.postgres import catalog, clock
from relevo.querying.catalogue import Catalogue
from relevo.querying.model import RULES, Caller, Item, Order, Position, Query
from relevo.querying.odata import Reader
from relevo.querying.planning import plan, plan_count

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Generator, Sequence
    from datetime import datetime

    from relevo.core.expressions.tree import CompareOperator
    from relevo.postgres import Database

SQL = catalog.load("relevo.jobs")
CATALOGUE: Final = Catalogue((JOBS,))
PAGE_ROWS: Final = 500
EVERYBODY: Final = Caller(user_id=UUID(int=0), scope="all", may_read_payload=True)
"""Who asks in Python: code that has the database sees every row."""


class State(IntEnum):
    """The four states of a job (`statecode`)."""

    READY = 0
    SUSPENDED = 1
    LOCKED = 2
    COMPLETED = 3


class Status(IntEnum):
    """The eight statuses of a job (`statuscode`); each belongs to one state."""

    WAITING_FOR_RESOURCES = states.READY
    WAITING = states.WAITING
    IN_PROGRESS = states.IN_PROGRESS
    PAUSING = states.PAUSING
    CANCELING = states.CANCELING
    SUCCEEDED = states.SUCCEEDED
    FAILED = states.FAILED
    CANCELED = states.CANCELED


READY: Final = State.READY
SUSPENDED: Final = State.SUSPENDED
LOCKED: Final = State.LOCKED
COMPLETED: Final = State.COMPLETED

SHORT: Final = {
    "id": "asyncoperationid", "state": "statecode", "status": "statuscode",
    "type": "operationtype", "token": "dependencytoken", "owner": "ownerid",
    "lane": "relevo_lane", "handler": "relevo_handler", "extension": "relevo_extension",
    "series": "relevo_seriesid", "priority": "relevo_priority", "attempt": "relevo_attempt",
    "error_code": "errorcode", "created_at": "createdon", "started_at": "startedon",
    "completed_at": "completedon", "modified_at": "modifiedon", "postpone_until": "postponeuntil",
}  # fmt: skip
"""What Python calls columns; their logical names are understood as well."""


class Found(Struct, frozen=True):
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
        self._caller = caller
        self._query = query or Query(table=JOBS.name)
        self._conditions: tuple[Expression, ...] = ()
        self._texts: tuple[str, ...] = ()
        self._age: timedelta | None = None

    @property
    def caller(self) -> Caller:
        """Who asks, and what it may see."""
        return self._caller

    def where(self, **columns: Any) -> JobQuery:
        """Keep jobs whose columns have these values; several values are alternatives, None is null.

        Columns go by the names of `Job` or by logical names: `where(token="index")` or
        `where(dependencytoken="index")`.
        """
        return self._with(*(_condition(_column(name), value) for name, value in columns.items()))

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
        made._age = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        return made

    def created(self, *, after: datetime | None = None, before: datetime | None = None) -> JobQuery:
        """Keep jobs created from `after` on, and before `before`."""
        bounds: list[Expression] = []
        if after is not None:
            bounds.append(_compare(">=", "createdon", aware(after, "after")))
        if before is not None:
            bounds.append(_compare("<", "createdon", aware(before, "before")))
        return self._with(*bounds)

    def order_by(self, *names: str) -> JobQuery:
        """Sort by columns; a minus before a name turns its order round: `"-createdon"`."""
        orders = tuple(
            Order(path=(_column(name.removeprefix("-")),), descending=name.startswith("-"))
            for name in names
        )
        return self._asking(orders=orders)

    def top(self, rows: int) -> JobQuery:
        """Take so many jobs at most."""
        if rows < 1:
            raise InvalidValue(f"top takes 1 job or more, not {rows}", pointer="top")
        return self._asking(top=rows)

    async def count(self) -> int:
        """Return how many jobs there are; more than 5,000 are counted as 5,001."""
        statement = plan_count(await self.ready(), CATALOGUE, self._caller)
        return cast("int", await self._database.fetchval(statement.sql, *statement.parameters))

    async def first(self) -> Job | None:
        """Return the first job, None if there is none."""
        found = await self.top(1).page(1)
        return found.jobs[0] if found.jobs else None

    async def page(self, rows: int, position: Position | None = None) -> Found:
        """Return up to so many jobs behind a position."""
        query = replace(await self.ready(), page_size=rows, position=position)
        statement = plan(query, CATALOGUE, self._caller)
        shape = statement.shape
        found = await self._database.fetch(statement.sql, *statement.parameters)
        more = shape.rows_max is not None and len(found) > shape.rows_max
        kept = found[: shape.rows_max]
        after = None
        if more:
            values = tuple(kept[-1][key.cell] for key in shape.sort)
            after = Position(values, shape.taken + len(kept))
        assert shape.key_cell is not None  # rows, not groups
        return Found(await self._read([row[shape.key_cell] for row in kept]), after)

    def __await__(self) -> Generator[Any, None, list[Job]]:
        """Return all the jobs."""
        return self._all().__await__()

    async def __aiter__(self) -> AsyncIterator[Job]:
        """Give job after job, page by page; what changes meanwhile shifts nothing."""
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

    async def _read(self, ids: Sequence[UUID]) -> list[Job]:
        """The records, in this order; what was removed a moment ago is not among them."""
        rows = await self._database.fetch(SQL.read_jobs, ids) if ids else []
        by_id = {row["id"]: row for row in rows}
        return [Job.of(by_id[one]) for one in ids if one in by_id]

    async def ready(self) -> Query:
        """The query with all its conditions, as of now."""
        conditions = list(self._conditions)
        links = self._query.links
        if self._age is not None or self._texts:
            now = await clock.now(self._database)
            reader = Reader(CATALOGUE, self._caller, now)
            for text in self._texts:
                read = reader.filter(text, JOBS)
                conditions.append(read.tree)
                links += read.links
            if self._age is not None:
                conditions.append(_compare("<", "createdon", now - self._age))
        orders = self._query.orders or (Order(path=("createdon",)), Order(path=("sequence",)))
        key = (Item(path=(JOBS.key,)),)
        return replace(
            self._query, items=key, filter=_all_of(conditions), links=links, orders=orders
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


def _column(name: str) -> str:
    found = SHORT.get(name, name)
    if found not in JOBS.by_name:
        raise InvalidValue(
            f"jobs have no column {name!r}; use one of {', '.join(sorted(SHORT))}, or a logical"
            " name such as createdon",
            pointer=name,
        )
    return found


def _condition(column: str, value: Any) -> Expression:
    """What a value means; a state stands for its statuses, of which the database has statistics."""
    if column != "statecode" or value is None:
        return _equal(column, value)
    several = isinstance(value, list | tuple | set | frozenset)
    wanted = {_plain(column, one) for one in (value if several else (value,))}
    return _equal("statuscode", [one for one in states.LABELS if states.state_of(one) in wanted])


def _equal(column: str, value: Any) -> Expression:
    if value is None:
        return IsNull(Name(column))
    if isinstance(value, list | tuple | set | frozenset):
        items = tuple(Constant(_plain(column, one)) for one in value)
        return In(Name(column), List(items), RULES)
    return _compare("=", column, _plain(column, value))


def _compare(operator: CompareOperator, column: str, value: Any) -> Expression:
    return Compare(operator, Name(column), Constant(value), RULES)


def _plain(column: str, value: Any) -> Any:
    """A value as the column stores it."""
    if isinstance(value, Enum):
        return value.value
    if column in ("statecode", "statuscode") and isinstance(value, str):
        words = State if column == "statecode" else Status
        try:
            return int(words[value.upper()])
        except KeyError:
            known = ", ".join(one.name.lower() for one in words)
            raise InvalidValue(f"{value!r} is none of {known}", pointer=column) from None
    if JOBS.by_name[column].type in ("guid", "lookup") and isinstance(value, str):
        try:
            return UUID(value)
        except ValueError:
            raise InvalidValue(f"{column} is a UUID, not {value!r}", pointer=column) from None
    return value


def _all_of(conditions: Sequence[Expression]) -> Expression | None:
    if not conditions:
        return None
    return conditions[0] if len(conditions) == 1 else Logic("and", tuple(conditions), RULES)
