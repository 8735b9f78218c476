"""Keyed collections beside the state: entries load on demand, and each change is one row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from relevo.actors.core.deltas import EntryChange
from relevo.actors.running.turn import turn_of
from relevo.errors import InvalidValue, NotFound, ReadOnlyTurn
from relevo.limits import ACTOR_KEY_BYTES_MAX, ACTOR_STATE_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    import msgspec

    from relevo.actors.running.activation import Activation

V = TypeVar("V")
SCAN_ROWS = 200


class EntryCache:
    """Entries of the maps of an activation as of its last ended turn, as far as they are known.

    It holds those that are not durable yet, and between turns some of the others.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], bytes | None] = {}

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, key: tuple[str, str]) -> bool:
        return key in self._known

    def __getitem__(self, key: tuple[str, str]) -> bytes | None:
        return self._known[key]

    def of(self, name: str) -> dict[str, bytes | None]:
        """Return the known entries of a map."""
        return {key: value for (map_, key), value in self._known.items() if map_ == name}

    def keep(self, changes: Mapping[tuple[str, str], EntryChange]) -> None:
        """Take over the changes of a turn."""
        for key, change in changes.items():
            self._known[key] = change.value

    def note(self, name: str, key: str, value: bytes | None) -> bytes | None:
        """Keep an entry that was read, unless a turn has changed it meanwhile; returns it."""
        return self._known.setdefault((name, key), value)

    def clear(self, *, is_durable: bool) -> None:
        """Forget entries that can be read again."""
        if is_durable:
            self._known.clear()


class ActorMap(Generic[V]):
    """A map of an actor; what a turn changes is stored with the turn, or undone with it.

    >>> orders = self.map("orders", Order)  # doctest: +SKIP
    >>> await orders.set("17", Order(dish="soup"))  # doctest: +SKIP
    """

    def __init__(self, activation: Activation, name: str, kind: type[V]) -> None:
        self._activation = activation
        self._name = name
        codecs = activation.definition.codecs
        self._encoder = codecs.encoder
        self._decoder: msgspec.msgpack.Decoder[V] = codecs.decoder(kind)

    async def get(self, key: str, default: V | None = None) -> V | None:
        """Return a copy of an entry, or the default; changes of it count once it is `set`."""
        encoded = await self._read(_checked(key))
        return default if encoded is None else self._decoder.decode(encoded)

    async def contains(self, key: str) -> bool:
        """Whether there is such an entry."""
        return await self._read(_checked(key)) is not None

    async def set(self, key: str, value: V) -> None:
        """Store an entry when the turn ends."""
        encoded = self._encoder.encode(value)
        if len(encoded) > ACTOR_STATE_BYTES_MAX:
            raise InvalidValue(
                f"entry {key!r} of map {self._name!r} has {len(encoded):,} bytes; at most"
                f" {ACTOR_STATE_BYTES_MAX:,} can be stored"
            )
        self._note(_checked(key), encoded)

    async def delete(self, key: str) -> None:
        """Remove an entry when the turn ends; one that is not there is no error."""
        self._note(_checked(key), None)

    async def scan(self, after: str = "", limit: int | None = None) -> AsyncIterator[tuple[str, V]]:
        """Yield entries by key, from after a key on; it sees the changes of this turn."""
        given = 0
        while limit is None or given < limit:
            stored = await self._activation.home.entries(
                self._activation, self._name, after, SCAN_ROWS
            )
            last = stored[-1][0] if len(stored) == SCAN_ROWS else None
            page = dict(stored)
            for key, value in self._unsaved().items():
                if key > after and (last is None or key <= last):
                    if value is None:
                        page.pop(key, None)
                    else:
                        page[key] = value
            for key in sorted(page):
                if limit is not None and given >= limit:
                    return
                given += 1
                yield key, self._decoder.decode(page[key])
            if last is None:
                return
            after = last

    def _unsaved(self) -> dict[str, bytes | None]:
        """Return entries of this map that the store may not have yet."""
        turn = turn_of(self._activation, f"map {self._name!r}")
        known = self._activation.entries.of(self._name)
        for (name, key), change in turn.journal.entries.items():
            if name == self._name:
                known[key] = change.value
        return known

    async def _read(self, key: str) -> bytes | None:
        turn = turn_of(self._activation, f"map {self._name!r}")
        change = turn.journal.entries.get((self._name, key))
        if change is not None:
            return change.value
        known = self._activation.entries
        if (self._name, key) in known:
            return known[self._name, key]
        value = await self._activation.home.entry(self._activation, self._name, key)
        return known.note(self._name, key, value)

    def _note(self, key: str, value: bytes | None) -> None:
        turn = turn_of(self._activation, f"map {self._name!r}")
        if not turn.may_write:
            raise ReadOnlyTurn(f"{turn.work.name} only reads, and cannot change map {self._name!r}")
        turn.journal.entries[self._name, key] = EntryChange(self._name, key, value)


class StateManager:
    """The dictionary-style methods known from Service Fabric and Dapr, over the map `state`."""

    def __init__(self, entries: ActorMap[Any]) -> None:
        self._entries = entries

    async def get_state(self, name: str) -> Any:
        """Return a value; raises `NotFound`."""
        found, value = await self.try_get_state(name)
        if not found:
            raise NotFound(f"this actor has no state {name!r}")
        return value

    async def try_get_state(self, name: str) -> tuple[bool, Any]:
        """Return whether there is a value, and the value."""
        if not await self._entries.contains(name):
            return False, None
        return True, await self._entries.get(name)

    async def set_state(self, name: str, value: Any) -> None:
        """Set a value."""
        await self._entries.set(name, value)

    async def add_or_update_state(
        self, name: str, value: Any, update: Callable[[str, Any], Any]
    ) -> Any:
        """Add a value, or replace the one there is by what `update(name, old)` returns."""
        found, old = await self.try_get_state(name)
        new = update(name, old) if found else value
        await self._entries.set(name, new)
        return new

    async def remove_state(self, name: str) -> None:
        """Remove a value."""
        await self._entries.delete(name)

    async def contains_state(self, name: str) -> bool:
        """Whether there is a value."""
        return await self._entries.contains(name)


def _checked(key: str) -> str:
    given: object = key
    if (
        not isinstance(given, str)
        or not 1 <= len(key.encode()) <= ACTOR_KEY_BYTES_MAX
        or "\0" in key
    ):
        raise InvalidValue(
            f"the key of an entry is text of 1 to {ACTOR_KEY_BYTES_MAX} bytes, not {key!r:.80}"
        )
    return key
