"""When reminders fire: by rules and cron lines, also after a long outage."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from relevo.actors.core.schedules import ReminderSchedule, checked, first_due, occurrence

START = datetime(2031, 1, 1, 12, tzinfo=UTC)


def test_a_reminder_may_have_a_cron_line() -> None:
    plan = checked(ReminderSchedule(start=START, recurrence="0 3 1 * *", timezone="Europe/Madrid"))
    due = first_due(plan)
    assert due == datetime(2031, 2, 1, 2, tzinfo=UTC)
    late = occurrence(plan, due, due + timedelta(days=40))
    assert (late.fires, late.missed, late.next_due) == (
        True,
        1,
        datetime(2031, 4, 1, 1, tzinfo=UTC),
    )


def test_a_rule_by_the_second_goes_on_at_once_after_a_year() -> None:
    plan = ReminderSchedule(start=START, recurrence="* * * * * *")
    now = START + timedelta(days=365, milliseconds=500)
    late = occurrence(plan, START, now)
    assert (late.fires, late.next_due) == (True, START + timedelta(days=365, seconds=1))
