"""Faults of the system: known not to have happened, unknown, or of Relevo itself."""

from __future__ import annotations

from relevo.errors.base import SystemFault


class Unavailable(SystemFault):
    """Known not to have happened: the same call may be sent again."""

    code = "unavailable"
    status = 503
    retryable = True
    retry_after: float = 1.0
    executed: bool | None = False
    """Of a call of an actor: it did not run."""


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
    executed: bool | None = None
    """Of a call of an actor: not known."""


class EarlierOutcomeUnknown(OutcomeUnknown):
    """The first request with this Idempotency-Key was broken off: look whether it happened."""

    code = "earlier_outcome_unknown"


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
