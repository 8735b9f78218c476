"""Changes of queues, topics, subscriptions and rules, inside a transaction."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from relevo import limits
from relevo.errors import (
    ConditionNotMet,
    Conflict,
    EntityExists,
    InvalidValue,
    NotFound,
    QuotaExceeded,
)
from relevo.kernel import faults
from relevo.kernel.events import Event, append
from relevo.kernel.postgres import catalog
from relevo.messaging import events
from relevo.messaging.core import entities
from relevo.messaging.core.entities import EntityProperties
from relevo.messaging.core.names import Path
from relevo.messaging.core.rules import encoded_rule
from relevo.messaging.model import CorrelationRule, EntityKind, PriorityClass, SqlRule

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import asyncpg

    from relevo.kernel.postgres import Transaction

SQL = catalog.load(__package__)
RERANKED: Final = ("ordering", "fair")
"""A change of these properties re-ranks all messages that wait."""
_json: Final = msgspec.json.Encoder().encode
_properties: Final = msgspec.json.Decoder(EntityProperties).decode
Rule = SqlRule | CorrelationRule


class EntityRecord(Struct, frozen=True, kw_only=True):
    """A queue, a topic or a subscription."""

    id: int
    kind: EntityKind
    name: str
    path: str
    version: int
    created_at: datetime
    updated_at: datetime
    properties: EntityProperties
    topic_id: int | None = None


class EntityChange:
    """What one transaction changes in definitions; `announce` ends it.

    Changes follow each other. Each waits for messages that are being accepted by the entity, and
    holds up others until it commits.
    """

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx
        self._events: list[tuple[str, EntityRecord]] = []

    async def create(
        self,
        address: Path,
        kind: EntityKind,
        properties: EntityProperties,
        checked: Mapping[str, Rule],
    ) -> EntityRecord:
        """Create an entity, a subscription with its rules."""
        await self._tx.execute(SQL.lock_definitions)
        if (there := await self._find(address)) is not None:
            raise EntityExists(
                f"there is a {there.kind} {there.path!r} already; change it with update(), or use"
                " another name"
            )
        topic = None
        if address.subscription is not None:
            topic = required_entity(Path(address.entity), await self._find(Path(address.entity)))
            if topic.kind != "topic":
                raise Conflict(f"{topic.path!r} is a {topic.kind}; only topics have subscriptions")
            await self._tx.execute(SQL.lock_entities, [topic.id])
        await self._check_room(topic)
        path = address if topic is None else Path(topic.name, address.subscription)
        await self._check_forwards(path, properties, EntityProperties.__struct_fields__)
        record = await self._put(path, kind, properties, None if topic is None else topic.id, {})
        if topic is not None:
            await self._put_rules(record, checked, topic.id)
            await self._tx.fetch(SQL.touch_entities, [topic.id])
        self._events.append((events.CREATED, record))
        return record

    async def update(
        self, address: Path, given: Mapping[str, Any], version: int | None
    ) -> EntityRecord:
        """Change properties, and the order of waiting messages if they say another one."""
        record = await self._locked(address)
        if version is not None and version != record.version:
            raise ConditionNotMet(
                f"{record.path!r} has version {record.version}, not {version}; read it again"
            )
        properties = entities.changed(record.kind, record.properties, given)
        await self._check_forwards(Path.of(record.path), properties, given)
        stored = {
            row["number"]: _class(row)
            for row in await self._tx.fetch(SQL.entity_classes, record.id)
        }
        path = Path.of(record.path)
        changed = await self._put(path, record.kind, properties, record.topic_id, stored)
        if record.topic_id is not None:
            await self._tx.fetch(SQL.touch_entities, [record.topic_id])
        if any(getattr(record.properties, name) != getattr(properties, name) for name in RERANKED):
            await self._tx.execute(SQL.rerank, record.id, timeout=limits.MESSAGE_RERANK_SECONDS_MAX)
            await faults.point("mid_rerank")
        self._events.append((events.CHANGED, changed))
        return changed

    async def drop(self, address: Path) -> None:
        """Remove an entity with its subscriptions and rules; messages are purged later."""
        record = await self._locked(address)
        if record.topic_id is not None:
            await self._tx.fetch(SQL.touch_entities, [record.topic_id])
        await self._tx.execute(SQL.drop_entity, record.id)
        self._events.append((events.DELETED, record))

    async def drop_idle(self, address: Path, id_: int) -> None:
        """Remove an entity, unless it is in use again or another has its name."""
        record = await self._locked(address)
        if record.id == id_ and await self._tx.fetch(SQL.idle_entities, 1, id_):
            await self.drop(address)

    async def set_rules(self, address: Path, checked: Mapping[str, Rule]) -> None:
        """Add or replace rules of a subscription."""
        record = await self._locked(address)
        assert record.topic_id is not None
        await self._put_rules(record, checked, record.topic_id)
        await self._touch(record)

    async def remove_rule(self, address: Path, name: str) -> None:
        """Remove a rule of a subscription."""
        record = await self._locked(address)
        if not await self._tx.fetch(SQL.delete_rule, record.id, str(name).lower()):
            raise NotFound(f"{record.path!r} has no rule {name!r}; rules() has those it has")
        await self._touch(record)

    async def announce(self) -> None:
        """Append the events; after it nothing else may be done in the transaction."""
        changes = [
            Event(
                type_, f"{record.kind}/{record.path}", record.version,
                events.EntityData(entity=record.path, kind=record.kind),
            )
            for type_, record in self._events
        ]  # fmt: skip
        await append(self._tx, events.CATALOGUE, changes)

    async def _row(self, sql: str, *arguments: Any) -> asyncpg.Record:
        return (await self._tx.fetch(sql, *arguments))[0]

    async def _find(self, address: Path) -> EntityRecord | None:
        row = await self._tx.fetchrow(SQL.find_entity, address.key)
        return None if row is None else entity_record(row)

    async def _locked(self, address: Path) -> EntityRecord:
        """The entity, whose definition and messages only this transaction changes from now on."""
        await self._tx.execute(SQL.lock_definitions)
        record = required_entity(address, await self._find(address))
        ids = [id_ for id_ in (record.topic_id, record.id) if id_ is not None]
        await self._tx.execute(SQL.lock_entities, ids)
        return record

    async def _touch(self, record: EntityRecord) -> None:
        rows = await self._tx.fetch(SQL.touch_entities, [record.id, record.topic_id])
        versions = {row["id"]: row["version"] for row in rows}
        changed = msgspec.structs.replace(record, version=versions[record.id])
        self._events.append((events.CHANGED, changed))

    async def _put(
        self,
        path: Path,
        kind: EntityKind,
        properties: EntityProperties,
        topic_id: int | None,
        stored: Mapping[int, PriorityClass],
    ) -> EntityRecord:
        name = path.entity if path.subscription is None else path.subscription
        row = await self._row(
            SQL.put_entity,
            topic_id,
            kind,
            name,
            str(path),
            _json(properties).decode(),
            _json(entities.decided(properties, kind)).decode(),
            _json(entities.class_rows(properties, stored)).decode(),
        )
        return EntityRecord(
            kind=kind, name=name, path=str(path), properties=properties, topic_id=topic_id, **row
        )

    async def _put_rules(
        self, record: EntityRecord, checked: Mapping[str, Rule], topic_id: int
    ) -> None:
        texts = [encoded_rule(rule) for rule in checked.values()]
        await self._tx.execute(SQL.put_rules, record.id, list(checked), texts)
        count = await self._row(SQL.rule_count, topic_id)
        for what, most in (
            ("sql", limits.MESSAGE_SQL_RULES_MAX),
            ("correlation", limits.MESSAGE_CORRELATION_RULES_MAX),
        ):
            if count[what] > most:
                raise QuotaExceeded(
                    f"the topic of {record.path!r} would have {count[what]} {what} rules; at most"
                    f" {most} are possible, so remove some, or use another topic"
                )

    async def _check_room(self, topic: EntityRecord | None) -> None:
        count = await self._row(SQL.entity_count, topic and topic.id)
        if count["entities"] >= limits.MESSAGE_ENTITIES_MAX:
            raise QuotaExceeded(
                f"there are {count['entities']} queues, topics and subscriptions, as many as are"
                " possible; drop some that are not used"
            )
        if topic is not None and count["subscriptions"] >= limits.MESSAGE_SUBSCRIPTIONS_MAX:
            raise QuotaExceeded(
                f"{topic.path!r} has {count['subscriptions']} subscriptions, as many as are"
                " possible; drop some, or use another topic"
            )

    async def _check_forwards(
        self, path: Path, properties: EntityProperties, given: Iterable[str]
    ) -> None:
        """Refuse new destinations that do not exist, or that make a circle."""
        for name, destination in properties.destinations():
            if name not in given:
                continue
            if destination.lower() == path.key:
                raise InvalidValue(
                    f"{name} of {path} is the entity itself; name another", pointer=name
                )
            if await self._find(Path(destination)) is None:
                raise InvalidValue(
                    f"{name} of {path} forwards to {destination!r}, and there is no such queue or"
                    " topic; create it first",
                    pointer=name,
                )
        if properties.forward_to is not None and "forward_to" in given:
            rows = await self._tx.fetch(SQL.entity_forwards)
            forwards = {row["key"]: row["destination"] for row in rows}
            entities.check_forward(str(path), properties.forward_to, forwards)


def required_entity(address: Path, record: EntityRecord | None) -> EntityRecord:
    """Return the entity of an address, or refuse the address."""
    if record is None:
        what = "queue or topic" if address.subscription is None else "subscription"
        raise NotFound(f"there is no {what} {str(address)!r}; create it first")
    return record


def entity_record(row: asyncpg.Record) -> EntityRecord:
    """Return a stored entity."""
    return EntityRecord(**{**dict(row), "properties": _properties(row["properties"])})


def _class(row: asyncpg.Record) -> PriorityClass:
    values = dict(row)
    band = values.pop("low"), values.pop("high")
    values.pop("number")
    return PriorityClass(priorities=band, **values)
