"""What turns do, recorded for tests: that they ran, were stored, and what left the host.

Records name the actor, its activation, the slot with its epoch, and the chain. The time of an
output is from before the host looked whether it may act: it cannot be younger than that look.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from relevo.actors.core.numbers import Numbers
from relevo.kernel.leases.hosts import instant

if TYPE_CHECKING:
    import asyncio

    from relevo.actors.running.activation import Activation
    from relevo.actors.running.turn import Turn

Record = Callable[..., None]
"""Gets an event, `at=` and details."""


class TurnRecorder:
    """Records the turns of actors of a host; those of stateless types have no place in it."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._numbers = Numbers()
        """Unlike those of an earlier process of the same host."""
        self._known: WeakKeyDictionary[Activation, tuple[int, int]] = WeakKeyDictionary()
        """Number of each activation, and the revision that it was loaded with."""

    def begin(self, turn: Turn) -> float:
        """Return when a turn begins."""
        activation = turn.activation
        if activation not in self._known:
            self._known[activation] = self._numbers.take(), activation.revision
        return instant()

    def ended(self, turn: Turn, began: float) -> None:
        """Record that the code of a turn has ended."""
        work = turn.work
        self._note("turn", turn.activation, began, until=instant(), turn=turn.id, name=work.name,
                   mode=work.mode, chain=turn.chain.id, lost=turn.given_up)  # fmt: skip

    def committed(self, activation: Activation, revision: int, mark: asyncio.Future[None]) -> None:
        """Record that a revision was stored."""
        if not mark.cancelled() and mark.exception() is None:
            self._note("commit", activation, instant(), revision=revision)

    def left(self, turn: Turn, at: float) -> None:
        """Record that the result and the outputs of a turn leave."""
        self._note(
            "output", turn.activation, at, turn=turn.id, name=turn.work.name,
            chain=turn.chain.id, revision=turn.revision,
        )  # fmt: skip

    def _note(self, event: str, activation: Activation, at: float, **details: Any) -> None:
        fence = activation.home.lease.fence
        if fence.lease_id == 0:
            return
        number, loaded = self._known.get(activation, (0, 0))
        self._record(
            event, at=at, actor=activation.canonical, activation=number, loaded=loaded,
            unit=fence.unit, lease=fence.name, epoch=fence.epoch, **details,
        )  # fmt: skip
