"""Queues, topics and subscriptions with their rules: create, change, list and drop them.

Every change is one transaction and makes a new version of the entity; a change of a subscription or
of a rule also one of its topic. Messages are accepted only by the versions that they were evaluated
with, so a message is treated by the definition before a change or by the one after it, whole.

Changes follow each other (one advisory lock for all). They wait for messages that are being
accepted by the entity, and hold up others until they commit.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from msgspec import Struct

from relevo import limits
from relevo.errors import (
    Conflict,
    EntityExists,
    InvalidValue,
    NotFound,
)
from relevo.kernel import cpu
from relevo.kernel.postgres import catalog
from relevo.kernel.postgres.repeating import until_fewer
from relevo.messaging.core import acceptance, entities, names, rules
from relevo.messaging.core.names import Path
from relevo.messaging.entity_changes import (
    EntityChange,
    EntityRecord,
    Rule,
    entity_record,
    required_entity,
)
from relevo.messaging.model import CorrelationRule, EntityKind, SqlRule

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from relevo.kernel.postgres import Database, Transaction
    from relevo.messaging.core.entities import EntityProperties

T = TypeVar("T")
GivenRule: TypeAlias = str | SqlRule | CorrelationRule

__all__ = ["Entities", "EntityRecord"]

SQL = catalog.load(__package__)
EVERYTHING: Final = SqlRule("TRUE")
"""The rule of a subscription for which none is given."""
PURGE_ROWS: Final = 1_000
IDLE_ROWS: Final = 100
PURGE_ROUNDS_MAX: Final = 20
"""How many times so many rows a drop removes itself; housekeeping removes the rest."""
ATTEMPTS_MAX: Final = 5


class WantedEntity(Struct, frozen=True):
    """An entity that is to exist, with the properties and rules that were given for it."""

    path: str
    kind: EntityKind
    given: Mapping[str, Any]
    rules: Mapping[str, GivenRule] | None = None


class Entities:
    """The definitions of queues, topics and subscriptions of a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(
        self,
        path: str,
        kind: EntityKind,
        given: Mapping[str, Any],
        *,
        rules: Mapping[str, GivenRule] | None = None,
        tx: Transaction | None = None,
    ) -> EntityRecord:
        """Create an entity; a subscription with its rules, or one that selects everything.

        Raises `EntityExists` if there is one of that path, `NotFound` if its topic is missing.
        """
        [record] = await self._create([WantedEntity(path, kind, given, rules)], tx)
        return record

    async def _create(
        self, wanted: Sequence[WantedEntity], tx: Transaction | None = None
    ) -> Sequence[EntityRecord]:
        checked = []
        for one in wanted:
            properties = entities.defined(one.kind, one.given)
            await _check_classifier(properties, one.given)
            rules = await _checked_rules(one.kind, one.rules)
            checked.append((_address(one.path, one.kind), one.kind, properties, rules))

        async def work(tx: Transaction) -> Sequence[EntityRecord]:
            change = EntityChange(tx)
            records = [await change.create(*one) for one in checked]
            await change.announce()
            return records

        return await self._run(work, tx)

    async def ensure(
        self,
        path: str,
        kind: EntityKind,
        given: Mapping[str, Any],
        *,
        rules: Mapping[str, GivenRule] | None = None,
    ) -> EntityRecord:
        """Create an entity, or return the one that is there if it has these properties and rules.

        Raises `Conflict` that names what differs; `update` and `set_rule` change it.
        """
        [record] = await self.ensure_together([WantedEntity(path, kind, given, rules)])
        return record

    async def ensure_together(self, wanted: Sequence[WantedEntity]) -> Sequence[EntityRecord]:
        """As `ensure` of each; those that are missing are created in one transaction."""
        for _ in range(ATTEMPTS_MAX):
            records = [await self._find(_address(one.path, one.kind)) for one in wanted]
            for one, record in zip(wanted, records, strict=True):
                if record is not None:
                    await self._check_same(record, one.kind, one.given, one.rules)
            missing = [one for one, record in zip(wanted, records, strict=True) if record is None]
            try:
                created = iter(await self._create(missing) if missing else ())
            except EntityExists:
                continue
            return [record or next(created) for record in records]
        raise Conflict(f"{wanted[0].path!r} is created and dropped repeatedly; try again")

    async def update(
        self, path: str, given: Mapping[str, Any], *, version: int | None = None
    ) -> EntityRecord:
        """Change properties of an entity, if it has that version; raises `ConditionNotMet` if not.

        Waiting messages keep their class. Another `ordering` or `fair` gives them another rank.
        """
        address = Path.of(path)
        record = await self.get(path)
        await _check_classifier(entities.changed(record.kind, record.properties, given), given)

        async def work(tx: Transaction) -> EntityRecord:
            change = EntityChange(tx)
            changed = await change.update(address, given, version)
            await change.announce()
            return changed

        return await self._run(work)

    async def get(self, path: str) -> EntityRecord:
        """Return an entity; raises `NotFound`."""
        address = Path.of(path)
        return required_entity(address, await self._find(address))

    async def list(
        self,
        kind: EntityKind,
        *,
        topic: str | None = None,
        after: str = "",
        limit: int = limits.PAGE_ROWS_DEFAULT,
    ) -> list[EntityRecord]:
        """Return entities of a kind by path, which ignores case, after the path `after`."""
        if not 1 <= limit <= limits.PAGE_ROWS_MAX:
            raise InvalidValue(
                f"limit is 1 to {limits.PAGE_ROWS_MAX}, not {limit}", pointer="limit"
            )
        key = None if topic is None else Path.of(topic).key
        rows = await self._database.fetch(SQL.list_entities, kind, key, after.lower(), limit)
        return [entity_record(row) for row in rows]

    async def drop(self, path: str) -> None:
        """Remove an entity with its messages, rules and subscriptions; raises `NotFound`.

        Its name is free at once. Of a large entity the messages go in parts, the rest later.
        """
        address = Path.of(path)

        async def work(tx: Transaction) -> None:
            change = EntityChange(tx)
            await change.drop(address)
            await change.announce()

        await self._run(work)
        await until_fewer(PURGE_ROWS, self.purge_dropped, rounds=PURGE_ROUNDS_MAX)

    async def purge_dropped(self, limit: int = PURGE_ROWS) -> int:
        """Remove up to `limit` messages, and as many of each other kind, of dropped entities."""
        rows = await self._database.write(SQL.purge_dropped, limit, idempotent=True)
        removed: int = rows[0]["removed"]
        return removed

    async def drop_idle(self, limit: int = IDLE_ROWS) -> int:
        """Remove entities that nobody has used for their `auto_delete_on_idle`; returns how many.

        Sending and receiving count as use; what holds messages or is served is not idle.
        """
        rows = await self._database.fetch(SQL.idle_entities, limit, None)
        for row in rows:
            await self._drop_idle(Path.of(row["path"]), row["id"])
        return len(rows)

    async def _drop_idle(self, address: Path, id_: int) -> None:
        async def work(tx: Transaction) -> None:
            change = EntityChange(tx)
            with contextlib.suppress(NotFound):
                await change.drop_idle(address, id_)
            await change.announce()

        await self._run(work)

    async def set_rule(self, subscription_path: str, name: str, rule: GivenRule) -> None:
        """Add a rule to a subscription, or replace the one of that name."""
        address = _address(subscription_path, "subscription")
        checked = await _checked_rules("subscription", {name: rule})

        async def work(tx: Transaction) -> None:
            change = EntityChange(tx)
            await change.set_rules(address, checked)
            await change.announce()

        await self._run(work)

    async def remove_rule(self, subscription_path: str, name: str) -> None:
        """Remove a rule from a subscription; raises `NotFound`. Without rules it gets nothing."""
        address = _address(subscription_path, "subscription")

        async def work(tx: Transaction) -> None:
            change = EntityChange(tx)
            await change.remove_rule(address, name)
            await change.announce()

        await self._run(work)

    async def rules(self, subscription_path: str) -> dict[str, Rule]:
        """Return the rules of a subscription by name."""
        address = _address(subscription_path, "subscription")
        record = required_entity(address, await self._find(address))
        rows = await self._database.fetch(SQL.entity_rules, record.id)
        return {row["name"]: rules.stored_rule(row["rule"]) for row in rows}

    async def _run(
        self, work: Callable[[Transaction], Awaitable[T]], tx: Transaction | None = None
    ) -> T:
        return await self._database.run(work) if tx is None else await work(tx)

    async def _find(self, address: Path) -> EntityRecord | None:
        row = await self._database.fetchrow(SQL.find_entity, address.key)
        return None if row is None else entity_record(row)

    async def _check_same(
        self,
        record: EntityRecord,
        kind: EntityKind,
        given: Mapping[str, Any],
        wanted: Mapping[str, GivenRule] | None,
    ) -> None:
        if record.kind != kind:
            raise Conflict(f"{record.path!r} is a {record.kind}, not a {kind}; use another name")
        properties = entities.defined(kind, given)
        for name in given:
            there, asked = getattr(record.properties, name), getattr(properties, name)
            if there != asked:
                raise Conflict(
                    f"{name} of {record.path!r} is {there!r}, not {asked!r}; say the same here, or"
                    " change it with update()"
                )
        if wanted is None:
            return
        stored = await self.rules(record.path)
        if stored != (checked := await _checked_rules(kind, wanted)):
            raise Conflict(
                f"the rules of {record.path!r} are {stored!r}, not {checked!r}; say the same here,"
                " or change them with set_rule() and remove_rule()"
            )


