"""Queues on the command line: generic commands, lines of messages, and `relevo top`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec
import pytest

from relevo.messaging.cli.rates import rates_of, wait_percentile
from relevo.messaging.operating.describing import WAIT_BOUNDS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.conftest import Result, Site


@pytest.fixture(params=["database", "http"])
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def queue(site: Site, way: str) -> str:
    """A queue of the test's own."""
    name = f"q-{uuid4().hex[:8]}"
    run(site, way, "queue", "create", name, "--lock-duration", "30")
    return name


def run(site: Site, way: str, *arguments: str, code: int = 0) -> Result:
    done = site.run(*arguments, way=way)
    assert done.code == code, done
    return done


def send(site: Site, way: str, queue: str, folder: Path, text: str, *options: str) -> Result:
    file = folder / "messages.jsonl"
    file.write_text(text)
    return run(site, way, "queue", "send", queue, str(file), *options)


def lines(result: Result) -> list[Any]:
    return [msgspec.json.decode(line) for line in result.out.splitlines()]


def test_a_queue_is_made_shown_changed_listed_and_dropped(site: Site, way: str, queue: str) -> None:
    again = run(site, way, "queue", "create", queue, code=4)
    assert "already" in again.err
    shown = run(site, way, "queue", "show", queue, "-o", "json").json
    assert (shown["name"], shown["lock_duration"]) == (queue, 30.0)
    run(site, way, "queue", "update", queue, "--ordering", '{"policy": "strict"}')
    assert queue in run(site, way, "queue", "list", "--all").out
    changed = run(site, way, "queue", "show", queue, "-o", "json").json
    assert (changed["ordering"], changed["lock_duration"]) == ({"policy": "strict"}, 30.0)
    run(site, way, "queue", "delete", queue, "--yes")
    assert run(site, way, "queue", "show", queue, code=3).err.startswith("error: ")


def test_messages_are_sent_peeked_and_received_by_hand(site: Site, way: str, queue: str) -> None:
    run(
        site, way, "message", "send", queue, "--body", '{"n": 1}', "--properties",
        '{"tier": "paying"}', "--priority", "8",
    )  # fmt: skip
    (peeked,) = run(site, way, "message", "peek", queue, "-o", "json").json["items"]
    assert (peeked["body"], peeked["priority_class"]) == ({"n": 1}, "high")
    (found,) = run(site, way, "message", "claim", queue, "-o", "json").json["items"]
    run(site, way, "message", "dead-letter", queue, found["lock_token"], "--reason", "bad")
    assert run(site, way, "dead-letter", "redrive", queue, "-o", "json").json == {"count": 1}
    assert run(site, way, "message", "purge", queue, "-o", "json").json == {"count": 1}


def test_dead_letters_of_transfers_are_redriven_and_purged(
    site: Site, way: str, queue: str
) -> None:
    first, last = f"{queue}-first", f"{queue}-last"
    run(site, way, "queue", "create", last)
    run(site, way, "queue", "create", first, "--forward-to", last)
    run(site, way, "queue", "update", last, "--status", "disabled")
    for body in ("a", "b"):
        run(site, way, "message", "send", first, "--body", body)
    letters = ("dead-letter", "transfer")
    found = run(site, way, *letters, "peek", first, "-o", "json").json["items"]
    assert [one["dead_letter_reason"] for one in found] == ["TransferFailed"] * 2
    run(site, way, "queue", "update", last, "--status", "active")
    redriven = run(site, way, *letters, "redrive", first, "--limit", "1", "-o", "json")
    assert redriven.json == {"count": 1}
    assert run(site, way, *letters, "purge", first, "-o", "json").json == {"count": 1}


def test_lines_are_sent_and_received(site: Site, way: str, queue: str, tmp_path: Path) -> None:
    text = '{"body": "a", "priority": 9}\n\n{"body": {"b": 1}}\n{"body_base64": "AP8="}\n'
    sent = send(site, way, queue, tmp_path, text, "--priority", "4")
    assert sent.err.startswith("sent 3 messages in ")
    found = run(site, way, "queue", "receive", queue)
    assert [(one.get("body"), one["priority"]) for one in lines(found)] == [
        ("a", 9), ({"b": 1}, 4), (None, 4),
    ]  # fmt: skip
    assert found.err.startswith("received 3 messages in ")
    assert run(site, way, "queue", "receive", queue).out == ""
    again = send(site, way, queue, tmp_path, found.out)
    assert again.err.startswith("sent 3 messages")
    (first,) = lines(run(site, way, "queue", "receive", queue, "--count", "1"))
    assert first["body"] == "a"
    assert len(run(site, way, "message", "peek", queue, "-o", "json").json["items"]) == 2


def test_texts_are_sent_and_received(site: Site, way: str, queue: str, tmp_path: Path) -> None:
    done = send(site, way, queue, tmp_path, "hello\n\nwörld\n", "--text", "-o", "json")
    assert done.json == {"sent": 3, "duplicates": 0}
    assert run(site, way, "queue", "receive", queue, "--text").out == "hello\n\nwörld\n"


