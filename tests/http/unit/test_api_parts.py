"""The small pure parts of the API: pages, throttle, sealing, OpenAPI."""

from __future__ import annotations

import base64
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relevo.errors import InvalidValue, RateLimited, SettingsError
from relevo.http import openapi, paging
from relevo.http.access.key_model import KeyCreated, KeyInfo
from relevo.http.admission import Throttle
from relevo.http.operations import OPERATIONS, SURFACES
from relevo.kernel.operation import PUBLIC
from relevo.kernel.pages import Fetched, first
from relevo.kernel.sealing import MasterKey
from relevo.kernel.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from pathlib import Path

MASTER = MasterKey(b"m" * 32)


def test_pages_hold_as_many_as_asked_and_point_on() -> None:
    page = paging.page(1_000, first([1, 2, 3], 2), lambda item: item)
    assert page.items == [1, 2]
    assert paging.decode(page.next, int) == 2
    assert paging.page(1_000, first([1, 2], 2), lambda item: item).next is None
    assert paging.page(1_000, first([], 2), lambda item: item).items == []


def test_pages_end_before_the_item_that_exceeds_their_bytes() -> None:
    found = Fetched(["a" * 7, "b" * 7, "c"], more=False)
    page = paging.page(23, found, lambda item: item)  # each has two quotes and a comma
    assert (page.items, paging.decode(page.next, str)) == (["a" * 7, "b" * 7], "b" * 7)
    page = paging.page(5, found, lambda item: item)
    assert (page.items, paging.decode(page.next, str)) == (["a" * 7], "a" * 7)
    page = paging.page(1_000, Fetched(["a"], more=True), lambda item: item, end="z")
    assert (page.items, paging.decode(page.next, str)) == (["a"], "z")
    page = paging.page(1_000, Fetched([], more=True), lambda item: item, end="z")
    assert (page.items, paging.decode(page.next, str)) == ([], "z")


@settings(deadline=None)
@given(st.datetimes(timezones=st.just(UTC)), st.text())
def test_a_cursor_comes_back_as_it_was(at: datetime, name: str) -> None:
    try:
        name.encode()
    except UnicodeEncodeError:
        return
    cursor = paging.encode((at, name))
    assert cursor.isascii()
    assert set(cursor) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")
    if "\0" not in name:
        assert paging.decode(cursor, tuple[datetime, str]) == (at, name)


@settings(deadline=None)
@given(st.text(max_size=40))
def test_no_cursor_breaks_the_decoder(cursor: str) -> None:
    with suppress(InvalidValue):
        paging.decode(cursor, tuple[datetime, str])


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "x",
        "****",
        paging.encode(1),
        paging.encode(["a"]),
        paging.encode(["2026-01-01T00:00:00Z", "a\0"]),
        paging.encode(["9999-12-31T23:59:59-23:59", "a"]),
        "W1tb" * 100_000,
    ],
)
def test_cursors_of_another_kind_are_refused(cursor: str) -> None:
    with pytest.raises(InvalidValue):
        paging.decode(cursor, tuple[datetime, str])


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_key_may_burst_and_then_send_at_its_rate() -> None:
    clock = Clock()
    throttle = Throttle(10.0, 5.0, clock=clock)
    for _ in range(5):
        throttle.take("a")
    with pytest.raises(RateLimited) as caught:
        throttle.take("a")
    assert caught.value.retry_after == pytest.approx(0.1)
    throttle.take("b")
    clock.now += 0.1
    throttle.take("a")
    with pytest.raises(RateLimited):
        throttle.take("a")
    clock.now += 3600
    for _ in range(5):
        throttle.take("a")
    with pytest.raises(RateLimited):
        throttle.take("a")


def test_a_refused_request_costs_nothing() -> None:
    clock = Clock()
    throttle = Throttle(1.0, 1.0, clock=clock)
    throttle.take("a")
    for _ in range(100):
        with pytest.raises(RateLimited):
            throttle.take("a")
    clock.now += 1.0
    throttle.take("a")


def test_full_buckets_are_forgotten() -> None:
    clock = Clock()
    throttle = Throttle(1.0, 1.0, clock=clock)
    for number in range(5_000):
        clock.now += 2.0
        throttle.take(str(number))
    assert len(throttle._full_at) <= 1_001


@settings(deadline=None)
@given(st.binary(max_size=100), st.text(max_size=20).filter(lambda text: text.isascii()))
def test_what_is_sealed_can_be_opened_for_the_same_owner_only(plain: bytes, owner: str) -> None:
    sealed = MASTER.seal(plain, owner)
    assert MASTER.open(sealed, owner) == plain
    assert MASTER.seal(plain, owner) != sealed
    for other, key in ((owner + "x", MASTER), (owner, MasterKey(b"n" * 32))):
        with pytest.raises(ValueError, match="another"):
            key.open(sealed, other)


@settings(deadline=None)
@given(st.integers(0, 60))
def test_a_changed_byte_is_noticed(position: int) -> None:
    sealed = bytearray(MASTER.seal(b"s" * 32, "key-1"))
    sealed[position % len(sealed)] ^= 1
    with pytest.raises(ValueError, match=r"sealed"):
        MASTER.open(bytes(sealed), "key-1")


