"""Errors of queries, with their codes in Dataverse.

`InvalidQuery` and `code_of` are what a surface needs: it answers with `error.status` and the code.
"""

from __future__ import annotations

from typing import ClassVar, Final

from relevo.errors import Forbidden, InvalidQuery

__all__ = [
    "AGGREGATE_ALIAS",
    "AGGREGATE_LIMIT",
    "CONDITIONS",
    "COOKIE_ORDER",
    "ENTITY",
    "IMPOSSIBLE",
    "LINKS",
    "MALFORMED_XML",
    "OPERATOR",
    "PAGE_LIMIT",
    "UNKNOWN_COLUMN",
    "UNKNOWN_ELEMENT",
    "ColumnProtected",
    "InvalidQuery",
    "OptionNotServed",
    "QueryTooLong",
    "code_of",
]

IMPOSSIBLE: Final = "0x80040203"
ENTITY: Final = "0x80041102"
UNKNOWN_COLUMN: Final = "0x80041103"
OPERATOR: Final = "0x80041106"
UNKNOWN_ELEMENT: Final = "0x8004111C"
COOKIE_ORDER: Final = "0x80041129"
AGGREGATE_ALIAS: Final = "0x80041134"
MALFORMED_XML: Final = "0x80040303"
PAGE_LIMIT: Final = "0x8004430A"
CONDITIONS: Final = "0x8004430C"
LINKS: Final = "0x8004430D"
AGGREGATE_LIMIT: Final = "0x8004E023"
UNEXPECTED: Final = "0x80040216"


class QueryTooLong(InvalidQuery):
    """The URL of a query has more bytes than it may have."""

    code = "query_too_long"
    status = 414


class OptionNotServed(InvalidQuery):
    """A query option that the protocol has, and Relevo does not serve."""

    code = "option_not_served"
    status = 501


class ColumnProtected(Forbidden):
    """A query filters, orders or groups by a column whose values the caller may not read."""

    code = "column_protected"
    dataverse: ClassVar[str] = "0x80040220"


def code_of(error: Exception) -> str:
    """Return the code by which clients of Dataverse know an error of a query."""
    return str(getattr(error, "dataverse", UNEXPECTED))
