"""Every operator of FetchXML: the node it becomes, what it takes, and what it refuses."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from relevo.errors import InvalidQuery
from relevo.kernel.expressions.tree import (
    NULL,
    Affix,
    Compare,
    Constant,
    Expression,
    In,
    IsNull,
    Like,
    List,
    Logic,
    Member,
    Name,
    Not,
)
from relevo.kernel.querying.fetchxml import dates as fetch_dates
from relevo.kernel.querying.fetchxml.conditions import OPERATORS
from relevo.kernel.querying.model import RULES, Caller
from tests.kernel.querying.fetch_tables import ME, NOW, TEAM, UNIT, entity, refused_parts, where

NAME, DEPTH, OWNER, CREATED = map(Name, ["name", "depth", "ownerid", "createdon"])


def one(attribute: str, operator: str, *values: str) -> str:
    inner = "".join(f"<value>{value}</value>" for value in values)
    return f"<condition attribute='{attribute}' operator='{operator}'>{inner}</condition>"


def refused(condition: str) -> str:
    return refused_parts(f"<filter>{condition}</filter>")


def negated(node: Expression) -> Not:
    return Not(node, RULES)


def among(subject: Expression, *values: Any) -> In:
    return In(subject, List(tuple(map(Constant, values))), RULES)


@pytest.mark.parametrize(
    ("operator", "sign"),
    [
        ("eq", "="),
        ("ne", "<>"),
        ("neq", "<>"),
        ("gt", ">"),
        ("ge", ">="),
        ("lt", "<"),
        ("le", "<="),
    ],
)
def test_comparisons(operator: str, sign: Any) -> None:
    assert where(one("depth", operator, "3")) == Compare(sign, DEPTH, Constant(3), RULES)
    attribute = f"<condition attribute='depth' operator='{operator}' value='3'/>"
    assert where(attribute) == Compare(sign, DEPTH, Constant(3), RULES)


def test_sets_and_ranges() -> None:
    both = Logic(
        "and",
        (Compare(">=", DEPTH, Constant(1), RULES), Compare("<=", DEPTH, Constant(4), RULES)),
        RULES,
    )
    assert where(one("depth", "in", "1", "4")) == among(DEPTH, 1, 4)
    assert where(one("depth", "not-in", "1", "4")) == negated(among(DEPTH, 1, 4))
    assert where(one("depth", "between", "1", "4")) == both
    assert where(one("depth", "not-between", "1", "4")) == negated(both)


def test_null_and_its_opposite() -> None:
    assert where(one("name", "null")) == IsNull(NAME)
    assert where(one("name", "not-null")) == negated(IsNull(NAME))


@pytest.mark.parametrize(
    ("pattern", "node"),
    [
        ("ab", Compare("=", NAME, Constant("ab"), RULES)),
        ("", Compare("=", NAME, Constant(""), RULES)),
        ("ab%", Affix("start", NAME, Constant("ab"), RULES)),
        ("%%ab", Affix("end", NAME, Constant("ab"), RULES)),
        ("%ab%", In(Constant("ab"), NAME, RULES)),
        ("%", In(Constant(""), NAME, RULES)),
        ("a%b", Like(NAME, Constant("a%b"), RULES)),
        ("%a_b%", Like(NAME, Constant("%a_b%"), RULES)),
        ("_", Like(NAME, Constant("_"), RULES)),
        ("\\%", Affix("start", NAME, Constant("\\"), RULES)),
    ],
)
def test_patterns(pattern: str, node: Expression) -> None:
    assert where(one("name", "like", pattern)) == node
    assert where(one("name", "not-like", pattern)) == negated(node)


def test_a_set_in_a_pattern_is_refused() -> None:
    assert refused(one("name", "like", "[ab]%")) == "0x80041106"
    assert refused(one("name", "not-like", "a[^b]")) == "0x80041106"


def test_starts_and_ends_take_their_text_literally() -> None:
    start = Affix("start", NAME, Constant("a_%["), RULES)
    end = Affix("end", NAME, Constant("a_%["), RULES)
    assert where(one("name", "begins-with", "a_%[")) == start
    assert where(one("name", "not-begin-with", "a_%[")) == negated(start)
    assert where(one("name", "ends-with", "a_%[")) == end
    assert where(one("name", "not-end-with", "a_%[")) == negated(end)


@pytest.mark.parametrize("operator", sorted(fetch_dates.CALENDAR | fetch_dates.SEVEN_DAYS))
def test_dates_relative_to_now(operator: str) -> None:
    found = fetch_dates.interval(operator, NOW)
    assert where(one("createdon", operator)) == Logic(
        "and",
        (
            Compare(">=", CREATED, Constant(found.since), RULES),
            Compare("<", CREATED, Constant(found.until), RULES),
        ),
        RULES,
    )
    assert refused(one("createdon", operator, "1")) == "0x80040203"


@pytest.mark.parametrize("operator", sorted(fetch_dates.COUNTED))
def test_dates_a_number_of_units_away(operator: str) -> None:
    found = fetch_dates.interval(operator, NOW, 3)
    node = where(one("createdon", operator, "3"))
    until = Compare("<", CREATED, Constant(found.until), RULES)
    if found.since is None:
        assert node == until
    else:
        since = Compare(">=", CREATED, Constant(found.since), RULES)
        assert node == Logic("and", (since, until), RULES)
    for wrong in ("", "0", "-1", "1.5", "x", "²", "9" * 9, "9" * 40):
        if not (wrong == "9" * 9 and "minutes" in operator):  # 1,900 years, which there were
            assert refused(one("createdon", operator, wrong)) == "0x80040203"


def test_dates_by_their_day() -> None:
    start, end = datetime(2026, 3, 11, tzinfo=UTC), datetime(2026, 3, 12, tzinfo=UTC)
    since, until = (
        Compare(">=", CREATED, Constant(start), RULES),
        Compare("<", CREATED, Constant(end), RULES),
    )
    for text in ("2026-03-11", "2026-03-11T23:59:59Z", "2026-03-12T01:00:00+02:00"):
        assert where(one("createdon", "on", text)) == Logic("and", (since, until), RULES)
        assert where(one("createdon", "on-or-after", text)) == since
        assert where(one("createdon", "on-or-before", text)) == until
    last = Constant(datetime(9999, 12, 31, tzinfo=UTC))
    assert where(one("createdon", "on", "9999-12-31")) == Compare(">=", CREATED, last, RULES)
    assert refused(one("createdon", "on", "soon")) == "0x80040203"


def test_days_are_those_of_the_callers_time_zone() -> None:
    caller = Caller(user_id=ME, zone="America/Lima")
    start = datetime(2026, 3, 11, 5, tzinfo=UTC)
    since = Compare(">=", CREATED, Constant(start), RULES)
    assert where(one("createdon", "on-or-after", "2026-03-11"), caller=caller) == since
    assert where(one("createdon", "ge", "2026-03-11"), caller=caller) == since
    with pytest.raises(InvalidQuery, match="too far away"):
        where(one("createdon", "on", "0001-01-01T00:30:00Z"), caller=caller)
    today = where(one("createdon", "today"), caller=caller)
    assert isinstance(today, Logic)
    assert today.operands[0] == since


def test_conditions_on_who_asks() -> None:
    user, unit = among(OWNER, ME), Compare("=", OWNER, Constant(UNIT), RULES)
    assert where(one("ownerid", "eq-userid")) == user
    assert where(one("ownerid", "ne-userid")) == negated(user)
    assert where(one("ownerid", "eq-userteams")) == among(OWNER, TEAM)
    assert where(one("ownerid", "eq-useroruserteams")) == among(OWNER, ME, TEAM)
    assert where(one("ownerid", "eq-businessid")) == unit
    assert where(one("ownerid", "ne-businessid")) == negated(unit)


def test_whoever_has_no_unit_is_in_none() -> None:
    node = where(one("ownerid", "eq-businessid"), caller=Caller(user_id=ME))
    assert node == Compare("=", OWNER, NULL, RULES)


def test_ids_are_compared_as_they_are_stored() -> None:
    subject, guid = Name("regardingobjectid"), "{00000000-0000-0000-0000-00000000ABCD}"
    text = "00000000-0000-0000-0000-00000000abcd"
    assert where(one("regardingobjectid", "eq-userid")) == among(subject, str(ME))
    assert where(one("regardingobjectid", "eq", guid)) == Compare(
        "=", subject, Constant(text), RULES
    )
    assert where(one("ownerid", "eq", guid)) == Compare("=", OWNER, Constant(UUID(text)), RULES)


@pytest.mark.parametrize(
    ("attribute", "text", "value"),
    [
        ("asyncoperationid", " {00000000-0000-0000-0000-000000000007} ", UUID(int=7)),
        ("name", " a  b ", " a  b "),
        ("data", "", ""),
        ("operationtype", " -12 ", -12),
        ("sequence", str(2**63 - 1), 2**63 - 1),
        ("statecode", "3", 3),
        ("executiontimespan", "1.5e3", 1500.0),
        ("iswaitingforevent", "TRUE", True),
        ("iswaitingforevent", "0", False),
        ("createdon", "2026-01-31", datetime(2026, 1, 31, tzinfo=UTC)),
        ("createdon", "2026-01-31T10:00:00", datetime(2026, 1, 31, 10, tzinfo=UTC)),
        ("createdon", "2026-01-31T10:00:00.25+02:00", datetime(2026, 1, 31, 8, 0, 0, 250_000, UTC)),
    ],
)
def test_texts_become_values_of_the_column(attribute: str, text: str, value: Any) -> None:
    assert where(one(attribute, "eq", text)) == Compare(
        "=", Name(attribute), Constant(value), RULES
    )


@pytest.mark.parametrize(
    ("attribute", "text"),
    [
        ("asyncoperationid", "7"),
        ("ownerid", "me"),
        ("operationtype", "1.5"),
        ("operationtype", "1_000"),
        ("operationtype", ""),
        ("operationtype", "٣"),
        ("sequence", str(2**63)),
        ("sequence", "9" * 10_000),
        ("statecode", "Ready"),
        ("executiontimespan", "nan"),
        ("executiontimespan", "1e999"),
        ("iswaitingforevent", "yes"),
        ("createdon", "yesterday"),
        ("createdon", "0001-01-01T00:00:00+14:00"),
    ],
)
def test_texts_that_are_no_value_of_the_column_are_refused(attribute: str, text: str) -> None:
    assert refused(one(attribute, "eq", text)) == "0x80040203"
    assert refused(one(attribute, "in", text)) == "0x80040203"


@pytest.mark.parametrize(
    ("attribute", "operator"),
    [
        ("depth", "like"),
        ("ownerid", "begins-with"),
        ("iswaitingforevent", "gt"),
        ("asyncoperationid", "between"),
        ("name", "today"),
        ("name", "eq-userid"),
        ("depth", "on"),
        ("createdon", "ends-with"),
    ],
)
def test_an_operator_that_the_column_has_not_is_refused(attribute: str, operator: str) -> None:
    assert refused(one(attribute, operator, "1")) == "0x80041106"


@pytest.mark.parametrize(
    "operator",
    [
        "this-fiscal-year",
        "in-fiscal-period",
        "last-x-fiscal-years",
        "above",
        "eq-or-under",
        "eq-userlanguage",
        "contain-values",
        "not-contain-values",
        "eq-useroruserhierarchy",
        "last-x-minutes",
        "EQ",
        "",
    ],
)
def test_operators_that_are_not_served_are_refused(operator: str) -> None:
    assert refused(one("name", operator, "1")) == "0x80041106"


def test_every_operator_says_how_many_values_it_takes() -> None:
    for name, operator in OPERATORS.items():
        attribute = next(
            one
            for one, kind in [("name", "text"), ("createdon", "datetime"), ("ownerid", "lookup")]
            if kind in operator.columns
        )
        for count in {operator.least - 1, operator.most + 1} - {-1, 2_001}:
            assert refused(one(attribute, name, *["1"] * count)) == "0x80040203", name


@pytest.mark.parametrize(
    "condition",
    [
        "<condition operator='null'/>",
        "<condition attribute='name'/>",
        "<condition attribute='name' operator='eq' value='a'><value>b</value></condition>",
        "<condition attribute='name' operator='eq' value='a' valueof='message'/>",
        "<condition attribute='name' operator='null' value=''/>",
        "<condition attribute='name' operator='null' entityname='nobody'/>",
    ],
)
def test_conditions_that_are_incomplete_or_too_much_are_refused(condition: str) -> None:
    assert refused(condition) == "0x80040203"


def test_unknown_columns_are_refused() -> None:
    assert refused(one("nam", "null")) == "0x80041103"
    assert refused("<condition attribute='name' operator='eq' valueof='nam'/>") == "0x80041103"


def against(attribute: str, operator: str, other: str) -> str:
    return f"<condition attribute='{attribute}' operator='{operator}' valueof='{other}'/>"


def test_a_column_against_another_of_its_type() -> None:
    assert where(against("startedon", "gt", "createdon")) == Compare(
        ">", Name("startedon"), CREATED, RULES
    )
    assert where(against("depth", "eq", "sequence")) == Compare("=", DEPTH, Name("sequence"), RULES)
    assert refused(against("name", "eq", "depth")) == "0x80040203"
    assert refused(against("ownerid", "eq", "regardingobjectid")) == "0x80040203"
    assert refused(against("name", "like", "message")) == "0x80040203"
    assert refused(against("name", "in", "message")) == "0x80040203"


_OWNER = (
    "<link-entity name='systemuser' from='systemuserid' to='ownerid' alias='u' {}>{}</link-entity>"
)


def test_the_querys_own_filter_reaches_into_linked_tables() -> None:
    condition = "<condition entityname='u' attribute='fullname' operator='null'/>"
    query = entity(f"<filter>{condition}</filter>{_OWNER.format('', '')}")
    assert query.filter == IsNull(Member(Name("u"), ("fullname",)))
    query = entity(f"<filter>{against('name', 'eq', 'u.fullname')}</filter>{_OWNER.format('', '')}")
    assert query.filter == Compare("=", NAME, Member(Name("u"), ("fullname",)), RULES)


def test_the_tables_own_name_is_no_alias() -> None:
    condition = "<condition entityname='asyncoperation' attribute='name' operator='null'/>"
    assert where(condition) == IsNull(NAME)


def test_nobody_reaches_into_links_that_are_only_tested_for() -> None:
    condition = "<condition entityname='u' attribute='fullname' operator='null'/>"
    tested = _OWNER.format("link-type='exists'", "")
    parts = f"<filter>{condition}</filter>{tested}"
    assert refused_parts(parts) == "0x80040203"


def test_filters_nest_and_stand_beside_each_other() -> None:
    a, b, c = one("name", "null"), one("depth", "null"), one("message", "null")
    nulls = [IsNull(NAME), IsNull(DEPTH), IsNull(Name("message"))]
    either = Logic("or", (nulls[0], nulls[1]), RULES)
    assert where(f"<filter type='or'>{a}{b}</filter>{c}") == Logic("and", (either, nulls[2]), RULES)
    parts = f"<filter type='or'>{a}{b}</filter><filter>{c}</filter><filter type='or'/>"
    assert entity(parts).filter == Logic("and", (either, nulls[2]), RULES)
    assert entity("<filter/>").filter is None
    assert refused("<filter type='xor'/>") == "0x80040203"
