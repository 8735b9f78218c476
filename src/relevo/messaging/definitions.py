"""Definitions of entities, ready to evaluate messages with; kept per process, by version."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

import msgspec

from relevo import limits
from relevo.errors import NotFound
from relevo.kernel import cpu
from relevo.kernel.postgres import catalog
from relevo.messaging.core import acceptance, classes
from relevo.messaging.core.acceptance import Definition
from relevo.messaging.core.entities import EntityProperties
from relevo.messaging.core.names import Path
from relevo.messaging.core.rules import SubscriptionRule, TopicRules, compiled, stored_rule
from relevo.messaging.model import Message

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import asyncpg

    from relevo.kernel.postgres import Database

__all__ = ["Definition", "Definitions"]

SQL = catalog.load(__package__)
_properties: Final = msgspec.json.Decoder(EntityProperties).decode
_numbers: Final = msgspec.json.Decoder(dict[str, int]).decode
_rules: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_PLAIN: Final = Message(body=b"")
_Compiled = dict[str, SubscriptionRule]
"""Rules, ready to route messages, by their stored text."""


class Definitions:
    """The definitions that this process has used; one that is not known, or was forgotten, is read.

    Nobody tells a process of changes: the statement that accepts messages answers `stale`, and the
    caller forgets the definition and evaluates again.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: dict[str, Definition] = {}
        self._keys: dict[int, str] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._forgotten = 0
        """Counts calls of `forget`: what was being read then may be older than the change."""
        self._compiled: dict[str, _Compiled] = {}
        """Of topics: reading one again compiles only the rules that are new."""

    async def of(self, path: str) -> Definition:
        """Return the definition of an entity; raises `NotFound`."""
        key = path.lower()
        known = self._known.get(key)
        return known if known is not None else await self._read(key)

    async def by_id(self, id: int) -> Definition:  # noqa: A002 - the word of the records
        """Return the definition of an entity by its number; raises `NotFound`."""
        key = self._keys.get(id)
        if key is None:
            key = await self._database.fetchval(SQL.entity_key, id)
            if key is None:
                raise NotFound(f"there is no queue, topic or subscription with the number {id}")
        found = await self.of(key)
        if found.id != id:  # dropped, and another has the name now
            self._keys.pop(id, None)
            raise NotFound(f"there is no queue, topic or subscription with the number {id}")
        return found

    def forget(self, *paths: str) -> None:
        """Read these definitions again when they are next used."""
        self._forgotten += 1
        for path in paths:
            key = path.lower()
            known = self._known.pop(key, None)
            if known is not None:
                self._keys.pop(known.id, None)

    async def _read(self, key: str) -> Definition:
        """Read a definition once for all who wait for it."""
        async with self._locks.setdefault(key, asyncio.Lock()):
            known = self._known.get(key)
            if known is not None:
                return known
            forgotten = self._forgotten
            definition = await self._load(key)
            if forgotten == self._forgotten:
                while len(self._known) >= limits.MESSAGE_ENTITIES_MAX:
                    self.forget(next(iter(self._known)))
                self._known[key] = definition
                self._keys[definition.id] = key
            return definition

    async def _load(self, key: str) -> Definition:
        rows = await self._database.fetch(SQL.definition, Path.of(key).key)
        if not rows:
            self._compiled.pop(key, None)
            raise NotFound(f"there is no queue, topic or subscription {key!r}; create it first")
        before = self._compiled.get(key, {})
        definition, after = await cpu.off_loop(_definition, rows, before)
        if definition.kind == "topic":
            self._compiled[key] = after
        return definition


def _definition(
    rows: Sequence[asyncpg.Record], before: Mapping[str, SubscriptionRule]
) -> tuple[Definition, _Compiled]:
    """Return an entity with its subscriptions, and its rules by their text."""
    first, *others = rows
    after: _Compiled = {}
    rules = TopicRules()
    for row in others:
        for name, raw in _rules(row["rules"] or "{}").items():
            text = bytes(raw).decode()
            known = after.get(text) or before.get(text)
            after[text] = known or compiled(
                stored_rule(text), length_max=limits.FILTER_LENGTH_LARGEST
            )
            rules.set(row["name"], name, after[text])
    subscriptions = {row["name"]: _entity(row) for row in others}
    entity = _entity(first)
    cost = entity.cost + len(after) + sum(one.cost for one in subscriptions.values())
    forwards = entity.forwards or any(one.forwards for one in subscriptions.values())
    whole = msgspec.structs.replace(
        entity, subscriptions=subscriptions, rules=rules, forwards=forwards, cost=cost
    )
    return whole, after


def _entity(row: asyncpg.Record) -> Definition:
    properties = _properties(row["properties"])
    return Definition(
        id=row["id"],
        kind=row["kind"],
        name=row["name"],
        path=row["path"],
        version=row["version"],
        properties=properties,
        numbers=_numbers(row["numbers"]),
        classifier=tuple(
            (acceptance.predicate(text), name) for text, name in properties.classifier
        ),
        forwards=bool(properties.forward_to or properties.forward_dead_lettered_to),
        usual=None if properties.classifier else classes.classify(_PLAIN, properties.classes),
        cost=1 + len(properties.classifier),
    )
