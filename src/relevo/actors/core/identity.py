"""The identity of an actor: a type and a key, its canonical text, and the slot that follows.

    ref = ActorRef.of("account", "alice")
    ref.canonical  # "account/s:alice"
    slot_of(ref.canonical, 256)

`42` and `"42"` are two actors. The slot depends on nothing but the canonical text and the number of
slots, on every platform and in every version.
"""

from __future__ import annotations

import re
from functools import cached_property, lru_cache
from hashlib import blake2b
from typing import Final
from uuid import UUID

from msgspec import Struct

from relevo.errors import InvalidValue
from relevo.limits import ACTOR_KEY_BYTES_MAX

Key = str | int | UUID

_TYPE: Final = re.compile(r"[a-z][a-z0-9_.-]{0,63}")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_INT_MIN: Final = -(2**63)
_INT_MAX: Final = 2**63 - 1


class ActorRef(Struct, frozen=True, order=True, dict=True):
    """The identity of an actor; it says nothing about where the actor is."""

    type: str
    key: Key

    @classmethod
    def of(cls, type_name: str, key: Key) -> ActorRef:
        """Return the identity after checks; raises `InvalidValue`."""
        return cls(checked_type(type_name), checked_key(key))

    @classmethod
    def read(cls, canonical: str) -> ActorRef:
        """Return the identity of a canonical text such as `account/s:alice`."""
        type_name, slash, key = canonical.partition("/")
        if not slash:
            raise InvalidValue(
                f"{canonical!r} is no actor; write type/s:key, type/i:42 or type/u:…"
            )
        return cls.of(type_name, read_key(key))

    @cached_property
    def canonical(self) -> str:
        """The text that names this actor, everywhere and for ever."""
        match self.key:
            case UUID():
                return f"{self.type}/u:{self.key}"
            case int():
                return f"{self.type}/i:{self.key}"
            case _:
                return f"{self.type}/s:{self.key}"

    def __str__(self) -> str:
        return self.canonical


@lru_cache(maxsize=16_384)
def slot_of(canonical: str, slots: int) -> int:
    """Return the slot of an actor in a placement group with so many slots."""
    return int.from_bytes(blake2b(canonical.encode(), digest_size=8).digest(), "big") % slots


def checked_type(name: str) -> str:
    """Return a type's name; raises `InvalidValue` if it is none."""
    if not _TYPE.fullmatch(str(name)):
        raise InvalidValue(
            f"{name!r} is no actor type: up to 64 of a-z, 0-9, _, . and -, a letter first",
            pointer="type",
        )
    return name


def checked_key(key: Key) -> Key:
    """Return a key; raises `InvalidValue` for one that no actor can have."""
    if isinstance(key, bool) or not isinstance(key, (str, int, UUID)):
        raise InvalidValue(
            f"the key of an actor is a str, an int or a UUID, not {type(key).__qualname__}",
            pointer="key",
        )
    if isinstance(key, int) and not _INT_MIN <= key <= _INT_MAX:
        raise InvalidValue(f"{key} is no key: a whole number has 64 bits", pointer="key")
    if isinstance(key, str):
        _check_text(key)
    return key


def read_key(text: str) -> Key:
    """Return the key of `s:alice`, `i:42` or `u:…`; text without such a prefix is a `str` key."""
    kind, colon, rest = text.partition(":")
    try:
        if colon and kind == "i":
            return checked_key(int(rest))
        if colon and kind == "u":
            return UUID(rest)
    except ValueError:
        raise InvalidValue(f"{text!r} is no key of an actor", pointer="key") from None
    return checked_key(rest if colon and kind == "s" else text)


def _check_text(key: str) -> None:
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        raise InvalidValue("the key of an actor is not valid Unicode", pointer="key") from None
    if not 1 <= size <= ACTOR_KEY_BYTES_MAX:
        raise InvalidValue(
            f"the key of an actor has 1 to {ACTOR_KEY_BYTES_MAX} bytes of UTF-8, not {size}",
            pointer="key",
        )
    if _CONTROL.search(key):
        raise InvalidValue("the key of an actor has no control characters", pointer="key")
