"""Effective partition keys: where in the hash space a partition key lies.

The reference's version 2 hash, so that official clients compute the same value. The space runs from
`""` inclusive to `"FF"` exclusive, compared as strings.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from relevo.errors import InvalidValue

if TYPE_CHECKING:
    from collections.abc import Callable

_compiled: Callable[[bytes], bytes] | None
try:
    from mmh3 import hash_bytes as _compiled
except ImportError:  # pragma: no cover - the wheel is there wherever Relevo is supported
    _compiled = None

SPACE_MIN: Final = ""
SPACE_MAX: Final = "FF"


class Undefined:
    """The value of a partition key path that an item does not have; not the same as null."""

    def __repr__(self) -> str:
        return "UNDEFINED"


UNDEFINED: Final = Undefined()
Component = str | int | float | bool | None | Undefined
"""What a partition key path may lead to."""


def epk(components: tuple[Component, ...]) -> str:
    """Return the effective partition key of a key with one to three components.

    >>> epk(("a",))
    '3A5381E1114EB8D3FCC90795045B49B7'
    """
    return "".join(_hash(encode(component)) for component in components)


def encode(component: Component) -> bytes:
    """Return the bytes that are hashed: a type byte and the value."""
    match component:
        case Undefined():
            return b"\x00"
        case None:
            return b"\x01"
        case bool():
            return b"\x03" if component else b"\x02"
        case int() | float():
            return b"\x05" + struct.pack("<d", float(component))
        case str():
            return b"\x08" + component.encode() + b"\xff"
        case _:
            raise InvalidValue(
                "a partition key holds text, numbers, booleans or null, not"
                f" {type(component).__name__}"
            )


@lru_cache(maxsize=65_536)
def _hash(data: bytes) -> str:
    digest = bytearray(reversed((_compiled or murmur3_128)(data)))
    digest[0] &= 0x3F
    return digest.hex().upper()


_MASK: Final = 0xFFFF_FFFF_FFFF_FFFF
_C1: Final = 0x87C3_7B91_1142_53D5
_C2: Final = 0x4CF5_AD43_2745_937F


def murmur3_128(data: bytes) -> bytes:
    """MurmurHash3 x64 128 with seed 0, for where there is no compiled one."""
    h1 = h2 = 0
    whole = len(data) - len(data) % 16
    for k1, k2 in struct.iter_unpack("<QQ", data[:whole]):
        h1 ^= _mix1(k1)
        h1 = ((_rotate(h1, 27) + h2) * 5 + 0x52DCE729) & _MASK
        h2 ^= _mix2(k2)
        h2 = ((_rotate(h2, 31) + h1) * 5 + 0x38495AB5) & _MASK
    tail = data[whole:]
    h2 ^= _mix2(int.from_bytes(tail[8:], "little"))
    h1 ^= _mix1(int.from_bytes(tail[:8], "little"))
    h1, h2 = h1 ^ len(data), h2 ^ len(data)
    h1 = (h1 + h2) & _MASK
    h2 = (h2 + h1) & _MASK
    h1, h2 = _finish(h1), _finish(h2)
    h1 = (h1 + h2) & _MASK
    h2 = (h2 + h1) & _MASK
    return struct.pack("<QQ", h1, h2)


def _rotate(value: int, bits: int) -> int:
    return ((value << bits) | (value >> (64 - bits))) & _MASK


def _mix1(k: int) -> int:
    return _rotate(k * _C1 & _MASK, 31) * _C2 & _MASK


def _mix2(k: int) -> int:
    return _rotate(k * _C2 & _MASK, 33) * _C1 & _MASK


def _finish(k: int) -> int:
    k = (k ^ k >> 33) * 0xFF51_AFD7_ED55_8CCD & _MASK
    k = (k ^ k >> 33) * 0xC4CE_B9FE_1A85_EC53 & _MASK
    return k ^ k >> 33
