"""Callers that wait for a move: its mover until uses have ended, others until it is over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from relevo.actors import Deferred
    from relevo.governance.calls.resolver_calls import MoveStage

    StageOf = Callable[[str, str | None, int], Awaitable[MoveStage]]


class _MoveWait:
    __slots__ = ("deferred", "generation", "subject", "to", "until")

    def __init__(
        self, deferred: Deferred[Any], subject: str, to: str | None, generation: int, until: float
    ) -> None:
        self.deferred = deferred
        self.subject = subject
        self.to = to
        self.generation = generation
        self.until = until


class MoveWaits:
    """Answers that are owed to them."""

    def __init__(self) -> None:
        self._waits: list[_MoveWait] = []

    def __len__(self) -> int:
        return len(self._waits)

    def add(
        self, deferred: Deferred[Any], subject: str, to: str | None, generation: int, until: float
    ) -> Deferred[Any]:
        """Let a caller wait for a move, until a time at most; return its answer.

        Its mover, and no other, names the resource where it goes.
        """
        self._waits.append(_MoveWait(deferred, subject, to, generation, until))
        return deferred

    async def answer(self, now: float, stage_of: StageOf) -> None:
        """Answer those whose move has gone on, or who have waited long enough.

        A turn that is undone answers nobody; so they are kept until the answer has left.
        """
        self._waits = [one for one in self._waits if not one.deferred.is_over]
        for one in self._waits:
            if one.deferred.is_settled:
                continue
            stage = await stage_of(one.subject, one.to, one.generation)
            has_gone_on = stage in ("moved", "returned") or (stage == "copy" and one.to is not None)
            if has_gone_on or one.until <= now:
                one.deferred.resolve(None if one.to is None else stage)
