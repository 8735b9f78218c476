"""The catalogue: unique names, a sentence each, and a reference made from it."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest
from msgspec import Struct

from relevo.errors import Conflict, InvalidValue
from relevo.kernel.events import Catalogue, EventType, Recorded
from tests.kernel.events.conftest import CLOSED, NOTED, Noted


def recorded(schema: int, body: str, name: str = NOTED.name) -> Recorded:
    return Recorded(
        log="l", stripe=1, lsn=2, at=datetime.now(UTC), type=name, schema=schema, subject="s",
        version=1, body=msgspec.Raw(body),
    )  # fmt: skip


def test_a_name_is_registered_once() -> None:
    catalogue = Catalogue([NOTED, CLOSED])
    catalogue.register(NOTED)
    assert [one.name for one in catalogue] == ["test.thing.closed", "test.thing.noted"]
    with pytest.raises(Conflict, match=r"test\.thing\.noted"):
        catalogue.register(EventType(name=NOTED.name, payload=Noted, sentence="Another thing."))


@pytest.mark.parametrize("name", ["", "noted", "Test.noted", "test..noted", "test.noted ", "a.1"])
def test_a_name_has_words_and_dots(name: str) -> None:
    with pytest.raises(InvalidValue, match="is named like"):
        EventType(name=name, payload=Noted, sentence="It was noted.")


@pytest.mark.parametrize("sentence", ["", "no capital.", "No end"])
def test_every_type_has_a_sentence(sentence: str) -> None:
    with pytest.raises(InvalidValue, match="needs a sentence"):
        EventType(name="test.noted", payload=Noted, sentence=sentence)


def test_a_version_fits_its_column() -> None:
    with pytest.raises(InvalidValue, match="version"):
        EventType(name="test.noted", payload=Noted, sentence="It was noted.", version=40_000)


def test_the_reference_names_every_type_its_sentence_and_its_members() -> None:
    class Odd(Struct, frozen=True, rename="camel"):
        who_did: str | None
        times: list[int] = []

    odd = EventType(name="test.odd.seen", payload=Odd, sentence="Something odd was seen.")
    text = Catalogue([NOTED, CLOSED, odd]).reference()
    for one in (NOTED, CLOSED, odd):
        assert f"## `{one.name}`\n\n{one.sentence} Version {one.version}.\n" in text
    assert "| `n` | `int` | yes |" in text
    assert "| `whoDid` | `str \\| None` | yes |" in text
    assert "| `times` | `list[int]` | no |" in text


def test_a_payload_is_its_struct_where_type_and_version_are_known() -> None:
    catalogue = Catalogue([NOTED])
    assert catalogue.payload(recorded(1, '{"n":4,"added_later":true}')) == Noted(4)
    assert catalogue.payload(recorded(2, '{"m":4}')) == {"m": 4}
    assert catalogue.payload(recorded(1, "{}", "test.unknown")) == {}


def test_an_event_survives_json() -> None:
    event = recorded(1, '{"n":4}')
    again = msgspec.json.decode(msgspec.json.encode(event), type=Recorded)
    assert again.data == {"n": 4}
    assert (again.id, again.at, again.type) == (event.id, event.at, event.type)
