"""Folding: what follows from deltas in one batch is what follows from them one by one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from relevo.actors.core.deltas import Delta, EntryChange, RecordedCall, ReminderChange
from relevo.actors.core.folding import fold, parts

T = datetime(2030, 1, 1, tzinfo=UTC)


def delta(base: int, **changes: object) -> Delta:
    told = {
        "actor": "a/s:x", "lease_id": 1, "epoch": 1, "placement_group": "g", "slot": 0,
        "incarnation": 0, "base": base,
    }  # fmt: skip
    return Delta(**{**told, **changes})  # type: ignore[arg-type]


def test_the_last_document_entry_and_reminder_win() -> None:
    changes, refused = fold([
        delta(3, document=b"1", schema=2, entries=(EntryChange("m", "k", b"1"),)),
        delta(4, reminders=(ReminderChange("r", T),), handled_message=9),
        delta(5, entries=(EntryChange("m", "k", None),), reminders=(ReminderChange("r", None),)),
    ])  # fmt: skip
    [one] = changes
    assert not refused
    assert (one.base, one.revision, one.document, one.schema) == (3, 6, b"1", 2)
    assert list(one.entries.values()) == [EntryChange("m", "k", None)]
    assert list(one.reminders.values()) == [ReminderChange("r", None)]
    assert (one.handled, one.places) == ([9], [0, 1, 2])


def test_a_delete_takes_what_came_before_it() -> None:
    call = RecordedCall("c", "m", b"", b"")
    before = delta(
        0, document=b"1", schema=2, recorded=(call,), reminders=(ReminderChange("r", T),)
    )
    [one], _ = fold([before, delta(1, deleted=True)])
    assert (one.wiped, one.deleted, one.incarnation, one.document) == (True, True, 1, None)
    assert (one.reminders, one.recorded) == ({}, {})
    [one], refused = fold([before, delta(1, deleted=True), delta(2, incarnation=1, document=b"2")])
    assert (one.wiped, one.deleted, one.incarnation, one.document) == (True, False, 1, b"2")
    assert not refused
    assert fold([before, delta(1, deleted=True), delta(2, document=b"2")])[1] == {2}


def test_a_delta_that_does_not_follow_is_refused_with_all_after_it() -> None:
    other = delta(0, actor="a/s:y")
    changes, refused = fold([delta(0), other, delta(2), delta(1), delta(3)])
    assert ([one.revision for one in changes], refused) == ([1, 1], {2, 3, 4})


def test_a_message_or_occurrence_is_handled_once() -> None:
    assert fold([delta(0, handled_message=9), delta(1, handled_message=9)])[1] == {1}
    moved = ReminderChange("r", T + timedelta(days=1))
    handled = delta(0, handled_reminder=("r", T), reminders=(moved,))
    [one], refused = fold([handled, delta(1, handled_reminder=("r", T))])
    assert (refused, one.occurrences) == ({1}, {"r": T})
    again = delta(1, handled_reminder=("r", moved.due))
    assert fold([handled, again])[1] == set()
    assert fold([delta(0, deleted=True), delta(1, incarnation=1, handled_reminder=("r", T))])[
        1
    ] == {1}


def test_two_periods_of_an_owner_stay_apart() -> None:
    changes, refused = fold([delta(0), delta(0, epoch=2), delta(1)])
    assert [(one.fence, one.places) for one in changes] == [((1, 1), [0, 2]), ((1, 2), [1])]
    assert not refused


def test_parts_have_so_many_bytes_or_one_change() -> None:
    changes, _ = fold([delta(0, actor=f"a/s:{n}", document=b"x" * 1_000) for n in range(5)])
    assert [len(part) for part in parts(changes, 2_500)] == [2, 2, 1]
    assert [len(part) for part in parts(changes, 10)] == [1] * 5
    assert list(parts([], 10)) == []
