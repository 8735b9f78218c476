"""Conditions of FetchXML on real tables: the rows they find, which OData finds too (A24)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import msgspec
import pytest

from relevo.kernel.expressions.values import fold
from relevo.kernel.querying import planning
from relevo.kernel.querying.errors import ColumnProtected
from relevo.kernel.querying.fetchxml.dates import interval
from relevo.kernel.querying.model import Query
from relevo.kernel.querying.odata.filters import Reader
from tests.kernel.querying.fetch_rows import JOB_ROWS, Row, answer, found, tables, xml
from tests.kernel.querying.fetch_tables import (
    CALLER,
    CATALOGUE,
    JOBS,
    ME,
    NOW,
    TEAM,
    UNIT,
    entity,
    fetch,
)
from tests.kernel.querying.test_fetchxml_documents import SEED

if TYPE_CHECKING:
    from datetime import datetime

    from relevo.kernel.postgres.database import Database

__all__ = ["tables"]

pytestmark = pytest.mark.anyio

Holds = Callable[[Row], Any]


def _crm(function: str, name: str, *values: object) -> str:
    tail = ""
    if len(values) == 1:
        tail = f",PropertyValue={values[0]}"
    elif values:
        tail = f",PropertyValues={msgspec.json.encode([str(one) for one in values]).decode()}"
    return f"Microsoft.Dynamics.CRM.{function}(PropertyName='{name}'{tail})"


def _known(name: str, holds: Callable[[Any], bool]) -> Holds:
    """A condition on a column that no null fulfils."""
    return lambda row: row[name] is not None and holds(row[name])


def _dated(operator: str, count: int = 0) -> Holds:
    found = interval(operator, NOW, count)
    return _known(
        "createdon",
        lambda value: (
            (found.since is None or value >= found.since)
            and (found.until is None or value < found.until)
        ),
    )


def _like(pattern: str) -> Holds:
    form = "".join({"%": ".*", "_": "."}.get(one, re.escape(one)) for one in fold(pattern))
    return _known("name", lambda value: re.fullmatch(form, fold(value), re.DOTALL) is not None)


def _day(text: str) -> Callable[[datetime], bool]:
    return lambda value: value.date().isoformat() == text


CASES: Final[list[tuple[str, str | None, Holds]]] = [
    (xml("depth", "eq", 3), "depth eq 3", _known("depth", lambda v: v == 3)),
    (xml("depth", "ne", 3), "depth ne 3", _known("depth", lambda v: v != 3)),
    (xml("depth", "neq", 3), "depth ne 3", _known("depth", lambda v: v != 3)),
    (xml("depth", "gt", 2), "depth gt 2", _known("depth", lambda v: v > 2)),
    (xml("depth", "ge", 2), "depth ge 2", _known("depth", lambda v: v >= 2)),
    (xml("depth", "lt", 2), "depth lt 2", _known("depth", lambda v: v < 2)),
    (xml("depth", "le", 2), "depth le 2", _known("depth", lambda v: v <= 2)),
    (xml("depth", "in", 1, 4), "depth in (1,4)", _known("depth", lambda v: v in (1, 4))),
    (xml("depth", "in", 1, 4), _crm("In", "depth", 1, 4), _known("depth", lambda v: v in (1, 4))),
    (
        xml("depth", "not-in", 1, 4),
        _crm("NotIn", "depth", 1, 4),
        _known("depth", lambda v: v not in (1, 4)),
    ),
    (
        xml("depth", "between", 2, 3),
        _crm("Between", "depth", 2, 3),
        _known("depth", lambda v: 2 <= v <= 3),
    ),
    (
        xml("depth", "not-between", 2, 3),
        _crm("NotBetween", "depth", 2, 3),
        _known("depth", lambda v: not 2 <= v <= 3),
    ),
    (xml("depth", "null"), "depth eq null", lambda row: row["depth"] is None),
    (xml("depth", "not-null"), "depth ne null", lambda row: row["depth"] is not None),
    (
        xml("executiontimespan", "gt", "3.25"),
        "executiontimespan gt 3.25",
        _known("executiontimespan", lambda v: v > 3.25),
    ),
    (
        xml("iswaitingforevent", "eq", "1"),
        "iswaitingforevent eq true",
        lambda row: row["iswaitingforevent"] is True,
    ),
    (
        xml("iswaitingforevent", "ne", "true"),
        "iswaitingforevent ne true",
        lambda row: row["iswaitingforevent"] is False,
    ),
    (xml("statecode", "eq", 2), "statecode eq 2", lambda row: row["statecode"] == 2),
    (xml("name", "eq", "REBUILD"), "name eq 'REBUILD'", _like("rebuild")),
    (
        xml("name", "ne", "REBUILD"),
        "name ne 'REBUILD'",
        _known("name", lambda v: fold(v) != "rebuild"),
    ),
    (xml("name", "eq", "äRGER"), "name eq 'äRGER'", _like("ärger")),
    (xml("name", "like", "re%"), "startswith(name,'re')", _like("re%")),
    (xml("name", "begins-with", "RE"), "startswith(name,'RE')", _like("re%")),
    (xml("name", "ends-with", "%"), "endswith(name,'%')", _known("name", lambda v: v[-1:] == "%")),
    (xml("name", "like", "%build%"), "contains(name,'build')", _like("%build%")),
    (
        xml("name", "not-like", "%build%"),
        "not contains(name,'build')",
        _known("name", lambda v: "build" not in fold(v)),
    ),
    (
        xml("name", "not-begin-with", "r"),
        "not startswith(name,'r')",
        _known("name", lambda v: not fold(v).startswith("r")),
    ),
    (
        xml("name", "not-end-with", "x"),
        "not endswith(name,'x')",
        _known("name", lambda v: not v.endswith("x")),
    ),
    (xml("name", "like", "a_b"), None, _like("a_b")),
    (xml("name", "like", "%e%i_d%"), None, _like("%e%i_d%")),
    (xml("name", "like", "Ä_g%"), None, _like("ä_g%")),
    (xml("name", "like", "%"), "contains(name,'')", _like("%")),
    (xml("name", "like", "zzz' OR 1=1 --%"), "startswith(name,'zzz'' OR 1=1 --')", _like("zzz")),
    (
        "<condition attribute='startedon' operator='gt' valueof='createdon'/>",
        "startedon gt createdon",
        lambda row: row["startedon"] is not None and row["startedon"] > row["createdon"],
    ),
    (
        "<condition attribute='name' operator='eq' valueof='message'/>",
        "name eq message",
        lambda row: row["name"] and row["message"] and fold(row["name"]) == row["message"],
    ),
    (
        xml("createdon", "on", "2026-03-11"),
        _crm("On", "createdon", "2026-03-11"),
        _known("createdon", _day("2026-03-11")),
    ),
    (xml("createdon", "today"), _crm("Today", "createdon"), _dated("today")),
    (xml("createdon", "this-week"), _crm("ThisWeek", "createdon"), _dated("this-week")),
    (xml("createdon", "this-month"), _crm("ThisMonth", "createdon"), _dated("this-month")),
    (xml("createdon", "this-year"), _crm("ThisYear", "createdon"), _dated("this-year")),
    (xml("createdon", "last-seven-days"), None, _dated("last-seven-days")),
    (
        xml("createdon", "last-x-hours", 30),
        _crm("LastXHours", "createdon", 30),
        _dated("last-x-hours", 30),
    ),
    (
        xml("createdon", "last-x-days", 3),
        _crm("LastXDays", "createdon", 3),
        _dated("last-x-days", 3),
    ),
    (
        xml("createdon", "next-x-days", 3),
        _crm("NextXDays", "createdon", 3),
        _dated("next-x-days", 3),
    ),
    (
        xml("createdon", "olderthan-x-days", 5),
        _crm("OlderThanXDays", "createdon", 5),
        _dated("olderthan-x-days", 5),
    ),
    (xml("createdon", "olderthan-x-years", 1), None, _dated("olderthan-x-years", 1)),
    (
        xml("createdon", "ge", NOW.isoformat()),
        f"createdon ge {NOW:%Y-%m-%dT%H:%M:%S.%f}Z",
        _known("createdon", lambda v: v >= NOW),
    ),
    (
        xml("ownerid", "eq-userid"),
        _crm("EqualUserId", "ownerid"),
        lambda row: row["ownerid"] == ME,
    ),
    (
        xml("ownerid", "ne-userid"),
        _crm("NotEqualUserId", "ownerid"),
        _known("ownerid", lambda v: v != ME),
    ),
    (xml("ownerid", "eq-userteams"), None, lambda row: row["ownerid"] == TEAM),
    (xml("ownerid", "eq-useroruserteams"), None, lambda row: row["ownerid"] in (ME, TEAM)),
    (
        xml("owningbusinessunit", "eq-businessid"),
        _crm("EqualBusinessId", "owningbusinessunit"),
        lambda row: row["owningbusinessunit"] == UNIT,
    ),
    (
        xml("owningbusinessunit", "ne-businessid"),
        _crm("NotEqualBusinessId", "owningbusinessunit"),
        _known("owningbusinessunit", lambda v: v != UNIT),
    ),
    (xml("ownerid", "eq", ME), f"_ownerid_value eq {ME}", lambda row: row["ownerid"] == ME),
    (
        xml("regardingobjectid", "eq", UUID(int=203)),
        f"_regardingobjectid_value eq {UUID(int=203)}",
        lambda row: row["regardingobjectid"] == str(UUID(int=203)),
    ),
    (
        f"<filter type='or'>{xml('depth', 'null')}{xml('depth', 'eq', 1)}</filter>"
        f"{xml('statecode', 'ne', 0)}",
        "(depth eq null or depth eq 1) and statecode ne 0",
        lambda row: row["depth"] in (None, 1) and row["statecode"] != 0,
    ),
]


async def test_conditions_find_the_same_rows_in_both_languages(tables: Database) -> None:  # A24
    for conditions, text, holds in CASES:
        query = entity(f"<attribute name='asyncoperationid'/><filter>{conditions}</filter>")
        expected = {row["sequence"] for row in JOB_ROWS if holds(row)}
        assert await found(tables, query) == expected, conditions
        if text is not None:
            odata = Reader(CATALOGUE, CALLER, NOW).filter(text, JOBS)
            same = Query(
                table="asyncoperation", items=query.items, filter=odata.tree, links=odata.links
            )
            assert await found(tables, same) == expected, text


def test_the_cases_find_something_and_not_everything() -> None:
    dull = [
        conditions
        for conditions, _, holds in CASES
        if sum(bool(holds(row)) for row in JOB_ROWS) in (0, len(JOB_ROWS))
    ]
    assert [one for one in dull if "1=1" not in one] == []


async def test_up_to_the_last_day_there_is_all_dates_lie(tables: Database) -> None:
    dated = {row["sequence"] for row in JOB_ROWS if row["startedon"] is not None}
    condition = xml("startedon", "on-or-before", "9999-12-31")
    assert await found(tables, entity(f"<filter>{condition}</filter>")) == dated
    assert 0 < len(dated) < len(JOB_ROWS)


async def test_the_documented_query_answers(tables: Database) -> None:
    rows = await answer(tables, fetch(SEED))
    assert len(rows) == len(JOB_ROWS)
    assert {"asyncoperationid", "_ownerid_value", "data", "workflowstagename"} <= set(rows[0])


async def test_payload_is_null_without_the_right_and_cannot_be_probed(
    tables: Database,
) -> None:  # A28
    caller = msgspec.structs.replace(CALLER, may_read_payload=False)
    rows = await answer(tables, fetch(SEED), caller)
    assert {row["data"] for row in rows} == {None}
    for parts in (
        f"<filter>{xml('data', 'eq', 'secret')}</filter>",
        "<order attribute='data'/>",
        "<filter><condition attribute='name' operator='eq' valueof='data'/></filter>",
    ):
        with pytest.raises(ColumnProtected):
            planning.plan(entity(parts), CATALOGUE, caller)
