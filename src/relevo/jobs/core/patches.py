"""Reads a `PATCH` of a job: one command, other changes, or neither.

    command_of({"statecode": 3}, columns)  # Command(name="cancel")
    command_of({"name": "x"}, columns)  # Refusal(PROTECTED_COLUMN, ...)

A body is understood wholly or refused wholly: nothing here changes anything.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Literal

from msgspec import UNSET, Struct, UnsetType, structs

from relevo import limits
from relevo.jobs.core import codes
from relevo.jobs.states import CANCELED, LABELS, READY, STATE_LABELS, WAITING, CommandRefusal

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

CommandName = Literal["cancel", "pause", "resume", "postpone"]

UPDATABLE: Final = (
    "statecode",
    "statuscode",
    "postponeuntil",
    "recurrencepattern",
    "recurrencestarttime",
)
"""The columns that a client may change; the last two only of a job that recurs."""


class _Target(Struct, frozen=True):
    command: CommandName
    status: int


_TARGETS: Final = {
    0: _Target("resume", READY),
    1: _Target("pause", WAITING),
    3: _Target("cancel", CANCELED),
}
_INSTANT: Final = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d{1,7})?)?(Z|[+-]\d\d:\d\d)", re.IGNORECASE | re.ASCII
)


class PatchCommand(Struct, frozen=True, kw_only=True):
    """What a patch does: a command, a change of the recurrence, both, or nothing.

    `until` is the time of a postponement; one that is not later than now is `if_past` instead,
    which only the database's clock can tell: see `at`. `pattern` and `anchor` are there if the body
    names them; an empty or null pattern ends the recurrence.
    """

    name: CommandName | None = None
    until: datetime | None = None
    if_past: CommandName | None = None
    pattern: str | UnsetType | None = UNSET
    anchor: datetime | UnsetType | None = UNSET

    @property
    def of_series(self) -> bool:
        """Whether it changes the recurrence."""
        return self.pattern is not UNSET or self.anchor is not UNSET

    @property
    def ends_series(self) -> bool:
        """Whether it ends the recurrence."""
        return self.pattern is not UNSET and not self.pattern

    def at(self, now: datetime) -> PatchCommand:
        """Return what it does at that time."""
        if self.if_past is None or self.until is None or self.until > now:
            return self
        return structs.replace(self, name=self.if_past, until=None, if_past=None)


class _Refused(Exception):
    def __init__(self, code: int, text: str) -> None:
        super().__init__(code, text)
        self.refusal = CommandRefusal(code, text)


def command_of(
    patch: Mapping[str, object], columns: Collection[str]
) -> PatchCommand | CommandRefusal:
    """Return what a body does, or why it is refused; `columns` are those of the table.

    Annotations (`@odata.type`, `x@…`) say nothing about the row and are passed over, except
    `x@odata.bind`, which is a change of `x`.
    """
    try:
        values = _updatable(patch, columns)
        command = _asked(values)
        return structs.replace(
            command,
            pattern=_pattern(values["recurrencepattern"])
            if "recurrencepattern" in values
            else UNSET,
            anchor=_instant("recurrencestarttime", values["recurrencestarttime"])
            if "recurrencestarttime" in values
            else UNSET,
        )
    except _Refused as refused:
        return refused.refusal


def _updatable(patch: Mapping[str, object], columns: Collection[str]) -> dict[str, object]:
    bound = [name.removesuffix("@odata.bind") for name in patch if name.endswith("@odata.bind")]
    values = {name: value for name, value in patch.items() if "@" not in name}
    for name in (*values, *bound):
        if name not in UPDATABLE and name not in columns:
            raise _Refused(
                codes.UNKNOWN_COLUMN,
                f"asyncoperation has no column {name[:128]!r}; names are case-sensitive",
            )
    for name in (*bound, *values):
        if name in bound or name not in UPDATABLE:
            raise _Refused(
                codes.PROTECTED_COLUMN,
                f"the column {name!r} cannot be changed; {', '.join(UPDATABLE)} can",
            )
    return values


def _asked(values: Mapping[str, object]) -> PatchCommand:
    target = _target(values)
    if "postponeuntil" not in values:
        return PatchCommand(name=target)
    until = _instant("postponeuntil", values["postponeuntil"])
    if until is None:
        if target is None:
            raise _Refused(
                codes.BAD_REQUEST,
                "postponeuntil is null and statecode is missing; to let the job run, resume it:"
                " statecode 0",
            )
        return PatchCommand(name=target)
    if target == "cancel":
        raise _Refused(
            codes.BAD_REQUEST,
            "a job that is canceled cannot be postponed too; send statecode 3 or postponeuntil",
        )
    return PatchCommand(
        name="postpone", until=until, if_past="resume" if target == "resume" else None
    )


def _target(values: Mapping[str, object]) -> CommandName | None:
    status = _number("statuscode", values)
    state = _number("statecode", values)
    if state is None:
        if status is not None:
            raise _Refused(
                codes.BAD_REQUEST,
                f"statuscode {status} came without statecode; they change as a pair",
            )
        return None
    target = _TARGETS.get(state)
    if target is None:
        known = ", ".join(f"{one} {STATE_LABELS[one]}" for one in _TARGETS)
        raise _Refused(
            codes.BAD_REQUEST, f"a client cannot ask for statecode {state}; it can for {known}"
        )
    if status not in (None, target.status):
        raise _Refused(
            codes.BAD_REQUEST,
            f"statuscode {status} cannot be asked for with statecode {state}"
            f" {STATE_LABELS[state]}; {target.status} {LABELS[target.status]} can",
        )
    return target.command


def _number(name: str, values: Mapping[str, object]) -> int | None:
    if name not in values:
        return None
    value = values[name]
    if not isinstance(value, int) or isinstance(value, bool):
        raise _Refused(codes.BAD_REQUEST, f"{name} is a whole number, not {value!r:.80}")
    return value


def _pattern(value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise _Refused(codes.BAD_REQUEST, f"recurrencepattern is a text, not {value!r:.80}")
    return value or None


def _instant(name: str, value: object) -> datetime | None:
    if value is None:
        return None
    if isinstance(value, str) and _INSTANT.fullmatch(value):
        try:
            instant = datetime.fromisoformat(value.upper()).astimezone(UTC)
        except (ValueError, OverflowError):
            pass
        else:
            if instant.year <= limits.YEAR_MAX:
                return instant
            raise _Refused(
                codes.BAD_REQUEST,
                f"{name} is {value[:80]}; the last year is {limits.YEAR_MAX}",
            )
    raise _Refused(
        codes.BAD_REQUEST,
        f"{name} is a time with Z or an offset, such as 2031-12-31T22:00:00Z, not {value!r:.80}",
    )
