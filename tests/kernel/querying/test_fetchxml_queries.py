"""What a FetchXML query shows, groups, sorts and links, and what it refuses."""

from __future__ import annotations

import pytest

from relevo.kernel.expressions.tree import IsNull, Logic, Name
from relevo.kernel.querying.model import RULES, Item, Link, Order, related
from tests.kernel.querying.fetch_tables import NOTES, entity, refused_parts

A = "aggregate='true'"
OWNER = "<link-entity name='systemuser' from='systemuserid' to='ownerid' {}>{}</link-entity>"
NOTE = "<link-entity name='annotation' from='objectid' to='asyncoperationid' {}>{}</link-entity>"
NULL = "<condition attribute='{}' operator='null'/>"


def test_attributes_are_shown_once_under_their_own_name_or_an_alias() -> None:
    query = entity(
        "<attribute name='name'/><attribute name='depth' alias='d'/><attribute name='name'/>"
    )
    assert query.items == (Item(path=("name",)), Item(path=("depth",), alias="d"))


def test_all_attributes_or_none_mean_every_column() -> None:
    assert entity("").items == entity("<all-attributes/>").items == ()
    assert entity("<all-attributes/><attribute name='name'/>").items == ()


def test_a_link_shows_what_it_names_and_nothing_else() -> None:
    assert entity(OWNER.format("", "")).links[0].items == ()
    (link,) = entity(NOTE.format("", "<all-attributes/>")).links
    assert link.items == tuple(Item(path=(column.name,)) for column in NOTES.columns)


@pytest.mark.parametrize(
    "parts",
    [
        "<attribute/>",
        "<attribute name='name' alias='a b'/>",
        "<attribute name='name' alias=''/>",
        "<attribute name='name' alias='1a'/>",
        f"<attribute name='name' alias='{'a' * 65}'/>",
        "<attribute name='name' alias='a'/><attribute name='depth' alias='a'/>",
        "<attribute name='name'/><attribute name='depth' alias='name'/>",
        "<attribute name='ownerid'/><attribute name='depth' alias='_ownerid_value'/>",
        "<attribute name='name'/><attribute name='depth' alias='asyncoperationid'/>",
        OWNER.format("", "<attribute name='fullname' alias='name'/>"),
        "<attribute name='name' aggregate='count'/>",
        "<attribute name='name' groupby='true'/>",
        "<attribute name='createdon' dategrouping='day'/>",
    ],
)
def test_values_without_a_name_of_their_own_are_refused(parts: str) -> None:
    assert refused_parts(parts) == "0x80040203"


def test_unknown_columns_are_refused() -> None:
    assert refused_parts("<attribute name='Name'/>") == "0x80041103"
    assert refused_parts("<order attribute='nam'/>") == "0x80041103"
    assert refused_parts(OWNER.format("", "<attribute name='name'/>")) == "0x80041103"


def test_groups_and_aggregates() -> None:
    query = entity(
        "<attribute name='statecode' groupby='true' alias='state'/>"
        "<attribute name='createdon' groupby='1' dategrouping='quarter' usertimezone='0' "
        "alias='q'/>"
        "<attribute name='name' aggregate='count' alias='n'/>"
        "<attribute name='name' aggregate='countcolumn' distinct='true' alias='names'/>"
        "<attribute name='depth' aggregate='sum' alias='total'/>"
        "<attribute name='executiontimespan' aggregate='avg' alias='mean'/>"
        "<attribute name='createdon' aggregate='min' alias='first'/>"
        "<attribute name='sequence' aggregate='max' alias='last'/>"
        "<order alias='n' descending='true'/>",
        f"{A} aggregatelimit='10'",
    )
    assert query.aggregate
    assert query.aggregate_limit == 10
    assert query.items == (
        Item(path=("statecode",), groupby=True, alias="state"),
        Item(
            path=("createdon",), groupby=True, date_grouping="quarter", user_zone=False, alias="q"
        ),
        Item(aggregate="count", alias="n"),
        Item(path=("name",), aggregate="countcolumn", distinct=True, alias="names"),
        Item(path=("depth",), aggregate="sum", alias="total"),
        Item(path=("executiontimespan",), aggregate="avg", alias="mean"),
        Item(path=("createdon",), aggregate="min", alias="first"),
        Item(path=("sequence",), aggregate="max", alias="last"),
    )
    assert query.orders == (Order(alias="n", descending=True, by_label=True),)


