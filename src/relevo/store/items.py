"""Items as callers give them and as the store keeps them: JSON text with a key. Pure."""

from __future__ import annotations

import math
import re
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from relevo import limits
from relevo.errors import InvalidValue, TooLarge
from relevo.kernel import cpu
from relevo.kernel.decoding import has_nul
from relevo.store import keys
from relevo.store.keys import epk
from relevo.store.model import TTL_MAX, TTL_ON, Kind
from relevo.store.patch import SYSTEM

if TYPE_CHECKING:
    from relevo.store.keys import Component
    from relevo.store.model import ContainerInfo

_ENCODE = msgspec.json.Encoder().encode
_DECODE = msgspec.json.Decoder().decode
_NOT_IN_NAMES: Final = re.compile(r"[/\\?#\x00-\x1f\x7f]")
_NOT_A_KEY = (InvalidValue, OverflowError)  # the latter for integers beyond any double
_NOT_JSON = (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError)


class ItemKey(Struct, frozen=True):
    """Where an item is stored: its id, its partition key as text, and the key's hash."""

    id: str
    pk: str
    epk: str


class ItemWrite(Struct, frozen=True, kw_only=True):
    """A write of one item, as the database takes it."""

    kind: Kind
    key: ItemKey
    text: str | None = None
    condition: str | None = None
    ttl: int | None = None


class StoredItem(Struct, frozen=True, kw_only=True):
    """A version of an item, as the database has it; `text` is None once it is deleted."""

    key: ItemKey
    text: str | None
    lsn: int
    ordinal: int
    ts: datetime
    created: bool = False

    @property
    def etag(self) -> str:
        """The version's entity tag, as `relevo.etag` in SQL."""
        return f'"{self.lsn:x}-{self.ordinal}"'


class Document(Struct, frozen=True, kw_only=True):
    """An item that may be stored."""

    key: ItemKey
    text: str
    plain: dict[str, Any]
    ttl: int | None

    def row(self, kind: Kind, condition: str | None = None) -> ItemWrite:
        """The write of this item."""
        text, ttl = (None, None) if kind == "delete" else (self.text, self.ttl)
        return ItemWrite(kind=kind, key=self.key, text=text, condition=condition, ttl=ttl)


def document(item: Any, container: ContainerInfo) -> Document:
    """Return an item as it is stored; it may be a mapping, struct, dataclass or pydantic model.

    It is encoded once, and the key is taken from the encoded form, so that the key is that of the
    stored item whatever types the caller used. Members that the store owns are dropped.
    """
    dump = getattr(item, "model_dump", None)
    text, plain = encoded(item if dump is None else dump(mode="json", by_alias=True))
    if not isinstance(plain, dict):
        raise InvalidValue(f"an item is a JSON object, not {type(item).__name__}", pointer="")
    if not SYSTEM.isdisjoint(plain):
        plain = {name: value for name, value in plain.items() if name not in SYSTEM}
        text = _ENCODE(plain)
    if len(text) > limits.ITEM_BYTES_MAX:
        raise TooLarge(
            f"an item has at most {limits.ITEM_BYTES_MAX} bytes as JSON, not {len(text)};"
            " keep large content elsewhere and a reference to it here",
            pointer="",
        )
    try:
        components = keys.of_item(plain, container.partition_key)
        place = key(checked_id(plain.get("id"), pointer="/id"), components)
    except _NOT_A_KEY as error:
        pointer = getattr(error, "pointer", None) or container.partition_key[0]
        raise InvalidValue(str(error), pointer=pointer) from error
    return Document(
        key=place,
        text=text.decode(),
        plain=plain,
        ttl=_ttl(plain, container),
    )


async def documented(item: Any, container: ContainerInfo) -> Document:
    """Do as `document`; a long item is checked in a thread, so that the event loop stays free."""
    return await cpu.decoded(size_of(item), document, item, container)


def size_of(value: Any) -> int:
    """Return how many bytes a value has as JSON; 0 if it cannot be encoded (checked later)."""
    try:
        return len(_ENCODE(value))
    except _NOT_JSON:
        return 0


def encoded(value: Any) -> tuple[bytes, Any]:
    """Return a value as JSON, and that JSON decoded; refuse values that JSON cannot hold."""
    try:
        text = _ENCODE(value)
        plain = _DECODE(text)
        if text.count(b"[") + text.count(b"{") > limits.ITEM_DEPTH_MAX and _is_deep(plain):
            raise InvalidValue(
                f"JSON is nested {limits.ITEM_DEPTH_MAX} levels deep at most", pointer=""
            )
        # Both are rare, so the cheap check comes first.
        if has_nul(text):
            where = _find(plain, lambda one: isinstance(one, str) and "\x00" in one)
            raise InvalidValue("text cannot contain the NUL character", pointer=where)
        if b"null" in text:
            where = _find(msgspec.to_builtins(value), _is_not_finite)
            if where is not None:
                raise InvalidValue("JSON has no NaN and no infinity; use null", pointer=where)
    except _NOT_JSON as error:
        raise InvalidValue(f"the value cannot be stored as JSON: {error}", pointer="") from error
    return text, plain


