"""Cookies of FetchXML: what clients do with them, and what a cookie is refused for."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote
from uuid import UUID
from xml.etree import ElementTree
from xml.sax.saxutils import quoteattr

import pytest

from relevo.errors import InvalidQuery
from relevo.kernel.querying import planning
from relevo.kernel.querying.fetchxml import paging as fetch_paging
from relevo.kernel.querying.fetchxml import reader as fetchxml
from relevo.kernel.querying.model import Caller, Position
from tests.kernel.querying.fetch_rows import JOB_ROWS, tables
from tests.kernel.querying.fetch_tables import (
    CALLER,
    CATALOGUE,
    KEY,
    NOW,
    entity,
    fetch,
    refused_code,
)

if TYPE_CHECKING:
    from relevo.kernel.postgres.database import Database

__all__ = ["tables"]

HERE = Position((NOW, UUID(int=7), None, 1.5), 10)
PARTS = "<attribute name='name'/><order attribute='createdon'/>"


def document(parts: str = PARTS, attributes: str = "count='10'", **more: str) -> str:
    added = " ".join(f"{key.replace('_', '-')}={quoteattr(value)}" for key, value in more.items())
    return f"<fetch {attributes} {added}><entity name='asyncoperation'>{parts}</entity></fetch>"


def inner(cookie: str) -> str:
    """What a client sends of a cookie: its inner value, decoded twice."""
    return unquote(unquote(ElementTree.fromstring(cookie).attrib["pagingcookie"]))


def given(text: str, caller: Caller = CALLER) -> str:
    return inner(fetch_paging.next_cookie(text, fetch(text), HERE, caller, KEY))


def code(text: str) -> str:
    return refused_code(text)


def test_a_cookie_has_the_form_that_clients_know() -> None:
    text = document(attributes="count='10' page='4'")
    cookie = fetch_paging.next_cookie(text, fetch(text), HERE, CALLER, KEY)
    assert re.fullmatch(
        r'<cookie pagenumber="5" pagingcookie="%253Ccookie%2520page%253D[A-Za-z0-9_.%-]+" '
        r'istracking="False" />',
        cookie,
    )
    assert ElementTree.fromstring(inner(cookie)).attrib == {"page": "4"}


def test_a_cookie_leads_behind_the_page_it_came_with() -> None:
    query = fetch(document(page="2", paging_cookie=given(document())))
    assert (query.page, query.page_size, query.position) == (2, 10, HERE)
    without = fetch(document(paging_cookie=given(document())))
    assert (without.page, without.position) == (2, HERE)


def test_a_cookie_may_still_be_encoded() -> None:
    cookie = ElementTree.fromstring(
        fetch_paging.next_cookie(document(), fetch(document()), HERE, CALLER, KEY)
    ).attrib["pagingcookie"]
    for text in (cookie, unquote(cookie), unquote(unquote(cookie)).replace('"', "'")):
        assert fetch(document(paging_cookie=text)).position == HERE


def test_the_size_of_pages_may_change_and_the_clock_go_on() -> None:
    parts = f"{PARTS}<filter><condition attribute='createdon' operator='today'/></filter>"
    cookie = given(document(parts))
    text = document(parts, "count='25' returntotalrecordcount='true'", paging_cookie=cookie)
    assert fetch(text, now=NOW + timedelta(hours=3)).position == HERE


def test_an_empty_cookie_is_none() -> None:
    assert fetch(document(paging_cookie="")).position is None


@pytest.mark.parametrize(
    "parts",
    [
        "<attribute name='name'/>",
        "<attribute name='name'/><order attribute='createdon' descending='true'/>",
        "<attribute name='name'/><order attribute='name'/>",
        f"{PARTS}<order attribute='name'/>",
        f"{PARTS}<link-entity name='systemuser' from='systemuserid' to='ownerid'>"
        "<order attribute='fullname'/></link-entity>",
    ],
)
def test_a_cookie_of_another_order_is_refused(parts: str) -> None:
    assert code(document(parts, paging_cookie=given(document()))) == "0x80041129"


def test_a_cookie_of_another_query_or_caller_is_refused() -> None:
    cookie = given(document())
    filtered = f"{PARTS}<filter><condition attribute='name' operator='null'/></filter>"
    assert code(document(filtered, paging_cookie=cookie)) == "0x80040203"
    assert code(document(paging_cookie=given(document(), Caller(user_id=UUID(int=5))))) == (
        "0x80040203"
    )
    assert code(document(page="7", paging_cookie=cookie)) == "0x80040203"


def test_a_cookie_under_another_key_is_refused() -> None:
    text = document()
    cookie = inner(fetch_paging.next_cookie(text, fetch(text), HERE, CALLER, b"x" * 32))
    assert code(document(paging_cookie=cookie)) == "0x80040203"


def test_a_changed_cookie_is_refused() -> None:
    cookie = given(document())
    start = cookie.index("token=") + 7
    for at in range(start, cookie.index('" />')):
        changed = cookie[:at] + ("A" if cookie[at] != "A" else "B") + cookie[at + 1 :]
        assert code(document(paging_cookie=changed)) == "0x80040203"
    for wrong in ("x", "%", "<cookie/>", cookie[:-1], cookie * 2, cookie.replace("1", "0", 1)):
        assert code(document(paging_cookie=wrong)) == "0x80040203"


def test_far_pages_need_a_cookie() -> None:
    def plan(attributes: str) -> None:
        planning.plan(entity(PARTS, attributes), CATALOGUE, CALLER)

    plan("count='5000' page='10'")
    plan("page='10'")
    for attributes in ("count='5000' page='11'", "page='11'", "count='1' page='50001'"):
        with pytest.raises(InvalidQuery) as error:
            plan(attributes)
        assert error.value.dataverse == "0x8004430A"


def test_the_preferred_size_holds_where_the_document_has_none() -> None:
    def size(attributes: str) -> int | None:
        text = document(attributes=attributes)
        return fetchxml.parse(
            text,
            CATALOGUE,
            table="asyncoperation",
            caller=CALLER,
            now=NOW,
            key=KEY,
            page_size=20,
        ).page_size

    assert size("") == 20
    assert size("count='10'") == 10


async def _walk(database: Database, parts: str, attributes: str) -> list[list[dict[str, Any]]]:
    """All pages of a query, by the cookies that lead from one to the next."""
    pages: list[list[dict[str, Any]]] = []
    text = document(parts, attributes)
    while True:
        query = fetch(text)
        statement = planning.plan(query, CATALOGUE, CALLER)
        shape = statement.shape
        rows = await database.fetch(statement.sql, *statement.parameters)
        assert shape.rows_max is not None
        page = rows[: shape.rows_max]
        pages.append([{one.name: row[one.cell] for one in shape.fields} for row in page])
        if len(rows) == len(page):
            return pages
        assert query.page == len(pages)
        position = Position(
            tuple(page[-1][key.cell] for key in shape.sort), shape.taken + len(page)
        )
        cookie = fetch_paging.next_cookie(text, query, position, CALLER, KEY)
        page_number = ElementTree.fromstring(cookie).attrib["pagenumber"]
        text = document(parts, attributes, page=page_number, paging_cookie=inner(cookie))


@pytest.mark.anyio
@pytest.mark.parametrize(
    "order",
    [
        "",
        "<order attribute='sequence'/>",
        "<order attribute='name'/>",
        "<order attribute='name' descending='true'/><order attribute='depth'/>",
        "<order attribute='statecode'/><order attribute='startedon' descending='true'/>",
        "<order attribute='ownerid'/>",
    ],
)
async def test_walking_the_pages_gives_every_row_once_in_order(
    tables: Database, order: str
) -> None:  # A22
    parts = f"<attribute name='sequence'/>{order}"
    pages = await _walk(tables, parts, "count='7'")
    assert [len(page) for page in pages] == [7] * 8 + [4]
    (whole,) = await _walk(tables, parts, "")
    assert [row for page in pages for row in page] == whole
    assert sorted(row["sequence"] for row in whole) == [row["sequence"] for row in JOB_ROWS]


@pytest.mark.anyio
async def test_linked_distinct_and_grouped_rows_have_pages_too(tables: Database) -> None:
    linked = (
        "<attribute name='sequence'/><link-entity name='annotation' from='objectid' "
        "to='asyncoperationid' alias='n'><attribute name='stars'/><order attribute='stars'/>"
        "</link-entity>"
    )
    grouped = (
        "<attribute name='name' groupby='true' alias='g'/>"
        "<attribute name='name' aggregate='count' alias='n'/><order alias='n'/>"
    )
    cases = [
        (linked, ""),
        ("<attribute name='name'/><attribute name='depth'/>", "distinct='true'"),
        (grouped, "aggregate='true'"),
    ]
    for parts, attributes in cases:
        pages = await _walk(tables, parts, f"{attributes} count='4'")
        (whole,) = await _walk(tables, parts, attributes)
        assert len(pages) > 1
        assert [row for page in pages for row in page] == whole


OUTER = (
    "<link-entity name='annotation' from='objectid' to='asyncoperationid' alias='n' "
    "link-type='outer'><attribute name='annotationid'/>{}</link-entity>"
)
BELOW = (
    "<link-entity name='asyncoperation' from='asyncoperationid' to='objectid' alias='o' "
    "link-type='inner'><attribute name='sequence'/>{}</link-entity>"
)


@pytest.mark.anyio
@pytest.mark.parametrize("descending", ["false", "true"])
@pytest.mark.parametrize("column", ["annotationid", "sequence"])
async def test_an_order_of_an_outer_link_loses_no_row_that_has_none_there(
    tables: Database, column: str, descending: str
) -> None:  # A22
    order = f"<order attribute='{column}' descending='{descending}'/>"
    own = column == "annotationid"
    parts = "<attribute name='sequence'/>" + OUTER.format(
        order if own else BELOW.format(order)
    )  # never null in their own tables, and null where no row is joined
    (whole,) = await _walk(tables, parts, "")
    pages = await _walk(tables, parts, "count='7'")
    assert [row for page in pages for row in page] == whole
    values = [row["n.annotationid" if own else "o.sequence"] for row in whole]
    known = [one for one in values if one is not None]
    nulls = [None] * (len(values) - len(known))
    assert nulls
    ascending = sorted(known)
    assert values == ([*ascending[::-1], *nulls] if descending == "true" else nulls + ascending)
