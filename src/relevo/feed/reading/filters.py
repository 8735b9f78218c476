"""Filters: which changes a reader wants, as data that the database judges.

A change that is filtered out moves the position like one that is delivered.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, get_args

import msgspec
from msgspec import Struct

from relevo.errors import InvalidValue
from relevo.feed.model import Operation
from relevo.store import query
from relevo.store.items import encoded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from relevo.feed.model import Mode

_DIGEST_BYTES = 8


class Filter(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Changes whose item meets all conditions, made by one of some operations.

    Conditions are those of `container.query` (`relevo.store.query`). They look at the item after
    the change; for a delete at the item before it, where the container keeps previous images.
    Operations are known in all-versions mode only.

    >>> Filter(where=(("total", ">", 100),), operations=("create",))  # doctest: +ELLIPSIS
    Filter(where=..., operations=('create',))
    """

    where: tuple[tuple[str, str, Any], ...] = ()
    operations: tuple[Operation, ...] = ()

    @property
    def digest(self) -> str:
        """Names the filter in tokens, so that they are not read on with another one."""
        body = msgspec.json.encode(self, order="sorted")
        return hashlib.blake2b(body, digest_size=_DIGEST_BYTES).hexdigest()

    def compiled(self, mode: Mode, first: int) -> tuple[str, tuple[Any, ...]]:
        """Return SQL over a row `i`, and its arguments, whose numbers start at `first`."""
        arguments: list[Any] = []

        def bound(value: Any, kind: str) -> str:
            arguments.append(value)
            return f"${len(arguments) + first - 1}::{kind}"

        versions = mode == "all_versions"
        body = "coalesce(i.body, i.previous)" if versions else "i.body"
        sql = query.conditions(self.where, bound, body)
        if self.operations:
            sql = f"{sql} and i.operation = any ({bound(list(self.operations), 'text[]')})"
        return f"({sql})", tuple(arguments)


Given = Filter | tuple[tuple[str, str, Any], ...] | list[tuple[str, str, Any]]
"""A filter as callers give it: conditions alone, or a `Filter`."""


def check(given: Given | None, mode: Mode) -> Filter | None:
    """Return a filter in its canonical form; refuse an invalid one."""
    if given is None:
        return None
    wanted = given if isinstance(given, Filter) else Filter(where=tuple(given))
    if mode == "events":
        raise InvalidValue("the event log has no filters; check the type in the handler")
    if unknown := set(wanted.operations) - set(get_args(Operation)):
        raise InvalidValue(f"an operation is create, replace or delete, not {min(unknown)!r}")
    if wanted.operations and mode != "all_versions":
        raise InvalidValue("only mode='all_versions' distinguishes operations; leave them out")
    wanted.compiled(mode, 1)
    where = tuple((path, operator, _plain(value)) for path, operator, value in wanted.where)
    found = Filter(where=where, operations=tuple(sorted(set(wanted.operations))))
    return found if where or found.operations else None


def sql_of(statement: str, wanted: Filter | None, mode: Mode, first: int) -> tuple[Any, ...]:
    """Return a statement with the filter in place of `(true)`, and the filter's arguments."""
    if wanted is None:
        return (statement,)
    sql, arguments = wanted.compiled(mode, first)
    return statement.replace("(true)", sql), *arguments


def _plain(value: Any) -> Any:
    """A value as it reads when it comes back from JSON; sets in one order."""
    if isinstance(value, set | frozenset):
        value = _ordered(list(value))
    return encoded(value)[1]


def _ordered(values: Sequence[Any]) -> list[Any]:
    return sorted(values, key=msgspec.json.encode)
