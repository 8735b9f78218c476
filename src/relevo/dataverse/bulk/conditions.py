"""Conditions of bulk operations as SQL, over JSON paths and over columns of tables.

Conditions over columns use the expression tree and the planner of OData and FetchXML, so equal
conditions find equal rows, and every value reaches SQL as a parameter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import replace

from relevo import limits
from relevo.dataverse.bulk import stored_queries
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
    from relevo.pipeline.registry import PipelineRegistry

_COMPLETED: Final = Compare("=", Name("statecode"), Constant(3), RULES)
_DEPTH_MAX: Final = limits.QUERY_DEPTH_MAX


class Planned(Struct, frozen=True, kw_only=True):
    """Conditions over the columns of a table."""

    catalogue: Catalogue
    caller: Caller
    table: Table
    query: Query

    def sql(self, alias: str, first: int) -> tuple[str, list[Any]]:
        """Return a condition on the rows of an alias, never null; parameters start at `first`.

        Raises `InvalidQuery`, and `ColumnProtected` for columns that the caller may not read.
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


class RowConditions(Struct, frozen=True, kw_only=True):
    """Conditions as SQL; their parameters follow those of the statement."""

    where: Sequence[Any]
    alias: str
    body: str
    """The SQL of the JSON document that `where` tests."""
    planned: Planned | None = None

    def put(self, sql: str, *arguments: Any) -> tuple[Any, ...]:
        """Return a statement with `(true)` replaced by the conditions, and all its arguments."""
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
    """Return the rows of a query; of a `relevo.kernel.querying` query, only its conditions.

    With `caller`, a query over jobs finds only jobs within the caller's scope.
    """
    if isinstance(given, RowQuery):
        return given
    for name in ("top", "aggregate", "distinct", "expands", "position"):
        if getattr(given, name):
            raise InvalidQuery(
                f"a bulk operation takes all rows of its query; remove {name}",
                pointer="queries",
            )
    tree = _logic("and", (given.filter, None if caller is None else reached(caller)))
    kept = Query(table=given.table, filter=tree, links=given.links)
    scope = "all" if caller is None else caller.scope
    return RowQuery(table=given.table, query=stored_queries.encoded(kept), scope=scope)


def reached(caller: Caller) -> Expression | None:
    """Return the condition for jobs within a caller's scope; None if the scope is everything.

    The job's owner evaluates the stored query later, so the scope must be part of its conditions.
    """
    if caller.scope == "all":
        return None
    mine = tuple(map(Constant, (caller.user_id, *caller.teams)))
    own = In(Name("ownerid"), List(mine), RULES)
    if caller.scope == "own" or caller.unit is None:
        return own
    unit = Compare("=", Name("owningbusinessunit"), Constant(caller.unit), RULES)
    return Logic("or", (own, unit), RULES)


def catalogue(registry: PipelineRegistry | None) -> Catalogue:
    """Return the tables that conditions can name or reach through links."""
    taken = {surrounding.name for surrounding in RELATED_TABLES} | {JOBS.name}
    tables = {} if registry is None else registry.tables
    return served(
        (*RELATED_TABLES, *(table.served for table in tables.values() if table.name not in taken))
    )


def planned(row_query: RowQuery, tables: Catalogue, table: str, asker: Asker) -> Planned:
    """Return the conditions over columns, for this caller and time; raises `InvalidQuery`."""
    described = tables.by_name[table]
    terms: list[Expression | None] = []
    links: tuple[Link, ...] = ()
    if row_query.filter is not None:
        read = Reader(tables, asker.caller, asker.now).filter(row_query.filter, described, "filter")
        terms.append(read.tree)
        links += read.links
    if row_query.criteria is not None:
        terms.append(_CriteriaReader(described, asker).group(row_query.criteria))
    if row_query.query is not None:
        given = stored_queries.query(row_query.query)
        terms.append(given.filter)
        links += given.links
    tree = _logic("and", terms)
    if row_query.of_jobs and not row_query.names_states:
        tree = _COMPLETED if tree is None else completed(tree)
    if row_query.of_jobs:
        tree = _logic("and", (tree, reached(replace(asker.caller, scope=row_query.reach))))
    return Planned(
        catalogue=tables, caller=asker.caller, table=described,
        query=Query(table=table, filter=tree, links=links),
    )  # fmt: skip


