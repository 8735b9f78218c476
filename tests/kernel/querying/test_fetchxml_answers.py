"""Links, groups, orders and pages of FetchXML on real tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.kernel.querying.fetch_rows import JOB_ROWS, NOTE_ROWS, Row, answer, found, tables, xml
from tests.kernel.querying.fetch_tables import ME, STATES, TEAM, entity

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from relevo.kernel.postgres.database import Database

__all__ = ["tables"]

pytestmark = pytest.mark.anyio


async def test_links_join_and_show_the_other_tables_columns(tables: Database) -> None:
    link = (
        "<attribute name='sequence'/><order attribute='sequence'/>"
        "<link-entity name='systemuser' from='systemuserid' to='ownerid' alias='u' {}>"
        "<attribute name='fullname'/></link-entity>"
    )
    names = {ME: "Zoe", TEAM: "Ann"}
    inner = await answer(tables, entity(link.format("")))
    assert [(row["sequence"], row["u.fullname"]) for row in inner] == [
        (row["sequence"], names[row["ownerid"]]) for row in JOB_ROWS if row["ownerid"] in names
    ]
    outer = await answer(tables, entity(link.format("link-type='outer'")))
    assert [row["u.fullname"] for row in outer] == [names.get(row["ownerid"]) for row in JOB_ROWS]


async def test_an_outer_link_finds_what_has_none(tables: Database) -> None:
    parts = (
        "<attribute name='asyncoperationid'/>"
        "<filter><condition entityname='u' attribute='systemuserid' operator='null'/></filter>"
        "<link-entity name='systemuser' from='systemuserid' to='ownerid' alias='u' "
        "link-type='outer'/>"
    )
    without = {row["sequence"] for row in JOB_ROWS if row["ownerid"] not in (ME, TEAM)}
    assert await found(tables, entity(parts)) == without


def _starred(row: Row) -> bool:
    return bool(row["stars"] == 3)


@pytest.mark.parametrize(
    ("kind", "holds"),
    [
        ("any", lambda notes: any(map(_starred, notes))),
        ("not any", lambda notes: not any(map(_starred, notes))),
        # As it is upstream: rows related to some, none of which fulfils the filter.
        ("all", lambda notes: bool(notes) and not any(map(_starred, notes))),
        ("not all", lambda notes: any(map(_starred, notes))),
    ],
)
async def test_links_in_filters_test_for_rows(
    tables: Database, kind: str, holds: Callable[[list[Row]], bool]
) -> None:
    link = (
        f"<link-entity name='annotation' from='objectid' to='asyncoperationid' link-type='{kind}'>"
        f"<filter>{xml('stars', 'eq', 3)}</filter></link-entity>"
    )
    expected = {
        row["sequence"]
        for row in JOB_ROWS
        if holds([note for note in NOTE_ROWS if note["objectid"] == row["asyncoperationid"]])
    }
    query = entity(f"<attribute name='asyncoperationid'/><filter>{link}</filter>")
    assert await found(tables, query) == expected
    query = entity(
        f"<attribute name='asyncoperationid'/><filter type='or'>{xml('depth', 'eq', 3)}{link}"
        "</filter>"
    )
    deep = {row["sequence"] for row in JOB_ROWS if row["depth"] == 3}
    assert await found(tables, query) == expected | deep


@pytest.mark.parametrize("kind", ["exists", "in"])
async def test_links_that_only_test_repeat_no_row(tables: Database, kind: str) -> None:
    link = (
        f"<attribute name='sequence'/><link-entity name='annotation' from='objectid' "
        f"to='asyncoperationid' link-type='{kind}'/>"
    )
    rows = await answer(tables, entity(link))
    assert sorted(row["sequence"] for row in rows) == list(range(11))


async def test_the_first_related_row_is_chosen_by_the_links_order(tables: Database) -> None:
    link = (
        "<attribute name='sequence'/><order attribute='sequence'/>"
        "<link-entity name='annotation' from='objectid' to='asyncoperationid' alias='n' "
        "link-type='matchfirstrowusingcrossapply'><attribute name='annotationid'/>"
        "<order attribute='annotationid' descending='true'/></link-entity>"
    )
    rows = await answer(tables, entity(link))
    assert [(row["sequence"], row["n.annotationid"]) for row in rows] == [
        (n, max(one["annotationid"] for one in NOTE_ROWS if one["objectid"].int == 100 + n))
        for n in range(11)
    ]


async def test_a_lookup_kept_as_text_links_to_a_key(tables: Database) -> None:
    link = (
        "<attribute name='sequence'/>"
        "<link-entity name='annotation' from='annotationid' to='regardingobjectid'/>"
    )
    rows = await answer(tables, entity(link))
    assert sorted(row["sequence"] for row in rows) == [n for n in range(1, 26) if n % 2]


async def test_choices_sort_by_label_and_raw_ones_by_number(tables: Database) -> None:
    parts = "<attribute name='statecode'/><order attribute='statecode'/>"
    labels = [STATES[row["statecode"]]["en"] for row in await answer(tables, entity(parts))]
    assert labels == sorted(labels)
    raw = await answer(tables, entity(parts, "useraworderby='true'"))
    assert [row["statecode"] for row in raw] == sorted(row["statecode"] for row in JOB_ROWS)


async def test_groups_are_counted_and_sorted_by_alias(tables: Database) -> None:
    parts = (
        "<attribute name='depth' groupby='true' alias='deep'/>"
        "<attribute name='name' aggregate='count' alias='n'/>"
        "<attribute name='name' aggregate='countcolumn' alias='named'/>"
        "<attribute name='sequence' aggregate='max' alias='last'/>"
        "<order alias='last' descending='true'/>"
    )
    rows = await answer(tables, entity(parts, "aggregate='true'"))
    groups: dict[Any, list[Row]] = {}
    for job in JOB_ROWS:
        groups.setdefault(job["depth"], []).append(job)
    expected = [
        {
            "deep": key,
            "n": len(jobs),
            "named": sum(job["name"] is not None for job in jobs),
            "last": max(job["sequence"] for job in jobs),
        }
        for key, jobs in groups.items()
    ]
    assert rows == sorted(expected, key=lambda row: -row["last"])


@pytest.mark.parametrize(
    ("grouping", "part"),
    [
        ("day", lambda value: value.day),
        ("week", lambda value: value.isocalendar().week),
        ("month", lambda value: value.month),
        ("quarter", lambda value: (value.month + 2) // 3),
        ("year", lambda value: value.year),
    ],
)
async def test_dates_are_grouped_by_their_parts(
    tables: Database, grouping: str, part: Callable[[datetime], int]
) -> None:
    parts = (
        f"<attribute name='createdon' groupby='true' alias='g' dategrouping='{grouping}'/>"
        "<attribute name='name' aggregate='count' alias='n'/><order alias='g'/>"
    )
    rows = await answer(tables, entity(parts, "aggregate='true'"))
    found = [part(row["createdon"]) for row in JOB_ROWS]
    assert rows == [{"g": key, "n": found.count(key)} for key in sorted(set(found))]


async def test_different_rows_come_once(tables: Database) -> None:
    parts = "<attribute name='statecode'/><order attribute='statecode'/>"
    rows = await answer(tables, entity(parts, "distinct='true' useraworderby='true'"))
    assert rows == [{"statecode": n} for n in range(4)]


async def test_top_and_numbered_pages(tables: Database) -> None:
    parts = "<attribute name='sequence'/><order attribute='sequence'/>"
    top = await answer(tables, entity(parts, "top='7'"))
    assert [row["sequence"] for row in top] == list(range(7))
    second = await answer(tables, entity(parts, "count='10' page='2'"))
    # One more than the page has says that there are more.
    assert [row["sequence"] for row in second] == list(range(10, 21))
