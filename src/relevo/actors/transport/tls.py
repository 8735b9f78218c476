"""TLS between hosts: both sides use the same certificate file, and bind the handshake to it.

The file of `tls_cert` holds the certificate of the host, and after it, if hosts have certificates
of their own, that of the authority that signed them. The name in a certificate says nothing here:
peers prove themselves by the key of the installation, bound to the certificate that the dialer saw.
"""

from __future__ import annotations

import hashlib
import re
import ssl
from typing import TYPE_CHECKING, Final

from relevo.errors import SettingsError

if TYPE_CHECKING:
    import asyncio
    from pathlib import Path

_CERTIFICATE: Final = re.compile(
    r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL
)


class PeerTls:
    """The contexts of both roles."""

    def __init__(self, cert: Path, key: Path) -> None:
        try:
            self.server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            self.server.minimum_version = ssl.TLSVersion.TLSv1_2
            self.server.load_cert_chain(cert, key, _no_password)
            self.client = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=cert)
            found = _CERTIFICATE.search(cert.read_text("utf-8", "replace"))
        except (OSError, ValueError) as error:
            raise SettingsError(
                f"hosts cannot use tls_cert {cert} and tls_key {key}: {error}"
            ) from None
        if found is None:
            raise SettingsError(f"tls_cert {cert} holds no certificate in PEM form")
        self.client.check_hostname = False
        self.client.verify_mode = ssl.CERT_REQUIRED
        self.client.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
        self.binding: Final = _digest(ssl.PEM_cert_to_DER_cert(found[0]))
        """What a listener with this certificate binds its handshakes to."""


def binding_of_server(transport: asyncio.BaseTransport) -> bytes:
    """Return the digest of the certificate that a dialer was shown; empty without TLS."""
    session = transport.get_extra_info("ssl_object")
    if session is None:
        return b""
    certificate = session.getpeercert(binary_form=True)
    return _digest(certificate or b"")


def _digest(certificate: bytes) -> bytes:
    return hashlib.sha256(certificate).digest()


def _no_password() -> str:
    raise ValueError("the key is encrypted; give it without a password")
