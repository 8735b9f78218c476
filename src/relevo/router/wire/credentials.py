"""Credentials of rules: sealed where they lie, and sent only to the origin they were given for."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import urlsplit, urlunsplit

from relevo.errors import InvalidValue, SettingsError
from relevo.router.wire import documents

if TYPE_CHECKING:
    from collections.abc import Mapping

    from relevo.router.wire.documents import Document

SEALED: Final = "sealed:"
"""The prefix of a sealed secret."""
URLS: Final[Mapping[str, str]] = {
    "functionUri": "credential",
    "webhookUri": "clientCredential",
    "authorizationServerUri": "clientCredential",
}
"""The addresses of rules, and the credential that is sent there, itself or as a token."""
_PORTS: Final = {"http": 80, "https": 443}


class Seal(Protocol):
    """Seals secrets for an owner and opens them again; `ValueError` for what it did not seal."""

    def seal(self, plain: bytes, owner: str) -> bytes:
        """Encrypt a secret of `owner`."""

    def open(self, sealed: bytes, owner: str) -> bytes:
        """Decrypt a secret of `owner`."""


class Sealer(Protocol):
    """The source of the key that seals secrets."""

    async def key(self) -> Seal:
        """Return it; asked for only when there is a secret."""


def sealed(document: Document, key: Seal, owner: str) -> Document:
    """Return a document as it is stored; `owner` is `<kind>/<id>`."""

    def seal(plain: str) -> str:
        return SEALED + base64.b64encode(key.seal(plain.encode(), owner)).decode()

    found: Document = documents.with_secrets(document, seal)
    return found


def opened(document: Document, key: Seal, owner: str) -> Document:
    """Return a stored document with its secrets as they were given.

    Raises `SettingsError` if they were sealed with another master key.
    """

    def open_(text: str) -> str:
        try:
            raw = base64.b64decode(text.removeprefix(SEALED), validate=True)
            return key.open(raw, owner).decode()
        except (binascii.Error, ValueError):
            raise SettingsError(
                f"a secret of {owner} was sealed with another master key than this host has; set"
                " RELEVO_SECRET_KEY to that of the other hosts, or send the secret again"
            ) from None

    found: Document = documents.with_secrets(document, open_)
    return found


def check_origins(old: Any, change: Any, at: str = "") -> None:
    """Refuse a change that would send a stored secret to another origin than it was given for.

    A caller that may change a URL need not know the secret, and must not learn it so. Elements
    of arrays keep their secrets only if nothing else changes, so objects are all there is to see.
    """
    if not isinstance(old, dict) or not isinstance(change, dict):
        return
    for name, each in change.items():
        if name in URLS and isinstance(each, str):
            _check_origin(old, change, name, at)
        elif name not in documents.OWN_WORDS and not documents.is_other_kind(old.get(name), each):
            check_origins(old.get(name), each, f"{at}/{name}")


def _check_origin(old: Document, change: Document, name: str, at: str) -> None:
    before, after = origin(old.get(name)), origin(change[name])
    if before == after:
        return
    kept = _kept(old.get(URLS[name]), change.get(URLS[name], {}))
    if kept:
        holder = URLS[name]
        raise InvalidValue(
            f"{name} moves from {before or 'no address'} to {after or 'another address'}, and"
            f" {holder}.{kept[0]} was given for the former; send {holder} with"
            f" {' and '.join(kept)} again, or {holder}: null to drop it. Nothing was changed",
            pointer=f"{at}/{name}",
        )


def _kept(old: Any, change: Any) -> list[str]:
    """The secrets of a credential that a change leaves as they are."""
    if not isinstance(old, dict) or not isinstance(change, dict):
        return []
    return [name for name in old if name in documents.SECRETS and name not in change]


def origin(url: Any) -> str | None:
    """Return scheme, host and port of a URL, in the form by which origins are compared."""
    if not isinstance(url, str):
        return None
    try:
        parts = urlsplit(url)
        scheme, port = parts.scheme.lower(), parts.port
    except ValueError:
        return None
    host = (parts.hostname or "").rstrip(".")
    return f"{scheme}://{host}:{port or _PORTS.get(scheme, 0)}"


def with_redacted_urls(document: Any) -> Any:
    """Return a document with `redacted` addresses of rules."""
    match document:
        case dict():
            return {
                name: redacted(each)
                if name in URLS and isinstance(each, str)
                else (each if name in documents.OWN_WORDS else with_redacted_urls(each))
                for name, each in document.items()
            }
        case list() | tuple():
            return [with_redacted_urls(each) for each in document]
        case _:
            return document


def redacted(url: str) -> str:
    """Return a URL without what may be a secret in it: its query, and a user with a password.

    >>> redacted("https://f.example/api/score?code=hush")
    'https://f.example/api/score?redacted'
    """
    try:
        parts = urlsplit(url)
        place = parts.netloc.rpartition("@")[2]
    except ValueError:
        return "redacted"
    query = "redacted" if parts.query else ""
    return urlunsplit((parts.scheme, place, parts.path, query, ""))
