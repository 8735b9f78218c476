"""Tables of the documentation that are made from `relevo.jobs`; `generate.py` writes them."""

from __future__ import annotations

from typing import Final

from relevo.jobs import events, states
from relevo.jobs.core import codes, operation_types
from relevo.jobs.model import LANES
from relevo.jobs.states import JobMove

Rows = tuple[list[str], list[list[str]]]

_STATES: Final = {
    "Ready": (states.READY,),
    "Suspended": (states.WAITING,),
    "In Progress": (states.IN_PROGRESS,),
    "Pausing": (states.PAUSING,),
    "Canceling": (states.CANCELING,),
    "Completed": states.COMPLETED,
}


def statuses() -> Rows:
    """Every state and status with its number."""
    return (
        ["state", "", "status", ""],
        [
            [str(one // 10), states.STATE_LABELS[one // 10], str(one), label]
            for one, label in states.LABELS.items()
        ],
    )


def transitions() -> Rows:
    """What the service does to jobs, row by row of the table that decides."""
    rows = [
        [one.number, _label(one.from_status), f"`{one.event}`", _label(one.to_status)]
        for one in states.TRANSITIONS
        if one.event not in states.COMMANDS
    ]
    return ["rule", "from", "event", "to"], rows


def commands() -> Rows:
    """What each command makes of a job."""
    rows = [
        [f"`{command}`", *(_outcome(each, command) for each in _STATES.values())]
        for command in states.COMMANDS
    ]
    return ["command", *_STATES], rows


def _outcome(found: tuple[int, ...], command: str) -> str:
    match states.outcome(found[0], command):
        case JobMove(to_status=status):
            if status != found[0]:
                return _label(status)
            return {"postpone": "another time", "delete": "(unseen)"}.get(command, "as it is")
        case refusal:
            return f"`{codes.shown(refusal.code)}`"


def _label(status: int | None) -> str:
    if status is None:
        return "(new)"
    return "(removed)" if status == states.REMOVED else states.LABELS[status]


def error_codes() -> Rows:
    """Every code with its meaning."""
    return (
        ["code", "meaning"],
        [[f"`{codes.shown(code)}`", text] for code, text in codes.TEXTS.items()],
    )


def types() -> Rows:
    """Every operation type that has a label."""
    rows = [
        [
            str(one.number),
            one.label,
            f"`{one.lane}`",
            "Relevo's" if one.handled else "platform" if one.platform else "",
        ]
        for one in operation_types.OPERATION_TYPES.values()
    ]
    return ["number", "label", "lane", "kind"], rows


def lanes() -> Rows:
    """The lanes of every installation."""
    rows = [
        [
            f"`{one.name}`",
            str(one.slots),
            "none" if one.time_limit is None else f"{one.time_limit:g} s",
            "" if one.stall_after is None else f"{one.stall_after:g} s",
            f"`{one.events}`",
        ]
        for one in LANES
    ]
    return ["lane", "slots per host", "time limit", "sign of life every", "events"], rows


def event_types() -> Rows:
    """Every event of jobs."""
    return (
        ["event", "data", "written when"],
        [[f"`{one.name}`", f"`{one.payload.__name__}`", one.sentence] for one in events.TYPES],
    )


TABLES: Final = {
    "job statuses": statuses,
    "job transitions": transitions,
    "job commands": commands,
    "job codes": error_codes,
    "operation types": types,
    "job lanes": lanes,
    "job events": event_types,
}
