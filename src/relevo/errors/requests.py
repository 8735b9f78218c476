"""Requests that are wrong in themselves: malformed, not allowed, too large, too many."""

from __future__ import annotations

from relevo.errors.base import CallerError


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


class IdempotencyKeyReused(CallerError):
    """An earlier request with this Idempotency-Key had another path or body."""

    code = "idempotency_key_reused"
    status = 422


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
    """A bound on stored bytes, fairness keys, rules or entities is reached; remove some first."""

    code = "quota_exceeded"
    status = 507
    retryable = True


class RuleFailed(CallerError):
    """A rule of a policy gave no usable value."""

    code = "rule_failed"


class SettingsError(CallerError):
    """A setting is unknown, malformed or contradicts another."""

    code = "settings"
