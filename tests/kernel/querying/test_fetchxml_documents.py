"""Which documents are read at all: form, bounds, and nothing that reaches outside."""

from __future__ import annotations

import contextlib
import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relevo.errors import InvalidQuery
from relevo.kernel.querying.fetchxml.elements import BYTES_MAX, SCHEMA
from tests.kernel.querying.fetch_tables import CATALOGUE, entity, fetch, refused_code, refused_parts

SEED: Final = """<fetch>
  <entity name="asyncoperation" >
    <attribute name="asyncoperationid" />
    <attribute name="completedon" />
    <attribute name="createdby" />
    <attribute name="createdon" />
    <attribute name="data" />
    <attribute name="dependencytoken" />
    <attribute name="depth" />
    <attribute name="errorcode" />
    <attribute name="executiontimespan" />
    <attribute name="friendlymessage" />
    <attribute name="iswaitingforevent" />
    <attribute name="message" />
    <attribute name="messagename" />
    <attribute name="modifiedby" />
    <attribute name="modifiedon" />
    <attribute name="name" />
    <attribute name="operationtype" />
    <attribute name="ownerid" />
    <attribute name="owningbusinessunit" />
    <attribute name="owningextensionid" />
    <attribute name="owningteam" />
    <attribute name="owninguser" />
    <attribute name="postponeuntil" />
    <attribute name="primaryentitytype" />
    <attribute name="recurrencepattern" />
    <attribute name="recurrencestarttime" />
    <attribute name="regardingobjectid" />
    <attribute name="retrycount" />
    <attribute name="sequence" />
    <attribute name="startedon" />
    <attribute name="statecode" />
    <attribute name="utcconversiontimezonecode" />
    <attribute name="workflowstagename" />
  </entity>
</fetch>
"""
"""The query of the asynchronous service's own documentation."""


def test_the_documented_query_is_read_unchanged() -> None:
    query = fetch(SEED)
    assert query.table == "asyncoperation"
    assert [item.path for item in query.items] == [
        (line.split('"')[1],) for line in SEED.splitlines() if "<attribute" in line
    ]
    assert (query.filter, query.orders, query.links, query.top) == (None, (), (), None)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "<fetch>",
        "<fetch></entity>",
        "fetch",
        "<fetch><entity name='asyncoperation'/></fetch><fetch/>",
        "<fetch a=1/>",
        "<fetch top='1' top='2'><entity name='asyncoperation'/></fetch>",
        "<fetch>&nbsp;<entity name='asyncoperation'/></fetch>",
        "<fetch><entity name='\x00'/></fetch>",
        "<fetch><entity name='&#0;'/></fetch>",
        "<fetch><entity name='\ud800'/></fetch>",
    ],
)
def test_what_is_not_well_formed_is_refused(text: str) -> None:
    assert refused_code(text) == "0x80040303"


@pytest.mark.parametrize(
    "before",
    [
        "<!DOCTYPE fetch>",
        '<!DOCTYPE fetch SYSTEM "file:///etc/passwd">',
        '<!DOCTYPE fetch PUBLIC "-//x//y" "http://192.0.2.1/x.dtd">',
        '<!DOCTYPE fetch [<!ENTITY x SYSTEM "file:///etc/passwd">]>',
        '<!DOCTYPE fetch [<!ENTITY % x SYSTEM "http://192.0.2.1/x"> %x;]>',
        '<!DOCTYPE fetch [<!NOTATION x SYSTEM "y">]>',
        '<!DOCTYPE fetch [<!ATTLIST entity name CDATA "asyncoperation">]>',
        "<?php echo 1 ?>",
        '<?xml-stylesheet href="http://192.0.2.1/x.xsl"?>',
    ],
)
def test_nothing_that_reaches_outside_is_read(before: str) -> None:  # A26
    assert refused_code(f"{before}<fetch><entity name='&x;'/></fetch>") == "0x80040303"


