"""Lock tokens: the sequence number of a message and a random number of its claim, as one UUID.

    token_of(42, -7)  # UUID('00000000-0000-002a-ffff-fffffffffff9')

So a message is found by its primary key, and nobody guesses the lock of another.
"""

from __future__ import annotations

import secrets
from uuid import UUID

from relevo.errors import InvalidValue

_HALF = 8


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
