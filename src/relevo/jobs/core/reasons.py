"""Why a job has not run: the conditions of a claim, in the order in which they count.

    explain(situation).says  # "no live host has the handler 'recipt'; similar: receipt"

Everything here is a decision over a snapshot; `relevo.jobs.querying.explanations` reads it.
"""

from __future__ import annotations

import difflib
from datetime import datetime
from typing import TYPE_CHECKING, Final, Literal
from uuid import UUID

from msgspec import Struct

from relevo import limits
from relevo.jobs import states
from relevo.jobs.core import codes

if TYPE_CHECKING:
    from collections.abc import Sequence

Reason = Literal[
    "ended",
    "running",
    "pausing",
    "canceling",
    "braked",
    "waits_for_event",
    "waits_for_jobs",
    "unknown_arguments",
    "retry",
    "start_time",
    "due",
    "held",
    "suspended",
    "paused",
    "behind_token",
    "owner_cap",
    "never_registered",
    "not_served",
    "hosts_draining",
    "runs_alone",
    "no_slot",
    "budget",
    "in_order",
]
SIMILAR_MAX: Final = 3
AHEAD_MAX: Final = 10_000
"""A place behind more jobs than these is not counted exactly."""

_PATIENCE: Final = f"; the job fails if no host has it for {limits.JOB_UNSERVED_SECONDS_MAX:.0f} s"


class JobServer(Struct, frozen=True, kw_only=True):
    """A live host that serves the handler: in which lane, and how much it holds there."""

    host: str
    lane: str
    slots: int
    held: int = 0
    handlers: tuple[str, ...] = ()
    pool: str | None = None
    limit: str | None = None
    draining: bool = False


class AwaitedEvent(Struct, frozen=True):
    """What a suspended job waits for: an event with its key, or a job."""

    event: str | None = None
    key: str | None = None
    child: UUID | None = None
    deadline: datetime | None = None


class HeadOfToken(Struct, frozen=True, kw_only=True):
    """The job that the others of a token wait for, and why that one has not ended."""

    id: UUID
    name: str
    says: str


class JobSituation(Struct, frozen=True, kw_only=True):
    """A snapshot of everything that decides whether a claim takes a job."""

    id: UUID
    name: str
    status: int
    handler: str
    lane: str
    now: datetime
    attempt: int = 0
    retries: int = 0
    crashes: int = 0
    postpone_until: datetime | None = None
    waiting_event: bool = False
    chained: bool = False
    capped: bool = False
    alone: bool = False
    series: bool = False
    token: str | None = None
    host_name: str | None = None
    started_at: datetime | None = None
    modified_at: datetime | None = None
    completed_at: datetime | None = None
    error_code: int | None = None
    friendly: str | None = None
    user_name: str | None = None
    """Who changed it last, if a user did."""
    owner_cap: int | None = None
    admitted: int = 0
    """Jobs of its owner that its lane lets through."""
    hosts: int = 0
    """Live hosts, whatever they serve."""
    served_at: datetime | None = None
    """When a host last declared the handler; None: never."""
    known_handlers: tuple[str, ...] = ()
    braked_until: datetime | None = None
    servers: tuple[JobServer, ...] = ()
    waits: tuple[AwaitedEvent, ...] = ()
    head: HeadOfToken | None = None
    hidden_head: bool = False
    """Whether the head is a job that the caller may not see."""
    ahead: int = 0
    """Claimable jobs that come before it."""


class JobExplanation(Struct, frozen=True, kw_only=True):
    """Why a job has not run, or where it runs; `says` is the reason in a sentence."""

    id: UUID
    status: str
    reason: Reason
    says: str
    until: datetime | None = None
    """When this reason ends by itself, if that is known."""
    blocked_by: UUID | None = None
    """The job of the same token that it waits for."""
    host: str | None = None
    place: int | None = None
    """Its place among the jobs that may be claimed now, from 1."""
    similar: tuple[str, ...] = ()
    """Handlers with similar names, if no host serves its own."""
    notes: tuple[str, ...] = ()
    """What will hold it up after this reason."""


class _Found(Struct, frozen=True, kw_only=True):
    reason: Reason
    says: str
    until: datetime | None = None
    host: str | None = None
    place: int | None = None
    similar: tuple[str, ...] = ()


