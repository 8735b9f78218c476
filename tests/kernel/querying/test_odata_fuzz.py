"""Whatever text comes: it is a query that runs, or it is refused with an error of ours."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote
from uuid import UUID

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from relevo.errors import InvalidQuery
from relevo.kernel.querying import planning, preferences
from relevo.kernel.querying.errors import ColumnProtected
from tests.conftest import examples
from tests.kernel.querying.job_tables import (
    ALL,
    CATALOGUE,
    asked,
    create,
    insert,
    insert_jobs,
    job,
    run,
)

if TYPE_CHECKING:
    from relevo.kernel.postgres.database import Database
    from relevo.kernel.querying.shapes import Statement

pytestmark = pytest.mark.anyio

NAMES: Final = "$filter $select $orderby $expand $apply $top $count @p $skiptoken"
WORDS: Final = """
name depth sequence ratio statecode createdon _ownerid_value data iswaitingforevent owninguser
fullname job_notes job stars n : / ( ) [ ] , ; = ' " 'a' "1" eq ne gt le and or not in any( all(
contains( null true 0 -5 2.5 1e400 99999999999999999999 2026-01-01 2026-01-01T00:00:00Z
9999-12-31T23:59:59-12:00 00000000-0000-0000-0000-000000000001 @p asc desc $select $filter $top
$orderby $expand $count filter( groupby(( aggregate( as with sum max average
Microsoft.Dynamics.CRM.In( Microsoft.Dynamics.CRM.Today( Microsoft.Dynamics.CRM.LastXDays(
PropertyName PropertyValue PropertyValues 'name' 'createdon' '3' ['a','b'] ["1","2"]
"""
"""What queries are made of."""
LITERALS: Final = {
    "name": ["'a'", "''", "'Ä%_'", "null", "data", "secret"],
    "depth": ["0", "-5", "2.5", "1e308", "null", "sequence", "statecode"],
    "ratio": ["1", "0.1", "-1e-300", "depth"],
    "statecode": ["0", "3", "77"],
    "createdon": ["2026-01-01", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "postponeuntil"],
    "_ownerid_value": ["00000000-0000-0000-0000-000000000001", "null", "asyncoperationid"],
    "_regardingobjectid_value": ["00000000-0000-0000-0000-000000000001", "'x'", "null"],
    "iswaitingforevent": ["true", "false", "null"],
    "owninguser/fullname": ["'a'", "name", "null"],
    "regardingobjectid_account/name": ["'a'"],
}

soup = st.lists(st.sampled_from(WORDS.split()), max_size=25).map(" ".join)
columns = st.sampled_from(sorted(LITERALS))


@st.composite
def terms(draw: st.DrawFn) -> str:
    """A condition that is mostly right."""
    name = draw(columns)
    of = name if draw(st.integers(0, 9)) else draw(columns)
    value = draw(st.sampled_from(LITERALS[of]))
    number = draw(st.integers(0, 10**9))
    crm = "Microsoft.Dynamics.CRM."
    quantifier = draw(st.sampled_from(["any", "all"]))
    forms = [
        f"{name} {draw(st.sampled_from(['eq', 'ne', 'gt', 'le']))} {value}",
        f"{name} in ({value},{value})",
        f"contains({name},{value})",
        f"{crm}In(PropertyName='{name}',PropertyValues=['1','{draw(st.text('1a-', max_size=3))}'])",
        f"{crm}LastXMonths(PropertyName='createdon',PropertyValue={number})",
        f"{crm}NextXDays(PropertyName='createdon',PropertyValue='{number}')",
        f"{crm}On(PropertyName='createdon',PropertyValue={value})",
        f"job_notes/{quantifier}(n:n/stars eq 1 or n/job/{name} eq {value})",
    ]
    return draw(st.sampled_from(forms))


def chained(parts: list[str]) -> st.SearchStrategy[str]:
    return st.sampled_from([" and ", " or ", " and not "]).map(lambda sign: sign.join(parts))


filters = st.lists(terms(), min_size=1, max_size=4).flatmap(chained)
orders = st.lists(columns, min_size=1, max_size=3, unique=True).map(" desc,".join)
notes = st.tuples(st.sampled_from(["stars", "subject", "_jobid_value"]), st.integers(1, 3), filters)


def with_notes(parts: tuple[str, int, str]) -> str:
    name, top, inside = parts
    return (
        f"job_notes($select={name};$orderby={name} desc;$top={top};$filter=job/depth eq 1),"
        f"owninguser($select=fullname;$expand=user_jobs($filter={inside};$orderby=name))"
    )


def grouping(parts: tuple[list[str], str, str]) -> str:
    groups, number, condition = parts
    return (
        f"filter({condition})/groupby(({','.join(groups)}),aggregate($count as n,"
        f"{number} with sum as s,{number} with average as a,createdon with max as m))"
    )


numbers = st.sampled_from(["depth", "ratio", "sequence"])
groups = st.tuples(st.lists(columns, min_size=1, max_size=3, unique=True), numbers, filters)
written = st.one_of(
    st.tuples(filters, orders).map(lambda two: {"$filter": two[0], "$orderby": two[1]}),
    st.tuples(filters, notes.map(with_notes)).map(
        lambda two: {"$filter": two[0], "$expand": two[1]}
    ),
    groups.map(grouping).map(lambda one: {"$apply": one, "$orderby": "n desc,s"}),
).map(lambda options: "&".join(f"{name}={quote(text)}" for name, text in options.items()))
options = st.tuples(st.sampled_from(NAMES.split()), st.text(max_size=40) | soup).map(
    lambda pair: f"{pair[0]}={quote(pair[1], errors='surrogatepass')}"
)


def planned(text: str) -> list[Statement]:
    """The statements of a query; none if it is refused."""
    try:
        query = asked(text)
        page = planning.plan(query, CATALOGUE, ALL, names=True)
        return [page, planning.plan_count(query, CATALOGUE, ALL)]
    except (InvalidQuery, ColumnProtected):
        return []


@settings(max_examples=examples(500))
@given(st.lists(options, max_size=4).map("&".join) | st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    planned(text)


@pytest.fixture
async def tables(database: Database) -> Database:
    await create(database)
    strange = {"name": "100%", "depth": -(2**31), "ratio": -1e300, "about_id": "no guid"}
    await insert_jobs(database, [job(0), job(1, status=30, about_type="account", **strange)])
    await insert(database, "q_notes", [{"id": UUID(int=1), "stars": 1, "job": UUID(int=1_000)}])
    return database


@settings(max_examples=examples(400), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(written)
async def test_what_is_accepted_runs(tables: Database, text: str) -> None:
    statements = planned(text)
    event("accepted" if statements else "refused")
    for statement in statements:
        await run(tables, statement)


@given(st.text(max_size=200))
def test_any_preference_is_read_or_ignored(text: str) -> None:
    preferences.read(text).applied()


_GUIDED: Final = """
import sys
import atheris
with atheris.instrument_imports():
    from tests.kernel.querying.test_odata_fuzz import planned

def one(data):
    planned(data.decode("utf-8", "replace"))

atheris.Setup(sys.argv, one)
atheris.Fuzz()
"""


@pytest.mark.soak
def test_a_minute_of_guided_bytes_is_read_or_refused() -> None:
    if importlib.util.find_spec("atheris") is None:
        pytest.skip("atheris is not installed; install it to run a minute of guided fuzzing")
    done = subprocess.run(  # it ends its process when the time is over
        [sys.executable, "-c", _GUIDED, "-max_total_time=60", "-max_len=4096"],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4_000:]
