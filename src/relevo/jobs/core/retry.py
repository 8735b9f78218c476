"""How often a handler's jobs are tried again after an error, and how long they wait for it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct

from relevo.errors import InvalidValue, RelevoError
from relevo.kernel.backoff import Backoff
from relevo.kernel.running.verdicts import Interruption
from relevo.kernel.running.wire import ProcessError
from relevo.limits import JOB_RETRIES_MAX

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

ErrorKind = Literal["ordinary", "retry_later", "infrastructure", "time_limit"]

RETRIES: Final[dict[ErrorKind, int]] = {
    "ordinary": 3,
    "retry_later": 3,
    "infrastructure": 9,
    "time_limit": 1,
}
"""Retries by the kind of the last error, of handlers that do not set their own number."""
BACKOFF: Final = Backoff(first=30.0, longest=3_600.0, jitter=(0.8, 1.2))
"""Waits of 30 s, 1 min, 2 min and so on up to 1 h, ± 20 %."""


class RetryPolicy(Struct, frozen=True, kw_only=True):
    """When a job is tried again; part of its handler.

    `retries` is the number of retries whatever the error; None uses `RETRIES`. `retry_on` are the
    exceptions after which a job is tried again beside those that are always worth a retry
    (network, database, time limit, `RetryLater`); None is any ordinary exception.
    """

    retries: int | None = None
    backoff: Backoff = BACKOFF
    retry_on: tuple[type[BaseException], ...] | None = None

    @classmethod
    def of(
        cls, what: str, retries: int | None, backoff: Backoff | float | None,
        retry_on: type[BaseException] | Sequence[type[BaseException]] | None,
    ) -> RetryPolicy:  # fmt: skip
        """Return the policy that a handler declares, or refuse it; `what` names the handler."""
        if retries is not None and (
            type(retries) is not int or not 0 <= retries <= JOB_RETRIES_MAX
        ):
            raise InvalidValue(
                f"{what} has retries={retries!r}; give a number from 0 (never again) to"
                f" {JOB_RETRIES_MAX:,}, or leave it out"
            )
        return cls(
            retries=retries, backoff=_backoff(what, backoff), retry_on=_kinds(what, retry_on)
        )

    def attempts(self, kind: ErrorKind) -> int:
        """Return how many attempts a job has in all, the first included."""
        return 1 + (RETRIES[kind] if self.retries is None else self.retries)

    def named(self, error: BaseException) -> bool:
        """Whether the handler names this exception as one to retry."""
        if self.retry_on is None:
            return False
        if isinstance(error, ProcessError):  # its class has the names of those in the process
            names = {kind.__name__ for kind in type(error).__mro__}
            return any(kind.__name__ in names for kind in self.retry_on)
        return isinstance(error, self.retry_on)

    def ordinary(self, error: BaseException) -> bool:
        """Whether an exception of no other kind leads to a retry.

        An error of Relevo does not: it says what to repair, such as a result that is not JSON.
        """
        if self.retry_on is not None:
            return self.named(error)
        return isinstance(error, Exception) and not isinstance(error, RelevoError | Interruption)

    def delay(self, retries: int, random: Random) -> float:
        """Return the seconds before the next attempt after `retries` retries."""
        return self.backoff.delay(retries, random)


def _backoff(what: str, given: Any) -> Backoff:
    if given is None:
        return BACKOFF
    if isinstance(given, Backoff):
        return given
    if isinstance(given, int | float) and 0 <= given <= BACKOFF.longest:
        return Backoff(first=float(given), longest=BACKOFF.longest, jitter=BACKOFF.jitter)
    raise InvalidValue(
        f"{what} has backoff={given!r}; give the seconds before the first retry, 0 to"
        f" {BACKOFF.longest:g}, which double with each further one, or relevo.Backoff(first=...,"
        " factor=..., longest=..., jitter=...)"
    )


def _kinds(what: str, given: Any) -> tuple[type[BaseException], ...] | None:
    if given is None:
        return None
    kinds = (given,) if isinstance(given, type) else given
    if not isinstance(kinds, tuple | list) or not all(
        isinstance(one, type) and issubclass(one, BaseException) for one in kinds
    ):
        raise InvalidValue(
            f"{what} has retry_on={given!r}; give an exception class or a tuple of them, such as"
            " retry_on=(ConnectionError, KeyError)"
        )
    return tuple(kinds)


def time_limit_of(what: str, timeout: float | timedelta | None) -> float | None:
    """Return the seconds of a handler's `timeout`, or refuse it; `what` names the handler."""
    if timeout is None:
        return None
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    if type(seconds) not in (int, float) or not 0 < seconds < float("inf"):
        raise InvalidValue(
            f"{what} has timeout={timeout!r}; give seconds above 0, or leave it out to use the"
            " limit of the lane"
        )
    return float(seconds)


NOT_ORDINARY: Final = RetryPolicy(retry_on=())
"""An ordinary exception ends the job: plug-ins, workflows, and handlers of Relevo itself."""
