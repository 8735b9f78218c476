"""Conditions over columns of jobs from Python values; impossible ones are refused."""

from __future__ import annotations

import sys
from datetime import datetime, timedelta
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from relevo.errors import InvalidValue
from relevo.jobs import states
from relevo.jobs.querying import catalogue
from relevo.jobs.querying.related_tables import RELATED_TABLES
from relevo.kernel.decoding import refuse_unstorable
from relevo.kernel.expressions.tree import (
    Compare,
    Constant,
    Expression,
    In,
    IsNull,
    List,
    Logic,
    Name,
)
from relevo.kernel.querying.model import RULES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from relevo.kernel.expressions.tree import CompareOperator
    from relevo.kernel.querying.catalogue import Column, ColumnType

CATALOGUE: Final = catalogue.served(RELATED_TABLES)
"""Jobs and related tables, as the other query surfaces serve them."""
JOBS: Final = CATALOGUE.by_name[catalogue.JOBS.name]
AGE_MAX: Final = timedelta(days=365_000)


class State(StrEnum):
    """The four states of a job."""

    READY = "ready"
    SUSPENDED = "suspended"
    LOCKED = "locked"
    COMPLETED = "completed"


class Status(StrEnum):
    """The eight statuses of a job; each belongs to one state."""

    WAITING_FOR_RESOURCES = "waiting_for_resources"
    WAITING = "waiting"
    IN_PROGRESS = "in_progress"
    PAUSING = "pausing"
    CANCELING = "canceling"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELED = "canceled"


READY: Final = State.READY
SUSPENDED: Final = State.SUSPENDED
LOCKED: Final = State.LOCKED
COMPLETED: Final = State.COMPLETED

SHORT: Final = {
    "id": "asyncoperationid", "state": "statecode", "status": "statuscode",
    "type": "operationtype", "token": "dependencytoken", "owner": "ownerid",
    "lane": "relevo_lane", "handler": "relevo_handler", "extension": "relevo_extension",
    "series": "relevo_seriesid", "batch": "relevo_batchid", "origin": "relevo_originid",
    "priority": "relevo_priority", "attempt": "relevo_attempt",
    "error_code": "errorcode", "created_at": "createdon", "started_at": "startedon",
    "completed_at": "completedon", "modified_at": "modifiedon", "postpone_until": "postponeuntil",
}  # fmt: skip
"""Python names of columns; their logical names work as well."""
_CODES: Final[Mapping[str, Mapping[str, int]]] = {
    "statecode": {word: code for code, word in states.STATE_WORDS.items()},
    "statuscode": {word: code for code, word in states.WORDS.items()},
}
"""By column, the codes that the database has for words."""
_FORMS: Final[Mapping[ColumnType, str]] = {
    "guid": "a UUID",
    "lookup": "a UUID",
    "text": "a text in UTF-8 without U+0000",
    "memo": "a text in UTF-8 without U+0000",
    "json": "a text in UTF-8 without U+0000",
    "int": "a whole number of 64 bits",
    "bigint": "a whole number of 64 bits",
    "choice": "a whole number of 64 bits",
    "float": "a number",
    "bool": "True or False",
    "datetime": "a datetime with an offset",
}


def column_of(name: str) -> str:
    """Return the logical name of a column; raises `InvalidValue`."""
    found = SHORT.get(name, name)
    if found not in JOBS.by_name:
        raise InvalidValue(
            f"jobs have no column {name!r}; use one of {', '.join(sorted(SHORT))}, or a logical"
            " name such as createdon",
            pointer=name,
        )
    return found


def condition(name: str, value: Any) -> Expression:
    """Return the condition that a column has a value, or one of several."""
    column = column_of(name)
    if value is None:
        return IsNull(Name(column))
    several = isinstance(value, list | tuple | set | frozenset)
    values = [one for one in (value if several else (value,)) if one is not None]
    wanted = [_checked(JOBS.by_name[column], one, name) for one in values]
    if column == "statecode":  # as its statuses, for which PostgreSQL has statistics
        column = "statuscode"
        wanted = [one for one in states.LABELS if states.state_of(one) in wanted]
    elif not several:
        return _compare("=", column, wanted[0])
    found = In(Name(column), List(tuple(map(Constant, wanted))), RULES)
    if several and None in value:
        return Logic("or", (IsNull(Name(column)), found), RULES)
    return found


def compared(operator: CompareOperator, name: str, value: Any, called: str = "") -> Expression:
    """Return a comparison of a column with a value; `called` is the caller's name for it."""
    column = column_of(name)
    return _compare(operator, column, _checked(JOBS.by_name[column], value, called or name))


def _compare(operator: CompareOperator, column: str, value: Any) -> Expression:
    return Compare(operator, Name(column), Constant(value), RULES)


def age(**parts: float) -> timedelta:
    """Return a length of time before now; raises `InvalidValue`."""
    try:
        found = timedelta(**parts)
    except (OverflowError, ValueError):
        found = timedelta.max
    if not timedelta() <= found <= AGE_MAX:
        given = ", ".join(f"{name}={value:g}" for name, value in parts.items() if value)
        raise InvalidValue(
            f"older_than takes 0 to {AGE_MAX.days:,} days, not {given}", pointer="older_than"
        )
    return found


def all_of(conditions: Sequence[Expression]) -> Expression | None:
    """Return the conjunction of all conditions; None if there are none."""
    if not conditions:
        return None
    return conditions[0] if len(conditions) == 1 else Logic("and", tuple(conditions), RULES)


def _checked(column: Column, value: Any, name: str) -> Any:
    """A value as the column stores it."""
    codes = _CODES.get(column.name)
    found = _stored(column, value.value if isinstance(value, Enum) else value, codes)
    if found is None:
        form = f"one of {', '.join(codes)}" if codes else ""
        raise InvalidValue(
            f"{name} is {form or _FORMS[column.type]}, not {value!r:.128}", pointer=name
        )
    return found


def _stored(column: Column, value: Any, codes: Mapping[str, int] | None) -> Any:
    """The value if the column can have it, else None."""
    if codes is not None:
        code = codes.get(value.lower()) if isinstance(value, str) else value
        return code if type(code) is int and code in codes.values() else None
    match column.type:
        case "guid" | "lookup":
            key = _uuid(value)
            if column.sql_type != "text":
                return key
            return value if isinstance(value, str) and _storable(value) else key and str(key)
        case "text" | "memo" | "json":
            return value if isinstance(value, str) and _storable(value) else None
        case "int" | "bigint" | "choice":
            return value if type(value) is int and -(2**63) <= value < 2**63 else None
        case "float":
            known = type(value) in (int, float) and abs(value) <= sys.float_info.max
            return float(value) if known else None
        case "bool":
            return value if isinstance(value, bool) else None
        case "datetime":
            return (
                value if isinstance(value, datetime) and value.tzinfo and _storable(value) else None
            )


def _uuid(value: Any) -> UUID | None:
    try:
        return value if isinstance(value, UUID) else UUID(value)
    except (ValueError, TypeError, AttributeError):
        return None


def _storable(value: Any) -> bool:
    try:
        refuse_unstorable(value, "")
    except InvalidValue:
        return False
    return True
