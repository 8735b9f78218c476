"""What decides in webhooks, without a database."""

from __future__ import annotations

import base64
import functools
import random
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook as PeerWebhook

from relevo import App, limits
from relevo.errors import InvalidExpression, InvalidValue
from relevo.kernel.events import Recorded
from relevo.kernel.outbound.addresses import Allowed
from relevo.webhooks import definitions
from relevo.webhooks.core import envelopes, retry, signing
from relevo.webhooks.core.filters import EventFilter, EventView, is_own
from relevo.webhooks.definitions import WebhookDefinition
from relevo.webhooks.service import Webhooks

NOW = datetime(2031, 5, 30, 18, tzinfo=UTC)
LOG = "00000000-0000-7000-8000-00000000000a"


def recorded(kind: str = "relevo.job.completed", data: Any = None, **more: Any) -> Recorded:
    known: dict[str, Any] = {"subject": "job/7", "version": 3, "stripe": 2147480001, "lsn": 5}
    body = msgspec.Raw(msgspec.json.encode(data if data is not None else {}))
    return Recorded(log=LOG, at=NOW, type=kind, schema=1, body=body, **{**known, **more})


def takes(condition: str, event: Recorded, *types: str) -> bool:
    return EventFilter(types or ("*",), condition).takes(EventView(event))


@given(
    st.lists(st.binary(min_size=24, max_size=64), min_size=1, max_size=3),
    st.binary(max_size=200).map(lambda raw: msgspec.json.encode(raw.hex())),
)
def test_the_peer_accepts_signatures_of_every_secret(secrets: list[bytes], body: bytes) -> None:
    seconds = int(datetime.now(UTC).timestamp())
    made = signing.headers(secrets, "msg_1", seconds, body)
    for secret in secrets:
        PeerWebhook(signing.written(secret)).verify(body, made)


@pytest.mark.parametrize("text", ["", "whsec_", "whsec_c2hvcnQ=", "nonsense", "whsec_" + "A" * 120])
def test_secrets_of_other_lengths_are_refused_without_being_shown(text: str) -> None:
    with pytest.raises(InvalidValue, match="24 to 64") as raised:
        signing.read(text)
    assert len(text) < 8 or text not in str(raised.value)


@given(st.integers(1, 40), st.floats(0, 90_000) | st.none(), st.integers())
def test_waits_follow_the_schedule_and_the_receiver(
    attempts: int, asked: float | None, seed: int
) -> None:
    wait = retry.next_wait(retry.WAITS, attempts, asked, random.Random(seed))
    if attempts > len(retry.WAITS):
        assert wait is None
        return
    assert wait is not None
    planned = retry.WAITS[attempts - 1]
    assert max(0.8 * planned, asked or 0.0) <= wait <= max(1.2 * planned, asked or 0.0)


def test_the_usual_schedule_lasts_for_days() -> None:
    assert 3 * 86_400 < sum(retry.WAITS) < limits.WEBHOOK_FAILING_SECONDS_MAX


@pytest.mark.parametrize(
    ("status", "verdict"),
    [(200, "delivered"), (204, "delivered"), (302, "failed"), (410, "gone"), (404, "failed")],
)
def test_answers(status: int, verdict: str) -> None:
    assert retry.judged(status, {}, NOW).verdict == verdict


@given(st.text(max_size=120))
def test_any_retry_after_is_read_or_ignored(text: str) -> None:
    seconds = retry.retry_after(text, NOW)
    assert seconds is None or 0 <= seconds <= limits.WEBHOOK_WAIT_SECONDS_MAX


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("type = 'relevo.job.completed'", True),
        ("Type LIKE 'relevo.job.%' AND version >= 3", True),
        ("subject = 'job/8'", False),
        ("data.lane IN ('post', 'mail')", True),
        ("DATA.Lane = 'post' AND NOT data.[labels.region] = 'us'", True),
        ("data.[labels.region] = 'eu' AND data.attempts > 1.5", True),
        ("data.missing = 1", False),
        ("data.missing IS NULL", True),
        ("EXISTS(data.lane)", True),
        ("data.list = 1", False),
        ("data.attempts = 'two'", False),
        ("data.attempts / 0 > 1", False),
    ],
)
def test_conditions(condition: str, expected: bool) -> None:
    data = {"lane": "post", "attempts": 2, "labels": {"region": "eu"}, "list": [1], "none": None}
    assert takes(condition, recorded(data=data)) is expected


