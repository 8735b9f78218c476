"""Blocking methods that are made from the async ones, with their names, parameters and types."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, overload

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from relevo.sync.loop_thread import LoopThread

P = ParamSpec("P")
R = TypeVar("R")


class Facade:
    """An object of the async API, for callers that block."""

    def __init__(self, thread: LoopThread, behind: Any) -> None:
        self._thread = thread
        self._behind = behind

    def __repr__(self) -> str:
        """Show what is behind it."""
        return f"sync {self._behind!r}"


class Blocking(Generic[P, R]):
    """A method that runs the async method of the object behind, and waits for it.

    class Queue(Facade):
        send = Blocking(messaging.Queue.send)
    """

    def __init__(self, method: Callable[Concatenate[Any, P], Awaitable[R]]) -> None:
        self._method = method
        self.__doc__ = method.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> Blocking[P, R]: ...

    @overload
    def __get__(self, instance: Facade, owner: type) -> Callable[P, R]: ...

    def __get__(self, instance: Facade | None, owner: type) -> Blocking[P, R] | Callable[P, R]:
        """Return the method of an instance."""
        if instance is None:
            return self

        @functools.wraps(self._method)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            return instance._thread.run(self._method(instance._behind, *args, **kwargs))

        return call
