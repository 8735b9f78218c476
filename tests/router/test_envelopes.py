"""Events as the outside knows them: names, subjects and both envelopes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from relevo.kernel.events import Recorded
from relevo.router import events
from relevo.router.wire import envelopes

AT = datetime(2031, 5, 30, 18, tzinfo=UTC)


def recorded(name: str, subject: str, **data: Any) -> Recorded:
    body = msgspec.Raw(msgspec.json.encode(data))
    return Recorded(
        log="L", stripe=3, lsn=7, at=AT, type=events.PREFIX + name, schema=1, subject=subject,
        version=2, body=body,
    )  # fmt: skip


def test_every_type_but_the_internal_one_has_a_name_outside() -> None:
    assert envelopes.NAMES.keys() == {one.name for one in events.TYPES} - {events.TOUCHED}
    assert len(set(envelopes.NAMES.values())) == 22
    assert all(one.startswith("Microsoft.Communication.Router") for one in envelopes.NAMES.values())


def test_what_is_only_for_the_matcher_has_no_envelope() -> None:
    one = recorded("touched", "job/j", jobId="j")
    assert envelopes.cloud_event(one) is None
    assert envelopes.event_grid(one) is None


@pytest.mark.parametrize(
    ("name", "data", "tail"),
    [
        ("job.received", {}, ""),
        ("job.classified", {"queueId": "q"}, "/queue/q"),
        ("job.classification_failed", {"classificationPolicyId": "c"}, "/classificationpolicy/c"),
        ("job.queued", {"queueId": "q"}, "/queue/q"),
        ("job.exception_triggered", {"ruleKey": "r"}, "/exceptionrule/r"),
        ("job.selectors_expired", {"queueId": "q"}, "/queue/q"),
        ("job.unassigned", {"assignmentId": "a"}, "/assignment/a"),
        ("job.completed", {"assignmentId": "a"}, "/assignment/a"),
        ("job.closed", {"assignmentId": "a"}, "/assignment/a"),
        ("job.cancelled", {"dispositionCode": "Gone"}, "/disposition/Gone"),
        ("job.waiting_for_activation", {"queueId": "q"}, ""),
        ("job.scheduling_failed", {"queueId": "q"}, ""),
        ("job.deleted", {"queueId": "q"}, ""),
    ],
)
def test_subjects_of_jobs(name: str, data: dict[str, Any], tail: str) -> None:
    one = recorded(name, "job/a/b", channelId="voice", **data)
    assert envelopes.subject(one) == f"job/a/b/channel/voice{tail}"


@pytest.mark.parametrize("name", [one for one in envelopes.NAMES if ".worker." in one])
def test_subjects_of_workers(name: str) -> None:
    one = recorded(name.removeprefix(events.PREFIX), "worker/w", workerId="w")
    assert envelopes.subject(one) == "worker/w"


@pytest.mark.parametrize("name", [one for one in envelopes.NAMES if ".offer." in one])
def test_subjects_of_offers(name: str) -> None:
    one = recorded(name.removeprefix(events.PREFIX), "worker/w", workerId="w", jobId="j")
    assert envelopes.subject(one) == "worker/w/job/j"


def test_both_envelopes() -> None:
    one = recorded("worker.deregistered", "worker/w", workerId="w")
    assert msgspec.json.decode(msgspec.json.encode(envelopes.cloud_event(one))) == {
        "id": "L:3:7:0", "source": "/relevo/L", "subject": "worker/w", "specversion": "1.0",
        "type": "Microsoft.Communication.RouterWorkerDeregistered",
        "time": "2031-05-30T18:00:00Z", "data": {"workerId": "w"},
    }  # fmt: skip
    assert msgspec.json.decode(msgspec.json.encode(envelopes.event_grid(one))) == {
        "id": "L:3:7:0", "topic": "/relevo/L", "subject": "worker/w", "dataVersion": "1.0",
        "metadataVersion": "1", "eventTime": "2031-05-30T18:00:00Z",
        "eventType": "Microsoft.Communication.RouterWorkerDeregistered",
        "data": {"workerId": "w"},
    }  # fmt: skip
