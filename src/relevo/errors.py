"""Every error Relevo raises, in one tree.

    RelevoError
    ├── CallerError                 the request is wrong; sending it again changes nothing
    │   ├── InvalidValue            400  a value is missing, malformed or out of bounds
    │   ├── Unauthenticated         401  no credentials, or none that are valid
    │   ├── Forbidden               403  known, but not allowed
    │   ├── NotFound                404
    │   ├── MethodNotAllowed        405
    │   ├── Conflict                409  the thing is not in the state this needs
    │   │   ├── LeaseLost                somebody else owns the lease by now
    │   │   └── HostSuperseded           a newer process took this host's name
    │   ├── ConditionNotMet         412
    │   ├── TooLarge                413
    │   ├── UnsupportedMediaType    415
    │   ├── RateLimited             429  (retryable)
    │   └── SettingsError                a setting is unknown or wrong
    └── SystemFault                 the request may be fine; the world is not
        ├── Unavailable             503  known not to have happened; try again
        │   ├── Overloaded
        │   ├── Closed
        │   ├── DatabaseUnavailable
        │   └── HostFenced               past the self-fencing deadline
        ├── OutcomeUnknown          503  it may or may not have happened
        ├── EmbeddedServerError          the embedded PostgreSQL cannot run here
        ├── SchemaError                  the database's schema and this program do not fit
        └── InternalError           500

`code` is stable and public, `status` is what an HTTP surface answers, `fault` says who can do
something about it, `retryable` whether the same call may be sent again safely and with hope.
"""

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
    """The request is wrong as it stands."""

    code = "bad_request"
    status = 400
    fault = "caller"


class InvalidValue(CallerError):
    """A value is missing, malformed or out of bounds."""

    code = "invalid_value"


class Unauthenticated(CallerError):
    """No credentials were sent, or none that are valid."""

    code = "unauthenticated"
    status = 401


class Forbidden(CallerError):
    """The caller is known, and not allowed to do this."""

    code = "forbidden"
    status = 403


class NotFound(CallerError):
    """Nothing of that name exists, or the caller may not see it."""

    code = "not_found"
    status = 404


class MethodNotAllowed(CallerError):
    """The path exists, the method does not."""

    code = "method_not_allowed"
    status = 405


class Conflict(CallerError):
    """The thing is not in the state that the request needs."""

    code = "conflict"
    status = 409


class LeaseLost(Conflict):
    """Somebody else owns the lease by now; whatever was written in its name was refused."""

    code = "lease_lost"


class HostSuperseded(Conflict):
    """A newer process registered under this host's name; this one does not come back by itself."""

    code = "host_superseded"


class ConditionNotMet(CallerError):
    """A precondition of the request (an entity tag, a date) does not hold."""

    code = "condition_not_met"
    status = 412


class TooLarge(CallerError):
    """The request exceeds a bound of `relevo.limits`."""

    code = "too_large"
    status = 413


class UnsupportedMediaType(CallerError):
    """The body is of a type that this operation does not take."""

    code = "unsupported_media_type"
    status = 415


class RateLimited(CallerError):
    """The caller sends faster than it may; wait `retry_after` seconds."""

    code = "rate_limited"
    status = 429
    retryable = True

    def __init__(self, message: str, *, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class SettingsError(CallerError):
    """A setting is unknown, malformed or contradicts another."""

    code = "settings"


class SystemFault(RelevoError):
    """The request may be fine; the world around it is not."""


class Unavailable(SystemFault):
    """Known not to have happened: the same call may be sent again."""

    code = "unavailable"
    status = 503
    retryable = True
    retry_after: float = 1.0


class Overloaded(Unavailable):
    """More is waiting than Relevo keeps; refused early so that accepted work stays fast."""

    code = "overloaded"


class Closed(Unavailable):
    """What was called is shutting down and takes nothing new."""

    code = "closed"


class DatabaseUnavailable(Unavailable):
    """The database cannot be reached, or kept refusing after bounded retries."""

    code = "database_unavailable"


class HostFenced(Unavailable):
    """The host is past its self-fencing deadline and may not act until a renewal succeeds."""

    code = "host_fenced"


class OutcomeUnknown(SystemFault):
    """The connection broke while a commit was under way: it may or may not have happened.

    It is never turned into success or plain failure. Look, or repeat with an idempotency key.
    """

    code = "outcome_unknown"
    status = 503


class EmbeddedServerError(SystemFault):
    """The embedded PostgreSQL cannot run here; the message says why and what to do."""

    code = "embedded_server"
    status = 503


class SchemaError(SystemFault):
    """The database's schema and this program do not fit together."""

    code = "schema"
    status = 503


class SchemaTooNew(SchemaError):
    """The database was migrated by a newer program than this one."""

    code = "schema_too_new"


class InternalError(SystemFault):
    """A fault of Relevo itself."""
