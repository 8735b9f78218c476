"""Access keys: making, seeing and ending them. A secret is shown once, when its key is made."""

from __future__ import annotations

import base64
import hashlib
import secrets
from datetime import datetime
from typing import TYPE_CHECKING, Final

import asyncpg

from relevo import limits
from relevo.errors import Conflict, InvalidValue, NotFound, ReferenceNotFound, SettingsError
from relevo.http.access.key_model import KeyCreated, KeyInfo, NewKey
from relevo.http.access.keyring import SQL, KeyRing
from relevo.http.access.signing import decode_secret
from relevo.kernel.telemetry.logs import get_logger

if TYPE_CHECKING:
    from relevo.kernel.postgres.database import Database, Transaction
    from relevo.kernel.sealing import MasterKey

_SECRET_BYTES: Final = 32
_log = get_logger(__name__)


class Keys:
    """The access keys of an installation; `ring` checks requests."""

    def __init__(self, database: Database, master: MasterKey) -> None:
        self._database = database
        self._master = master
        self.ring: Final = KeyRing(database, master)

    async def create(self, new: NewKey) -> KeyCreated:
        """Make a key; at most `SIGNING_KEYS_MAX` signing keys count at a time."""
        key_id = _new_id()
        if new.kind == "signing":
            secret = base64.b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()
        else:
            secret = f"relevo_{key_id}_{secrets.token_urlsafe(_SECRET_BYTES)}"

        async def work(tx: Transaction) -> KeyInfo:
            census = await _lock(tx)
            made = await tx.fetchrow(SQL.get_key, key_id)  # by an attempt whose fate was unknown
            return _info(made) if made else await self._insert(tx, census, key_id, new, secret)

        key = await self._database.run(work, idempotent=True)
        return KeyCreated(key=key, secret=secret)

    async def list(self, after: tuple[datetime, str] | None, limit: int) -> list[KeyInfo]:
        """Return a page of keys in the order they were made, also revoked ones."""
        since, key_id = after or (None, None)
        return [
            _info(row) for row in await self._database.fetch(SQL.list_keys, since, key_id, limit)
        ]

    async def get(self, key_id: str) -> KeyInfo:
        """Return a key, or raise `NotFound`."""
        row = await self._database.fetchrow(SQL.get_key, key_id)
        if row is None:
            raise NotFound(f"there is no key {key_id!r}")
        return _info(row)

    async def revoke(self, key_id: str) -> KeyInfo:
        """End a key: here at once, on other hosts within `KEY_CACHE_SECONDS`. Again is no error."""
        try:
            rows = await self._database.write(SQL.revoke_key, key_id, idempotent=True)
        finally:
            self.ring.forget()  # also when the outcome is unknown: it may have happened
        if not rows:
            raise NotFound(f"there is no key {key_id!r}")
        return _info(rows[0])

    async def ensure_first(self, preset: str | None) -> str | None:
        """Make the first key, a signing key with role admin; return its secret, to be shown once.

        None if there are keys already, or for a preset (`RELEVO_ACCESS_KEY`): it is added if it is
        not known, and whoever set it has it. Several hosts that start at once make one key.
        """
        if preset is not None:
            _check_preset(preset)
        secret = preset or base64.b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()
        new = NewKey(name="preset" if preset else "first", kind="signing", roles=("admin",))

        async def work(tx: Transaction) -> bool:
            census = await _lock(tx)
            known = await tx.fetchrow(SQL.key_by_hash, _hash(secret))
            if known is not None:
                if not known["active"]:
                    _log.warning("preset_key_no_longer_counts", key=known["id"])
                return True  # preset, or made by an attempt whose fate was unknown
            if preset is None and census["keys"]:
                return False
            await self._insert(tx, census, _new_id(), new, secret)
            return True

        made = await self._database.run(work, idempotent=True)
        return secret if made and preset is None else None

    async def check_master_key(self) -> None:
        """Raise `SettingsError` if signing keys are sealed with another master key than ours."""

        async def work(tx: Transaction) -> None:
            census = await _lock(tx)
            await tx.execute(SQL.claim_fingerprint, self._master.fingerprint)
            if not census["signing_keys_ever"]:
                await tx.execute(SQL.replace_fingerprint, self._master.fingerprint)
            await self._check_fingerprint(tx)

        await self._database.run(work, idempotent=True)

    async def close(self) -> None:
        """Finish the calls under way."""
        await self.ring.close()

    async def _insert(
        self, tx: Transaction, census: asyncpg.Record, key_id: str, new: NewKey, secret: str
    ) -> KeyInfo:
        if new.expires_at is not None and new.expires_at <= census["now"]:
            raise InvalidValue(
                f"expires_at {new.expires_at.isoformat()} is not in the future",
                pointer="/expires_at",
            )
        sealed = None
        if new.kind == "signing":
            if census["signing_keys"] >= limits.SIGNING_KEYS_MAX:
                raise Conflict(
                    f"there are {census['signing_keys']} signing keys, and every signed request is"
                    f" tried with each: at most {limits.SIGNING_KEYS_MAX} may count; revoke one"
                )
            await self._check_fingerprint(tx)
            sealed = self._master.seal(decode_secret(secret), key_id)
        try:
            row = await tx.fetchrow(
                SQL.insert_key,
                key_id,
                new.name,
                new.kind,
                list(new.roles),
                list(new.scopes),
                _hash(secret),
                sealed,
                new.expires_at,
                new.user_id,
                new.max_class,
                new.max_class and (new.max_class_mode or "downgrade"),
            )
        except asyncpg.ForeignKeyViolationError:
            raise ReferenceNotFound(
                f"there is no user {new.user_id}; leave it out, and one is made",
                pointer="/user_id",
            ) from None
        assert row is not None
        return _info(row)

    async def _check_fingerprint(self, tx: Transaction) -> None:
        stored = await tx.fetchval(SQL.get_fingerprint)
        if stored != self._master.fingerprint:
            raise SettingsError(
                "the master key of this host is not the one that the signing keys in the database"
                f" are sealed with (fingerprint {self._master.fingerprint}, there {stored}); set"
                " RELEVO_SECRET_KEY to that of the other hosts, or copy their secret.key"
            )


async def _lock(tx: Transaction) -> asyncpg.Record:
    await tx.execute(SQL.lock_keys)
    census = await tx.fetchrow(SQL.key_census)
    assert census is not None
    return census


def _info(row: asyncpg.Record) -> KeyInfo:
    values = dict(row)
    return KeyInfo(**{**values, "roles": tuple(row["roles"]), "scopes": tuple(row["scopes"])})


def _hash(secret: str) -> bytes:
    # 256 random bits need no slow hash: there is no dictionary to try.
    return hashlib.sha256(secret.encode()).digest()


def _new_id() -> str:
    return f"key-{secrets.token_hex(8)}"


def _check_preset(preset: str) -> None:
    try:
        length = len(decode_secret(preset))
    except ValueError:
        length = 0
    if not _SECRET_BYTES <= length <= 256:
        raise SettingsError(
            "access_key (RELEVO_ACCESS_KEY) must be base64 of 32 to 256 random bytes; make one with"
            " `openssl rand -base64 32`"
        )
