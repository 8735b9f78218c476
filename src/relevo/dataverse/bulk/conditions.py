"""Conditions of bulk operations as SQL: those over JSON paths, and those over columns of tables.

The latter are read into the tree that OData and FetchXML are read into, and planned as theirs are:
equal conditions find equal rows, and no value reaches SQL but as a parameter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import replace

from relevo import limits
from relevo.dataverse.bulk import stored
from relevo.dataverse.bulk.model import STATES, Criteria, Criterion, RowQuery
from relevo.jobs.querying.catalogue import JOBS, served
from relevo.jobs.querying.related_tables import RELATED_TABLES
from relevo.kernel.expressions.tree import Compare, Constant, In, List, Logic, Name, Not, children
from relevo.kernel.querying.catalogue import Catalogue, Table
from relevo.kernel.querying.errors import CONDITIONS, InvalidQuery
from relevo.kernel.querying.fetchxml import conditions as fetch_conditions
from relevo.kernel.querying.fetchxml.elements import Element
from relevo.kernel.querying.frames import FrameContext, QueryFrame
from relevo.kernel.querying.linking import attach
from relevo.kernel.querying.model import RULES, Caller, Query
from relevo.kernel.querying.odata.filters import Reader
from relevo.kernel.querying.statements import select
from relevo.store import query

if TYPE_CHECKING:
    from relevo.kernel.expressions.tree import Expression
    from relevo.kernel.querying.fetchxml.conditions import Asker
    from relevo.kernel.querying.model import Link
    from relevo.pipeline.registry import Registry

_COMPLETED: Final = Compare("=", Name("statecode"), Constant(3), RULES)
_DEPTH_MAX: Final = limits.QUERY_DEPTH_MAX


class Planned(Struct, frozen=True, kw_only=True):
    """Conditions over the columns of a table."""

    catalogue: Catalogue
    caller: Caller
    table: Table
    query: Query

    def sql(self, alias: str, first: int) -> tuple[str, list[Any]]:
        """Return what rows under an alias fulfil, never null, with parameters from `first` on.

        Raises `InvalidQuery`, and `ColumnProtected` for what the caller may not look at.
        """
        context = FrameContext(self.catalogue, self.caller)
        context.parameters.first = first
        frame = QueryFrame(context, self.table, alias, "(select 1) as one")
        attach(frame, self.query.links, frame.links)
        frame.add(self.query.filter)
        text = f"coalesce({frame.where()}, false)"
        if frame.joined:
            text = f"exists ({select('1', frame.sql(), where=frame.where())})"
        return text, context.parameters.values


class Conditions(Struct, frozen=True, kw_only=True):
    """Conditions as SQL whose parameters follow those of the statement."""

    where: Sequence[Any]
    alias: str
    body: str
    """The JSON that `where` looks at."""
    planned: Planned | None = None

    def put(self, sql: str, *arguments: Any) -> tuple[Any, ...]:
        """Return a statement with the conditions in the place of (true), and all its arguments."""
        values = list(arguments)
        parts = []

        def bound(value: Any, kind: str) -> str:
            values.append(value)
            return f"${len(values)}::{kind}"

        if self.where:
            parts.append(query.conditions(self.where, bound, self.body))
        if self.planned is not None:
            text, more = self.planned.sql(self.alias, len(values) + 1)
            parts.append(text)
            values += more
        return sql.replace("(true)", " and ".join(parts)) if parts else sql, *values


def rows_of(given: RowQuery | Query, caller: Caller | None = None) -> RowQuery:
    """Return which rows are meant; of a `relevo.kernel.querying` query only its conditions can be.

    Of jobs only those are that `caller` reaches, if there is one.
    """
    if isinstance(given, RowQuery):
        return given
    for name in ("top", "aggregate", "distinct", "expands", "position"):
        if getattr(given, name):
            raise InvalidQuery(
                f"a bulk operation takes all rows of a query, so it has no {name}; leave it out",
                pointer="queries",
            )
    tree = _logic("and", (given.filter, None if caller is None else reached(caller)))
    kept = Query(table=given.table, filter=tree, links=given.links)
    scope = "all" if caller is None else caller.scope
    return RowQuery(table=given.table, query=stored.encoded(kept), scope=scope)


def reached(caller: Caller) -> Expression | None:
    """Return what holds for the jobs that a caller's scope reaches; None if for all.

    What a job stores is read by its owner later, so it has to be a condition like others.
    """
    if caller.scope == "all":
        return None
    mine = tuple(map(Constant, (caller.user_id, *caller.teams)))
    own = In(Name("ownerid"), List(mine), RULES)
    if caller.scope == "own" or caller.unit is None:
        return own
    unit = Compare("=", Name("owningbusinessunit"), Constant(caller.unit), RULES)
    return Logic("or", (own, unit), RULES)


def catalogue(registry: Registry | None) -> Catalogue:
    """Return the tables that conditions can be about, or lead to."""
    taken = {one.name for one in RELATED_TABLES} | {JOBS.name}
    tables = {} if registry is None else registry.tables
    return served(
        (*RELATED_TABLES, *(one.served for one in tables.values() if one.name not in taken))
    )


def planned(asked: RowQuery, tables: Catalogue, table: str, asker: Asker) -> Planned:
    """Return the conditions over columns, as they are meant by who asks and when.

    Raises `InvalidQuery`.
    """
    found = tables.by_name[table]
    terms: list[Expression | None] = []
    links: tuple[Link, ...] = ()
    if asked.filter is not None:
        read = Reader(tables, asker.caller, asker.now).filter(asked.filter, found, "filter")
        terms.append(read.tree)
        links += read.links
    if asked.criteria is not None:
        terms.append(_Reading(found, asker).group(asked.criteria))
    if asked.query is not None:
        given = stored.query(asked.query)
        terms.append(given.filter)
        links += given.links
    tree = _logic("and", terms)
    if asked.of_jobs and not asked.names_states:
        tree = _COMPLETED if tree is None else completed(tree)
    if asked.of_jobs:
        tree = _logic("and", (tree, reached(replace(asker.caller, scope=asked.reach))))
    return Planned(
        catalogue=tables, caller=asker.caller, table=found,
        query=Query(table=table, filter=tree, links=links),
    )  # fmt: skip


def completed(tree: Expression) -> Expression:
    """Return a condition on jobs that holds for completed ones only, except where it names states.

    Of alternatives each has to name them itself: `name eq 'a' or statecode eq 0` spares the jobs
    called a that are not completed.
    """
    return _guarded(_pushed(tree))


def _guarded(tree: Expression) -> Expression:
    """The same for a condition in which only single tests are negated."""
    match tree:
        case Logic(operator="or", operands=operands):
            return Logic("or", tuple(map(_guarded, operands)), RULES)
        case Logic(operands=operands) if _names_states(tree):
            return Logic(
                "and", tuple(_guarded(one) if _names_states(one) else one for one in operands),
                RULES,
            )  # fmt: skip
        case _:
            return tree if _names_states(tree) else Logic("and", (tree, _COMPLETED), RULES)


def _pushed(tree: Expression, *, negated: bool = False) -> Expression:
    """Return a condition with its negations pushed down to single tests."""
    match tree:
        case Not(operand=operand):
            return _pushed(operand, negated=not negated)
        case Logic(operator=operator, operands=operands, rules=rules):
            dual: Any = "and" if operator == "or" else "or"
            parts = tuple(_pushed(one, negated=negated) for one in operands)
            return Logic(dual if negated else operator, parts, rules)
        case _:
            return Not(tree, RULES) if negated else tree


def _names_states(tree: Expression) -> bool:
    """Whether a test is about the state; what nests inside of a test does not count."""
    if isinstance(tree, Logic | Not):
        return any(map(_names_states, children(tree)))
    return any(isinstance(one, Name) and one.name in STATES for one in children(tree))


def _logic(operator: Any, terms: Sequence[Expression | None]) -> Expression | None:
    found = tuple(one for one in terms if one is not None)
    return Logic(operator, found, RULES) if len(found) > 1 else next(iter(found), None)


class _Written(Element, frozen=True):
    """A condition that stands in no document, so that its faults are told without a line."""

    def refused(self, code: str, message: str) -> InvalidQuery:
        return InvalidQuery(f"The conditions cannot be used: {message}", dataverse=code)


class _Reading:
    """Reads the criteria of one query, and counts them."""

    def __init__(self, table: Table, asker: Asker) -> None:
        # Keys that are kept as text need not be GUIDs, as what points at them.
        columns = tuple(
            replace(one, type="lookup") if (one.type, one.sql_type) == ("guid", "text") else one
            for one in table.columns
        )
        self._scope = fetch_conditions.FetchScope(replace(table, columns=columns))
        self._asker = asker
        self._tests = 0
        self._values = 0

    def group(self, criteria: Criteria, depth: int = 1) -> Expression | None:
        """Return what a group demands; None if nothing."""
        self._tests += len(criteria.tests)
        if self._tests > limits.QUERY_CONDITIONS_MAX or depth > _DEPTH_MAX:
            raise InvalidQuery(
                f"A query has at most {limits.QUERY_CONDITIONS_MAX} conditions, nested {_DEPTH_MAX}"
                " deep; use In, or split it.",
                dataverse=CONDITIONS,
            )
        self._values += sum(len(one.values) for one in criteria.tests)
        if self._values > limits.QUERY_VALUES_MAX:
            raise InvalidQuery(
                f"All conditions of a query have at most {limits.QUERY_VALUES_MAX:,} values; split"
                " it.",
                dataverse=CONDITIONS,
            )
        terms = [self._test(one) for one in criteria.tests]
        terms += [self.group(one, depth + 1) for one in criteria.groups]
        return _logic("or" if criteria.any else "and", terms)

    def _test(self, asked: Criterion) -> Expression | None:
        attributes = {"attribute": asked.column, "operator": asked.operator}
        values = asked.values
        if asked.against_column:
            attributes["valueof"] = "".join(values[:1])
            values = values[1:]
        children_ = [Element("value", {}, 0, [], [one]) for one in values]
        element = _Written("condition", attributes, 0, children_)
        return fetch_conditions.condition(element, self._scope, self._asker)