def key(item_id: str, components: tuple[Component, ...]) -> ItemKey:
    """Return the key of an item with this id and partition key."""
    pk = keys.text(components)
    if (len(pk) + len(item_id)) * 4 > limits.ITEM_KEY_BYTES_MAX:
        _check_key_size(item_id, pk)
    return ItemKey(item_id, pk, epk(components))


def key_of_caller(item_id: Any, partition_key: Any, container: ContainerInfo) -> ItemKey:
    """Return the key of the item that a caller names."""
    found = checked_id(item_id, pointer="id")
    return key(found, components_of_caller(partition_key, container))


def components_of_caller(partition_key: Any, container: ContainerInfo) -> tuple[Component, ...]:
    """Return the partition key that a caller names."""
    try:
        return keys.of_caller(partition_key, container.partition_key)
    except _NOT_A_KEY as error:
        raise InvalidValue(str(error), pointer="partition_key") from error


def pk_of_caller(partition_key: Any, container: ContainerInfo) -> str:
    """Return the canonical form of the partition key that a caller names."""
    return keys.text(components_of_caller(partition_key, container))


def partition_key_of(pk: str) -> Any:
    """Return a canonical partition key as callers see it: a value, or a tuple of several."""
    components = keys.parse(pk)
    return components[0] if len(components) == 1 else components


def checked_id(given: Any, *, pointer: str) -> str:
    """Return an item's id: 1 to 255 characters that fit into a URL's path."""
    return _name(given, "an item's id", limits.ITEM_ID_LENGTH_MAX, pointer)


def checked_name(given: Any) -> str:
    """Return a container's name."""
    return _name(given, "a container's name", limits.NAME_LENGTH_MAX, "name")


def checked_etag(given: Any) -> str | None:
    """Return a condition: an etag, `*` for any version, or None."""
    if given is None or (isinstance(given, str) and given and "\x00" not in given):
        return given
    raise InvalidValue(f"if_match is an item's etag or '*', not {given!r}", pointer="if_match")


def _name(given: Any, what: str, longest: int, pointer: str) -> str:
    if not isinstance(given, str):
        said = "is missing" if given is None else f"is text, not {type(given).__name__}"
        raise InvalidValue(f"{what} {said}", pointer=pointer)
    if not 1 <= len(given) <= longest or _NOT_IN_NAMES.search(given):
        raise InvalidValue(
            f"{what} has 1 to {longest} characters and none of / \\ ? # or control characters,"
            f" not {given[:40]!r}",
            pointer=pointer,
        )
    try:
        given.encode()
    except UnicodeEncodeError:
        raise InvalidValue(
            f"{what} is not valid Unicode: {given[:40]!r}", pointer=pointer
        ) from None
    return given


def _check_key_size(item_id: str, pk: str) -> None:
    """Check the size of an index entry, which does not depend on the size of the item."""
    size = len(item_id.encode()) + len(pk.encode())
    if size > limits.ITEM_KEY_BYTES_MAX:
        raise InvalidValue(
            f"an item's id and its partition key as JSON have {size} bytes together, and at most"
            f" {limits.ITEM_KEY_BYTES_MAX} are allowed; choose a shorter id",
            pointer="/id",
        )


def _ttl(plain: dict[str, Any], container: ContainerInfo) -> int | None:
    """The item's own time to live; as in the reference, only where the container has one."""
    own = plain.get("ttl")
    if container.ttl is None or own is None:
        return None
    if type(own) is not int or not (own == TTL_ON or 1 <= own <= TTL_MAX):
        raise InvalidValue(
            f"ttl is 1 to {TTL_MAX} seconds, or -1 for an item that never expires, not {own!r}",
            pointer="/ttl",
        )
    return own


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(limits.ITEM_DEPTH_MAX):
        held = [one for one in level if isinstance(one, dict | list)]
        level = [
            inner for one in held for inner in (one if isinstance(one, list) else one.values())
        ]
    return any(isinstance(one, dict | list) for one in level)


def _is_not_finite(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def _find(value: Any, wanted: Any, path: str = "") -> str | None:
    """Return the pointer to the first member, element or member's name that is wanted."""
    if isinstance(value, dict):
        for name, member in value.items():
            here = f"{path}/{str(name).replace('~', '~0').replace('/', '~1')}"
            found = here if wanted(name) else _find(member, wanted, here)
            if found is not None:
                return found
    elif isinstance(value, list | tuple):
        for index, element in enumerate(value):
            found = _find(element, wanted, f"{path}/{index}")
            if found is not None:
                return found
    return path if wanted(value) else None