def test_a_declaration_of_the_encoding_changes_nothing() -> None:
    head = '<?xml version="1.0" encoding="utf-16" standalone="yes"?>'
    query = fetch(f"{head}<!-- so --><fetch><entity name='asyncoperation'/></fetch>")
    assert query.table == "asyncoperation"


def test_entities_that_multiply_are_refused_before_they_do() -> None:
    lines = [
        f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' if n else '<!ENTITY e0 "lol">' for n in range(20)
    ]
    text = f"<!DOCTYPE fetch [{''.join(lines)}]><fetch><entity name='&e19;'/></fetch>"
    with pytest.raises(InvalidQuery, match="document types, entities"):
        fetch(text)


def test_a_long_document_is_refused_unread() -> None:
    text = f"<fetch><!--{'x' * BYTES_MAX}--><entity name='asyncoperation'/></fetch>"
    assert refused_code(text) == "0x80040203"
    assert refused_code("é" * (BYTES_MAX // 2 + 1)) == "0x80040203"


def test_deep_nests_are_refused_where_they_are_too_deep() -> None:
    # The rest is not well-formed, which nobody notices any more.
    text = "\n".join(["<fetch>", "<entity name='asyncoperation'>", *["<filter>"] * 3_000, "<<<"])
    with pytest.raises(InvalidQuery, match="line 11: it nests deeper than 10 elements"):
        fetch(text)


def test_ten_levels_are_read_and_eleven_are_not() -> None:
    assert entity(f"{'<filter>' * 8}{'</filter>' * 8}").filter is None
    assert refused_parts(f"{'<filter>' * 9}{'</filter>' * 9}") == "0x80040203"


def test_five_hundred_conditions_are_read_and_no_more() -> None:
    one = "<condition attribute='name' operator='null'/>"
    assert entity(f"<filter>{one * 500}</filter>").filter is not None
    assert refused_parts(f"<filter>{one * 501}</filter>") == "0x8004430C"
    assert refused_parts(f"<filter>{'<condition/>' * 2_500}</filter>") == "0x8004430C"
    assert refused_parts(f"<filter>{one * 5_000}</filter>") == "0x80040203"


def test_reading_ends_with_the_condition_that_is_too_much() -> None:
    lines = ["<fetch><entity name='asyncoperation'><filter>", *["<condition/>"] * 2_000, "<<<"]
    with pytest.raises(InvalidQuery, match="line 502: it has more than 500 conditions"):
        fetch("\n".join(lines))


def test_two_thousand_values_are_read_and_no_more() -> None:
    head, tail = "<filter><condition attribute='depth' operator='in'>", "</condition></filter>"
    assert entity(head + "<value>1</value>" * 1_990 + tail).filter is not None
    assert refused_parts(head + "<value/>" * 2_001 + tail) == "0x8004430C"


def test_fifteen_links_are_read_and_no_more() -> None:
    one = "<link-entity name='systemuser' from='systemuserid' to='ownerid'/>"
    assert len(entity(one * 15).links) == 15
    assert refused_parts(one * 16) == "0x8004430D"


@pytest.mark.parametrize(
    "parts",
    [
        "<attributes/>",
        "<condition attribute='name' operator='null'/>",
        "<filter><attribute name='name'/></filter>",
        "<ATTRIBUTE name='name'/>",
        "<x:attribute name='name'/>",
        "<attribute name='name'><value/></attribute>",
        "<attribute name='name' title='Name'/>",
        "<order attribute='name' nulls='first'/>",
        "name",
        "<filter>name</filter>",
    ],
)
def test_unknown_elements_attributes_and_texts_are_refused(parts: str) -> None:
    assert refused_parts(parts) == "0x8004111C"


def test_another_root_is_refused() -> None:
    assert refused_code("<entity name='asyncoperation'/>") == "0x8004111C"


def test_what_only_other_servers_know_is_ignored() -> None:
    ignored = " ".join(
        f"{name}='x'"
        for name in [
            "version",
            "output-format",
            "mapping",
            "options",
            "latematerialize",
            "datasource",
        ]
    )
    parts = "<filter hint='union'><condition attribute='name' operator='null'/></filter>"
    link = "<link-entity name='systemuser' from='systemuserid' to='ownerid' visible='false'/>"
    assert entity(parts + link, ignored) == entity(
        parts.replace(" hint='union'", "") + link.replace(" visible='false'", "")
    )


def test_a_document_has_one_entity_of_the_requested_table() -> None:
    assert refused_code("<fetch/>") == "0x80040203"
    assert refused_code("<fetch>" + "<entity name='asyncoperation'/>" * 2 + "</fetch>") == (
        "0x80040203"
    )
    assert refused_code("<fetch><entity/></fetch>") == "0x80040203"
    assert refused_code("<fetch><entity name='systemuser'/></fetch>") == "0x80041102"
    assert refused_code("<fetch><entity name='nothing'/></fetch>") == "0x80041102"


def test_the_message_says_where_and_what_to_do() -> None:
    with pytest.raises(InvalidQuery, match=r"line 2: asyncoperation has no column `nam`. Check"):
        fetch("<fetch><entity name='asyncoperation'>\n<attribute name='nam'/></entity></fetch>")


_NAMES = st.sampled_from(sorted({*SCHEMA, "value", "x"}))
_KEYS = st.sampled_from(sorted({key for kind in SCHEMA.values() for key in kind.attributes}))
_VOCABULARY: Final = (
    "true false 1 0 5 and or eq in like between null last-x-days on eq-userid inner outer any all "
    "count avg day sum systemuser asyncoperation name ownerid systemuserid createdon u"
)
_WORDS = st.one_of(
    st.sampled_from(_VOCABULARY.split()),
    st.sampled_from(sorted(CATALOGUE.by_name["asyncoperation"].by_name)),
    st.text("<>&'\"%_[{ a0-é\n", max_size=6),
)


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace("'", "&apos;")


@st.composite
def _elements(draw: st.DrawFn, depth: int = 0, name: str = "entity") -> str:
    kind = SCHEMA.get(name)
    keys = sorted(kind.attributes) if kind else []
    chosen = draw(st.sets(st.sampled_from(keys))) if keys else set()
    attributes = " ".join(f"{key}='{_escaped(draw(_WORDS))}'" for key in sorted(chosen))
    if name == "entity":
        attributes = "name='asyncoperation'"
    children = sorted(kind.children) if kind and depth < 5 else []
    inner = [
        draw(_elements(depth + 1, draw(st.sampled_from(children))))
        for _ in range(draw(st.integers(0, 3)) if children else 0)
    ]
    text = _escaped(draw(_WORDS)) if kind and kind.text else ""
    return f"<{name} {attributes}>{text}{''.join(inner)}</{name}>"


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    _read(text)


@given(st.text("<>/='\" fetchniyamo!?&;[]-", max_size=80))
def test_any_markup_is_read_or_refused(text: str) -> None:
    _read(text)


@given(_elements(), st.dictionaries(_KEYS, _WORDS, max_size=3))
def test_any_elements_are_read_or_refused(parts: str, attributes: dict[str, str]) -> None:
    shown = " ".join(f"{key}='{_escaped(value)}'" for key, value in attributes.items())
    _read(f"<fetch {shown}>{parts}</fetch>")


def _read(text: str) -> None:
    with contextlib.suppress(InvalidQuery):
        fetch(text)


_GUIDED: Final = """
import sys
import atheris
with atheris.instrument_imports(include=["relevo.kernel.querying"]):
    from relevo.errors import InvalidQuery
    from tests.kernel.querying.fetch_tables import fetch

def one(data):
    try:
        fetch(data.decode("utf-8", "replace"))
    except InvalidQuery:
        pass

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
