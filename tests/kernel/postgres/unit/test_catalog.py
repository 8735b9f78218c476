from __future__ import annotations

import pytest

from relevo.kernel.postgres import catalog

TEXT = """
-- name: first
-- Does one thing,
-- and says so.
select 1;

-- name: second_2
-- Does another.
select 'a;b' -- a remark
from somewhere
where true;
"""


def test_each_query_has_its_name_its_sentence_and_its_text() -> None:
    queries = catalog.parse("part", TEXT)
    assert list(queries.queries) == ["first", "second_2"]
    assert queries.first == "/* relevo part.first */ select 1"
    assert queries.queries["first"].sentence == "Does one thing, and says so."
    text = "select 'a;b' -- a remark\nfrom somewhere\nwhere true"
    assert queries.second_2 == f"/* relevo part.second_2 */ {text}"


def test_every_query_is_marked_as_one_of_relevo() -> None:
    queries = catalog.parse(
        "relevo.part", f"{TEXT}\n-- name: third\n-- Any.\n-- path: any\nselect 3;"
    )
    assert catalog.is_own(queries.first)
    assert catalog.name_of(queries.first) == "part.first"
    assert not catalog.is_own(queries.third)
    assert queries.third.startswith(catalog.ANY_MARK)
    assert catalog.name_of(queries.third) == "part.third"
    assert queries.queries["third"].sentence == "Any."
    assert not catalog.is_own("select 1")
    assert catalog.name_of("select 1") is None


def test_a_name_that_does_not_exist_is_an_error_of_its_user() -> None:
    with pytest.raises(AttributeError, match="part has no query named 'third'"):
        _ = catalog.parse("part", TEXT).third


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("-- name: a\nselect 1;", "needs a sentence"),
        ("-- name: a\n-- Nothing follows.\n", "needs a sentence and a statement"),
        ("-- name: a\n-- Once.\nselect 1;\n-- name: a\n-- Twice.\nselect 2;", "is there twice"),
        ("-- name: a\n-- One.\nselect 1;\n-- name: Not-A-Name\n-- Two.\nselect 2;", "look like"),
        ("-- name: a\n-- One.\nselect 1;\n-- name b\n-- Two.\nselect 2;", "look like"),
    ],
)
def test_a_file_that_is_not_well_formed_is_refused(text: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        catalog.parse("part", text)


def test_a_file_is_read_once() -> None:
    assert catalog.load("relevo.kernel.postgres") is catalog.load("relevo.kernel.postgres")
