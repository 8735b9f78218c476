"""Lock tokens: the sequence number of a message and a random number of its claim, as one UUID.

    token_of(42, -7)  # UUID('00000000-0000-002a-ffff-fffffffffff9')

So a message is found by its primary key, and nobody guesses the lock of another.
"""

from __future__ import annotations

import os
import secrets
from uuid import UUID

from relevo.errors import InvalidValue

_HALF = 8
_VARIANTS = dict(zip("0123456789abcdef", "89ab" * 4, strict=True))


def token_of(sequence: int, number: int) -> UUID:
    """Return the token of a lock."""
    return UUID(bytes=sequence.to_bytes(_HALF) + number.to_bytes(_HALF, signed=True))


def parts_of(token: UUID | str, pointer: str = "lock_token") -> tuple[int, int]:
    """Return sequence number and claim number of a token; raise `InvalidValue` if it is none."""
    try:
        data = (token if isinstance(token, UUID) else UUID(str(token))).bytes
    except ValueError as error:
        raise InvalidValue(
            f"{str(token)[:100]!r} is no lock token; give the lock_token of a received message",
            pointer=pointer,
        ) from error
    sequence = int.from_bytes(data[:_HALF], signed=True)
    return sequence, int.from_bytes(data[_HALF:], signed=True)


def new_number() -> int:
    """Return a random number for a claim."""
    return secrets.randbits(64) - 2**63


def new_message_ids(count: int) -> list[str]:
    """Return random UUIDs as text; for many at a time, and so without objects in between."""
    texts = os.urandom(16 * count).hex()
    return [
        f"{text[:8]}-{text[8:12]}-4{text[13:16]}-{_VARIANTS[text[16]]}{text[17:20]}-{text[20:]}"
        for text in (texts[at : at + 32] for at in range(0, 32 * count, 32))
    ]
