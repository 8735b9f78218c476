"""Every error Relevo raises, in one tree; docs/reference/errors.md shows it, made from this file.

`CallerError`: the request is wrong, and sending it again changes nothing, unless it is retryable.
`SystemFault`: the system cannot serve the request. `Unavailable` is known not to have happened,
`OutcomeUnknown` may have happened. `HandlerError`, beside both: a handler of the user raised.

`code` is stable and public, `status` is the HTTP status, `fault` says whether the caller or the
system is at fault, `retryable` whether the same call may be sent again safely and may then succeed.
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
    """The request is wrong; sending it again changes nothing."""

    code = "bad_request"
    status = 400
    fault = "caller"


class InvalidValue(CallerError):
    """A value is missing, malformed or out of bounds."""

    code = "invalid_value"


class Unauthenticated(CallerError):
    """No credentials were sent, or they are invalid."""

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


class MessageNotFound(NotFound):
    """No message has that sequence number, or it is not in the state that the request needs."""

    code = "message_not_found"


class MethodNotAllowed(CallerError):
    """The path exists, the method does not."""

    code = "method_not_allowed"
    status = 405


class Conflict(CallerError):
    """The resource is not in the state that the request needs."""

    code = "conflict"
    status = 409


class LeaseLost(Conflict):
    """Another host owns the lease now; writes under the old ownership were refused."""

    code = "lease_lost"


class HostSuperseded(Conflict):
    """A newer process registered under this host's name; this one stays out."""

    code = "host_superseded"


class ItemExists(Conflict):
    """An item with that id and partition key exists already; nothing was changed."""

    code = "item_exists"


class FeedExpired(Conflict):
    """The position is older than what the feed retains; nothing was skipped silently."""

    code = "feed_expired"
    source = "monitored"

    def __init__(self, message: str, *, oldest: int = 0) -> None:
        super().__init__(message)
        self.oldest = oldest
        """The oldest position that can still be read from."""


class FeedRegressed(Conflict):
    """The position is ahead of the container: it was restored from a backup, or is another one."""

    code = "feed_regressed"
    source = "monitored"


class ContainerRecreated(Conflict):
    """The container was dropped and created again since the position was taken."""

    code = "container_recreated"
    source = "monitored"


class SettingsMismatch(Conflict):
    """The unit exists with other settings than this host asks for."""

    code = "settings_mismatch"


class ModeMismatch(SettingsMismatch):
    """The unit exists and is bound to the other feed mode."""

    code = "mode_mismatch"


class LeaseCoverage(Conflict):
    """The leases of a unit do not tile the hash space; an operator must repair them."""

    code = "lease_coverage"


class InUse(Conflict):
    """Others refer to it, or it has work to do: it cannot be deleted now."""

    code = "in_use"


class InvalidState(Conflict):
    """A router job, assignment or worker is not in the state that the call needs."""

    code = "invalid_state"


class OfferGone(Conflict):
    """The offer was accepted by another worker, revoked, or has expired."""

    code = "offer_gone"


class UnassignLimitReached(Conflict):
    """The job reached its limit of unassignments."""

    code = "unassign_limit_reached"


class EntityExists(Conflict):
    """A queue, topic, subscription or rule of that name exists; names ignore case."""

    code = "entity_exists"


class EntityDisabled(Conflict):
    """The status of the queue, topic or subscription does not allow to send or to receive."""

    code = "entity_disabled"


class MessageLockLost(Conflict):
    """The lock token is not that of a current lock; nothing was changed.

    The lock has expired, or the message was settled or delivered to another receiver since.
    """

    code = "message_lock_lost"
    status = 410


class SessionLockLost(Conflict):
    """The session is no longer held by this receiver; nothing was changed."""

    code = "session_lock_lost"
    status = 410


class SessionTaken(Conflict):
    """Another receiver holds the session; it can be accepted when that one lets go of it."""

    code = "session_taken"
    retryable = True


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


class InvalidRecurrence(InvalidValue):
    """A recurrence pattern cannot be read, or has no instant."""

    code = "invalid_recurrence"

    def __init__(self, message: str, *, kind: str = "pattern") -> None:
        super().__init__(message)
        self.kind = kind
        """`interval` if the interval is out of bounds, else `pattern`."""


class BadContinuation(InvalidValue):
    """A continuation token is damaged, or belongs to another container, mode or filter."""

    code = "bad_continuation"


class InvalidJson(InvalidValue):
    """The body is not JSON."""

    code = "invalid_json"


class MissingField(InvalidValue):
    """A required field is missing."""

    code = "missing_field"


class ReferenceNotFound(InvalidValue):
    """The request names a policy or queue that does not exist."""

    code = "reference_not_found"


