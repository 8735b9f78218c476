"""Errors of commands on jobs, and exceptions raised into a handler of a job.

The verdicts that handlers raise themselves are in `relevo.kernel.running.verdicts`.
"""

from __future__ import annotations

from relevo import limits
from relevo.errors import CallerError, ConditionNotMet, Conflict, Forbidden, NotFound
from relevo.jobs.core import codes
from relevo.kernel.running.verdicts import Interruption, Verdict


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
        """The text of the record if no such host came."""
        minutes = limits.JOB_UNSERVED_SECONDS_MAX / 60
        return (
            f"no host had a handler {self.handler!r} that takes {self.arguments} for {minutes:g}"
            " minutes; start a host with newer code, or submit the job without it"
        )


class JobRefused(Conflict):
    """The state of a job does not allow a command; clients compare `error_code`."""

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
    """A job that a caller waited for failed or was canceled, with `error_code`.

    The message names the error; `traceback` is that of the handler, which Python shows below it.
    """

    code = "job_failed"

    def __init__(
        self, message: str, *, error_code: int | None = None, traceback: str | None = None
    ) -> None:
        super().__init__(message)
        self.error_code = error_code
        self.traceback = traceback
        if traceback:
            self.add_note(f"In the handler:\n{traceback}")


class JobCanceled(Interruption):
    """Raised into a handler whose job was canceled; let it pass."""


class JobPaused(Interruption):
    """Raised into a handler whose job was paused or makes room; let it pass, it is called again."""


class LoopDetected(CallerError):
    """The operation is too deep in a chain of causes: extensions that cause each other."""

    code = "loop_detected"
    error_code = codes.LOOP_DETECTED


class RecordMissing(CallerError):
    """The record that a workflow is about does not exist."""

    code = "record_missing"
    error_code = codes.RECORD_MISSING


class BatchMissing(NotFound):
    """There is no such batch (any more)."""

    code = "batch_missing"


class BatchClosed(Conflict):
    """A batch that is closed takes no more jobs."""

    code = "batch_closed"
