"""The transition table of system jobs.

    outcome(20, "pause")  # Move(to_status=21, ...)
    outcome(0, "pause")  # Refusal(code=CANNOT_PAUSE, ...)

One table decides for the service, for clients and for the database: `relevo.job_transition` holds
`sql_rows()`, and every change of a status asks one of the two.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from msgspec import Struct

from relevo.errors import InvalidValue
from relevo.jobs.core import codes
from relevo.kernel.machine import END, Machine
from relevo.kernel.machine import Transition as Drawn

READY: Final = 0
WAITING: Final = 10
IN_PROGRESS: Final = 20
PAUSING: Final = 21
CANCELING: Final = 22
SUCCEEDED: Final = 30
FAILED: Final = 31
CANCELED: Final = 32
REMOVED: Final = -1
"""The status after `delete` of a job that no handler runs: the row is gone."""

LABELS: Final = {
    READY: "Waiting For Resources",
    WAITING: "Waiting",
    IN_PROGRESS: "In Progress",
    PAUSING: "Pausing",
    CANCELING: "Canceling",
    SUCCEEDED: "Succeeded",
    FAILED: "Failed",
    CANCELED: "Canceled",
}
"""Every status with its label."""

STATE_LABELS: Final = {0: "Ready", 1: "Suspended", 2: "Locked", 3: "Completed"}

WORDS: Final = {code: label.lower().replace(" ", "_") for code, label in LABELS.items()}
STATE_WORDS: Final = {code: label.lower() for code, label in STATE_LABELS.items()}
"""Statuses and states as Python and /v1 write them; other surfaces and the database have codes."""

LOCKED: Final = (IN_PROGRESS, PAUSING, CANCELING)
COMPLETED: Final = (SUCCEEDED, FAILED, CANCELED)
LIVE: Final = (READY, WAITING, *LOCKED)

COMMANDS: Final = ("cancel", "pause", "resume", "postpone", "rerun", "delete")
"""Commands of clients; what they call "retry" is `rerun`, for a run retries by itself."""


class JobTransition(Struct, frozen=True):
    """In `from_status`, `event` leads to `to_status`, or is refused with `code`.

    `from_status` None is a job not created yet; `number` is the row of the specification.
    """

    from_status: int | None
    event: str
    to_status: int | None
    code: int | None
    number: str


class JobMove(Struct, frozen=True):
    """The event happens: the job is in `to_status` then, the same one if nothing changes."""

    to_status: int
    number: str


class CommandRefusal(Struct, frozen=True):
    """The event is refused, with `code` and `text`."""

    code: int
    text: str


class SqlRow(NamedTuple):
    """A row of `relevo.job_transition`; one of `to_status` and `code` is null."""

    from_status: int
    event: str
    to_status: int | None
    code: int | None


def state_of(status: int) -> int:
    """Return the `statecode` of a status; the pair is always one of the eight of 3.1."""
    if status not in LABELS:
        raise InvalidValue(f"no status is {status}; they are {', '.join(map(str, LABELS))}")
    return status // 10


def status_word(status: int) -> str:
    """Return a status in a word.

    >>> status_word(0)
    'waiting_for_resources'
    """
    return WORDS[status]


def state_word(status: int) -> str:
    """Return the state of a status in a word."""
    return STATE_WORDS[state_of(status)]


def _moves(event: str, number: str, moves: dict[int | None, int]) -> list[JobTransition]:
    return [JobTransition(at, event, to, None, number) for at, to in moves.items()]


def _refusals(event: str, code: int, *statuses: int) -> list[JobTransition]:
    return [JobTransition(at, event, None, code, "3.3") for at in statuses]


TRANSITIONS: Final[tuple[JobTransition, ...]] = (
    *_moves("create", "S1", {None: READY}),
    *_moves("create_deferred", "S2", {None: WAITING}),
    *_moves("due", "S3", {WAITING: READY}),
    *_moves("signal", "S4", {WAITING: READY}),
    *_moves("claim", "S5", {READY: IN_PROGRESS}),
    *_moves("done", "S6", {IN_PROGRESS: SUCCEEDED}),
    *_moves("done", "S11", {PAUSING: SUCCEEDED}),
    *_moves("done", "S12", {CANCELING: CANCELED}),
    *_moves("fail", "S7", {IN_PROGRESS: FAILED, PAUSING: FAILED}),
    *_moves("fail", "S13", {CANCELING: FAILED}),
    *_moves("retry", "S8", {IN_PROGRESS: WAITING, PAUSING: WAITING}),
    *_moves("retry", "S13", {CANCELING: FAILED}),
    *_moves("suspend", "S9", {IN_PROGRESS: WAITING, PAUSING: WAITING}),
    *_moves("suspend", "S13", {CANCELING: FAILED}),
    *_moves("await", "S9", {IN_PROGRESS: WAITING, PAUSING: WAITING}),
    *_moves("await", "S12", {CANCELING: CANCELED}),
    # A handler that yields to a pause that was withdrawn meanwhile runs again.
    *_moves("yield", "S10", {IN_PROGRESS: READY, PAUSING: WAITING}),
    *_moves("yield", "S12", {CANCELING: CANCELED}),
    *_moves("stop", "S12", {CANCELING: CANCELED}),
    *_moves("lost", "S14", {IN_PROGRESS: READY}),
    *_moves("lost", "S15", {PAUSING: WAITING}),
    *_moves("lost", "S16", {CANCELING: CANCELED}),
    *_moves("crash_out", "S14", {IN_PROGRESS: FAILED}),
    *_moves("return", "S17", {IN_PROGRESS: READY, PAUSING: WAITING, CANCELING: CANCELED}),
    # The host's code does not know its arguments; another's may.
    *_moves("defer", "4.3", {IN_PROGRESS: WAITING, PAUSING: WAITING, CANCELING: CANCELED}),
    *_moves("hold", "S18", {READY: WAITING}),
    *_moves("brake", "S19", {READY: WAITING}),
    *_moves("unserved", "4.3", {READY: FAILED}),  # no host has had its handler for long
    *_moves("deactivate", "S20", {READY: CANCELED, WAITING: CANCELED}),
    *_moves("cancel", "3.3", {READY: CANCELED, WAITING: CANCELED}),
    *_moves("cancel", "R3", {IN_PROGRESS: CANCELING, PAUSING: CANCELING, CANCELING: CANCELING}),
    *_refusals("cancel", codes.CANNOT_CANCEL, *COMPLETED),
    *_refusals("pause", codes.CANNOT_PAUSE, READY, WAITING),
    *_moves("pause", "R1", {IN_PROGRESS: PAUSING, PAUSING: PAUSING}),
    *_refusals("pause", codes.CANNOT_CHANGE, CANCELING, *COMPLETED),
    *_moves("resume", "3.3", {WAITING: READY, PAUSING: IN_PROGRESS}),
    *_refusals("resume", codes.CANNOT_RESUME, READY, IN_PROGRESS, CANCELING, *COMPLETED),
    *_moves("postpone", "R2", {READY: WAITING, WAITING: WAITING}),
    *_moves("postpone", "R2", {IN_PROGRESS: PAUSING, PAUSING: PAUSING}),
    *_refusals("postpone", codes.CANNOT_CHANGE, CANCELING, *COMPLETED),
    # The record of a run that failed becomes a job again, with its attempts.
    *_moves("rerun", "S21", {FAILED: READY, CANCELED: READY}),
    *_refusals("rerun", codes.CANNOT_CHANGE, *LIVE, SUCCEEDED),
    *_moves("delete", "3.3", dict.fromkeys((READY, WAITING, *COMPLETED), REMOVED)),
    # A handler still holds it: the row stays, unseen, until that one has stopped.
    *_moves("delete", "R4", {status: status for status in LOCKED}),
)
"""All transitions, and the refusals that have a code of their own. Whatever is not here is
refused: see `outcome`."""

STRICT: Final[dict[str, tuple[JobTransition, ...]]] = {
    "strict_states": tuple(_refusals("postpone", codes.CANNOT_CHANGE, WAITING)),
    "strict_delete": tuple(_refusals("delete", codes.CANNOT_DELETE, *LIVE)),
}
"""Rows that the settings of these names put in place of rows of the table."""

EVENTS: Final = tuple(dict.fromkeys(row.event for row in TRANSITIONS))
CREATING: Final = ("create", "create_deferred")

_BY_KEY: Final = {(row.from_status, row.event): row for row in TRANSITIONS}


def outcome(
    status: int | None, event: str, *, strict: frozenset[str] = frozenset()
) -> JobMove | CommandRefusal:
    """Return the transition of a job in that status; None is a job not created yet.

    Events that the table does not name are refused: the job has moved on since.
    `strict` names the settings of `STRICT` that are on.
    """
    if event not in EVENTS:
        raise InvalidValue(f"{event!r} is not an event; use one of {', '.join(EVENTS)}")
    if status is not None:
        state_of(status)
    if unknown := strict - set(STRICT):
        raise InvalidValue(
            f"no setting is {', '.join(map(repr, unknown))}; {', '.join(STRICT)} are"
        )
    stricter = (row for name in sorted(strict) for row in STRICT[name])
    key = (status, event)
    row = next((row for row in stricter if (row.from_status, row.event) == key), _BY_KEY.get(key))
    if row is not None and row.to_status is not None:
        return JobMove(row.to_status, row.number)
    unnamed = codes.NOT_FOUND if status is None else codes.STATE_CHANGED
    code = unnamed if row is None or row.code is None else row.code
    return CommandRefusal(code, f"{codes.TEXTS[code]} {_situation(status, event)}")


def _situation(status: int | None, event: str) -> str:
    if status is None:
        return f"It does not exist, so it cannot {event!r}."
    if status == SUCCEEDED:
        return f"It is {LABELS[status]!r} ({status}), to which nothing happens but delete."
    if status in COMPLETED:
        return f"It is {LABELS[status]!r} ({status}); it can be retried or deleted."
    possible = [row.event for row in TRANSITIONS if row.from_status == status and row.code is None]
    asked = ", ".join(one for one in COMMANDS if one in possible)
    event = "retry" if event == "rerun" else event
    return f"It is {LABELS[status]!r} ({status}), where {event!r} cannot happen; {asked} can."


def sql_rows(*, strict: frozenset[str] = frozenset()) -> tuple[SqlRow, ...]:
    """Return `relevo.job_transition`: every status with every event but creation, in order."""
    found = []
    for status in sorted(LABELS):
        for event in sorted(set(EVENTS) - set(CREATING)):
            match outcome(status, event, strict=strict):
                case JobMove(to_status):
                    found.append(SqlRow(status, event, to_status, None))
                case CommandRefusal(code):
                    found.append(SqlRow(status, event, None, code))
    return tuple(found)


class PlatformRule(Struct, frozen=True):
    """A command on a job of the platform: refused with `code`, except in the statuses `unless`."""

    command: str
    code: int
    unless: tuple[int, ...] = ()


PLATFORM_RULES: Final = (
    PlatformRule("cancel", codes.PLATFORM_CANCEL),
    PlatformRule("pause", codes.PLATFORM_PAUSE),
    PlatformRule("resume", codes.PLATFORM_PAUSE),
    PlatformRule("rerun", codes.PLATFORM_PAUSE),
    PlatformRule("delete", codes.PLATFORM_DELETE, unless=COMPLETED),
)
"""Commands that no role may give to a job of the platform."""


def platform_refusal(status: int, command: str) -> CommandRefusal | None:
    """Return why a job of the platform refuses the command, None if it does not."""
    for rule in PLATFORM_RULES:
        if rule.command == command and status not in rule.unless:
            return CommandRefusal(rule.code, codes.TEXTS[rule.code])
    return None


_NAMES: Final = {
    None: "new",
    READY: "ready",
    WAITING: "waiting",
    IN_PROGRESS: "inProgress",
    PAUSING: "pausing",
    CANCELING: "canceling",
    SUCCEEDED: "succeeded",
    FAILED: "failed",
    CANCELED: "canceled",
    REMOVED: END,
}

JOB: Final = Machine(
    "system job",
    initial=_NAMES[None],
    transitions=[
        Drawn(
            _NAMES[row.from_status], row.event, _NAMES[row.to_status], f"{row.event} {row.number}"
        )
        for row in TRANSITIONS
        if row.to_status is not None and row.to_status != row.from_status
    ],
)
"""The moves of the table that change a status, for the drawing in the documentation."""
