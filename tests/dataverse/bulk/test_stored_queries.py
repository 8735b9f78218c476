"""Queries as jobs keep them: what was stored comes back, and nothing else is made of it."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, get_type_hints
from uuid import UUID

import msgspec
import pytest
from msgspec import Struct
from msgspec.structs import fields

from relevo.dataverse.bulk import RowQuery, stored_queries
from relevo.dataverse.bulk.handlers import DELETE
from relevo.errors import InvalidQuery
from relevo.jobs import states
from relevo.jobs.errors import JobFailed
from relevo.kernel.expressions.tree import (
    Affix,
    Compare,
    Constant,
    In,
    Like,
    List,
    Logic,
    Name,
    Not,
)
from relevo.kernel.querying.model import RULES, Item, Link, Order, Query, column, related

if TYPE_CHECKING:
    from relevo import App
    from tests.dataverse.bulk.conftest import Warehouse

pytestmark = pytest.mark.anyio


def test_what_is_stored_comes_back_as_it_was() -> None:
    link = Link(table="team", alias="t", column="a", parent_column="b", kind="any")
    values = (
        None,
        True,
        1,
        1.5,
        "a",
        Decimal("1.10"),
        UUID(int=7),
        datetime(2026, 1, 2, tzinfo=UTC),
    )
    query = Query(
        table="order", items=(Item(path=("a", "b")),), orders=(Order(path=("a",)),), links=(link,),
        filter=Logic("or", (
            Not(Affix("end", Name("city"), Constant("x"), RULES), RULES),
            Like(Name("a"), Constant("x%"), RULES), related("t"),
            In(column("a", "b"), List(tuple(map(Constant, values))), RULES),
        ), RULES),
    )  # fmt: skip
    assert stored_queries.decoded(stored_queries.encoded(query)) == query


@pytest.mark.parametrize("data", [{"is": "Popen", "args": "x"}, {"value": 1}, {"is": "Compare"}])
def test_nothing_else_is_made_of_what_is_stored(data: Any) -> None:
    with pytest.raises(InvalidQuery):
        stored_queries.decoded(data)


def parts_with_choices() -> list[tuple[type[Struct], str]]:
    """Every field of a stored part that takes one of some words."""
    return [
        (part, name)
        for part in stored_queries._PARTS.values()
        for name, type_ in get_type_hints(part).items()
        if "Literal" in str(type_)
    ]


def any_part(part: type[Struct]) -> dict[str, Any]:
    """A part as it is stored, as right as its types ask for."""
    fitting: dict[str, Any] = {
        "rules": RULES, "operator": {"Logic": "and"}.get(part.__name__, "="), "side": "start",
        "nulls": "blank", "rest": (("+", Name("a")),), "operands": (Name("a"),), "path": ("a",),
    }  # fmt: skip
    texts = {"table", "alias", "column", "parent_column", "navigation"}
    made = {
        field.name: fitting.get(field.name, "a" if field.name in texts else Name("a"))
        for field in fields(part) if field.required
    }  # fmt: skip
    encoded: dict[str, Any] = stored_queries.encoded(part(**made))
    return encoded


@pytest.mark.parametrize(("part", "field"), parts_with_choices())
@pytest.mark.parametrize("value", ["= 1 or 1", ["and"], 1, {"is": "Name", "name": "and"}])
def test_no_word_is_taken_that_is_none_of_those_of_its_field(
    part: type[Struct], field: str, value: Any
) -> None:
    # A23: operators become SQL as they are.
    good = any_part(part)
    assert isinstance(stored_queries.decoded(good), part)
    bad = [[value, good["first"]]] if field == "rest" else value
    with pytest.raises(InvalidQuery, match=f"an invalid {field}"):
        stored_queries.decoded({**good, field: bad})


@pytest.mark.parametrize("data", [[], 1, None, {"is": "Name", "name": "a"}])
def test_a_stored_query_is_a_query(data: Any) -> None:
    with pytest.raises(InvalidQuery, match="expected a query"):
        stored_queries.query(data)


async def test_a_job_with_an_operator_that_is_none_deletes_nothing(
    app: App, warehouse: Warehouse
) -> None:
    # A23: whoever may submit jobs writes their data.
    other = await app.jobs.submit("nobody")
    await other.cancel()
    tree = Compare("= j.name or j.name =", Name("name"), Constant("x"), RULES)  # type: ignore[arg-type]
    rows = RowQuery(
        table="asyncoperation",
        query=stored_queries.encoded(Query(table="asyncoperation", filter=tree)),
    )
    data = msgspec.to_builtins({"queries": [rows]})
    async with app.host():
        job = await app.jobs.submit(DELETE, data, lane="bulk")
        with pytest.raises(JobFailed, match="an invalid operator"):
            await job.wait(60)
    assert (await other.get()).status_code == states.CANCELED
