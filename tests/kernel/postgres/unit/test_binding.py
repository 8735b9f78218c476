"""Statements are bound to the schema that a Relevo lives in."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

import relevo
from relevo.errors import SettingsError
from relevo.kernel.postgres import binding, catalog, locks
from relevo.kernel.postgres.binding import bound
from relevo.kernel.postgres.migration import migrate, schema
from relevo.settings import Settings

ROOT: Final = Path(relevo.__file__).parent
EVERYWHERE: Final = re.compile(
    r"'relevo\.(job|batch|series|brake|router|message|slo)\.[a-z._]*'|'relevo\.(retention|(ordinal|message_operations)_shop)'|/\*.*?\*/|--[^\n]*",
    re.DOTALL,
)
"""Types of events and names of handlers are the same in every schema."""


def texts() -> list[str]:
    """Every statement that Relevo keeps in a file, and what it makes a schema of."""
    found = [catalog.own("schema", migrate.BOOTSTRAP + schema.read().script)]
    for folder in ROOT.rglob("sql"):
        if (text := catalog.text_in(folder)) is not None:
            found += [query.sql for query in catalog.parse(folder.parts[-2], text).queries.values()]
    return found


def test_no_statement_names_another_schema_or_its_locks() -> None:
    left = [
        line
        for text in texts()
        for line in EVERYWHERE.sub("", bound(text, "shop")).splitlines()
        if re.search(r"\brelevo\b|\b1380273\d{3}\b", line)
    ]
    assert left == []


def test_texts_for_the_default_schema_are_only_marked() -> None:
    for text in texts():
        assert bound(text, "relevo").replace("relevo relevo/", "relevo ", 1) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("select relevo.now()", 'select "order".now()'),
        ("select nextval('relevo.lsn')", "select nextval('\"order\".lsn')"),
        ("select 'relevo.item'::regclass", "select '\"order\".item'::regclass"),
        ("set_config('relevo.ordinal', $1)", "set_config('relevo.ordinal_order', $1)"),
        ("pg_notify('relevo', $1)", "pg_notify('order', $1)"),
        ("where n.nspname = 'relevo'", "where n.nspname = 'order'"),
        ("create schema if not exists relevo;", 'create schema if not exists "order";'),
        ("format('drop table relevo.%I', a)", "format('drop table \"order\".%I', a)"),
        ("where c.name = 'relevo'", "where c.name = 'relevo'"),
        ("where e.type = 'relevo.job.failed'", "where e.type = 'relevo.job.failed'"),
        ('select 1 as "relevo.x" -- relevo.y\'s', 'select 1 as "relevo.x" -- relevo.y\'s'),
        ("/* relevo.item */ 'it''s relevo.a'", "/* relevo.item */ 'it''s relevo.a'"),
    ],
)
def test_names_of_objects_are_bound_and_other_texts_are_not(text: str, expected: str) -> None:
    assert bound(catalog.own("a.b", text), "order") == catalog.own("order/a.b", expected)


def test_a_bound_statement_keeps_its_name_and_is_not_bound_again() -> None:
    statement = catalog.own("store.read", "select relevo.now()")
    here, there = bound(statement, "relevo"), bound(statement, "shop")
    assert bound(here, "shop") == here
    assert bound(there, "order") == there
    assert {catalog.name_of(text) for text in (statement, here, there)} == {"store.read"}
    assert all(catalog.is_own(text) for text in (here, there))
    assert bound("select relevo.now()", "shop") == "select relevo.now()"


def test_each_schema_has_classes_of_locks_of_its_own() -> None:
    schemas = ["relevo", "shop", "order", *(f"tenant_{n}" for n in range(100))]
    classes = {(locks.of(one, name)) for name in schemas for one in (locks.MIGRATE, locks.LAST)}
    assert len(classes) == 2 * len(schemas)
    assert all(0 < one < 2**31 for one in classes)
    assert f"({locks.of(locks.UNIT, 'shop')}," in bound(
        catalog.load("relevo.kernel.leases").lock_unit, "shop"
    )


@pytest.mark.parametrize(
    "name", ["", "Shop", "a-b", 'a"b', "1a", "a.b", "pg_shop", "public", "a" * 51, "é"]
)
def test_a_name_that_is_not_plain_or_not_free_is_refused(name: str) -> None:
    with pytest.raises(SettingsError, match="schema must be a name of its own"):
        Settings(schema=name)


def test_sessions_say_whose_they_are() -> None:
    assert binding.application_name("relevo") == "relevo"
    assert binding.application_name("shop") == "relevo:shop"
