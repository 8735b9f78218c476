"""What a PATCH of a job asks for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from relevo.jobs.core import codes
from relevo.jobs.core.patches import UPDATABLE, PatchCommand, command_of
from relevo.jobs.states import CommandRefusal

COLUMNS = frozenset({"asyncoperationid", "name", "ownerid", "data", *UPDATABLE})
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
LATER = "2026-03-02T12:00:00Z"
PAST = "2026-02-27T12:00:00Z"


def asked(patch: dict[str, Any]) -> PatchCommand:
    found = command_of(patch, COLUMNS)
    assert isinstance(found, PatchCommand), found
    return found.at(NOW)


def refused(patch: dict[str, Any]) -> CommandRefusal:
    found = command_of(patch, COLUMNS)
    assert isinstance(found, CommandRefusal), found
    return found


@pytest.mark.parametrize(
    ("patch", "name"),
    [
        ({"statecode": 3}, "cancel"),
        ({"statecode": 3, "statuscode": 32}, "cancel"),
        ({"statecode": 1}, "pause"),
        ({"statecode": 1, "statuscode": 10}, "pause"),
        ({"statecode": 0}, "resume"),
        ({"statecode": 0, "statuscode": 0}, "resume"),
        ({"statecode": 0, "postponeuntil": PAST}, "resume"),
        ({"statecode": 0, "postponeuntil": None}, "resume"),
        ({"statecode": 1, "postponeuntil": None}, "pause"),
        ({}, None),
        ({"@odata.type": "Microsoft.Dynamics.CRM.asyncoperation"}, None),
        ({"statecode": 0, "statecode@OData.Community.Display.V1.FormattedValue": "x"}, "resume"),
    ],
)
def test_the_target_state_is_the_command(patch: dict[str, Any], name: str | None) -> None:
    found = asked(patch)
    assert (found.name, found.until, found.of_series) == (name, None, False)


@pytest.mark.parametrize(
    "patch",
    [
        {"postponeuntil": LATER},
        {"postponeuntil": LATER, "statecode": 1},
        {"postponeuntil": LATER, "statecode": 1, "statuscode": 10},
        {"postponeuntil": LATER, "statecode": 0},
        {"postponeuntil": "2026-03-02T13:30:00+01:30"},
        {"postponeuntil": "2026-03-02T12:00Z"},
        {"postponeuntil": "2026-03-02T12:00:00.0000000Z"},
    ],
)
def test_a_time_postpones(patch: dict[str, Any]) -> None:
    found = asked(patch)
    assert (found.name, found.until) == ("postpone", NOW + timedelta(days=1))


def test_a_past_time_without_a_state_still_postpones() -> None:
    found = asked({"postponeuntil": PAST})
    assert (found.name, found.until) == ("postpone", NOW - timedelta(days=2))


@pytest.mark.parametrize(
    "patch",
    [
        {"statecode": 3, "statuscode": 30},
        {"statecode": 3, "statuscode": 31},
        {"statecode": 0, "statuscode": 10},
        {"statecode": 1, "statuscode": 12},
        {"statecode": 2},
        {"statecode": 2, "statuscode": 22},
        {"statecode": 4},
        {"statecode": -1},
        {"statuscode": 32},
        {"statecode": "3"},
        {"statecode": True},
        {"statecode": 3.0},
        {"statecode": None},
        {"statecode": 3, "postponeuntil": LATER},
        {"postponeuntil": None},
        {"postponeuntil": "2026-03-02T12:00:00"},
        {"postponeuntil": "2026-03-02"},
        {"postponeuntil": "2026-02-30T12:00:00Z"},
        {"postponeuntil": "20260302T120000Z"},
        {"postponeuntil": "0001-01-01T00:00:00+14:00"},
        {"postponeuntil": "2026-03-02T12:00:00Z\n"},
        {"postponeuntil": 1_772_000_000},
        {"recurrencepattern": 5},
        {"recurrencestarttime": "tomorrow"},
    ],
)
def test_what_makes_no_sense_is_refused_as_malformed(patch: dict[str, Any]) -> None:
    assert refused(patch).code == codes.BAD_REQUEST


@pytest.mark.parametrize("patch", [{"Statecode": 3}, {"statecode": 3, "nmae": 1}, {"": 1}])
def test_names_are_case_sensitive_and_known(patch: dict[str, Any]) -> None:
    assert refused(patch).code == codes.UNKNOWN_COLUMN


@pytest.mark.parametrize("name", ["name", "data", "ownerid@odata.bind", "statecode@odata.bind"])
def test_one_protected_column_refuses_the_whole_body(name: str) -> None:
    # A13
    found = refused({"statecode": 3, name: "x"})
    assert found.code == codes.PROTECTED_COLUMN
    assert repr(name.removesuffix("@odata.bind")) in found.text


def test_a_recurrence_is_changed_alone_or_with_a_command() -> None:
    alone = asked({"recurrencepattern": "FREQ=DAILY"})
    assert (alone.name, alone.pattern, alone.anchor) == (None, "FREQ=DAILY", UNSET)
    both = asked({"statecode": 0, "recurrencepattern": "", "recurrencestarttime": LATER})
    assert both.of_series
    assert (both.name, both.pattern) == ("resume", None)
    assert both.anchor == NOW + timedelta(days=1)


VALUES = st.none() | st.booleans() | st.integers(-2, 40) | st.sampled_from([LATER, PAST, "", "x"])


@given(st.dictionaries(st.sampled_from([*sorted(COLUMNS), "Name", "x@y"]), VALUES))
def test_any_body_is_one_command_or_a_refusal(patch: dict[str, Any]) -> None:
    # A13: only the five columns can be in a body that is not refused.
    found = command_of(patch, COLUMNS)
    if isinstance(found, PatchCommand):
        assert {one for one in patch if "@" not in one} <= set(UPDATABLE)
        assert (found.name == "postpone") == (found.until is not None)
        assert found.at(NOW).name in (None, "cancel", "pause", "resume", "postpone")
    else:
        assert found.code in (codes.BAD_REQUEST, codes.UNKNOWN_COLUMN, codes.PROTECTED_COLUMN)
