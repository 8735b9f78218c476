"""Decorators that say how a method of an interface or an actor is run. They only mark functions."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any, Final, TypeVar

from msgspec import Struct

from relevo.errors import InvalidValue

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS: Final = "__relevo_method__"
_TIMER: Final = "__relevo_timer__"
_REMINDER: Final = "__relevo_reminder__"
_UPGRADE: Final = "__relevo_upgrade__"


class MethodOptions(Struct, frozen=True):
    """What `@method` says."""

    read_only: bool = False
    interleave: bool = False
    idempotent: bool = False
    confirm: bool = True
    cancel: bool = False
    raises: tuple[type[Exception], ...] = ()

    def declared(self, name: str) -> type[Exception] | None:
        """Return the declared error of that name."""
        return next((kind for kind in self.raises if kind.__name__ == name), None)

    def declared_for(self, error: BaseException) -> type[Exception] | None:
        """Return the declared error that an error is, or the nearest of its bases."""
        return next((kind for kind in type(error).__mro__ if kind in self.raises), None)


class TimerMark(Struct, frozen=True):
    """What `@timer` says; times are in seconds."""

    every: float | None = None
    after: float | None = None
    keep_alive: bool = False


def method(
    *,
    read_only: bool = False,
    interleave: bool = False,
    idempotent: bool = False,
    confirm: bool = True,
    cancel: bool = False,
    raises: tuple[type[Exception], ...] | type[Exception] = (),
) -> Callable[[F], F]:
    """Set options of a method, in an interface or in an actor.

    `idempotent` and `raises` matter to callers: set them in the interface.

    `read_only`: it does not change the state, and may run beside other read-only turns.
    `interleave`: it may run between the awaits of other turns, and sees the state after the last.
    `idempotent`: the proxy may repeat a call whose outcome is not known.
    `confirm`: False lets the answer leave before the turn is stored; it may then be a lie.
    `cancel`: a canceled call ends a turn that runs already.
    `raises`: errors that reach the caller as themselves; all others become `RemoteError`.
    """
    kinds: tuple[Any, ...] = (raises,) if isinstance(raises, type) else tuple(raises)
    for kind in kinds:
        if not (isinstance(kind, type) and issubclass(kind, Exception)):
            raise InvalidValue(f"raises={kind!r} is no class of exceptions", pointer="raises")
    names = [kind.__name__ for kind in kinds]
    if len(set(names)) < len(names):
        raise InvalidValue(
            f"raises= names two errors {max(names, key=names.count)!r}; rename one of them",
            pointer="raises",
        )
    if read_only and interleave:
        raise InvalidValue(
            "a method is either read_only or interleave: choose interleave if it has to run while"
            " a turn waits, else read_only"
        )
    return _marking(
        _OPTIONS, MethodOptions(read_only, interleave, idempotent, confirm, cancel, kinds)
    )


def timer(
    *, every: float | None = None, after: float | None = None, keep_alive: bool = False
) -> Callable[[F], F]:
    """Run a method of an actor by a timer, from each activation on.

    The first tick comes `after` so many seconds (`every`, if not given); the next one `every`
    seconds after the end of the last, or never if that is not given. With `keep_alive`, ticks keep
    an idle actor in memory.
    """
    if every is None and after is None:
        raise InvalidValue("a timer needs every= or after=, in seconds", pointer="every")
    for name, value in (("every", every), ("after", after)):
        if value is not None and not (0 <= value < math.inf and (name == "after" or value > 0)):
            raise InvalidValue(f"{name}={value!r} is no time of a timer", pointer=name)
    return _marking(_TIMER, TimerMark(every, after, keep_alive))


def reminder_handler(function: F) -> F:
    """Let reminders call a method of an actor."""
    return _marking(_REMINDER, True)(function)


def upgrade(schema: int) -> Callable[[F], F]:
    """Upgrade stored state to that schema, from the one before.

    The static method gets the stored state as a dict and returns it in the form of that schema.
    """
    if type(schema) is not int or schema < 2:
        raise InvalidValue(f"{schema!r} is no schema that is upgraded to; the first one is 2")
    return _marking(_UPGRADE, schema)


class Marks(Struct, frozen=True):
    """What the decorators say of a class of actors, by name of the method."""

    methods: dict[str, MethodOptions]
    timers: dict[str, TimerMark]
    reminder_handlers: frozenset[str]
    upgrades: dict[int, Callable[[Any], Any]]
    """By the schema that they make."""


def options_of(function: Any) -> MethodOptions | None:
    """Return what `@method` says of a function, or None."""
    found: MethodOptions | None = getattr(function, _OPTIONS, None)
    return found


def markers_of(cls: type) -> Marks:
    """Return the marks of a class and its bases; raises `InvalidValue` if two contradict."""
    methods, timers, reminders = {}, {}, set()
    upgrades: dict[int, Callable[[Any], Any]] = {}
    for name in dir(cls):
        found = inspect.getattr_static(cls, name)
        below = getattr(found, "__func__", None)  # of a static method
        marks = getattr(below, "__dict__", {}) | dict(getattr(found, "__dict__", {}))
        if _OPTIONS in marks:
            methods[name] = marks[_OPTIONS]
        if _TIMER in marks:
            timers[name] = marks[_TIMER]
        if _REMINDER in marks:
            reminders.add(name)
        if _UPGRADE in marks:
            schema = marks[_UPGRADE]
            if schema in upgrades:
                raise InvalidValue(f"{cls.__name__} upgrades to schema {schema} twice")
            upgrades[schema] = getattr(cls, name)
    return Marks(methods, timers, frozenset(reminders), upgrades)


def _marking(name: str, mark: object) -> Callable[[F], F]:
    def marked(function: F) -> F:
        setattr(function, name, mark)
        return function

    return marked