@pytest.mark.parametrize("sealed", [b"", b"\x01", b"\x02" + b"x" * 50])
def test_what_was_never_sealed_is_refused(sealed: bytes) -> None:
    with pytest.raises(ValueError, match="sealed"):
        MASTER.open(sealed, "key-1")


def text_of(key: bytes) -> str:
    return base64.b64encode(key).decode()


def test_the_setting_is_the_master_key(tmp_path: Path) -> None:
    assert MasterKey.load(text_of(b"m" * 32), tmp_path).fingerprint == MASTER.fingerprint
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["", "no base64!", text_of(b"short"), text_of(b"x" * 33), "é"])
def test_a_malformed_setting_is_refused_without_being_shown(text: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="RELEVO_SECRET_KEY") as caught:
        MasterKey.load(text, tmp_path)
    assert "openssl rand" in caught.value.message
    assert not text or text not in caught.value.message


def test_without_a_setting_a_private_file_is_made_once(tmp_path: Path) -> None:
    home = tmp_path / "data"
    first = MasterKey.load(None, home)
    assert MasterKey.load(None, home).fingerprint == first.fingerprint
    assert stat.S_IMODE((home / "secret.key").stat().st_mode) == 0o600
    assert [path.name for path in home.iterdir()] == ["secret.key"]


def test_hosts_that_start_at_once_share_one_file(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        keys = list(pool.map(lambda _: MasterKey.load(None, tmp_path), range(32)))
    assert len({key.fingerprint for key in keys}) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["secret.key"]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666])
def test_a_file_others_can_read_is_refused_with_the_command_to_run(
    mode: int, tmp_path: Path
) -> None:
    MasterKey.load(None, tmp_path)
    os.chmod(tmp_path / "secret.key", mode)
    with pytest.raises(SettingsError, match=f"chmod 600 {tmp_path}/secret.key"):
        MasterKey.load(None, tmp_path)


def test_a_broken_file_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "secret.key"
    path.touch(0o600)
    path.write_text("nonsense")
    with pytest.raises(SettingsError, match=r"secret\.key"):
        MasterKey.load(None, tmp_path)


def test_secrets_are_not_part_of_any_repr() -> None:
    key = KeyInfo(
        id="key-1",
        name="n",
        kind="bearer",
        roles=(),
        scopes=(),
        state="active",
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
        expires_at=None,
        last_used_at=None,
        revoked_at=None,
        user_id=UUID(int=1),
    )
    created = KeyCreated(key=key, secret="hush")
    assert "hush" not in repr(created)
    assert "hush" not in repr(list(created.__rich_repr__()))
    assert "mmmm" not in repr(MASTER)


def test_figures_have_the_published_names() -> None:
    metrics = Metrics()
    metrics.http_request_seconds.labels("hosts.list", "200").observe(0.1)
    text = metrics.render().decode()
    for name in (
        "relevo_build_info",
        "relevo_http_request_seconds",
        "relevo_leases",
        "relevo_lease_lost_total",
        "relevo_store_commit_seconds",
        "relevo_store_retries_total",
        "relevo_clock_skew_seconds",
        "relevo_group_calls",
        "relevo_group_statements",
        "relevo_loop_restarts",
    ):
        assert f"# TYPE {name}" in text, name
    assert 'relevo_http_request_seconds_count{operation="hosts.list",status="200"} 1.0' in text


DOCUMENT = openapi.document(OPERATIONS, SURFACES)


def test_every_operation_is_documented() -> None:
    for each in OPERATIONS:
        described = DOCUMENT["paths"][each.path][each.method.lower()]
        assert described["operationId"] == each.name
        assert described["summary"] == each.summary
        assert bool(described["security"]) == (each.permission != PUBLIC)
        assert {"400", "500", "503"} <= described["responses"].keys()
        assert ("401" in described["responses"]) == (each.permission != PUBLIC)
        for kind in each.errors:
            code = SURFACES.at(each.path).code(kind)
            assert f"`{code}`" in described["responses"][str(kind.status)]["description"]
        for parameter in each.parameters:
            assert [p["in"] for p in described["parameters"] if p["name"] == parameter] == ["path"]
        assert all(p["description"] for p in described["parameters"]), each.name
    count = sum(len(item) for item in DOCUMENT["paths"].values())
    assert count == len(OPERATIONS)


def test_every_reference_of_the_document_leads_somewhere() -> None:
    def walk(node: Any) -> None:
        if isinstance(node, dict):
            if "$ref" in node:
                assert node["$ref"].rpartition("/")[2] in DOCUMENT["components"]["schemas"]
            for value in node.values():
                walk(value)
        elif isinstance(node, list | tuple):
            for value in node:
                walk(value)

    walk(DOCUMENT)


def test_a_body_does_not_repeat_what_the_path_says() -> None:
    move = DOCUMENT["paths"]["/v1/leases/{kind}/{unit}/{name}:move"]["post"]
    schema = move["requestBody"]["content"]["application/json"]["schema"]
    assert set(schema["properties"]) == {"to"}
    assert schema["required"] == ["to"]
    assert schema["additionalProperties"] is False