def explain(job: JobSituation) -> JobExplanation:
    """Return why a job has not run, as the next claim would judge it."""
    found = _after_start(job) or _suspended(job) or _gate(job) or _service(job) or _order(job)
    notes: tuple[str, ...] = ()
    waits = job.status in (states.READY, states.WAITING)
    if waits and found.reason not in ("never_registered", "not_served", "hosts_draining"):
        later = None if found.reason in ("in_order", "no_slot", "budget") else _service(job)
        notes = () if later is None or later.reason == "runs_alone" else (later.says,)
    return JobExplanation(
        id=job.id, status=states.status_word(job.status), reason=found.reason, says=found.says,
        until=found.until, host=found.host, place=found.place, similar=found.similar, notes=notes,
        blocked_by=None if job.head is None else job.head.id,
    )  # fmt: skip


def similar_names(name: str, known: Sequence[str]) -> tuple[str, ...]:
    """Return the known handlers with the most similar names.

    >>> similar_names("recipt", ["receipt", "report", "mail"])
    ('receipt',)
    """
    return tuple(
        difflib.get_close_matches(name, [one for one in known if one != name], SIMILAR_MAX)
    )


def never_registered(handler: str, known: Sequence[str]) -> str:
    """Say that no host has ever had a handler, with similar names."""
    near = similar_names(handler, known)
    hint = f"; similar names: {', '.join(near)}" if near else ""
    return f"no host has ever registered the handler {handler!r}{hint}"


def _after_start(job: JobSituation) -> _Found | None:
    """A job that runs, or has ended."""
    where = "" if job.host_name is None else f" on {job.host_name}"
    if job.status in states.COMPLETED:
        label = states.WORDS[job.status]
        ended = f"it {label}" if job.status != states.CANCELED else "it was canceled"
        return _Found(reason="ended", says=f"{ended}{where}{_at(job.completed_at)}")
    if job.status not in states.LOCKED:
        return None
    runs = f"it runs{where} since {_shown(job.started_at)}, attempt {job.attempt}"
    by = "" if job.user_name is None else f" by {job.user_name}"
    if job.status == states.PAUSING:
        says = f"it was asked{by} to pause, and does so at its next checkpoint; {runs}"
        return _Found(reason="pausing", says=says, host=job.host_name)
    if job.status == states.CANCELING:
        says = f"it was asked{by} to stop, and does so at its next checkpoint; {runs}"
        return _Found(reason="canceling", says=says, host=job.host_name)
    return _Found(reason="running", says=runs, host=job.host_name)


def _suspended(job: JobSituation) -> _Found | None:
    """A job that waits for a time, an event, another job or a person."""
    if job.status != states.WAITING:
        return None
    if job.waiting_event:
        return _awaits(job)
    if job.postpone_until is not None:
        return _timed(job, job.postpone_until)
    resume = f"resume it with: relevo job resume {job.id}"
    if job.attempt == 0:
        says = "it is held: a job of its token failed before it, which was submitted to hold the"
        return _Found(reason="held", says=f"{says} rest; {resume}")
    if job.error_code is not None:
        text = job.friendly or codes.TEXTS.get(job.error_code) or "its handler gave a code"
        return _Found(reason="suspended", says=f"its handler suspended it: {text}; {resume}")
    by = "" if job.user_name is None else f" by {job.user_name}"
    return _Found(reason="paused", says=f"it was paused{by}{_at(job.modified_at)}; {resume}")


def _awaits(job: JobSituation) -> _Found:
    if job.error_code == codes.BRAKED:
        until = job.braked_until
        says = "the brake of its extension is on, because too many of its jobs failed"
        more = "" if until is None else f"; a probe is tried at {_shown(until)}"
        return _Found(reason="braked", says=says + more, until=until)
    children = [one.child for one in job.waits if one.child is not None]
    if children:
        first = ", ".join(map(str, children[:SIMILAR_MAX]))
        more = f" and {len(children) - SIMILAR_MAX} more" if len(children) > SIMILAR_MAX else ""
        return _Found(reason="waits_for_jobs", says=f"it waits for the end of job {first}{more}")
    events = [one for one in job.waits if one.event is not None]
    if not events:
        return _Found(reason="waits_for_event", says="it waits for an event")
    one = events[0]
    key = f" with the key {one.key!r}" if one.key else ""
    end = "" if one.deadline is None else f", until {_shown(one.deadline)} at most"
    says = f"it waits for the event {one.event!r}{key}{end}"
    return _Found(reason="waits_for_event", says=says, until=one.deadline)