@pytest.mark.parametrize("grouping", ["day", "week", "month", "quarter", "year"])
def test_dates_are_grouped_by_their_parts(grouping: str) -> None:
    (item,) = entity(
        f"<attribute name='createdon' groupby='true' alias='g' dategrouping='{grouping}'/>", A
    ).items
    assert item.date_grouping == grouping
    assert item.user_zone


@pytest.mark.parametrize(
    "parts",
    [
        "",
        "<all-attributes/>",
        "<attribute name='name'/>",
        "<attribute name='name' groupby='true'/>",
        "<attribute name='name' aggregate='count'/>",
        "<attribute name='name' alias='a'/>",
        "<attribute name='name' alias='a' groupby='false'/>",
        "<attribute name='name' alias='a' groupby='true' aggregate='count'/>",
        "<attribute name='name' alias='a' groupby='true'/><order attribute='name'/>",
        "<attribute name='name' alias='a' groupby='true'/><order alias='b'/>",
        "<attribute name='name' alias='a' groupby='true'/><order/>",
        "<attribute name='name' alias='a' groupby='true'/><order alias='a' attribute='name'/>",
        f"<attribute name='name' alias='a' groupby='true'/>{OWNER.format('', '<all-attributes/>')}",
    ],
)
def test_aggregate_queries_need_aliases_everywhere(parts: str) -> None:
    assert refused_parts(parts, A) == "0x80041134"


@pytest.mark.parametrize(
    "attribute",
    [
        "name='name' aggregate='sum'",
        "name='statecode' aggregate='avg'",
        "name='ownerid' aggregate='max'",
        "name='name' aggregate='median'",
        "name='depth' aggregate='sum' distinct='true'",
        "name='name' groupby='true' dategrouping='day'",
        "name='createdon' groupby='true' dategrouping='fiscal-year'",
        "name='createdon' groupby='maybe'",
    ],
)
def test_aggregates_that_make_no_sense_are_refused(attribute: str) -> None:
    assert refused_parts(f"<attribute alias='a' {attribute}/>", A) == "0x80040203"


def test_an_order_may_be_that_of_a_link_or_name_it() -> None:
    query = entity(
        OWNER.format("alias='u'", "<order attribute='hiredon'/>")
        + "<order attribute='fullname' entityname='u' descending='1'/><order attribute='name'/>"
    )
    assert query.orders == (Order(path=("u", "fullname"), descending=True), Order(path=("name",)))
    assert query.links[0].orders == (Order(path=("hiredon",)),)


def test_an_aggregate_of_a_link_is_ordered_by_its_alias() -> None:
    query = entity(
        OWNER.format("", "<attribute name='fullname' groupby='true' alias='who'/>")
        + "<attribute name='name' aggregate='count' alias='n'/><order alias='who'/>",
        A,
    )
    assert query.orders == (Order(alias="who", by_label=True),)
    assert query.links[0].items == (Item(path=("fullname",), groupby=True, alias="who"),)


def test_choices_sort_by_label_unless_told_otherwise() -> None:
    order = "<order attribute='statecode'/>"
    assert entity(order).orders == (Order(path=("statecode",), by_label=True),)
    assert entity(order, "useraworderby='true'").orders == (Order(path=("statecode",)),)


@pytest.mark.parametrize(
    "parts",
    [
        "<order/>",
        "<order alias='a'/>",
        "<order attribute='name' descending='maybe'/>",
        "<order attribute='fullname' entityname='u'/>",
        "<order attribute='name'/>" * 11,
    ],
)
def test_orders_that_say_nothing_are_refused(parts: str) -> None:
    assert refused_parts(parts) == "0x80040203"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("", "inner"),
        ("link-type='inner'", "inner"),
        ("link-type='outer'", "outer"),
        ("link-type='exists'", "exists"),
        ("link-type='in'", "in"),
        ("link-type='matchfirstrowusingcrossapply'", "first"),
    ],
)
def test_kinds_of_links(text: str, kind: str) -> None:
    (link,) = entity(OWNER.format(f"alias='u' intersect='true' {text}", "")).links
    assert (link.table, link.alias, link.kind) == ("systemuser", "u", kind)
    assert (link.column, link.parent_column) == ("systemuserid", "ownerid")


def test_links_nest_and_have_filters_of_their_own() -> None:
    inner = OWNER.replace("'ownerid'", "'objectid'").format("alias='deep'", "")
    condition = f"<filter>{NULL.format('subject')}</filter>"
    (link,) = entity(NOTE.format("alias='note'", condition + inner)).links
    assert link.filter == IsNull(Name("subject"))
    assert [one.alias for one in link.links] == ["deep"]


