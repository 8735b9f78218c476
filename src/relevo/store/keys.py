"""Partition keys: which part of an item says where it lies. Pure."""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING, Any

import msgspec

from relevo import limits
from relevo.errors import InvalidValue
from relevo.store.epk import UNDEFINED, Undefined

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from relevo.store.epk import Component

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
    encoded = msgspec.json.encode([_plain(one) for one in components])
    if len(encoded) > limits.PARTITION_KEY_BYTES_MAX:
        _check_size(components)
    return encoded.decode()


def parse(canonical: str) -> tuple[Component, ...]:
    """Return the key of a canonical form."""
    return tuple(_restored(value) for value in msgspec.json.decode(canonical))


def _check_size(components: Sequence[Component]) -> None:
    """Text counts as UTF-8, as in the reference, and not as the JSON that it is kept as."""
    size = sum(len(one.encode()) if isinstance(one, str) else _NUMBER_BYTES for one in components)
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
