"""Secrets that must be read again are kept encrypted, under a key that is not in the database."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import os
import secrets
import stat
from typing import TYPE_CHECKING, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from relevo.errors import SettingsError
from relevo.kernel.durable import sync_folder

if TYPE_CHECKING:
    from pathlib import Path

_KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12
_FORMAT: Final = b"\x01"
_HINT: Final = "make one with `openssl rand -base64 32` and give the same to all hosts"


class MasterKey:
    """Seals and opens secrets (AES-256-GCM); the same on all hosts of an installation."""

    def __init__(self, key: bytes) -> None:
        assert len(key) == _KEY_BYTES
        self._root = hmac.digest(key, b"relevo: derive", hashlib.sha256)
        self._cipher = AESGCM(hmac.digest(key, b"relevo: seal", hashlib.sha256))
        self.fingerprint: Final = hmac.digest(key, b"relevo: fingerprint", hashlib.sha256).hex()[
            :32
        ]
        """Tells two master keys apart and nothing else about them."""

    @classmethod
    def load(cls, text: str | None, home: Path) -> MasterKey:
        """Return the key of the setting `secret_key`, else of `<home>/secret.key`, made if missing.

        Raises `SettingsError` if it is not base64 of 32 bytes or others can read the file.
        """
        if text is not None:
            return cls(_decode(text, "the setting secret_key (RELEVO_SECRET_KEY)"))
        path = home / "secret.key"
        try:
            return cls(_decode(_read(path), str(path)))
        except FileNotFoundError:
            _make(path)
        return cls(_decode(_read(path), str(path)))

    def seal(self, plain: bytes, owner: str) -> bytes:
        """Encrypt a secret for the row `owner`; it cannot be opened as that of another."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return _FORMAT + nonce + self._cipher.encrypt(nonce, plain, owner.encode())

    def open(self, sealed: bytes, owner: str) -> bytes:
        """Decrypt what was sealed for `owner` by this key; raises `ValueError` for all else."""
        start = len(_FORMAT)
        nonce, rest = sealed[start : start + _NONCE_BYTES], sealed[start + _NONCE_BYTES :]
        if not sealed.startswith(_FORMAT) or len(nonce) < _NONCE_BYTES:
            raise ValueError("not a sealed secret")
        try:
            return self._cipher.decrypt(nonce, rest, owner.encode())
        except InvalidTag:
            raise ValueError("sealed for another owner or by another master key") from None

    def derive(self, purpose: str) -> bytes:
        """Return a key for one purpose, which tells nothing about this one or those of others."""
        return hmac.digest(self._root, purpose.encode(), hashlib.sha256)

    def __repr__(self) -> str:
        return f"MasterKey(fingerprint={self.fingerprint!r})"


def _decode(text: str, origin: str) -> bytes:
    try:
        key = base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        raise SettingsError(f"{origin} is not base64; {_HINT}") from None
    if len(key) != _KEY_BYTES:
        raise SettingsError(f"{origin} has {len(key)} bytes instead of {_KEY_BYTES}; {_HINT}")
    return key


def _read(path: Path) -> str:
    with path.open("rb") as file:
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        if os.name == "posix" and mode & 0o077:
            raise SettingsError(
                f"{path} can be read by others (mode {mode:04o}); run `chmod 600 {path}`, and if"
                " somebody may have read it, make new signing keys"
            )
        return file.read().decode("ascii", "replace")


def _make(path: Path) -> None:
    """Write a fresh key so that it appears whole or not at all; the first of several hosts wins."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    try:
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(base64.b64encode(secrets.token_bytes(_KEY_BYTES)) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(draft, path)
        except FileExistsError:
            return
        sync_folder(path.parent)
    finally:
        draft.unlink(missing_ok=True)


class Vault:
    """The master key of an installation, read when it is first needed.

    So what seals nothing works where the key is not: on an operator's machine, say.
    """

    def __init__(self, text: str | None, home: Path) -> None:
        self._text = text
        self._home = home
        self._key: MasterKey | None = None

    async def key(self) -> MasterKey:
        """Return the master key, made if there is none yet; raises `SettingsError`."""
        if self._key is None:
            self._key = await asyncio.to_thread(MasterKey.load, self._text, self._home)
        return self._key
