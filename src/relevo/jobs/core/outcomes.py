"""Maps an error to the outcome of a job: fail, retry, suspend.

    found = classify(error, workflow=False, retries=job.retries, random=random, policy=policy)
    found.event  # "retry", one of the events of `relevo.jobs.states`

Errors of drivers and HTTP clients are known by their attributes and by the names of their classes,
not by import: a handler may use any of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct

from relevo.errors import (
    CallerError,
    ConditionNotMet,
    Conflict,
    DatabaseUnavailable,
    EmbeddedServerError,
    Forbidden,
    HandlerTimeout,
    LeaseStoreError,
    MonitoredError,
    NotFound,
    OutboundFailed,
    OutboundRefused,
    OutcomeUnknown,
    RateLimited,
    RelevoError,
    SchemaError,
    Unavailable,
)
from relevo.jobs.core import codes
from relevo.jobs.core.retry import NOT_ORDINARY, ErrorKind, RetryPolicy
from relevo.jobs.errors import JobCanceled, JobPaused, LoopDetected, RecordMissing, UnknownArguments
from relevo.kernel import error_text
from relevo.kernel.running.verdicts import Fail, RetryLater, Suspend, Verdict, leaves
from relevo.limits import JOB_DEFER_SECONDS_MIN, JOB_UNSERVED_SECONDS_MAX

if TYPE_CHECKING:
    from random import Random

Event = Literal["done", "fail", "retry", "defer", "suspend", "stop", "yield"]

TEXT_MAX: Final = 100_000
"""Characters that `message` and `friendlymessage` hold."""


class JobOutcome(Struct, frozen=True, kw_only=True):
    """What happens to a job; only `retry` and `defer` have a `delay` (seconds)."""

    event: Event
    error_code: int | None = None
    friendly: str | None = None
    message: str | None = None
    delay: float | None = None


class Rule(Struct, frozen=True):
    """The outcome of one kind of error.

    `kind` is that of `RetryPolicy.attempts`, after which a retry is a failure. After an error
    whose rule is `open`, a handler's `retry_on` decides first.
    """

    name: str
    fits: Callable[[BaseException], bool]
    plugin: Event
    workflow: Event
    code: int | None
    kind: ErrorKind = "ordinary"
    open: bool = False


_STORAGE: Final = (
    DatabaseUnavailable,
    OutcomeUnknown,
    SchemaError,
    EmbeddedServerError,
    LeaseStoreError,
    MonitoredError,
)
_STORAGE_STATES: Final = ("08", "40", "53", "55", "57", "58", "XX")
"""Classes of SQLSTATE that are no fault of the statement: a retry may succeed."""
_STORAGE_NAMES: Final = frozenset(
    {"DeadlockDetectedError", "SerializationError", "InterfaceError", "OperationalError"}
)
_NETWORK_NAMES: Final = frozenset(
    {
        "ConnectionError",
        "TimeoutError",
        "Timeout",
        "gaierror",
        "herror",
        "SSLError",
        "URLError",
        "IncompleteRead",
        "ChunkedEncodingError",
        "ClientConnectionError",
        "ClientPayloadError",
        "TransportError",
    }
)
_DATA_CODES: Final[tuple[tuple[type[CallerError], int], ...]] = (
    (NotFound, codes.NOT_FOUND),
    (Forbidden, codes.FORBIDDEN),
    (ConditionNotMet, codes.STALE_ETAG),
    (Conflict, codes.STATE_CHANGED),
    (CallerError, codes.BAD_REQUEST),
)


def _named(error: BaseException, names: frozenset[str]) -> bool:
    return any(kind.__name__ in names for kind in type(error).__mro__)


def _of_storage(error: BaseException) -> bool:
    if isinstance(error, _STORAGE):
        return True
    state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    if isinstance(state, str):
        return state.startswith(_STORAGE_STATES)
    return _named(error, _STORAGE_NAMES)


def _remote_status(error: BaseException) -> int | None:
    """Return the HTTP status of another system that an error of any HTTP client carries."""
    if isinstance(error, RelevoError):
        return None  # Relevo's own errors carry the status of Relevo's answers
    for holder in (error, getattr(error, "response", None)):
        for name in ("status", "status_code"):
            found = getattr(holder, name, None)
            if isinstance(found, int) and 100 <= found <= 599:
                return found
    return None


def _refused_remotely(error: BaseException) -> bool:
    return _remote_status(error) in (401, 403)


def _failed_remotely(error: BaseException) -> bool:
    return _remote_status(error) is not None


def _of_network(error: BaseException) -> bool:
    if isinstance(error, OutboundFailed):
        return not isinstance(error, OutboundRefused)
    return _named(error, _NETWORK_NAMES)


def _is(*kinds: type[BaseException]) -> Callable[[BaseException], bool]:
    return lambda error: isinstance(error, kinds)


ANYTHING_ELSE: Final = Rule(
    "anything else", _is(BaseException), "fail", "fail", codes.HANDLER_FAILED, open=True
)
RULES: Final = (
    Rule("unknown arguments", _is(UnknownArguments), "defer", "defer", codes.HANDLER_MISSING),
    Rule("loop detected", _is(LoopDetected), "fail", "fail", codes.LOOP_DETECTED),
    Rule("RetryLater", _is(RetryLater), "retry", "retry", None, "retry_later"),
    Rule("Suspend", _is(Suspend), "suspend", "suspend", None),
    Rule("Fail", _is(Fail), "fail", "fail", codes.HANDLER_REFUSED),
    Rule("time limit", _is(HandlerTimeout), "retry", "retry", codes.TIME_LIMIT, "time_limit"),
    Rule("storage", _of_storage, "retry", "retry", codes.UNEXPECTED, "infrastructure"),
    Rule("busy", _is(Unavailable, RateLimited), "retry", "retry", codes.BUSY, "infrastructure"),
    Rule("remote refuses", _refused_remotely, "suspend", "suspend", codes.REMOTE_FAILED, open=True),
    Rule("remote fails", _failed_remotely, "retry", "retry", codes.REMOTE_FAILED, "infrastructure"),
    Rule("network", _of_network, "retry", "retry", codes.REMOTE_FAILED, "infrastructure"),
    Rule("record missing", _is(RecordMissing), "fail", "suspend", codes.RECORD_MISSING, open=True),
    Rule("data operation", _is(CallerError), "fail", "suspend", None, open=True),
    ANYTHING_ELSE,
)
"""The first rule that fits applies."""


def classify(
    error: BaseException,
    *,
    workflow: bool,
    retries: int,
    random: Random,
    policy: RetryPolicy = NOT_ORDINARY,
    canceling: bool = False,
    deferred: float = 0.0,
) -> JobOutcome:
    """Return what happens to a job whose handler ended with `error`.

    `retries` is the number of past retries. `canceling` is whether a cancel was requested; without
    one, `JobCanceled` is an error like any other. `deferred` is the seconds for which no host has
    known the arguments. In a group of errors the most serious decides.
    """
    found = [
        _classify_one(
            one, workflow=workflow, retries=retries, random=random, policy=policy, deferred=deferred
        )
        if not (stopped := _interruption(one, canceling=canceling))
        else JobOutcome(event=stopped)
        for one in leaves(error)
    ]
    worst = min(found, key=lambda one: _SERIOUS.index(one.event))
    if worst.event in ("stop", "yield"):
        return worst
    return JobOutcome(
        event=worst.event,
        error_code=worst.error_code,
        friendly=worst.friendly,
        message=trace_of(error),
        delay=worst.delay,
    )


_SERIOUS: Final[tuple[Event, ...]] = (
    "fail", "suspend", "retry", "defer", "stop", "yield", "done"
)  # fmt: skip


def _interruption(error: BaseException, *, canceling: bool) -> Event | None:
    if isinstance(error, JobPaused):
        return "yield"
    canceled = isinstance(error, JobCanceled) or _named(error, frozenset({"CancelledError"}))
    return "stop" if canceled and canceling else None


def _classify_one(
    error: BaseException, *, workflow: bool, retries: int, random: Random, policy: RetryPolicy,
    deferred: float,
) -> JobOutcome:  # fmt: skip
    rule = next(rule for rule in RULES if rule.fits(error))
    event = rule.workflow if workflow else rule.plugin
    if rule.open and (policy.named(error) or (rule is ANYTHING_ELSE and policy.ordinary(error))):
        event = "retry"
    if event == "retry" and retries + 1 >= policy.attempts(rule.kind):
        event = "fail"
    if event == "defer" and deferred >= JOB_UNSERVED_SECONDS_MAX:
        event = "fail"
    code = _code_of(error, rule)
    if event == "fail" and code is None:
        code = codes.HANDLER_FAILED
    text = str(error.text or "") if isinstance(error, Verdict) else ""
    if isinstance(error, UnknownArguments) and event == "fail":
        text = error.failure
    return JobOutcome(
        event=event,
        error_code=code,
        friendly=shortened(text) or None,
        delay=_delay_of(event, error, retries, random, policy, deferred),
    )


def _code_of(error: BaseException, rule: Rule) -> int | None:
    if isinstance(error, Verdict):
        return error.code if error.code is not None else rule.code
    if rule.code is not None or not isinstance(error, CallerError):
        return rule.code
    own = getattr(error, "error_code", None)
    if isinstance(own, int):
        return own
    return next(code for kind, code in _DATA_CODES if isinstance(error, kind))


def _delay_of(
    event: Event, error: BaseException, retries: int, random: Random, policy: RetryPolicy,
    deferred: float,
) -> float | None:  # fmt: skip
    if event == "defer":  # a tenth of the time that it has waited: many of them cost hosts little
        return max(JOB_DEFER_SECONDS_MIN, deferred / 10) * (0.8 + 0.4 * random.random())
    if event != "retry":
        return None
    if isinstance(error, RetryLater) and error.delay is not None:
        return error.delay
    asked = getattr(error, "retry_after", 0.0) if isinstance(error, RelevoError) else 0.0
    return max(asked, policy.delay(retries, random))


def trace_of(error: BaseException) -> str:
    """Return the trace of an error as `message` holds it."""
    return error_text.trace(error, TEXT_MAX)


def shortened(text: str) -> str:
    """Return a text that the database can hold: at most `TEXT_MAX` characters."""
    return error_text.fit(text, TEXT_MAX)
