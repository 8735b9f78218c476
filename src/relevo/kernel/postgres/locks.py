"""The classes of Relevo's advisory locks (the number is an id unique in the schema).

SQL texts hold these numbers as literals; a connection of another schema than `relevo` binds them to
classes of that schema, so that several Relevos in one database never wait for each other.

Transaction-level only, so that they work through PgBouncer. Order, on every path that takes more
than one: MIGRATE, UNIT, LEASE (rising ids), then row locks of lease rows; no holder of a LEASE
lock asks for a UNIT lock. Writes of items: item rows (by key), then STAMP (rising), last; no
holder of a STAMP lock waits for an item. Messages: ENTITY (rising), SESSION (rising), then rows.
"""

from __future__ import annotations

import hashlib
from typing import Final

_CLASS: Final = 0x52454C00  # "REL"

MIGRATE: Final = _CLASS + 1
UNIT: Final = _CLASS + 2
"""One plan at a time is made for a unit; also held while the unit is created."""
LEASE: Final = _CLASS + 3
"""Shared by fenced transactions, exclusive for a change of epoch (in SQL: relevo.lock_leases)."""
KEYS: Final = _CLASS + 4
"""The first access key is made once."""
STAMP: Final = _CLASS + 6
"""A range's stamp lock: from the draw of an LSN to the end of the transaction."""
TRIM: Final = _CLASS + 0x0B
"""The logs of all versions are trimmed by one transaction at a time."""
LETTER: Final = _CLASS + 0x10
"""A key of a unit's dead letters, by its hash: parking behind them and removing them take turns."""
ENTITY: Final = _CLASS + 0x11
"""A queue, topic or subscription: shared by statements that accept its messages, exclusive for a
change of its definition. Number 0 is for changes of any definition, which follow each other."""
SESSION: Final = _CLASS + 0x12
"""A session of a queue or subscription, by its hash: its messages become visible in order."""
WEBHOOKS: Final = _CLASS + 0x13
"""Webhooks are made one after the other, so that their number has a bound."""
LAST: Final = _CLASS + 0xFF
"""No class is above it: a lock between these two numbers is Relevo's."""


def of(lock_class: int, schema: str) -> int:
    """Return the class of a lock in a schema.

    >>> of(UNIT, "relevo") == UNIT, of(UNIT, "shop") - of(MIGRATE, "shop")
    (True, 1)
    """
    if schema == "relevo" or not _CLASS <= lock_class <= LAST:
        return lock_class
    digest = hashlib.sha256(schema.encode()).digest()
    return ((int.from_bytes(digest[:3]) & 0x7FFFFF) << 8) + lock_class - _CLASS
