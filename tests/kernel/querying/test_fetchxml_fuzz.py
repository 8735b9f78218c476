"""Any query that is read can be run: random documents of known words, on real tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from relevo.errors import InvalidQuery
from relevo.kernel.querying import planning
from relevo.kernel.querying.fetchxml.conditions import OPERATORS
from tests.conftest import examples
from tests.kernel.querying.fetch_rows import answer, tables
from tests.kernel.querying.fetch_tables import CALLER, CATALOGUE, JOBS, ME, NOTES, PEOPLE, fetch

if TYPE_CHECKING:
    from relevo.kernel.postgres.database import Database
    from relevo.kernel.querying.catalogue import ColumnType, Table

__all__ = ["tables"]

VALUES: Final[dict[ColumnType, list[str]]] = {
    "guid": [str(ME), "{00000000-0000-0000-0000-000000000009}"],
    "lookup": [str(ME), "{00000000-0000-0000-0000-000000000009}"],
    "text": ["rebuild", "%a_b", "é'\\", '"; drop table x --', ""],
    "memo": ["secret", "%"],
    "int": ["3", "-9223372036854775807"],
    "bigint": ["3", "9223372036854775807"],
    "float": ["1.5", "-1e300", "9223372036854775807"],
    "bool": ["true", "0"],
    "choice": ["0", "99"],
    "datetime": ["2026-03-11", "0001-01-01", "9999-12-30T23:59:59.999999Z"],
}
LINKS: Final = [
    (PEOPLE, "systemuserid", "ownerid"),
    (NOTES, "objectid", "asyncoperationid"),
    (NOTES, "annotationid", "regardingobjectid"),
    (JOBS, "owninguser", "createdby"),
]


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace("'", "&apos;")


@st.composite
def conditions(draw: st.DrawFn, table: Table) -> str:
    column = draw(st.sampled_from(table.columns))
    fitting = sorted(name for name, one in OPERATORS.items() if column.type in one.columns)
    name = draw(st.sampled_from(fitting))
    if OPERATORS[name].against_column and draw(st.booleans()):
        other = draw(st.sampled_from(table.columns)).name
        return f"<condition attribute='{column.name}' operator='{name}' valueof='{other}'/>"
    count = draw(st.integers(OPERATORS[name].least, min(3, OPERATORS[name].most)))
    texts = ["1", "30"] if "-x-" in name else VALUES[column.type]
    values = "".join(
        f"<value>{_escaped(draw(st.sampled_from(texts)))}</value>" for _ in range(count)
    )
    return f"<condition attribute='{column.name}' operator='{name}'>{values}</condition>"


@st.composite
def filters(draw: st.DrawFn, table: Table, depth: int = 0) -> str:
    terms = draw(st.lists(conditions(table), max_size=3))
    if depth < 2 and draw(st.booleans()):
        terms.append(draw(filters(table, depth + 1)))
    if table is JOBS and depth < 2 and draw(st.booleans()):
        kind = draw(st.sampled_from(["any", "not any", "all", "not all"]))
        terms.append(draw(links(kind)))
    return f"<filter type='{draw(st.sampled_from(['and', 'or']))}'>{''.join(terms)}</filter>"


@st.composite
def links(draw: st.DrawFn, kind: str) -> str:
    table, own, other = draw(st.sampled_from(LINKS))
    parts = draw(filters(table, 2))
    if kind in ("inner", "outer", "matchfirstrowusingcrossapply"):
        parts += draw(shown(table))
    return (
        f"<link-entity name='{table.name}' from='{own}' to='{other}' link-type='{kind}'>"
        f"{parts}</link-entity>"
    )


@st.composite
def shown(draw: st.DrawFn, table: Table) -> str:
    columns = st.sampled_from([column.name for column in table.columns])
    names = draw(st.lists(columns, max_size=3))
    orders = draw(st.lists(columns, max_size=2))
    return "".join(
        [f"<attribute name='{name}'/>" for name in names]
        + [f"<order attribute='{name}' descending='{n % 2}'/>" for n, name in enumerate(orders)]
    )


@st.composite
def grouped(draw: st.DrawFn) -> str:
    made = []
    for n, column in enumerate(draw(st.lists(st.sampled_from(JOBS.columns), min_size=1))):
        how = draw(st.sampled_from(["groupby='1'", "count", "countcolumn", "max", "sum", "avg"]))
        how = how if "=" in how else f"aggregate='{how}'"
        if "groupby" in how and column.type == "datetime" and draw(st.booleans()):
            how += " dategrouping='week'"
        made.append(f"<attribute name='{column.name}' alias='a{n}' {how}/>")
    order = f"<order alias='a{draw(st.integers(0, len(made) - 1))}'/>"
    return "".join(made) + order


@st.composite
def documents(draw: st.DrawFn) -> str:
    flags = draw(st.sampled_from(["", "distinct='1'", "useraworderby='1'", "aggregate='1'"]))
    if "aggregate" in flags:
        parts = draw(grouped()) + draw(filters(JOBS))
    else:
        kinds = ["inner", "outer", "exists", "in", "matchfirstrowusingcrossapply"]
        parts = draw(shown(JOBS)) + draw(filters(JOBS))
        parts += "".join(draw(st.lists(st.sampled_from(kinds).flatmap(links), max_size=2)))
    return f"<fetch {flags}><entity name='asyncoperation'>{parts}</entity></fetch>"


@given(text=documents())
@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@pytest.mark.anyio
async def test_any_query_that_is_read_can_be_run(tables: Database, text: str) -> None:
    try:
        query = fetch(text)
        planning.plan(query, CATALOGUE, CALLER)
    except InvalidQuery:
        return
    await answer(tables, query)
