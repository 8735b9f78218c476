"""Why a job has not run, decided without a database."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from relevo.jobs import states
from relevo.jobs.core import codes
from relevo.jobs.core.reasons import (
    AHEAD_MAX,
    AwaitedEvent,
    HeadOfToken,
    JobExplanation,
    JobServer,
    JobSituation,
    explain,
)

NOW = datetime(2031, 5, 30, 18, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)
ID, OTHER = UUID(int=1), UUID(int=2)
SERVER = JobServer(host="a", lane="default", slots=2, handlers=("mail",))


def explained(status: int = states.READY, **facts: Any) -> JobExplanation:
    facts = {"servers": (SERVER,), "hosts": 1, "served_at": NOW, "lane": "default", **facts}
    return explain(JobSituation(id=ID, name="m", status=status, handler="mail", now=NOW, **facts))


@pytest.mark.parametrize(
    ("facts", "reason", "says"),
    [
        ({"servers": (), "served_at": None, "known_handlers": ("mails", "report")},
         "never_registered", "similar names: mails; the job fails if no host has it for 600 s"),
        ({"servers": ()}, "not_served", "no live host has the handler 'mail'"),
        ({"servers": (), "hosts": 0}, "not_served", "no host is running; a host last declared"),
        ({"servers": (JobServer(host="a", lane="x", slots=1, draining=True),)},
         "hosts_draining", "are draining and claim nothing new: a"),
        ({"chained": True, "head": HeadOfToken(id=OTHER, name="one", says="it runs on b")},
         "behind_token", f"waits for job {OTHER} of the same token (one): it runs on b"),
        ({"chained": True, "hidden_head": True}, "behind_token", "that you may not see"),
        ({"capped": True, "owner_cap": 2, "admitted": 2}, "owner_cap", "lets 2 of an owner"),
        ({"braked_until": LATER}, "braked", "a probe is tried at 2031-05-30T19:00:00Z"),
        ({"alone": True, "crashes": 2}, "runs_alone", "2 hosts were lost while it ran"),
        ({"servers": (JobServer(host="a", lane="x", slots=2, held=2),), "ahead": 1},
         "no_slot", "all 2 slots of lane x on 1 host are taken (2 jobs); it waits in order behind"
         " 1 other job"),
        ({"servers": (JobServer(host="a", lane="x", slots=2, pool="erp"),)},
         "budget", "when the pool 'erp' of its lane has room"),
        ({"ahead": 7}, "in_order", "it waits in order behind 7 other jobs in lane default"),
        ({"ahead": AHEAD_MAX}, "in_order", "at least 10000 jobs"),
        ({}, "in_order", "it is the next in lane default, which 1 host serves"),
    ],
)  # fmt: skip
def test_a_ready_job_has_one_reason(facts: dict[str, Any], reason: str, says: str) -> None:
    found = explained(**facts)
    assert (found.reason, says in found.says) == (reason, True), found


@pytest.mark.parametrize(
    ("facts", "reason", "says"),
    [
        ({"postpone_until": LATER}, "start_time", "it starts at 2031-05-30T19:00:00Z"),
        ({"postpone_until": LATER, "series": True}, "start_time", "the next run of its series"),
        ({"postpone_until": LATER, "retries": 1, "attempt": 2, "error_code": -1,
          "friendly": "no paper"},
         "retry", "attempt 2 failed: no paper; the next one is at 2031-05-30T19:00:00Z"),
        ({"postpone_until": LATER, "attempt": 1, "error_code": codes.HANDLER_MISSING},
         "unknown_arguments", "no host knows its handler with these arguments"),
        ({"postpone_until": NOW, "hosts": 0}, "due", "no host is running"),
        ({"attempt": 1, "modified_at": NOW, "user_name": "ana"},
         "paused", f"paused by ana at 2031-05-30T18:00:00Z; resume it with: relevo job resume {ID}",
         ),
        ({"attempt": 1, "error_code": -1, "friendly": "ask ana"}, "suspended", "it: ask ana"),
        ({}, "held", "a job of its token failed before it"),
        ({"waiting_event": True, "waits": (AwaitedEvent("paid", "7", None, LATER),)},
         "waits_for_event", "the event 'paid' with the key '7', until 2031-05-30T19:00:00Z"),
        ({"waiting_event": True, "waits": (AwaitedEvent(None, None, OTHER),)},
         "waits_for_jobs", f"waits for the end of job {OTHER}"),
        ({"waiting_event": True, "error_code": codes.BRAKED, "braked_until": LATER},
         "braked", "the brake of its extension is on"),
    ],
)  # fmt: skip
def test_a_suspended_job_says_what_it_waits_for(
    facts: dict[str, Any], reason: str, says: str
) -> None:
    found = explained(states.WAITING, **facts)
    assert (found.reason, says in found.says) == (reason, True), found


def test_what_would_hold_it_up_next_is_noted() -> None:
    found = explained(states.WAITING, postpone_until=LATER, servers=())
    assert found.reason == "start_time"
    assert "no live host has the handler 'mail'" in found.notes[0]


def test_a_job_that_runs_or_has_ended_says_where() -> None:
    found = explained(states.IN_PROGRESS, host_name="b", started_at=NOW, attempt=2)
    assert (found.reason, found.host) == ("running", "b")
    assert found.says == "it runs on b since 2031-05-30T18:00:00Z, attempt 2"
    assert "asked by ana to pause" in explained(states.PAUSING, user_name="ana").says
    ended = explained(states.FAILED, host_name="b", completed_at=NOW)
    assert ended.says == "it failed on b at 2031-05-30T18:00:00Z"
