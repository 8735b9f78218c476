"""Slots with owners, written by the product's own statements without running hosts."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from relevo.actors.core.deltas import Delta, OutgoingMessage
from relevo.actors.core.identity import slot_of
from relevo.kernel.leases.service import SQL

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from relevo.kernel.postgres import Database, Transaction

SLOTS = 8
GROUP = "default"


class Slots:
    """The slots of a placement group: lease and epoch of each."""

    def __init__(self, database: Database, unit: int) -> None:
        self._database = database
        self.unit = unit
        self.leases: dict[int, int] = {}
        self.epochs: dict[int, int] = {}

    @classmethod
    async def of(cls, database: Database) -> Slots:
        await database.write(SQL.insert_unit, "actors", GROUP, True, 30.0, None, 30.0, "equal")
        await database.write(
            "insert into relevo.actor_group (name, slots) values ($1, $2) on conflict do nothing",
            GROUP, SLOTS,
        )  # fmt: skip
        row = await database.fetchrow(SQL.find_unit, "actors", GROUP)
        assert row is not None
        slots = cls(database, row["id"])
        await database.write(SQL.insert_leases, slots.unit, [str(n) for n in range(SLOTS)])
        rows = await database.fetch("select id, name from relevo.lease")
        slots.leases = {int(row["name"]): row["id"] for row in rows}
        await slots.take(range(SLOTS), await slots.host("first"))
        return slots

    async def host(self, name: str) -> UUID:
        """A host that lives."""
        incarnation = uuid.uuid4()
        await self._database.write(SQL.register_host, incarnation, name, 600.0, None, "{}", "test")
        return incarnation

    async def take(self, slots: Sequence[int], host: UUID, *, was_lost: bool = False) -> None:
        """Give slots to a host, whoever has them, after an owner that let go or was lost."""
        ids = sorted(self.leases[slot] for slot in slots)

        async def work(tx: Transaction) -> None:
            await tx.execute(SQL.lock_leases, ids)
            await tx.execute(
                "update relevo.lease set owner = $2, epoch = epoch + 1, free_since = null,"
                " in_order_from = case when $3::boolean then epoch + 1 else in_order_from end"
                " where id = any ($1)",
                ids, host, was_lost,
            )  # fmt: skip

        await self._database.run(work)
        rows = await self._database.fetch("select name, epoch from relevo.lease")
        self.epochs = {int(row["name"]): row["epoch"] for row in rows}

    def delta(self, key: str, base: int, **changes: Any) -> Delta:
        """A delta of `account/s:<key>`, as the owner of its slot makes it."""
        actor = f"account/s:{key}"
        slot = slot_of(actor, SLOTS)
        told = {
            "actor": actor, "lease_id": self.leases[slot], "epoch": self.epochs[slot],
            "placement_group": GROUP, "slot": slot, "incarnation": 0, "base": base,
        }  # fmt: skip
        return Delta(**{**told, **changes})

    def key_in(self, slot: int, number: int = 0) -> str:
        """The key of an actor in a slot."""
        keys = (f"k{n}" for n in range(10_000))
        return [key for key in keys if slot_of(f"account/s:{key}", SLOTS) == slot][number]


def message(receiver: str, body: bytes = b"body", *, sender: str = "", **more: Any) -> Any:
    """A message to `account/s:<receiver>`."""
    actor = f"account/s:{receiver}"
    return OutgoingMessage(
        actor, GROUP, slot_of(actor, SLOTS), more.pop("method", "note"), body,
        sender=f"account/s:{sender}" if sender else "", **more,
    )  # fmt: skip


async def table(database: Database, name: str, columns: str = "*") -> list[tuple[Any, ...]]:
    """The rows of a table of actors."""
    rows = await database.fetch(f"select {columns} from relevo.{name} order by 1, 2")
    return [tuple(row) for row in rows]
