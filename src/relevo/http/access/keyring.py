"""The keys that requests are checked with, held in memory for a few seconds.

A request with a recently seen key costs no query. Other keys are looked up in
groups: however many unknown clients call, one statement is under way. Only existing keys are
kept, so their number bounds the memory. Subjects of an issuer's tokens are checked
against the users in the same way.
"""

from __future__ import annotations

import asyncio
import time
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import asyncpg
from msgspec import Struct

from relevo import limits
from relevo.errors import RelevoError
from relevo.http.access.authenticator import Principal
from relevo.http.access.roles import permissions_of, reach_of, scopes_of
from relevo.kernel import uses
from relevo.kernel.postgres import catalog
from relevo.kernel.postgres.grouping import Group
from relevo.kernel.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from relevo.kernel.postgres.database import Database
    from relevo.kernel.sealing import MasterKey

SQL = catalog.load("relevo.http")
LAST_USE_SECONDS: Final = 60.0
"""`last_used_at` of a key is written at most this often."""

_log = get_logger(__name__)


class AccessKey(Struct, frozen=True, kw_only=True):
    """A key that is neither revoked nor, at the moment it was read, expired."""

    id: str
    principal: Principal
    expires_at: datetime | None
    secret_hash: bytes
    secret: bytes
    """The secret of a signing key; empty for a bearer key."""

    def __repr__(self) -> str:
        return f"Key(id={self.id!r})"

    def __rich_repr__(self) -> Any:
        yield "id", self.id


class _Loaded(Struct, frozen=True):
    """The result of a statement; `at` is the instant before it was sent."""

    at: float
    keys: tuple[AccessKey, ...]


