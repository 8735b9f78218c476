"""Containers of JSON items, with grouped writes and a feed of every change.

    orders = store.container("orders", partition_key="/city")
    await orders.upsert({"id": "1", "city": "Vigo", "dish": "pizza"})

Items live under an id and a partition key; every write has a place in the feed (`relevo.feed`).
"""

from relevo.store import patch
from relevo.store.container import Container
from relevo.store.keys import UNDEFINED, Undefined
from relevo.store.model import (
    BulkResult,
    ContainerInfo,
    Create,
    Delete,
    Item,
    Outcome,
    Patch,
    Read,
    Replace,
    Upsert,
)
from relevo.store.query import ItemPage, Query
from relevo.store.ranges import Interval, Range, RangeMap
from relevo.store.service import Store

__all__ = [
    "UNDEFINED",
    "BulkResult",
    "Container",
    "ContainerInfo",
    "Create",
    "Delete",
    "Interval",
    "Item",
    "ItemPage",
    "Outcome",
    "Patch",
    "Query",
    "Range",
    "RangeMap",
    "Read",
    "Replace",
    "Store",
    "Undefined",
    "Upsert",
    "patch",
]
