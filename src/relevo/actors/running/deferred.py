"""Answers that a later turn gives, and work outside of any turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

R = TypeVar("R")
_PENDING = object()


class Deferred(Generic[R]):
    """The answer of a call whose turn has ended: a later turn of the activation gives it.

    A method returns what `self.defer()` gave; the caller goes on waiting. `resolve` or `fail`
    count once, and do nothing after the caller has gone.
    """

    def __init__(self, settle: Callable[[Deferred[R], Any, BaseException | None], None]) -> None:
        self._settle = settle
        self._answer: Callable[[Any, BaseException | None], None] | None = None
        self._outcome: tuple[Any, BaseException | None] | None = None
        self.is_over = False
        """It was resolved, or it failed."""
        self.is_settled = False
        """A turn has settled it, and is not durable yet."""

    def unsettle(self) -> None:
        """Note that the turn which settled it was undone."""
        self.is_settled = False

    def resolve(self, value: R) -> None:
        """Answer the caller, once the present turn is durable."""
        self._settle(self, value, None)

    def fail(self, error: BaseException) -> None:
        """Let the call fail, once the present turn is durable."""
        self._settle(self, None, error)

    def bind(self, answer: Callable[[Any, BaseException | None], None]) -> None:
        """Say who waits for it."""
        self._answer = answer
        if self._outcome is not None:
            answer(*self._outcome)

    def finish(self, value: Any, error: BaseException | None) -> None:
        """Give the outcome to whoever waits; the first counts."""
        if self.is_over:
            return
        self.is_over = True
        self._outcome = (value, error)
        if self._answer is not None:
            self._answer(value, error)


class Offloaded(Generic[R]):
    """What came of a coroutine that ran outside of any turn."""

    __slots__ = ("error", "value")

    def __init__(self, value: Any, error: BaseException | None) -> None:
        self.value = value
        self.error = error

    def result(self) -> R:
        """Return what the coroutine returned, or raise what it raised."""
        if self.error is not None:
            raise self.error
        result: R = self.value
        return result