class KeyRing:
    """Finds keys by the hash of a bearer token, and the signing keys.

    A revocation on another host, or that a user is disabled, counts here after `KEY_CACHE_SECONDS`,
    on this host at once (`forget`); expiry is held against the store's clock at every use.
    """

    def __init__(
        self,
        database: Database,
        master: MasterKey,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._master = master
        self._clock = clock
        self._by_hash: dict[bytes, tuple[float, AccessKey]] = {}
        self._signing = _Loaded(float("-inf"), ())
        self._forgotten_at = float("-inf")
        self._store_time: tuple[float, datetime] | None = None
        self._lookups: Group[bytes | None, tuple[AccessKey, ...]] = Group("keys", self._look_up)
        self._identities: dict[str, tuple[float, bool]] = {}
        self._identity_lookups: Group[str, bool] = Group("identities", self._look_up_identities)
        self._last_use = _LastUse(database, clock)

    def now(self) -> datetime:
        """Return the store's time, carried on from the last look-up by this host's steady clock."""
        assert self._store_time is not None, "no key was looked up yet"
        at, store_time = self._store_time
        return store_time + timedelta(seconds=self._clock() - at)

    async def by_hash(self, secret_hash: bytes) -> AccessKey | None:
        """Return the valid key whose secret has this SHA-256, or None."""
        at, key = self._by_hash.get(secret_hash, (float("-inf"), None))
        if key is None or not self._fresh(at):
            found = await self._lookups.call(secret_hash)
            key = found[0] if found else None
        return key if key is not None and self._unexpired(key) else None

    async def signing_keys(self, *, fresh: bool = False) -> tuple[AccessKey, ...]:
        """Return the valid signing keys; `fresh` reads them from the database now."""
        keys = self._signing.keys
        if fresh or not self._fresh(self._signing.at):
            keys = await self._lookups.call(None)
        return tuple(key for key in keys if self._unexpired(key))

    async def is_disabled(self, identity: str) -> bool:
        """Whether a token's subject is disabled; ask only after its token was verified."""
        at, disabled = self._identities.get(identity, (float("-inf"), False))
        return disabled if self._fresh(at) else await self._identity_lookups.call(identity)

    def forget(self) -> None:
        """Read keys and disabled users again, including those being read at this moment."""
        self._forgotten_at = self._clock()
        self._by_hash.clear()
        self._identities.clear()

    def note_use(self, key: AccessKey) -> None:
        """Have `last_used_at` written, soon and not too often."""
        self._last_use.note(key.id)

    async def close(self) -> None:
        """Finish the calls under way."""
        await self._lookups.close()
        await self._identity_lookups.close()
        await self._last_use.close()

    def _fresh(self, at: float) -> bool:
        return at > self._forgotten_at and self._clock() - at < limits.KEY_CACHE_SECONDS

    def _unexpired(self, key: AccessKey) -> bool:
        return key.expires_at is None or key.expires_at > self.now()

    async def _look_up(
        self, calls: Sequence[bytes | None]
    ) -> list[tuple[AccessKey, ...] | Exception]:
        """Answer a group in one statement, with the time; None asks for all signing keys."""
        at = self._clock()
        hashes = [call for call in calls if call is not None]
        rows = await self._database.fetch(SQL.find_keys, hashes, None in calls)
        self._store_time = (at, rows[0]["now"])
        keys = [key for row in rows if row["id"] is not None and (key := self._key(row))]
        self._by_hash = {h: held for h, held in self._by_hash.items() if self._fresh(held[0])}
        self._by_hash.update((key.secret_hash, (at, key)) for key in keys)
        signing = tuple(key for key in keys if key.secret)
        if None in calls:
            self._signing = _Loaded(at, signing)
        found = {key.secret_hash: (key,) for key in keys}
        return [signing if call is None else found.get(call, ()) for call in calls]

    async def _look_up_identities(self, calls: Sequence[str]) -> list[bool]:
        at = self._clock()
        rows = await self._database.fetch(SQL.disabled_identities, list(calls))
        disabled = {row["identity"] for row in rows}
        self._identities = {i: held for i, held in self._identities.items() if self._fresh(held[0])}
        self._identities.update((call, (at, call in disabled)) for call in calls)
        return [call in disabled for call in calls]

    def _key(self, row: asyncpg.Record) -> AccessKey | None:
        secret = b""
        if row["secret_sealed"] is not None:
            try:
                secret = self._master.open(row["secret_sealed"], row["id"])
            except ValueError as error:
                # One damaged row must not lock out the holders of all other keys.
                _log.error("key_cannot_be_opened", key=row["id"], reason=str(error))
                return None
        principal = Principal(
            id=row["id"],
            name=row["name"],
            permissions=permissions_of(tuple(row["roles"])),
            scopes=(*row["scopes"], *scopes_of(tuple(row["roles"]))),
            user=row["user_id"],
            reach=reach_of(tuple(row["roles"])),
            disabled=row["disabled"],
            max_class=row["max_class"],
            max_class_mode=row["max_class_mode"] or "downgrade",
        )
        return AccessKey(
            id=row["id"],
            principal=principal,
            expires_at=row["expires_at"],
            secret_hash=row["secret_hash"],
            secret=secret,
        )


class _LastUse:
    """Writes when keys were last used: behind the requests, many keys in one statement."""

    def __init__(self, database: Database, clock: Callable[[], float]) -> None:
        self._database = database
        self._clock = clock
        self._noted: dict[str, float] = {}
        self._waiting: set[str] = set()
        self._writer: asyncio.Task[None] | None = None

    def note(self, key_id: str) -> None:
        now = self._clock()
        if now - self._noted.get(key_id, float("-inf")) < LAST_USE_SECONDS:
            return
        self._noted[key_id] = now
        self._waiting.add(key_id)
        if self._writer is None:
            self._writer = asyncio.create_task(self._write(), name="key last use")

    async def close(self) -> None:
        if self._writer is not None:
            await asyncio.shield(self._writer)

    async def _write(self) -> None:
        uses.begin("host")
        try:
            while self._waiting:
                ids, self._waiting = sorted(self._waiting), set()
                await self._database.write(SQL.note_key_use, ids, LAST_USE_SECONDS, idempotent=True)
        except (RelevoError, asyncpg.PostgresError) as error:
            # It is information for people; the next use writes it again.
            _log.info("key_last_use_not_written", reason=str(error))
        finally:
            self._writer = None
