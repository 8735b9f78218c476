"""Access keys in the database: made once, shown once, ended for good."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from relevo import limits
from relevo.errors import Conflict, InvalidValue, NotFound, SettingsError
from relevo.http.access.key_model import NewKey
from relevo.http.access.keys import Keys
from relevo.kernel.sealing import MasterKey
from tests.support.logs import capture_logs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from relevo.kernel.postgres.database import Database
    from relevo.testing.clock import Clock

pytestmark = pytest.mark.anyio

MASTER = MasterKey(b"m" * 32)
PRESET = base64.b64encode(b"p" * 32).decode()
VIEWER = NewKey(name="v", roles=("viewer",))
SIGNING = NewKey(name="s", kind="signing", roles=("admin",))


@pytest.fixture
async def keys(database: Database) -> AsyncIterator[Keys]:
    made = Keys(database, MASTER)
    await made.check_master_key()
    yield made
    await made.close()


def hash_of(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


async def test_a_secret_is_stored_hashed_and_only_signing_keys_sealed(
    keys: Keys, database: Database
) -> None:
    bearer, signing = await keys.create(VIEWER), await keys.create(SIGNING)
    rows = await database.fetch("select * from relevo.access_key order by kind")
    for row, created in zip(rows, (bearer, signing), strict=True):
        assert row["secret_hash"] == hash_of(created.secret)
        assert created.secret.encode() not in repr(dict(row)).encode()
    assert rows[0]["secret_sealed"] is None
    opened = MASTER.open(rows[1]["secret_sealed"], signing.key.id)
    assert opened == base64.b64decode(signing.secret)
    assert len(opened) == 32
    assert bearer.secret.startswith(f"relevo_{bearer.key.id}_")


async def test_keys_are_listed_in_pages_in_the_order_they_were_made(keys: Keys) -> None:
    made = [(await keys.create(VIEWER)).key.id for _ in range(5)]
    first = await keys.list(None, 2)
    rest = await keys.list((first[-1].created_at, first[-1].id), 10)
    assert [key.id for key in first + rest] == made


async def test_a_key_is_revoked_once_and_for_good(keys: Keys, clock: Clock) -> None:
    created = await keys.create(VIEWER)
    revoked = await keys.revoke(created.key.id)
    assert revoked.state == "revoked"
    await clock.advance(60)
    assert await keys.revoke(created.key.id) == revoked
    assert await keys.get(created.key.id) == revoked


async def test_what_does_not_exist_is_not_found(keys: Keys) -> None:
    with pytest.raises(NotFound, match="key-none"):
        await keys.get("key-none")
    with pytest.raises(NotFound, match="key-none"):
        await keys.revoke("key-none")


async def test_a_key_expires_by_the_clock_of_the_store(keys: Keys, clock: Clock) -> None:
    expires_at = await clock.now() + timedelta(hours=1)
    new = NewKey(name="v", roles=("viewer",), expires_at=expires_at)
    created = await keys.create(new)
    assert created.key.state == "active"
    assert await keys.ring.by_hash(hash_of(created.secret)) is not None
    await clock.advance(3_601)
    keys.ring.forget()
    assert (await keys.get(created.key.id)).state == "expired"
    assert await keys.ring.by_hash(hash_of(created.secret)) is None


async def test_a_key_cannot_be_born_expired(keys: Keys) -> None:
    past = datetime(2020, 1, 1, tzinfo=UTC)
    with pytest.raises(InvalidValue, match="not in the future") as caught:
        await keys.create(NewKey(name="v", roles=("viewer",), expires_at=past))
    assert caught.value.pointer == "/expires_at"


async def test_only_so_many_signing_keys_count_at_a_time(keys: Keys) -> None:
    results = await asyncio.gather(
        *(keys.create(SIGNING) for _ in range(limits.SIGNING_KEYS_MAX + 4)), return_exceptions=True
    )
    refused = [result for result in results if isinstance(result, Conflict)]
    assert len(refused) == 4
    await keys.create(VIEWER)
    await keys.revoke((await keys.list(None, 1))[0].id)
    await keys.create(SIGNING)
    assert len(await keys.ring.signing_keys()) == limits.SIGNING_KEYS_MAX


async def test_the_first_key_is_an_admins_signing_key_and_is_shown_once(keys: Keys) -> None:
    secret = await keys.ensure_first(None)
    assert secret is not None
    (key,) = await keys.list(None, 10)
    assert (key.name, key.kind, key.roles) == ("first", "signing", ("admin",))
    assert await keys.ring.by_hash(hash_of(secret)) is not None
    assert await keys.ensure_first(None) is None


async def test_hosts_that_start_at_once_make_one_first_key(database: Database) -> None:
    hosts = [Keys(database, MASTER) for _ in range(8)]

    async def start(host: Keys) -> str | None:
        await host.check_master_key()
        return await host.ensure_first(None)

    shown = await asyncio.gather(*(start(host) for host in hosts))
    assert len([secret for secret in shown if secret]) == 1
    assert len(await hosts[0].list(None, 10)) == 1


async def test_hosts_that_start_at_once_share_a_preset_key(database: Database) -> None:
    hosts = [Keys(database, MASTER) for _ in range(8)]
    await hosts[0].check_master_key()
    shown = await asyncio.gather(*(host.ensure_first(PRESET) for host in hosts))
    assert set(shown) == {None}
    (key,) = await hosts[0].list(None, 10)
    assert (key.name, key.kind, key.roles) == ("preset", "signing", ("admin",))
    assert await hosts[0].ring.by_hash(hash_of(PRESET)) is not None


async def test_a_preset_key_is_added_to_those_there_are(keys: Keys) -> None:
    await keys.create(VIEWER)
    assert await keys.ensure_first(PRESET) is None
    assert len(await keys.list(None, 10)) == 2


async def test_revoked_keys_do_not_come_back_by_a_restart(keys: Keys) -> None:
    await keys.ensure_first(PRESET)
    await keys.revoke((await keys.list(None, 1))[0].id)
    with capture_logs() as logs:
        assert await keys.ensure_first(PRESET) is None
        assert await keys.ensure_first(None) is None
    assert [entry["event"] for entry in logs] == ["preset_key_no_longer_counts"]
    assert PRESET not in repr(logs)
    assert [key.state for key in await keys.list(None, 10)] == ["revoked"]


@pytest.mark.parametrize("preset", ["", "short", "c2hvcnQ=", "no base64!" * 10])
async def test_a_weak_preset_is_refused_without_being_shown(keys: Keys, preset: str) -> None:
    with pytest.raises(SettingsError, match="RELEVO_ACCESS_KEY") as caught:
        await keys.ensure_first(preset)
    assert not preset or preset not in caught.value.message
    assert await keys.list(None, 10) == []


async def test_a_host_with_another_master_key_does_not_start(
    keys: Keys, database: Database
) -> None:
    await keys.ensure_first(None)
    other = MasterKey(b"n" * 32)
    with pytest.raises(SettingsError, match="RELEVO_SECRET_KEY") as caught:
        await Keys(database, other).check_master_key()
    assert MASTER.fingerprint in caught.value.message
    assert other.fingerprint in caught.value.message
    await Keys(database, MASTER).check_master_key()


async def test_the_master_key_may_change_while_nothing_is_sealed(
    keys: Keys, database: Database
) -> None:
    await keys.create(VIEWER)
    other = Keys(database, MasterKey(b"n" * 32))
    await other.check_master_key()
    # The host with the old one is still running: what it would seal, the others could not open.
    with pytest.raises(SettingsError):
        await keys.create(SIGNING)
    await other.create(SIGNING)
    with pytest.raises(SettingsError):
        await keys.check_master_key()


async def test_a_damaged_key_locks_out_nobody_else(keys: Keys, database: Database) -> None:
    damaged, sound = await keys.create(SIGNING), await keys.create(SIGNING)
    await database.write(
        "update relevo.access_key set secret_sealed = '\\x01' where id = $1 returning id",
        damaged.key.id,
    )
    with capture_logs() as logs:
        found = await keys.ring.signing_keys()
    assert [key.id for key in found] == [sound.key.id]
    assert [(entry["event"], entry["key"]) for entry in logs] == [
        ("key_cannot_be_opened", damaged.key.id)
    ]
