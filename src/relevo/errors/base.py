"""The kinds of errors: of the caller, of the system, and of a handler."""

from __future__ import annotations

from typing import ClassVar, Literal

Fault = Literal["caller", "system"]


class RelevoError(Exception):
    """Base of all errors; the message says what happened, with which value, and what to do next."""

    code: ClassVar[str] = "internal"
    status: ClassVar[int] = 500
    fault: ClassVar[Fault] = "system"
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, pointer: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.pointer = pointer
        """Where in the request the fault lies, as a JSON pointer or parameter name."""


class CallerError(RelevoError):
    """The request is wrong; sending it again changes nothing."""

    code = "bad_request"
    status = 400
    fault = "caller"


class SystemFault(RelevoError):
    """The system cannot serve the request, which may be fine."""


class HandlerError(RelevoError):
    """A handler of the user raised; its exception is the cause."""

    code = "handler_error"
    source = "handler"

    def __init__(self, message: str, *, context: object = None) -> None:
        super().__init__(message)
        self.context = context


class HandlerTimeout(HandlerError):
    """A handler of the user did not end within its time limit."""

    code = "handler_timeout"