@pytest.mark.parametrize(
    ("condition", "reason"),
    [
        ("sys.Label = 'x'", "scope"),
        ("user.x = 1", "scope"),
        ("lane = 'post'", "field of an event"),
        ("data.x", "condition is expected"),
        ("1; drop table relevo.job", "INTEGER|operator|end|statement|Separate|semicolon"),
        ("(" * 200 + "1=1" + ")" * 200, "nest|deep|levels"),
        ("data.a = '" + "x" * 2_000 + "'", "1,024"),
    ],
)
def test_hostile_conditions_are_refused_when_they_are_given(condition: str, reason: str) -> None:
    with pytest.raises(InvalidExpression, match=reason):
        EventFilter(("*",), condition)


def test_a_condition_on_hostile_data_never_fails() -> None:
    deep: dict[str, Any] = {}
    for _ in range(60):
        deep = {"x": deep, "y": 2**70}
    event = recorded(data={"deep": deep, **{f"k{n}": "‮<script>" for n in range(3_000)}})
    assert takes("data.[deep.y] = 1 OR data.k0 LIKE '%script%'", event)


def test_types_are_matched_by_either_name() -> None:
    queued = recorded("relevo.router.job.queued")
    for pattern in ("*", "relevo.router.*", "Microsoft.Communication.RouterJobQueued"):
        assert takes("1 = 1", queued, pattern)
    assert not takes("1 = 1", queued, "relevo.job.*")
    assert not takes("1 = 1", recorded("relevo.router.touched"), "*")
    assert is_own(recorded(subject="webhook/a"), "a")
    assert not is_own(recorded(subject="webhook/a"), "b")


def test_router_events_are_sent_with_the_names_and_fields_of_azure() -> None:
    data = {"jobId": "7", "channelId": "voice", "queueId": "q", "labels": {}, "tags": {}}
    event = recorded("relevo.router.job.queued", data)
    cloud = msgspec.json.decode(envelopes.body(event, "cloudevents"))
    assert cloud["type"] == "Microsoft.Communication.RouterJobQueued"
    assert cloud["subject"] == "job/7/channel/voice/queue/q"
    assert (cloud["specversion"], cloud["data"], cloud["id"]) == ("1.0", data, event.id)
    (grid,) = msgspec.json.decode(envelopes.body(event, "eventgrid"))
    assert grid["eventType"] == cloud["type"]
    assert grid["subject"] == cloud["subject"]
    assert set(grid) == {
        "id", "topic", "subject", "eventType", "eventTime", "dataVersion", "metadataVersion",
        "data",
    }  # fmt: skip


def test_other_events_keep_their_names_and_can_be_ordered() -> None:
    event = recorded(data={"a": "é"})
    cloud = msgspec.json.decode(envelopes.body(event, "cloudevents"))
    assert (cloud["type"], cloud["subject"]) == ("relevo.job.completed", "job/7")
    assert (cloud["subjectversion"], cloud["time"]) == ("3", "2031-05-30T18:00:00Z")
    assert cloud["source"] == f"/relevo/{LOG}"
    # CloudEvents allows small letters and digits in names of attributes.
    assert all(name.isalnum() and name == name.lower() for name in cloud)


def test_validation_events_and_their_answers() -> None:
    code = UUID(int=7)
    (event,) = msgspec.json.decode(envelopes.validation(code, "https://x/y", LOG, NOW))
    assert event["eventType"] == "Microsoft.EventGrid.SubscriptionValidationEvent"
    assert event["data"] == {"validationCode": str(code), "validationUrl": "https://x/y"}
    good = msgspec.json.encode({"validationResponse": str(code)})
    assert envelopes.confirms(good, code)
    for bad in (b"", b"[]", b"{}", b'{"validationResponse": 7}', b"\xff", good.replace(b"7", b"8")):
        assert not envelopes.confirms(bad, code)


