"""The keys in memory: how long they count, and what they cost."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from relevo import limits
from relevo.http.access.key_model import NewKey
from relevo.http.access.keyring import LAST_USE_SECONDS, KeyRing
from relevo.http.access.keys import Keys
from relevo.kernel.sealing import MasterKey
from relevo.testing.clock import Clock
from tests.http.signer import SIGNING, Signer

if TYPE_CHECKING:
    from relevo.kernel.postgres.database import Database
    from tests.http.conftest import Site

pytestmark = pytest.mark.anyio


async def test_a_key_in_use_costs_no_query(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "KEY_CACHE_SECONDS", 3_600.0)
    signer = Signer(site, (await site.services.keys.create(SIGNING)).secret)
    lookups = site.services.keys.ring._lookups
    await site.ask("GET", "/v1/hosts", key="viewer")
    await signer.ask("GET", "/v1/hosts")
    before = lookups.statements
    for _ in range(5):
        await site.ask("GET", "/v1/hosts", key="viewer")
        await signer.ask("GET", "/v1/hosts")
    assert lookups.statements == before


class Steady:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


MASTER = MasterKey(b"m" * 32)


async def test_a_key_that_expires_in_memory_is_refused_without_a_query(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "KEY_CACHE_SECONDS", 7_200.0)
    steady = Steady()
    keys, ring = Keys(database, MASTER), KeyRing(database, MASTER, clock=steady)
    expires_at = await Clock(database).now() + timedelta(hours=1)
    await keys.create(NewKey(name="b", roles=("viewer",), expires_at=expires_at))
    secret_hash = (await database.fetch("select secret_hash from relevo.access_key"))[0][0]
    assert await ring.by_hash(secret_hash) is not None
    steady.now += 3_600
    assert await ring.by_hash(secret_hash) is None
    assert ring._lookups.statements == 1
    await ring.close()
    await keys.close()


async def test_a_revocation_elsewhere_counts_when_memory_has_aged(database: Database) -> None:
    clock = Steady()
    here, there = KeyRing(database, MASTER, clock=clock), Keys(database, MASTER)
    await there.check_master_key()
    created = await there.create(SIGNING)
    (key,) = await here.signing_keys()
    assert await here.by_hash(key.secret_hash) is not None
    await there.revoke(created.key.id)
    clock.now += limits.KEY_CACHE_SECONDS - 0.1
    assert await here.by_hash(key.secret_hash) is not None
    assert len(await here.signing_keys()) == 1
    clock.now += 0.2
    assert await here.by_hash(key.secret_hash) is None
    assert await here.signing_keys() == ()
    await here.close()


async def test_a_key_made_elsewhere_counts_at_once(site: Site) -> None:
    await site.ask("GET", "/v1/hosts", key="viewer")
    assert len(await site.services.keys.ring.signing_keys()) == 0
    master = MasterKey.load(None, site.services.app.settings.home)
    elsewhere = Keys(site.services.app.database, master)
    created = await elsewhere.create(SIGNING)
    assert (await Signer(site, created.secret).ask("GET", "/v1/keys")).status == 200
    bearer = await elsewhere.create(NewKey(name="b", roles=("viewer",)))
    assert (await site.ask("GET", "/v1/hosts", key=bearer.secret)).status == 200


async def test_what_was_being_read_during_a_revocation_is_not_kept(database: Database) -> None:
    keys = Keys(database, MASTER)
    created = await keys.create(NewKey(name="b", roles=("viewer",)))
    ring = keys.ring
    rows = await database.fetch("select secret_hash from relevo.access_key")
    secret_hash = rows[0]["secret_hash"]

    original = database.fetch
    read, go_on = asyncio.Event(), asyncio.Event()

    async def slow(sql: str, *args: Any) -> Any:
        found = await original(sql, *args)
        read.set()
        await go_on.wait()
        return found

    database.fetch = slow  # type: ignore[method-assign]
    reading = asyncio.create_task(ring.by_hash(secret_hash))
    await read.wait()
    database.fetch = original  # type: ignore[method-assign]
    await keys.revoke(created.key.id)
    go_on.set()
    await reading
    assert await ring.by_hash(secret_hash) is None
    await keys.close()


async def test_strangers_that_knock_at_once_share_their_look_ups(database: Database) -> None:
    ring = KeyRing(database, MASTER)
    found = await asyncio.gather(*(ring.by_hash(bytes([n % 256, n // 256])) for n in range(1_000)))
    assert set(found) == {None}
    assert ring._lookups.statements <= 10
    assert ring._by_hash == {}
    await ring.close()


async def test_last_use_is_written_behind_the_requests_and_not_too_often(
    database: Database,
) -> None:
    steady, clock = Steady(), Clock(database)
    keys = Keys(database, MASTER)
    ring = KeyRing(database, MASTER, clock=steady)
    made = [await keys.create(NewKey(name="b", roles=("viewer",))) for _ in range(3)]
    rows = await database.fetch("select secret_hash from relevo.access_key order by created_at")

    async def use() -> list[datetime | None]:
        for row in rows:
            key = await ring.by_hash(row["secret_hash"])
            assert key is not None
            ring.note_use(key)
        await ring._last_use.close()
        return [(await keys.get(each.key.id)).last_used_at for each in made]

    first = await use()
    assert None not in first
    await clock.advance(LAST_USE_SECONDS / 2)
    steady.now += LAST_USE_SECONDS / 2
    assert await use() == first
    await clock.advance(LAST_USE_SECONDS)
    steady.now += LAST_USE_SECONDS
    assert all(now > then for now, then in zip(await use(), first, strict=True) if now and then)
    await ring.close()
    await keys.close()
