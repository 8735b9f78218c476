"""What a handler raises to say how its run is to end, and what is raised into a handler.

    raise RetryLater(delay=60)
    raise Suspend("the mailbox is full; empty it and resume the job")
    raise Fail(None, "there is no such customer")

Verdicts are not errors of Relevo: they say what is to become of the job. They keep their arguments
in `args`, so that they can travel from a process that runs a handler.
"""

from __future__ import annotations

from datetime import timedelta

from relevo import limits
from relevo.errors import CallerError, ConditionNotMet, Conflict, Forbidden, InvalidValue, NotFound
from relevo.jobs.core import codes


def _checked(code: int | None) -> int | None:
    """A code as it is stored; `errorcode` is null or negative."""
    if code is None:
        return None
    signed = codes.stored(code) if code >= 0 else code
    if not -(2**31) <= signed < 0:
        raise InvalidValue(f"the code of an error is 0x80000000 or above, not {code:#x}")
    return signed


class Verdict(Exception):
    """What a handler decides about its own job; `text` is for the people who look at it."""

    text: str
    code: int | None

    def __str__(self) -> str:
        """Return the text."""
        return self.text or type(self).__name__


class RetryLater(Verdict):
    """Try again after `delay` (seconds), by default after the usual, growing wait.

    A job is tried four times in all, then it fails.
    """

    def __init__(
        self, delay: float | timedelta | None = None, code: int | None = None, text: str = ""
    ) -> None:
        super().__init__(delay, code, text)
        seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
        if seconds is not None and not 0 <= seconds < float("inf"):
            raise InvalidValue(f"the delay of a retry is 0 seconds or more, not {seconds}")
        self.delay = seconds
        self.code = _checked(code)
        self.text = text


class Suspend(Verdict):
    """Wait until somebody resumes the job; `reason` tells that person what to repair."""

    def __init__(self, reason: str, code: int | None = None) -> None:
        super().__init__(reason, code)
        self.text = reason
        self.code = _checked(code)


class Fail(Verdict):
    """End as failed, without another attempt."""

    def __init__(self, code: int | None, text: str) -> None:
        super().__init__(code, text)
        self.text = text
        self.code = _checked(code)


class UnknownArguments(Verdict):
    """The code of this host does not know arguments of the job; newer code on another host may.

    Raised by Relevo before the handler is called. The job waits, and fails after
    `limits.JOB_UNSERVED_SECONDS_MAX`.
    """

    def __init__(self, handler: str, arguments: str) -> None:
        super().__init__(handler, arguments)
        self.handler = handler
        self.arguments = arguments
        self.code = None
        self.text = f"waits for a host whose handler {handler!r} takes {arguments}"

    @property
    def failure(self) -> str:
        """What the record says when no such host came."""
        minutes = limits.JOB_UNSERVED_SECONDS_MAX / 60
        return (
            f"no host had a handler {self.handler!r} that takes {self.arguments} for {minutes:g}"
            " minutes; start a host with newer code, or submit the job without it"
        )


class JobRefused(Conflict):
    """The state of a job does not allow a command; `error_code` is what clients compare."""

    code = "job_refused"

    def __init__(self, error_code: int, message: str) -> None:
        super().__init__(message)
        self.error_code = error_code


class JobMissing(NotFound):
    """There is no such job, or the caller does not see it."""

    code = "job_missing"
    error_code = codes.NOT_FOUND


class StaleJob(ConditionNotMet):
    """A job is not the version that the caller knows."""

    code = "stale_job"
    error_code = codes.STALE_ETAG


class PlatformJob(Forbidden):
    """A job of the platform does not take this command from anybody."""

    code = "platform_job"

    def __init__(self, error_code: int, message: str) -> None:
        super().__init__(message)
        self.error_code = error_code


class JobFailed(Conflict):
    """A job that somebody waited for failed or was canceled; `error_code` says with what."""

    code = "job_failed"

    def __init__(self, message: str, *, error_code: int | None = None) -> None:
        super().__init__(message)
        self.error_code = error_code


class JobCanceled(Exception):
    """Raised into a handler whose job somebody canceled; let it pass."""


class JobPaused(Exception):
    """Raised into a handler whose job somebody paused; let it pass, it will be called again."""


class LoopDetected(CallerError):
    """The operation is too deep in a chain of causes: extensions that cause each other."""

    code = "loop_detected"
    error_code = codes.LOOP_DETECTED


class RecordMissing(CallerError):
    """The record that a workflow is about does not exist."""

    code = "record_missing"
    error_code = codes.RECORD_MISSING