class MissingApiVersion(InvalidValue):
    """The query has no `api-version`."""

    code = "missing_api_version"


class UnsupportedApiVersion(InvalidValue):
    """The query asks for an api-version that is not supported."""

    code = "unsupported_api_version"


class InvalidExpression(InvalidValue):
    """The text of a rule or filter cannot be parsed, or is too large."""

    code = "invalid_expression"

    def __init__(
        self, message: str, *, pointer: str | None = None, line: int = 1, column: int = 1
    ) -> None:
        super().__init__(message, pointer=pointer)
        self.line = line
        self.column = column
        """Where in the text the fault lies; both count from 1."""


class InvalidQuery(InvalidValue):
    """A query cannot be parsed, is too large, or names unknown columns."""

    code = "invalid_query"

    def __init__(
        self, message: str, *, dataverse: str = "0x80040203", pointer: str | None = None
    ) -> None:
        super().__init__(message, pointer=pointer)
        self.dataverse = dataverse
        """The code of this error in Dataverse."""


class QueryTooCostly(InvalidQuery):
    """A query exceeded its time or temporary space; narrow it."""

    code = "query_too_costly"


class ExpressionFailed(CallerError):
    """A rule or filter is valid, but has no result for the given values."""

    code = "expression_failed"


class ConditionNotMet(CallerError):
    """A precondition of the request (an entity tag, a date) does not hold."""

    code = "condition_not_met"
    status = 412


class TooLarge(CallerError):
    """The request exceeds a bound of `relevo.limits`."""

    code = "too_large"
    status = 413


class UnsupportedMediaType(CallerError):
    """The operation does not accept this media type."""

    code = "unsupported_media_type"
    status = 415


class RateLimited(CallerError):
    """The caller exceeds its request rate; wait `retry_after` seconds."""

    code = "rate_limited"
    status = 429
    retryable = True

    def __init__(self, message: str, *, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class QuotaExceeded(CallerError):
    """The queue or topic holds as many bytes as it may; receive or purge messages, or raise it."""

    code = "quota_exceeded"
    status = 507
    retryable = True


class RuleFailed(CallerError):
    """A rule of a policy gave no usable value."""

    code = "rule_failed"


class SettingsError(CallerError):
    """A setting is unknown, malformed or contradicts another."""

    code = "settings"


class SystemFault(RelevoError):
    """The system cannot serve the request, which may be fine."""


class Unavailable(SystemFault):
    """Known not to have happened: the same call may be sent again."""

    code = "unavailable"
    status = 503
    retryable = True
    retry_after: float = 1.0


class Overloaded(Unavailable):
    """A bound is reached; Relevo refuses early so that accepted work stays fast."""

    code = "overloaded"


class Closed(Unavailable):
    """The component is shutting down and accepts no further calls."""

    code = "closed"


class DatabaseUnavailable(Unavailable):
    """The database cannot be reached, or kept refusing after bounded retries."""

    code = "database_unavailable"


class ConnectionsBusy(DatabaseUnavailable):
    """A call waited too long for a connection of the pool; the database itself may be well."""

    code = "connections_busy"


class ItemLocked(Unavailable):
    """Another transaction holds an item that the call writes, and has not ended for long."""

    code = "item_locked"


class HostFenced(Unavailable):
    """The host is past its self-fencing deadline and may not act until a renewal succeeds."""

    code = "host_fenced"


class MonitoredError(Unavailable):
    """A processor cannot read the container that it follows; it goes on trying."""

    code = "monitored_error"
    source = "monitored"


class LeaseStoreError(Unavailable):
    """A processor cannot read or write its leases; it goes on trying from what is stored."""

    code = "lease_store_error"
    source = "lease_store"


class OutcomeUnknown(SystemFault):
    """The connection broke while a commit was under way: it may or may not have happened.

    It is never turned into success or plain failure. Look, or repeat with an idempotency key.
    """

    code = "outcome_unknown"
    status = 503


class OutboundFailed(SystemFault):
    """A call to another service got no usable answer; it may have had its effect there."""

    code = "outbound_failed"
    status = 502


class OutboundRefused(OutboundFailed):
    """A call to another service was not made: its address is malformed or not allowed."""

    code = "outbound_refused"


class EmbeddedServerError(SystemFault):
    """The embedded PostgreSQL cannot run here; the message says why and what to do."""

    code = "embedded_server"
    status = 503


class SchemaError(SystemFault):
    """The database's schema does not match this program."""

    code = "schema"
    status = 503


class SchemaTooNew(SchemaError):
    """The database was migrated by a newer program than this one."""

    code = "schema_too_new"


class InternalError(SystemFault):
    """A fault of Relevo itself."""