def test_a_link_without_alias_is_named_by_its_table_and_its_place_among_all() -> None:
    inner = OWNER.replace("'ownerid'", "'objectid'").format("", "")
    query = entity(NOTE.format("", inner) + OWNER.format("alias='u'", "") + OWNER.format("", ""))
    assert query.links[0].alias == "annotation1"
    assert query.links[0].links[0].alias == "systemuser2"
    assert [link.alias for link in query.links[1:]] == ["u", "systemuser4"]


@pytest.mark.parametrize("kind", ["any", "not any", "all", "not all"])
def test_links_inside_filters_are_conditions(kind: str) -> None:
    inner = f"<filter>{NULL.format('subject')}</filter>"
    link = NOTE.format(f"link-type='{kind}'", inner)
    query = entity(f"<filter type='or'>{NULL.format('name')}<filter>{link}</filter></filter>")
    assert query.filter == Logic("or", (IsNull(Name("name")), related("annotation1")), RULES)
    assert query.links == (
        Link(
            table="annotation",
            alias="annotation1",
            column="objectid",
            parent_column="asyncoperationid",
            kind=kind,  # type: ignore[arg-type]
            filter=IsNull(Name("subject")),
        ),
    )


def test_a_link_inside_the_filter_of_a_link_hangs_on_that() -> None:
    test = OWNER.replace("'ownerid'", "'objectid'").format("link-type='any' alias='t'", "")
    (link,) = entity(NOTE.format("", f"<filter>{test}</filter>")).links
    assert link.filter == related("t")
    assert [one.alias for one in link.links] == ["t"]


@pytest.mark.parametrize(
    "parts",
    [
        OWNER.format("link-type='natural'", ""),
        OWNER.format("link-type='any'", ""),
        f"<filter>{OWNER.format('', '')}</filter>",
        "<filter>" + OWNER.format("link-type='inner'", "") + "</filter>",
        "<link-entity name='systemuser' to='ownerid'/>",
        "<link-entity name='systemuser' from='systemuserid'/>",
        "<link-entity from='systemuserid' to='ownerid'/>",
        "<link-entity name='systemuser' from='fullname' to='ownerid'/>",
        OWNER.format("alias='u'", "") * 2,
        OWNER.format("alias='systemuser2'", "") + OWNER.format("", ""),
        OWNER.format("alias='u.v'", ""),
        OWNER.format("link-type='exists'", "<attribute name='fullname'/>"),
        OWNER.format("link-type='in'", "<order attribute='fullname'/>"),
        "<filter>" + OWNER.format("link-type='all'", "<all-attributes/>") + "</filter>",
        NOTE.format(
            "link-type='exists'",
            OWNER.replace("'ownerid'", "'objectid'").format("", "<attribute name='fullname'/>"),
        ),
        OWNER.format("intersect='perhaps'", ""),
    ],
)
def test_links_that_cannot_be_made_are_refused(parts: str) -> None:
    assert refused_parts(parts) == "0x80040203"


def test_links_to_unknown_tables_and_columns_are_refused() -> None:
    assert refused_parts("<link-entity name='x' from='a' to='b'/>") == "0x80041102"
    assert refused_parts("<link-entity name='systemuser' from='a' to='ownerid'/>") == "0x80041103"
    assert refused_parts("<link-entity name='systemuser' from='systemuserid' to='b'/>") == (
        "0x80041103"
    )


def test_a_link_may_tie_a_lookup_that_is_kept_as_text() -> None:
    (link,) = entity(
        "<link-entity name='annotation' from='annotationid' to='regardingobjectid'/>"
    ).links
    assert link.parent_column == "regardingobjectid"


def test_flags_and_numbers_of_the_whole_query() -> None:
    query = entity("", "distinct='1' returntotalrecordcount='true' no-lock='false' top='7'")
    assert query.distinct
    assert query.count
    assert query.top == 7
    query = entity("", "page='3' count='250'")
    assert (query.page, query.page_size, query.top) == (3, 250, None)


@pytest.mark.parametrize(
    "attributes",
    [
        "top='0'",
        "top='5001'",
        "top='-1'",
        "top='x'",
        "top='1.0'",
        "top=''",
        "top='²'",
        "count='0'",
        "count='5001'",
        "page='0'",
        "page='9999999999'",
        "top='5' page='1'",
        "top='5' count='5'",
        "top='5' paging-cookie=''",
        "aggregatelimit='50001'",
        "distinct='yes'",
        "aggregate='TRUE'",
        "no-lock='maybe'",
    ],
)
def test_impossible_numbers_and_flags_are_refused(attributes: str) -> None:
    assert refused_parts("", attributes) == "0x80040203"
