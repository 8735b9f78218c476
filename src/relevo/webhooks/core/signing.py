"""Signatures of deliveries, after Standard Webhooks. Pure.

The text `<id>.<seconds>.<body>` is signed by HMAC-SHA256 with every secret that counts, so that a
receiver may check by the old or the new one while a secret is replaced.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from typing import TYPE_CHECKING, Final

from relevo import limits
from relevo.errors import InvalidValue

if TYPE_CHECKING:
    from collections.abc import Iterable

PREFIX: Final = "whsec_"
"""How a secret begins that is written as text."""


def written(secret: bytes) -> str:
    """Return a secret as receivers are given it.

    >>> written(bytes(24))
    'whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA'
    """
    return PREFIX + base64.b64encode(secret).decode()


def read(text: str) -> bytes:
    """Return the bytes of a secret as it is written; raises `InvalidValue` without showing it."""
    least, most = limits.WEBHOOK_SECRET_BYTES_MIN, limits.WEBHOOK_SECRET_BYTES_MAX
    try:
        secret = base64.b64decode(text.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        secret = b""
    if not least <= len(secret) <= most:
        raise InvalidValue(
            f"a secret is {PREFIX} and base64 of {least} to {most} random bytes; leave it out, and"
            " Relevo makes one",
            pointer="/secret",
        )
    return secret


def signature(secrets: Iterable[bytes], message_id: str, seconds: int, body: bytes) -> str:
    """Return the value of `webhook-signature`: one signature per secret, with spaces between.

    >>> signature([b"0" * 24], "msg_1", 1, b"{}")
    'v1,vVnC39e2tIyoxE8hN1CEkTMaBkMbVHKqHDyRSWAl4A0='
    """
    text = f"{message_id}.{seconds}.".encode() + body
    made = (hmac.digest(secret, text, hashlib.sha256) for secret in secrets)
    return " ".join(f"v1,{base64.b64encode(each).decode()}" for each in made)


def headers(secrets: Iterable[bytes], message_id: str, seconds: int, body: bytes) -> dict[str, str]:
    """Return the headers by which a receiver checks a delivery and knows a repetition."""
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(seconds),
        "webhook-signature": signature(secrets, message_id, seconds, body),
    }
