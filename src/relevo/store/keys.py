"""Partition keys: the part of an item that decides where it is stored. Pure.

A key has a canonical text, under which items are stored, and a hash, the *effective partition key*
(EPK), which decides the range. The hash is version 2 of the reference's, so that official clients
compute the same value. The hash space runs from `""` inclusive to `"FF"` exclusive, compared as
strings.
"""

from __future__ import annotations

import re
import struct
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import msgspec

from relevo import limits
from relevo.errors import InvalidValue

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

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


PARTS_MAX = 3
"""How many parts a hierarchical key has."""
_PATH = re.compile(r"^(/[^/\x00-\x1f\"\\]+)+$")
_EXACT = 2**53
_NUMBER_BYTES = 8


def checked_paths(given: str | Sequence[str]) -> tuple[str, ...]:
    """Return one to three partition key paths such as `/city` or `/address/zip`."""
    paths = (given,) if isinstance(given, str) else tuple(given)
    if not 1 <= len(paths) <= PARTS_MAX or len(set(paths)) != len(paths):
        raise InvalidValue(f"a container has 1 to 3 different partition key paths, not {paths!r}")
    for path in paths:
        if not _PATH.match(path) or len(path) > limits.NAME_LENGTH_MAX:
            raise InvalidValue(f"a partition key path looks like '/city', not {path!r}")
    return paths


def of_item(item: Mapping[str, Any], paths: Sequence[str]) -> tuple[Component, ...]:
    """Return the partition key of an item; a path it does not have gives `UNDEFINED`."""
    return tuple(_component(_follow(item, path), path) for path in paths)


def of_caller(value: Any, paths: Sequence[str], *, prefix: bool = False) -> tuple[Component, ...]:
    """Return the partition key that a caller named: a value, or as many as there are paths.

    With `prefix` the first parts of a hierarchical key are enough: they name all keys below.
    """
    values = tuple(value) if isinstance(value, list | tuple) else (value,)
    if not (1 if prefix else len(paths)) <= len(values) <= len(paths):
        wanted = f"1 to {len(paths)}" if prefix and len(paths) > 1 else str(len(paths))
        raise InvalidValue(
            f"the partition key has {wanted} parts ({', '.join(paths)}), not {len(values)}"
        )
    return tuple(_component(one, path) for one, path in zip(values, paths, strict=False))


def text(components: Sequence[Component]) -> str:
    """Return the canonical form that items are stored under: equal keys, equal texts."""
    encoded = msgspec.json.encode([_plain(component) for component in components])
    if len(encoded) > limits.PARTITION_KEY_BYTES_MAX:
        _check_size(components)
    return encoded.decode()


def parse(canonical: str) -> tuple[Component, ...]:
    """Return the key of a canonical form."""
    return tuple(_restored(value) for value in msgspec.json.decode(canonical))


def _check_size(components: Sequence[Component]) -> None:
    """Text counts as UTF-8, as in the reference, and not as the JSON that it is kept as."""
    size = sum(
        len(component.encode()) if isinstance(component, str) else _NUMBER_BYTES
        for component in components
    )
    if size > limits.PARTITION_KEY_BYTES_MAX:
        raise InvalidValue(
            f"a partition key of {size} bytes is too long; at most"
            f" {limits.PARTITION_KEY_BYTES_MAX} are allowed"
        )


def _plain(component: Component) -> Any:
    """Numbers that are no exact integers become the bytes of their double: one form only."""
    if isinstance(component, Undefined):
        return {}
    return {"n": struct.pack(">d", component).hex()} if isinstance(component, float) else component


def _restored(value: Any) -> Component:
    if not isinstance(value, dict):
        component: Component = value
        return component
    if not value:
        return UNDEFINED
    number: float = struct.unpack(">d", bytes.fromhex(value["n"]))[0]
    return number


def _follow(item: Any, path: str) -> Any:
    for name in path[1:].split("/"):
        if not isinstance(item, dict) or name not in item:
            return UNDEFINED
        item = item[name]
    return item


def _component(value: Any, path: str) -> Component:
    """Numbers are doubles, as in the reference: 1 and 1.0 are one key."""
    if value is None or isinstance(value, str | bool | Undefined):
        if isinstance(value, str) and "\x00" in value:
            raise InvalidValue(f"the partition key at {path} contains a NUL character")
        return value
    if isinstance(value, int | float):
        number = float(value)
        if number != number or number in (float("inf"), float("-inf")):
            raise InvalidValue(f"the partition key at {path} is not a finite number")
        return int(number) if number.is_integer() and abs(number) <= _EXACT else number
    raise InvalidValue(
        f"the partition key at {path} must be text, a number, a boolean or null,"
        f" not {type(value).__name__}"
    )


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
