"""The options in a URL: which are read, how often, and what is refused."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest
from msgspec.structs import replace

from relevo.errors import InvalidQuery, RelevoError
from relevo.kernel.querying import planning
from relevo.kernel.querying.errors import OptionNotServed, QueryTooLong, code_of
from relevo.kernel.querying.model import Expand, Item, Order, Position
from relevo.kernel.querying.odata import options as odata_options
from tests.kernel.querying.job_tables import ALL, BEN, CATALOGUE, JOBS, KEY, asked, request

SEED = """$select=
asyncoperationid,
createdon,
data,
depth,
name,
_ownerid_value,
_regardingobjectid_value,
sequence,
statecode
&$expand=
owninguser($select=fullname),
regardingobjectid_account($select=name)

"""


@pytest.mark.parametrize("break_", ["\n", "\r\n", "\n   "])
def test_a_sample_over_many_lines_is_read(break_: str) -> None:
    text = SEED.replace("\n", break_)
    for written in (text, quote(text, safe="$&=(),;"), quote(text, safe="&=")):
        query = asked(written)
        assert len(query.items) == 9
        assert [one.navigation for one in query.expands] == [
            "owninguser",
            "regardingobjectid_account",
        ]


def test_white_space_may_stand_around_everything() -> None:
    query = asked("%20$top%20=%205 &$expand = job_notes ( $top = 2 ; $select = stars , subject )")
    assert query.top == 5
    assert query.expands == (
        Expand(
            navigation="job_notes",
            top=2,
            items=(Item(path=("stars",)), Item(path=("subject",))),
        ),
    )


def test_orders_name_columns_by_their_logical_names() -> None:
    query = asked("$orderby=name desc,_ownerid_value,owninguser/fullname asc")
    assert query.orders == (
        Order(path=("name",), descending=True),
        Order(path=("ownerid",)),
        Order(path=("owninguser", "fullname")),
    )


@pytest.mark.parametrize(
    ("text", "kind", "status", "said"),
    [
        ("$top=0", InvalidQuery, 400, "from 1 to 5,000"),
        ("$top=5001", InvalidQuery, 400, "from 1 to 5,000"),
        ("$top=-1", InvalidQuery, 400, "from 1 to 5,000"),
        ("$top=" + "9" * 5_000, InvalidQuery, 400, "from 1 to 5,000"),
        ("$top=²", InvalidQuery, 400, "from 1 to 5,000"),
        ("$top=1&$top=2", InvalidQuery, 400, "twice"),
        ("$select=name&%24select=depth", InvalidQuery, 400, "twice"),
        ("@p=1&@p=2", InvalidQuery, 400, "twice"),
        ("fetchXml=<a/>&fetchXml=<b/>", InvalidQuery, 400, "twice"),
        ("$skip=5", OptionNotServed, 501, "not served"),
        ("$search=x", OptionNotServed, 501, "not served"),
        ("$format=json", OptionNotServed, 501, "not served"),
        ("$Filter=name eq 'x'", InvalidQuery, 400, "no option $Filter"),
        ("$nosuch=1", InvalidQuery, 400, "no option $nosuch"),
        ("$count=yes", InvalidQuery, 400, "true or false"),
        ("$select=", InvalidQuery, 400, "the text ends"),
        ("$select=nosuch", InvalidQuery, 400, "no property `nosuch`"),
        ("$select=ownerid", InvalidQuery, 400, "Write _ownerid_value"),
        ("$orderby=" + ",".join(["name"] * 11), InvalidQuery, 400, "more than 10"),
        ("$orderby=nosuch", InvalidQuery, 400, "no property"),
        ("$orderby=name up", InvalidQuery, 400, "found `up`"),
        ("$expand=nosuch", InvalidQuery, 400, "It has job_notes"),
        ("$expand=owninguser,owninguser", InvalidQuery, 400, "expanded twice"),
        ("$expand=owninguser($top=1)", InvalidQuery, 400, "leads to one row"),
        ("$expand=job_notes($top=0)", InvalidQuery, 400, "from 1 to 5,000"),
        ("$expand=job_notes($select=stars;$select=stars)", InvalidQuery, 400, "twice"),
        ("$expand=job_notes($expand=job($expand=job_notes))", InvalidQuery, 400, "deeper than 2"),
        ("$expand=job_notes($levels=2)", InvalidQuery, 400, "found `$`"),
        ("$apply=groupby((name))&$filter=depth eq 1", InvalidQuery, 400, "beside $apply"),
        ("$apply=aggregate(depth with median as m)", InvalidQuery, 400, "no method `median`"),
        ("$apply=filter(depth eq 1)", InvalidQuery, 400, "nothing is grouped"),
        ("$apply=aggregate($count as a)/filter(depth eq 1)", InvalidQuery, 400, "each part"),
        ("$apply=aggregate($count as a,$count as a)", InvalidQuery, 400, "Two results"),
        ("$apply=aggregate(name with sum as s)", InvalidQuery, 400, "needs numbers"),
        ("$apply=aggregate($count as a)&$orderby=b", InvalidQuery, 400, "cannot be sorted"),
        ("$skiptoken=abc", InvalidQuery, 400, "damaged"),
        ("%ff=1", InvalidQuery, 400, "UTF-8"),
        ("$filter=name eq '%00'", InvalidQuery, 400, "null character"),
        ("x=" + "y" * 32_767, QueryTooLong, 414, "32,768"),
    ],
)
def test_wrong_options_are_refused(
    text: str, kind: type[RelevoError], status: int, said: str
) -> None:
    with pytest.raises(kind) as error:
        planning.plan(asked(text), CATALOGUE, ALL)
    assert type(error.value) is kind
    assert error.value.status == status
    assert said in error.value.message
    assert code_of(error.value).startswith("0x80")  # A33


def test_groups_that_cannot_be_sorted_say_so_with_their_code() -> None:
    with pytest.raises(InvalidQuery) as error:
        planning.plan(asked("$apply=aggregate($count as a)&$orderby=b"), CATALOGUE, ALL)
    assert error.value.dataverse == "0x80041134"
    with pytest.raises(InvalidQuery) as error:
        asked("$select=nosuch")
    assert error.value.dataverse == "0x80041103"


def test_what_has_no_dollar_is_not_ours() -> None:
    options = odata_options.read("fetchXml=<x/>&tag=1&tag=2&filter=1&@p=1")
    assert options == odata_options.Options(
        {}, {"@p": "1"}, {"fetchXml": "<x/>", "tag": "2", "filter": "1"}
    )


def test_single_rows_take_no_other_options() -> None:
    options = odata_options.read("$select=name")
    query = odata_options.row_query(options, JOBS, request(), BEN)
    assert query.top == 1
    with pytest.raises(InvalidQuery, match="does not apply to a single row"):
        odata_options.row_query(odata_options.read("$top=3"), JOBS, request(), BEN)


@pytest.mark.parametrize(
    "raw",
    [
        "$filter=contains(name,'a%26b%3Dc%2B%20%C3%A4')&$orderby=name",
        "$filter=name eq @p&@p='x'&other=1%262",
    ],
)
def test_next_links_ask_the_same_again(raw: str) -> None:
    options = odata_options.read(raw)
    position = Position((None, BEN), 5)
    link = odata_options.next_link("https://h/api/x", options, JOBS, ALL, position, KEY)
    url, _, text = link.partition("?")
    assert url == "https://h/api/x"
    assert link.isascii()
    again = odata_options.read(text)
    system: dict[str, Any] = dict(again.system)
    assert system.pop("$skiptoken")
    assert (system, again.aliases, again.other) == (
        options.system,
        options.aliases,
        options.other,
    )
    assert asked(text).position == position


def test_at_most_fifteen_expands() -> None:
    navigation = JOBS.navigation_by_name["owninguser"]
    many = tuple(replace(navigation, name=f"owner{n}") for n in range(16))
    table = replace(JOBS, navigations=many)
    names = [one.name for one in many]
    assert len(asked(f"$expand={','.join(names[:15])}", table).expands) == 15
    with pytest.raises(InvalidQuery, match="more than 15 are expanded"):
        asked(f"$expand={','.join(names)}", table)
