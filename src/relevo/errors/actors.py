"""Errors of calls of actors. Each says whether the call was executed.

`executed` is False if the method did not run, True if it ran without effect on the actor's state,
and None if the effect is not known.
"""

from __future__ import annotations

from relevo.errors.base import CallerError, HandlerError, HandlerTimeout, RelevoError, SystemFault
from relevo.errors.conflicts import Conflict
from relevo.errors.requests import InvalidValue
from relevo.errors.system import OutcomeUnknown, Overloaded, Unavailable


class ActorError(RelevoError):
    """A call of an actor failed; `executed` says whether it ran."""

    code = "actor_error"
    executed: bool | None = None
    """False: it did not run. True: it ran, without effect on the state. None: not known."""

    def __init__(
        self,
        message: str,
        *,
        executed: bool | None = None,
        retry_after: float | None = None,
        pointer: str | None = None,
    ) -> None:
        super().__init__(message)
        self.pointer = pointer
        if executed is not None:
            self.executed = executed
        if retry_after is not None:
            self.retry_after = retry_after


class Moved(ActorError, Unavailable):
    """This host does not own the slot of the actor; another host does, or soon will."""

    code = "moved"
    executed = False

    def __init__(
        self, message: str, *, epoch: int = 0, address: str | None = None, pause: float = 0.0
    ) -> None:
        super().__init__(message, retry_after=pause)
        self.epoch = epoch
        """The highest epoch of the slot that the host knows."""
        self.address = address
        """Where the owner takes calls, if the host knows."""


class NoHost(ActorError, Unavailable):
    """No host serves the placement group or the type."""

    code = "no_host"
    executed = False


class MailboxFull(ActorError, Overloaded):
    """The mailbox of the actor or of its host is full; wait `retry_after` seconds."""

    code = "mailbox_full"
    executed = False


class Dropped(ActorError, Overloaded):
    """The call left a full mailbox for a newer one, as the type of the actor asks."""

    code = "dropped"
    executed = False


class ActivationFailed(ActorError, Unavailable):
    """The actor could not be loaded, or its `on_activate` raised."""

    code = "activation_failed"
    executed = False


class StatePoisoned(ActorError, SystemFault):
    """The stored state cannot be decoded or upgraded; it is kept as it is for an operator."""

    code = "state_poisoned"
    status = 503
    executed = False


class StateTooNew(StatePoisoned):
    """The stored state has a newer schema than the code of this host."""

    code = "state_too_new"


class PoisonCall(ActorError, SystemFault):
    """Hosts ended repeatedly while the call ran: it is not repeated; its effect is not known."""

    code = "poison_call"
    executed = None


class BadArguments(ActorError, InvalidValue):
    """The arguments do not fit the signature of the method; `pointer` names the parameter."""

    code = "bad_arguments"
    executed = False


class UnknownMethod(ActorError, InvalidValue):
    """The actor has no method of that name."""

    code = "unknown_method"
    status = 404
    executed = False


class CallIdReused(ActorError, Conflict):
    """The call id belongs to a call of another method or with other arguments."""

    code = "call_id_reused"
    executed = False


class ReentrancyRefused(ActorError, Conflict):
    """The call came back to an actor that waits for it, and whose type does not allow that."""

    code = "reentrancy_refused"
    executed = False


class ReentrancyTooDeep(ActorError, Conflict):
    """Too many turns of one chain of calls wait for each other."""

    code = "reentrancy_too_deep"
    executed = False


class ReentrantActivation(ActorError, Conflict):
    """The call came back to an actor whose `on_activate` waits for it."""

    code = "reentrant_activation"
    executed = False


class DeadlockDetected(ActorError, Conflict):
    """Chains of calls wait for each other in a circle; this call was refused to end it."""

    code = "deadlock_detected"
    retryable = True
    executed = False


class OutsideTurn(ActorError, Conflict):
    """State, reminders, sends and events of an actor were used by a task outside its turn."""

    code = "outside_turn"
    executed = True


class ReadOnlyTurn(ActorError, Conflict):
    """A read-only turn tried to change the state."""

    code = "read_only_turn"
    executed = True


class RemoteError(ActorError, HandlerError):
    """The method raised an error that it does not declare; a note has the remote traceback."""

    code = "remote_error"
    executed = True

    def __init__(self, type_name: str, message: str = "", error_id: str = "") -> None:
        super().__init__(f"{type_name}: {message}" if message else type_name)
        self.type_name = type_name
        """Class of the error at the actor."""
        self.remote_message = message
        self.error_id = error_id
        """Names the error in the log of the actor's host."""


class MethodRaised(ActorError, CallerError):
    """The method raised an error that it declares; the message begins with its class."""

    code = "method_raised"
    status = 422
    executed = True


class TurnTimeout(ActorError, HandlerTimeout):
    """The turn did not end within its time limit, and was undone."""

    code = "turn_timeout"
    status = 504
    executed = True


class CommitFailed(ActorError, SystemFault):
    """The method ran, and its changes could not be stored: none of them remains."""

    code = "commit_failed"
    status = 503
    executed = True


class ActivationLost(ActorError, OutcomeUnknown):
    """The activation ended before it gave a deferred answer; the turn itself was committed."""

    code = "activation_lost"


class DeadlineExceeded(ActorError, SystemFault):
    """The deadline of the call passed; `executed` is False if it had not begun."""

    code = "deadline_exceeded"
    status = 504