def test_a_bad_line_is_named_and_what_was_sent_before_is_told(
    site: Site, way: str, queue: str, tmp_path: Path
) -> None:
    good = '{"body": "x"}\n' * 500
    file = tmp_path / "messages.jsonl"
    for bad, said in (
        ('{"body": "x", "priority": 12}', "line 501 not sent"),
        ("nonsense", "line 501 is not JSON"),
        ("[1]", "line 501 is no message"),
    ):
        file.write_text(good + bad)
        failed = site.run("queue", "send", queue, str(file), way=way)
        assert failed.code == 2, failed
        assert said in failed.err
        assert "500 messages before that were sent" in failed.err
    file.write_text(good)
    missing = run(site, way, "queue", "send", "none", str(file), code=3)
    assert "lines 1 to 500 not sent" in missing.err


def test_topics_and_subscriptions_have_lines_too(site: Site, way: str, tmp_path: Path) -> None:
    topic = f"t-{uuid4().hex[:8]}"
    run(site, way, "topic", "create", topic)
    run(
        site, way, "subscription", "create", topic, "high", "--rules",
        '{"high": {"filter": "Priority = \'high\'"}}',
    )  # fmt: skip
    run(site, way, "rule", "create", topic, "high", "gold", "--filter", "tier = 'gold'")
    (tmp_path / "lines").write_text(
        '{"body": 1, "properties": {"Priority": "high"}}\n{"body": 2}\n'
        '{"body": 3, "properties": {"tier": "gold"}}\n'
    )
    run(site, way, "topic", "send", topic, str(tmp_path / "lines"))
    found = lines(run(site, way, "subscription", "receive", topic, "high"))
    assert [one["body"] for one in found] == [1, 3]


def test_standard_input_is_sent_by_a_process(site: Site) -> None:
    cli, queue = site.cli, f"q-{uuid4().hex[:8]}"
    assert cli("queue", "create", queue).code == 0
    sent = cli("queue", "send", queue, stdin='{"body": "a"}\n{"body": "b"}\n')
    assert (sent.code, sent.out) == (0, ""), sent
    received = cli("queue", "receive", queue, "--text")
    assert (received.code, received.out) == (0, "a\nb\n"), received


def test_top_shows_queues_by_class_and_lanes(
    site: Site, way: str, queue: str, tmp_path: Path
) -> None:
    send(site, way, queue, tmp_path, '{"body": "x", "priority": 9}\n' * 3)
    found = lines(run(site, way, "top", "--once", "-o", "json"))[0]
    (high,) = [one for one in found["queues"] if (one["queue"], one["class"]) == (queue, "high")]
    assert (high["waiting"], high["locked"]) == (3, 0)
    assert high["oldest_seconds"] >= 0
    assert "lanes" in found
    shown = site.run("top", "--once", way=way, COLUMNS="200").out
    assert queue in shown
    assert "in/s" in shown
    assert "1, 5, 15 min" in shown


def waits(counts: dict[int, int]) -> tuple[int, ...]:
    return tuple(counts.get(bucket, 0) for bucket in range(len(WAIT_BOUNDS) + 1))


def test_no_messages_have_no_waits() -> None:
    assert wait_percentile(waits({}), 0.5) is None


def test_rates_are_what_happened_between_two_readings() -> None:
    counts = {
        "sent": 10, "completed": 4, "active": 6, "locked": 0, "dead_letter": 0, "oldest_age": 3.0,
        "in_target": 4, "out_of_target": 0, "waits": waits({25: 9}),
        "rates": {"sent": [1.0, 0.5, 0.2], "completed": [2.0, 0.5, 0.2]},
    }  # fmt: skip
    grown = {"sent": 30, "completed": 14, "in_target": 9, "out_of_target": 5}
    later = {**counts, **grown, "waits": waits({0: 60, 3: 39, 10: 1, 25: 9})}
    (rate,) = rates_of({("q", "high"): counts}, {("q", "high"): later}, 2.0)
    assert (rate.in_per_second, rate.out_per_second, rate.in_target) == (10.0, 5.0, 0.5)
    assert (rate.wait_p50, rate.wait_p99) == (0.001, 0.008)
    assert (rate.in_rates[0], rate.out_rates[0]) == (1.0, 2.0)
    (still,) = rates_of({("q", "high"): counts}, {("q", "high"): counts}, 2.0)
    assert (still.wait_p50, still.wait_p99) == (2**25 / 1000,) * 2
    (new,) = rates_of({}, {("q", "high"): later}, 2.0)
    assert (new.in_per_second, new.in_target) == (0.0, 9 / 14)


def test_a_key_is_bound_to_a_class(site: Site, way: str) -> None:
    made = run(
        site, way, "key", "create", "--name", "k", "--role", "producer", "--max-class", "normal",
        "--max-class-mode", "reject", "-o", "json",
    )  # fmt: skip
    assert (made.json["key"]["max_class"], made.json["key"]["max_class_mode"]) == (
        "normal", "reject",
    )  # fmt: skip