async def _checked_rules(
    kind: EntityKind, given: Mapping[str, GivenRule] | None
) -> dict[str, Rule]:
    """Return rules that can be stored, or refuse one by name; those of a new subscription."""
    if kind != "subscription":
        if given:
            raise InvalidValue(
                f"a {kind} has no rules; give them to a subscription", pointer="rules"
            )
        return {}
    if not given:
        return {names.DEFAULT_RULE: EVERYTHING}
    found = {
        names.check(name, "rule", pointer="rules"): SqlRule(rule) if isinstance(rule, str) else rule
        for name, rule in given.items()
    }
    if len({name.lower() for name in found}) < len(found):
        raise InvalidValue(
            f"two rules have the same name, which ignores case: {', '.join(found)}", pointer="rules"
        )
    for name, rule in found.items():
        if not isinstance(rule, SqlRule | CorrelationRule):
            raise InvalidValue(
                f"rule {name!r} is {rule!r}; it must be text, a SqlRule or a CorrelationRule",
                pointer=f"rules/{name}",
            )
        await cpu.off_loop(rules.compiled, rule)
    return found


async def _check_classifier(properties: EntityProperties, given: Mapping[str, Any]) -> None:
    if "classifier" in given:
        for text, _ in properties.classifier:
            await cpu.off_loop(acceptance.predicate, text)


def _address(path: str, kind: EntityKind) -> Path:
    """Return the address of an entity of a kind, or refuse one of something else."""
    address = Path.of(path)
    if address.sub_queue is not None:
        raise InvalidValue(
            f"{path!r} is a sub-queue, which comes and goes with its entity; name the entity",
            pointer="path",
        )
    if (address.subscription is None) == (kind == "subscription"):
        wanted = "topic/subscriptions/name" if kind == "subscription" else "a name"
        raise InvalidValue(f"{path!r} is no path of a {kind}; write it as {wanted}", pointer="path")
    return address
