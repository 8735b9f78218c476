"""Verdicts: a handler raises one to decide how its run ends; the same in every part.

    raise RetryLater(delay=60)
    raise Suspend("the mailbox is full; empty it and resume the job")
    raise Fail(None, "there is no such customer")

Verdicts are not errors of Relevo: they say what is to become of the work. They keep their arguments
in `args`, so that they can travel from a process that runs a handler.
"""

from __future__ import annotations

from datetime import timedelta
from typing import ClassVar

from relevo.errors import HandlerError, HandlerTimeout, InvalidValue


def _checked(code: int | None) -> int | None:
    """A code as it is stored: 32 bits, signed and below 0."""
    if code is None or -(2**31) <= code < 0:
        return code
    if not 2**31 <= code < 2**32:
        raise InvalidValue(f"the code of an error is 0x80000000 to 0xFFFFFFFF, not {code:#x}")
    return code - 2**32


class Verdict(Exception):
    """A handler's decision about its own work; `text` is for people."""

    event: ClassVar[str]
    """What becomes of the work: `retry`, `suspend` or `fail`; the same word in logs and metrics."""
    text: str
    code: int | None

    def __str__(self) -> str:
        """Return the text."""
        return self.text or type(self).__name__


class RetryLater(Verdict):
    """Try again after `delay` (seconds), by default after the usual, growing wait.

    By default a job has four attempts in all, then it fails: nobody waits behind it, and a job that
    always asks for another attempt would run for ever unseen. A change handler has no limit, and no
    attempt counts as a failure: the next changes of the lease wait for this one, and giving up
    would lose it.
    """

    event = "retry"

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
    """Wait until the job or lease is resumed; `reason` says what to repair."""

    event = "suspend"

    def __init__(self, reason: str, code: int | None = None) -> None:
        super().__init__(reason, code)
        self.text = reason
        self.code = _checked(code)


class Fail(Verdict):
    """End as failed, without another attempt: the job fails, a change becomes a dead letter."""

    event = "fail"

    def __init__(self, code: int | None, text: str) -> None:
        super().__init__(code, text)
        self.text = text
        self.code = _checked(code)


class Interruption(Exception):
    """Raised into a handler whose run was canceled; let it propagate."""


def leaves(error: BaseException) -> list[BaseException]:
    """Return the errors of a group, or behind one that only wraps another; else the error itself.

    The most serious of them decides.
    """
    if isinstance(error, BaseExceptionGroup):
        return [leaf for member in error.exceptions for leaf in leaves(member)]
    wraps = isinstance(error, HandlerError) and not isinstance(error, HandlerTimeout)
    if wraps and error.__cause__ is not None:
        return leaves(error.__cause__)
    return [error]


def verdict_in(error: BaseException) -> Verdict | None:
    """Return the verdict that an error is or holds; None if it is a failure like another."""
    found = leaves(error)
    for kind in (Fail, Suspend, RetryLater):
        for leaf in found:
            if isinstance(leaf, kind):
                return leaf if all(isinstance(one, Verdict) for one in found) else None
    return None
