"""TLS contexts: certificate and key of a host, and the authorities a client trusts."""

from __future__ import annotations

import ssl
import stat
from typing import TYPE_CHECKING

from relevo.errors import SettingsError

if TYPE_CHECKING:
    from pathlib import Path

    from relevo.settings import Settings


def server_tls(settings: Settings) -> ssl.SSLContext | None:
    """Return the context of a host, TLS 1.2 or newer; None for plain http.

    Raises `SettingsError` that names the file at fault. Of a key, only its path is shown.
    """
    cert, key = settings.tls_cert, settings.tls_key
    if cert is None or key is None:
        return None
    _check("tls_cert", cert, b"CERTIFICATE-----")
    _check("tls_key", key, b"PRIVATE KEY-----")
    _refuse_open(key)

    def refuse() -> str:
        raise SettingsError(f"tls_key {key} is encrypted; give the key without a password")

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(cert, key, refuse)  # else OpenSSL would ask on the terminal
    except ssl.SSLError as error:
        raise SettingsError(
            f"cannot serve TLS with tls_cert {cert} and tls_key {key} ({error.reason or error});"
            " give the key that belongs to the certificate"
        ) from None
    return context


def client_tls(authorities: Path) -> ssl.SSLContext:
    """Return the context of a client that trusts these authorities, and no others.

    Raises `SettingsError` if the file has none.
    """
    _check("the file of --ca or RELEVO_CA,", authorities, b"CERTIFICATE-----")
    try:
        return ssl.create_default_context(cafile=authorities)
    except ssl.SSLError as error:
        raise SettingsError(
            f"cannot use the certificates in {authorities} ({error.reason or error}); see --ca"
        ) from None


def _refuse_open(key: Path) -> None:
    """Refuse a private key that any account of this machine can read or replace."""
    mode = key.stat().st_mode
    if mode & (stat.S_IROTH | stat.S_IWOTH):
        raise SettingsError(
            f"tls_key {key} can be read or changed by every account of this machine (mode"
            f" {stat.S_IMODE(mode):04o}); close it with: chmod o-rwx {key}"
        )


def _check(name: str, path: Path, holds: bytes) -> None:
    """Name the file at fault, which OpenSSL does not."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise SettingsError(f"{name} {path} cannot be read: {error.strerror}") from None
    if holds not in content:
        what = holds.decode().strip("-").lower()
        raise SettingsError(f"{name} {path} holds no {what} in PEM form")
