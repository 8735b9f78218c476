"""Transition tables: what they allow, what they refuse, and how they are drawn."""

from __future__ import annotations

from pathlib import Path

import pytest

from relevo.errors import Conflict, InvalidValue
from relevo.feed.operating.states import UNIT
from relevo.kernel.leases.states import HOST, LEASE
from relevo.kernel.machine import END, Machine, Transition

EXPLANATION = Path(__file__).resolve().parents[3] / "docs" / "explanation"
DOOR = Machine(
    "door",
    initial="closed",
    transitions=[
        Transition("closed", "open", "opened"),
        Transition("opened", "close", "closed"),
        Transition("closed", "brick", "wall", "bricked up for good"),
        Transition("opened", "burn", END),
    ],
)


def test_an_event_leads_to_the_state_that_the_table_names() -> None:
    assert DOOR.next("closed", "open") == "opened"
    assert DOOR.next(DOOR.next("closed", "open"), "close") == "closed"
    assert DOOR.may("closed", "brick")
    assert not DOOR.may("opened", "brick")
    assert DOOR.sources("close") == ("opened",)


@pytest.mark.parametrize(
    ("state", "event", "told"),
    [
        ("opened", "brick", "a door that is 'opened' cannot 'brick'; there it can close, burn"),
        ("wall", "open", "nothing can happen to it any more"),
        ("ajar", "open", "its states are closed, opened, wall"),
    ],
)
def test_what_the_table_does_not_name_is_refused_with_what_is_possible(
    state: str, event: str, told: str
) -> None:
    with pytest.raises(Conflict, match=told):
        DOOR.next(state, event)


def test_a_table_that_contradicts_itself_is_refused() -> None:
    twice = [Transition("a", "go", "b"), Transition("a", "go", "c")]
    with pytest.raises(InvalidValue, match="same state and event"):
        Machine("thing", initial="a", transitions=twice)


def test_a_state_that_nothing_leads_to_is_refused() -> None:
    with pytest.raises(InvalidValue, match="no transition leads a thing to b"):
        Machine("thing", initial="a", transitions=[Transition("b", "go", "a")])


def test_the_diagram_shows_every_transition() -> None:
    assert DOOR.mermaid() == (
        "stateDiagram-v2\n"
        "    [*] --> closed\n"
        "    closed --> opened: open\n"
        "    opened --> closed: close\n"
        "    closed --> wall: bricked up for good\n"
        "    opened --> [*]: burn\n"
    )


def test_the_tables_of_the_feed_have_the_states_that_the_specification_names() -> None:
    assert set(UNIT.states) == {"running", "pausing", "paused", "resetting", "completed"}
    assert set(LEASE.states) == {"active", "paused", "blocked"}


@pytest.mark.parametrize(
    ("page", "machine"),
    [("leases.md", HOST), ("leases.md", LEASE), ("order-and-guarantees.md", UNIT)],
    ids=["host", "lease", "unit"],
)
def test_the_diagrams_of_the_documentation_are_those_of_the_tables(
    page: str, machine: Machine
) -> None:
    text = (EXPLANATION / page).read_text("utf-8")
    assert f"```mermaid\n{machine.mermaid()}```\n" in text, "run docs/generate.py"


def test_a_superseded_host_does_not_come_back() -> None:  # L9
    assert HOST.next("live", "supersede") == "superseded"
    assert not [event for event in HOST.events if HOST.may("superseded", event)]
    assert HOST.next("lapsed", "register") == "live"
