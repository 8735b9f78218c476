"""The array types that every PostgreSQL has, so that no session has to ask for them.

The driver knows the numbers of scalar types. It asks each new session for every array type that it
meets, with a query that takes PostgreSQL longer than most statements of Relevo: about 8 ms, and
a host has seven sessions. The numbers below are fixed in PostgreSQL's catalog, as those of scalars.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Collection

ELEMENTS: Final = {
    1000: (16, "bool"),
    1001: (17, "bytea"),
    1005: (21, "int2"),
    1007: (23, "int4"),
    1009: (25, "text"),
    1015: (1043, "varchar"),
    1016: (20, "int8"),
    1021: (700, "float4"),
    1022: (701, "float8"),
    1115: (1114, "timestamp"),
    1182: (1082, "date"),
    1185: (1184, "timestamptz"),
    1187: (1186, "interval"),
    199: (114, "json"),
    1231: (1700, "numeric"),
    2287: (2249, "record"),
    2951: (2950, "uuid"),
    3807: (3802, "jsonb"),
}
"""The number of an array type, and the number and name of the type of its elements."""


class Asked(Struct, frozen=True):
    """Stands for the statement that would have asked; the driver looks at its name alone."""

    name: str = "known"


def known(numbers: Collection[int]) -> list[dict[str, Any]] | None:
    """Return these types as the driver's query would; None if one has to be asked for."""
    if not ELEMENTS.keys() >= set(numbers):
        return None
    return [_described(number, *ELEMENTS[number]) for number in numbers]


def _described(number: int, element: int, name: str) -> dict[str, Any]:
    return {
        "oid": number, "ns": "pg_catalog", "name": f"_{name}", "kind": b"b", "basetype": None,
        "elemtype": element, "elemdelim": b",", "range_subtype": None, "attrtypoids": None,
        "attrnames": None,
    }  # fmt: skip
