"""The HMAC-SHA256 request signature: pure functions over a request's head.

    HMAC-SHA256 SignedHeaders=x-ms-date;host;x-ms-content-sha256&Signature=<base64>

signs three lines: the method; the raw target; the values of the signed headers joined by `;`.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from relevo.errors import Unauthenticated

if TYPE_CHECKING:
    from collections.abc import Mapping

    from relevo.http.request import Head

SCHEME: Final = b"HMAC-SHA256"
DATES: Final = (b"x-ms-date", b"date")
CONTENT_HASH: Final = b"x-ms-content-sha256"
_FORM: Final = re.compile(rb"SignedHeaders=([!-%'-~]+)&Signature=([A-Za-z0-9+/]{43}=)")
_NAMES_MAX: Final = 16


class Signature(Struct, frozen=True):
    """The fields of an `Authorization` header of this scheme."""

    names: tuple[bytes, ...]
    """The signed headers, lower case, in the order they were signed."""
    text: bytes
    """In base64, as it was sent: decoding would let several spellings pass for one."""


def parse(text: bytes) -> Signature:
    """Parse the text after the scheme; refuse it unless date, host and body are signed."""
    match = _FORM.fullmatch(text)
    if match is None:
        raise Unauthenticated(
            "the signature is malformed; send `SignedHeaders=<names>&Signature=<base64>`"
        )
    names = tuple(match[1].lower().split(b";"))
    missing = [name.decode() for name in (b"host", CONTENT_HASH) if name not in names]
    if not any(name in names for name in DATES):
        missing.insert(0, "x-ms-date")
    if missing or len(names) > _NAMES_MAX:
        what = f"leaves out {', '.join(missing)}" if missing else "names too many headers"
        raise Unauthenticated(f"the signature {what}; sign x-ms-date, host, x-ms-content-sha256")
    return Signature(names, match[2])


def texts_to_sign(
    signature: Signature, head: Head, public_hosts: tuple[bytes, ...] = ()
) -> tuple[bytes, ...]:
    """Return every text that the signature may have been made over.

    They differ in the host only: what arrived, or a public name before a reverse proxy, each also
    with the slash of an endpoint that was written with one.
    """
    values = {name: _signed_value(head, name) for name in signature.names}
    hosts = dict.fromkeys((values[b"host"], *public_hosts))
    return tuple(
        b"\n".join(
            (
                head.method.encode(),
                head.target,
                b";".join(host + end if n == b"host" else values[n] for n in signature.names),
            )
        )
        for host in hosts
        for end in (b"", b"/")
    )


def _signed_value(head: Head, name: bytes) -> bytes:
    value = head.value(name)
    if value is None:
        shown = name.decode("ascii", "replace")
        raise Unauthenticated(f"the signed header {shown} must be sent exactly once")
    return value


def check_date(signature: Signature, head: Head, now: datetime, skew_seconds: float) -> datetime:
    """Return the signed date; raises `Unauthenticated` if it is too far from the server's time."""
    name = next(name for name in DATES if name in signature.names)
    try:
        date = parsedate_to_datetime(_signed_value(head, name).decode("ascii"))
        if date.tzinfo is None:
            raise ValueError("a date without a zone")
        away = abs((date.astimezone(UTC) - now).total_seconds())
    except (ValueError, TypeError, IndexError, OverflowError):
        raise Unauthenticated(
            f"{name.decode()} is not a date such as 'Wed, 15 Nov 2023 10:00:00 GMT'"
        ) from None
    if away > skew_seconds:
        raise Unauthenticated(
            f"{name.decode()} is {away:.0f} s away from the server's time; at most"
            f" {skew_seconds:.0f} s are allowed, so set the clock"
        )
    return date


def match(
    signature: Signature, texts: tuple[bytes, ...], secrets: Mapping[str, bytes]
) -> str | None:
    """Return the id of the key that signed one of the texts, or None.

    Every key is tried over every text, whether or not one has matched: the time it takes says
    nothing about which key, and how much of it, was right.
    """
    found: str | None = None
    for key_id, secret in secrets.items():
        for text in texts:
            if hmac.compare_digest(sign(secret, text), signature.text):
                found = key_id
    return found


def sign(secret: bytes, text: bytes) -> bytes:
    """Return the signature of a text, in base64."""
    return base64.b64encode(hmac.digest(secret, text, hashlib.sha256))


def content_hash(body: bytes) -> bytes:
    """Return the value of `x-ms-content-sha256` for a body."""
    return base64.b64encode(hashlib.sha256(body).digest())


def check_body(head: Head, body: bytes) -> None:
    """Raise `Unauthenticated` if the body is not the one whose hash was signed."""
    if not hmac.compare_digest(content_hash(body), _signed_value(head, CONTENT_HASH)):
        raise Unauthenticated("the body does not have the signed x-ms-content-sha256")


def decode_secret(text: str) -> bytes:
    """Return the bytes of a signing key's base64 text; raises `ValueError`."""
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from None