def _timed(job: JobSituation, until: datetime) -> _Found:
    at = _shown(until)
    if until <= job.now:
        return _Found(
            reason="due", until=until,
            says=f"it was due at {at}; " + (
                "the next claim of a host makes it ready" if job.hosts else "no host is running"),
        )  # fmt: skip
    if job.error_code == codes.HANDLER_MISSING:
        why = job.friendly or "no host knows its handler with these arguments"
        says = f"{why}; the next try is at {at}"
        return _Found(reason="unknown_arguments", says=says, until=until)
    if job.retries and job.attempt and job.error_code is not None:
        why = f": {job.friendly}" if job.friendly else ""
        says = f"attempt {job.attempt} failed{why}; the next one is at {at}"
        return _Found(reason="retry", says=says, until=until)
    what = "the next run of its series is" if job.series and not job.attempt else "it starts"
    return _Found(reason="start_time", says=f"{what} at {at}", until=until)


def _gate(job: JobSituation) -> _Found | None:
    """A ready job that others of its token or its owner hold up."""
    if job.chained and job.hidden_head:
        says = (
            "it waits for a job of the same token that you may not see; an operator can lift that:"
            f" relevo job unblock {job.id}"
        )
        return _Found(reason="behind_token", says=says)
    if job.chained and job.head is not None:
        head = job.head
        says = f"it waits for job {head.id} of the same token ({head.name}): {head.says}"
        return _Found(reason="behind_token", says=says)
    if job.capped and job.owner_cap is not None and job.admitted >= job.owner_cap:
        says = (
            f"its owner has {job.admitted} jobs in lane {job.lane!r}, which lets {job.owner_cap}"
            " of an owner through at a time"
        )
        return _Found(reason="owner_cap", says=says)
    return None


def _service(job: JobSituation) -> _Found | None:
    """A job that no host takes at all."""
    if not job.servers:
        if job.served_at is None:
            near = similar_names(job.handler, job.known_handlers)
            says = never_registered(job.handler, job.known_handlers)
            patience = _PATIENCE if job.hosts else "; no host is running"
            return _Found(reason="never_registered", says=says + patience, similar=near)
        last = f"a host last declared it at {_shown(job.served_at)}"
        if not job.hosts:
            says = f"no host is running; {last}; start one with: relevo run MODULE:APP"
            return _Found(reason="not_served", says=says)
        says = f"no live host has the handler {job.handler!r}; {last}"
        return _Found(reason="not_served", says=says + _PATIENCE)
    if all(one.draining for one in job.servers):
        names = ", ".join(sorted(one.host for one in job.servers)[:SIMILAR_MAX])
        says = f"the hosts that have its handler are draining and claim nothing new: {names}"
        return _Found(reason="hosts_draining", says=says)
    if job.braked_until is not None:
        until = job.braked_until
        says = f"the brake of its extension is on; a probe is tried at {_shown(until)}"
        return _Found(reason="braked", says=says, until=until)
    if job.alone:
        says = (
            f"{job.crashes} hosts were lost while it ran, so it must run alone; it waits for a"
            " host that runs nothing else"
        )
        return _Found(reason="runs_alone", says=says)
    return None


def _order(job: JobSituation) -> _Found:
    """A job that the next claims take, as soon as there is room."""
    able = [one for one in job.servers if not one.draining]
    slots, held = sum(one.slots for one in able), sum(one.held for one in able)
    lanes = ", ".join(sorted({one.lane for one in able}))
    place = job.ahead + 1
    if job.ahead >= AHEAD_MAX:
        stands = f"it waits in order behind at least {AHEAD_MAX} jobs"
    elif job.ahead:
        stands = f"it waits in order behind {job.ahead} other job{'s' * (job.ahead > 1)}"
    else:
        stands = "it is the next"
    hosts = f"{len(able)} host{'s' * (len(able) != 1)}"
    if not any(one.held < one.slots for one in able):
        says = f"all {slots} slots of lane {lanes} on {hosts} are taken ({held} jobs); {stands}"
        return _Found(reason="no_slot", says=says, place=place)
    scarce = next((one for one in able if one.pool or one.limit), None)
    if scarce is not None and place <= slots - held:
        kind, name = ("pool", scarce.pool) if scarce.pool else ("limit", scarce.limit)
        says = (
            f"{stands}, when the {kind} {name!r} of its lane has room;"
            f" look at it with: relevo {kind} show {name}"
        )
        return _Found(reason="budget", says=says, place=place)
    return _Found(
        reason="in_order", place=place,
        says=f"{stands} in lane {lanes}, which {hosts} serve{'s' * (len(able) == 1)}",
    )  # fmt: skip


def _shown(at: datetime | None) -> str:
    return "-" if at is None else at.isoformat(timespec="seconds").replace("+00:00", "Z")


def _at(at: datetime | None) -> str:
    return "" if at is None else f" at {_shown(at)}"