SPELLINGS = [
    "https://127.0.0.1/", "https://127.1/", "https://0177.0.0.1/", "https://2130706433/",
    "https://0x7f000001/", "https://0x7f.1/", "https://[::1]/", "https://[::ffff:127.0.0.1]/",
    "https://[::ffff:7f00:1]/", "https://[64:ff9b::7f00:1]/", "https://[fe80::1%25eth0]/",
    "https://169.254.169.254/latest/meta-data/", "https://[::ffff:a9fe:a9fe]/",
    "https://[fd00:ec2::254]/", "https://100.100.100.200/", "https://192.0.0.192/",
    "https://168.63.129.16/", "https://10.1.2.3/", "https://192.168.0.1/", "https://0.0.0.0/",
    "https://[::]/", "https://255.255.255.255/", "https://224.0.0.1/", "https://[2002:7f00:1::]/",
    "https://127.0.0.1./", "https://①②⑦.0.0.1/", "https://127.0.0.1:443/",
    "ftp://example.com/", "file:///etc/passwd", "gopher://example.com/", "//example.com/",
    "https://user:secret@example.com/", "https://", "https:///x",
    "https://example.com:99999/", "https://example.com\\@127.0.0.1/", "javascript:alert(1)", "",
]  # fmt: skip


@pytest.mark.parametrize("url", SPELLINGS)
def test_addresses_that_are_not_of_the_internet_are_refused_in_any_spelling(url: str) -> None:
    with pytest.raises(InvalidValue) as raised:
        check(url=url)
    assert raised.value.pointer == "/url"
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("url", ["https://hooks.example/x?key=1", "https://[2606:4700::1111]/"])
def test_addresses_of_the_internet_are_taken(url: str) -> None:
    check(url=url)


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"types": ()}, "/types"),
        ({"types": ("relevo.job.complete",)}, "/types"),
        ({"types": ("a*b",)}, "/types"),
        ({"types": tuple(f"a.b{n}" for n in range(51))}, "/types"),
        ({"format": "xml"}, "/format"),
        ({"retry": (0.5,)}, "/retry"),
        ({"retry": (float("nan"),)}, "/retry"),
        ({"retry": (90_000.0,)}, "/retry"),
        ({"retry": (1.0,) * 20}, "/retry"),
    ],
)
def test_other_properties_are_checked(change: dict[str, Any], pointer: str) -> None:
    with pytest.raises(InvalidValue) as raised:
        check(**change)
    assert raised.value.pointer == pointer


def test_a_type_that_is_nearly_right_is_suggested() -> None:
    with pytest.raises(InvalidValue, match=r"did you mean relevo.router.job.queued"):
        check(types=("relevo.router.job.queue",))


@pytest.mark.parametrize("name", ["", "A", "-a", "a-", "a/b", "a" * 65, "a b", "é"])
def test_names(name: str) -> None:
    with pytest.raises(InvalidValue):
        definitions.checked_name(name)


def check(**change: Any) -> None:
    given: dict[str, Any] = {
        "url": "https://hooks.example/x", "types": ("*",), "filter": None, "format": "cloudevents",
        "retry": retry.WAITS,
    }  # fmt: skip
    definitions.checked(WebhookDefinition(**{**given, **change}), Allowed(), catalogue())


@functools.cache
def catalogue() -> Any:
    app = App("postgresql://nowhere")
    assert isinstance(app.webhooks, Webhooks)
    return app.events.catalogue


def test_a_secret_that_users_bring_is_read_with_and_without_its_prefix() -> None:
    plain = base64.b64encode(b"s" * 24).decode()
    assert signing.read(plain) == signing.read(signing.PREFIX + plain) == b"s" * 24
