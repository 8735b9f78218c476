"""Requests that are well formed and do not fit the state of what they name."""

from __future__ import annotations

from relevo.errors.base import CallerError


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


class IdempotencyKeyInUse(Conflict):
    """The first request with this Idempotency-Key still runs; wait `retry_after` seconds."""

    code = "idempotency_key_in_use"
    retryable = True
    retry_after: float = 1.0


class AnswerNotKept(Conflict):
    """The request was done before, and its answer was too large to be kept."""

    code = "answer_not_kept"
