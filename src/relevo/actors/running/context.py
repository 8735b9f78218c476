"""What the runtime tells and offers an actor: `self.ctx`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from relevo.actors.running.turn import turn_of
from relevo.errors import InvalidValue, ReadOnlyTurn

if TYPE_CHECKING:
    from relevo.actors.core.identity import ActorRef
    from relevo.actors.running.activation import Activation
    from relevo.kernel.leases.model import Fence


class ActorContext:
    """The surroundings of one activation."""

    def __init__(self, activation: Activation) -> None:
        self._activation = activation

    @property
    def ref(self) -> ActorRef:
        """Who this actor is."""
        return self._activation.ref

    @property
    def key(self) -> object:
        """The key of this actor."""
        return self._activation.ref.key

    @property
    def fence(self) -> Fence:
        """Proof that this host owns the actor's slot; pass it to what the actor writes to.

        Raises `InvalidValue` in a stateless type: it owns nothing.
        """
        if self._activation.definition.is_stateless:
            raise InvalidValue(
                f"{self._activation.definition.name!r} is stateless and owns no slot; an actor with"
                " a key can prove that it is the only one"
            )
        return self._activation.home.lease.fence

    def check_fence(self) -> None:
        """Raise `LeaseLost` or `HostFenced` unless this host may act for the actor now."""
        self._activation.home.lease.check()

    @property
    def canceled(self) -> bool:
        """Whether the caller of the present turn has gone."""
        return turn_of(self._activation, "the context").was_canceled

    def deactivate_when_idle(self) -> None:
        """Leave memory as soon as nothing runs or waits."""
        self._activation.leave_when_idle = True

    def keep_for(self, seconds: float) -> None:
        """Stay in memory for at least so many seconds."""
        if not 0 <= seconds <= 86_400 * 366:
            raise InvalidValue(f"an actor cannot be kept for {seconds!r} seconds")
        self._activation.keep(seconds)

    def delete(self) -> None:
        """Remove this actor and all that is stored of it when the present turn commits.

        Calls that wait are handled by a fresh actor of the same id.
        """
        turn = turn_of(self._activation, "the context")
        if self._activation.definition.is_stateless:
            raise InvalidValue(
                f"nothing is stored of {self._activation.canonical}, which is stateless; to leave"
                " memory, use deactivate_when_idle()"
            )
        if not turn.may_write:
            raise ReadOnlyTurn(f"{turn.work.name} only reads, and cannot delete its actor")
        turn.journal.deleted = True