def completed(tree: Expression) -> Expression:
    """Restrict a condition on jobs to completed ones, except where it names a state.

    Each alternative counts separately: `name eq 'a' or statecode eq 0` spares jobs named `a` that
    are not completed.
    """
    return _guarded(_pushed(tree))


def _guarded(tree: Expression) -> Expression:
    """Restrict a condition whose negations have been pushed down to single tests."""
    match tree:
        case Logic(operator="or", operands=operands):
            return Logic("or", tuple(map(_guarded, operands)), RULES)
        case Logic(operands=operands) if _names_states(tree):
            guarded = (_guarded(one) if _names_states(one) else one for one in operands)
            return Logic("and", tuple(guarded), RULES)
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
    """Whether a test names a state column; nested expressions inside a test do not count."""
    if isinstance(tree, Logic | Not):
        return any(map(_names_states, children(tree)))
    return any(isinstance(one, Name) and one.name in STATES for one in children(tree))


def _logic(operator: Any, terms: Sequence[Expression | None]) -> Expression | None:
    present = tuple(term for term in terms if term is not None)
    return Logic(operator, present, RULES) if len(present) > 1 else next(iter(present), None)


class _CriterionElement(Element, frozen=True):
    """A condition that is in no document, so errors about it name no line."""

    def refused(self, code: str, message: str) -> InvalidQuery:
        return InvalidQuery(f"The conditions cannot be used: {message}", dataverse=code)


class _CriteriaReader:
    """Reads the criteria of one query and enforces their limits."""

    def __init__(self, table: Table, asker: Asker) -> None:
        # Keys stored as text need not be GUIDs, and neither do references to them.
        columns = tuple(
            replace(column, type="lookup")
            if (column.type, column.sql_type) == ("guid", "text")
            else column
            for column in table.columns
        )
        self._scope = fetch_conditions.FetchScope(replace(table, columns=columns))
        self._asker = asker
        self._tests = 0
        self._values = 0

    def group(self, criteria: Criteria, depth: int = 1) -> Expression | None:
        """Return the condition of a group; None if the group is empty."""
        self._tests += len(criteria.tests)
        if self._tests > limits.QUERY_CONDITIONS_MAX or depth > _DEPTH_MAX:
            raise InvalidQuery(
                f"A query has at most {limits.QUERY_CONDITIONS_MAX} conditions, nested at most"
                f" {_DEPTH_MAX} levels deep; use In, or split the query.",
                dataverse=CONDITIONS,
            )
        self._values += sum(len(test.values) for test in criteria.tests)
        if self._values > limits.QUERY_VALUES_MAX:
            raise InvalidQuery(
                f"The conditions of a query have at most {limits.QUERY_VALUES_MAX:,} values in all;"
                " split the query.",
                dataverse=CONDITIONS,
            )
        terms = [self._test(test) for test in criteria.tests]
        terms += [self.group(group, depth + 1) for group in criteria.groups]
        return _logic("or" if criteria.any else "and", terms)

    def _test(self, criterion: Criterion) -> Expression | None:
        attributes = {"attribute": criterion.column, "operator": criterion.operator}
        values = criterion.values
        if criterion.against_column:
            attributes["valueof"] = "".join(values[:1])
            values = values[1:]
        children_ = [Element("value", {}, 0, [], [value]) for value in values]
        element = _CriterionElement("condition", attributes, 0, children_)
        return fetch_conditions.condition(element, self._scope, self._asker)
