"""What an app defines: types of actors, by name."""

from __future__ import annotations

import inspect
import os
import typing
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypedDict, TypeVar

from msgspec import Struct

from relevo import limits
from relevo.actors.actor import Actor
from relevo.actors.core.identity import checked_type
from relevo.actors.core.mailbox import Overflow
from relevo.actors.implementations import check_implementation
from relevo.actors.markers import markers_of
from relevo.actors.running.context import ActorContext
from relevo.actors.running.memory.document import StateCodec
from relevo.errors import Conflict, InvalidValue, NotFound
from relevo.kernel import checking
from relevo.kernel.events import Catalogue
from relevo.kernel.telemetry.turns import ActorFigures, TurnFigures

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from relevo.actors.calls.filters import Filter
    from relevo.actors.calls.message_proxies import Place
    from relevo.actors.interfaces import Interfaces
    from relevo.actors.markers import TimerMark
    from relevo.actors.running.activation import Activation
    from relevo.actors.signatures import MethodSpec
    from relevo.kernel.telemetry.metrics import Durations

C = TypeVar("C", bound=type[Actor[Any]])
Permit = Callable[[], AbstractAsyncContextManager[Any]]
Persist = Literal["durable", "volatile"]
Kind = Literal["durable", "volatile", "stateless"]
Reentrancy = Literal["chain", "none"]
_NAMED: Final = frozenset({"method", "message"})
"""Kinds of work whose names are those of methods; others may be named by users' data."""


class NoState(Struct):
    """The state of actors that declare none."""


class ActorOptions(Struct, frozen=True, kw_only=True):
    """The options of a type, as `App.actor` explains them."""

    placement_group: str = "default"
    persist: Kind = "durable"
    reentrancy: Reentrancy = "chain"
    schema: int = 1
    idle_after: float | None = None
    """None is the setting `actors_idle_seconds`."""
    mailbox: int = limits.ACTOR_MAILBOX_CALLS
    overflow: Overflow = "newest"
    turn_timeout: float = limits.ACTOR_TURN_SECONDS
    max_local: int | None = None
    """Activations of a stateless type on a host; None for others."""
    max_cluster: int | None = None
    """Calls of a stateless type that run at once on all hosts; None is no limit."""

    def __post_init__(self) -> None:
        for name, value, allowed in (
            ("persist", self.persist, ("durable", "volatile", "stateless")),
            ("reentrancy", self.reentrancy, ("chain", "none")),
            ("overflow", self.overflow, ("newest", "oldest")),
        ):
            if value not in allowed:
                raise InvalidValue(f"{name} is {' or '.join(allowed)}, not {value!r}", pointer=name)
        for name in (
            "idle_after", "turn_timeout", "mailbox", "schema", "max_local", "max_cluster"
        ):  # fmt: skip
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise InvalidValue(f"{name} must be above 0", pointer=name)


class ActorTypeOptions(TypedDict, total=False):
    """The same as keywords."""

    placement_group: str
    persist: Persist
    reentrancy: Reentrancy
    schema: int
    idle_after: float
    mailbox: int
    overflow: Overflow
    turn_timeout: float


class StatelessTypeOptions(TypedDict, total=False):
    """The options of a stateless type as keywords, as `App.stateless` explains them."""

    placement_group: str
    idle_after: float
    mailbox: int
    turn_timeout: float


def check_declaration(
    decorator: str, name: str, implements: Any, options: Mapping[str, Any], allowed: type
) -> None:
    """Refuse a declaration without an interface, or with an option that does not exist."""
    what = f"@{decorator}({name!r})"
    checking.options(what, options, allowed.__annotations__)
    if implements == ():
        raise InvalidValue(
            f"{what} needs implements=, the interface that callers use: a class derived from"
            " relevo.actors.Interface"
        )


class RegisteringActor(Protocol):
    """Makes the class below it a type of actors."""

    def __call__(self, cls: C) -> C:
        """Return the class as it is."""


class ActorDefinition:
    """A type of actors: its class, the methods that can be called, and how its state is stored."""

    def __init__(
        self,
        name: str,
        cls: type[Actor[Any]],
        implements: tuple[type, ...],
        options: ActorOptions,
        interfaces: Interfaces,
        place: Place,
        permit: Permit | None = None,
    ) -> None:
        self.name = checked_type(name)
        given: Any = cls
        if not isinstance(given, type) or not issubclass(given, Actor):
            raise InvalidValue(
                f"the decorator of the actor type {name!r} stands above a class derived from"
                f" relevo.actors.Actor, not above {given!r}"
            )
        self.cls = cls
        self.implements = implements
        self.options = options
        self.place = place
        self.permit = permit
        """What a call of a stateless type runs under, if those of all hosts are bounded."""
        self.codecs = interfaces
        self.figures = ActorFigures()
        self._figures: dict[str, TurnFigures] = {}
        self.events = Catalogue()
        self.incoming: Sequence[Filter] = ()
        """Filters around its turns; the first is the outermost."""
        self.methods: dict[str, MethodSpec] = check_implementation(
            cls, [interfaces.of(one) for one in implements]
        )
        self.plain_methods = _plain_methods(cls, self.methods)
        """Methods that run in a thread."""
        self.hooks = frozenset(
            each for each in ("on_activate", "on_deactivate")
            if getattr(cls, each) is not getattr(Actor, each)
        )  # fmt: skip
        """Methods of the life cycle that do something."""
        marks = markers_of(cls)
        self.timers: dict[str, TimerMark] = marks.timers
        self.reminder_handlers: frozenset[str] = marks.reminder_handlers
        self.codec: StateCodec[Any] = StateCodec(
            _state_type(cls), schema=options.schema, upgrades=marks.upgrades,
            codecs=interfaces,
        )  # fmt: skip
        try:
            self.codec.encode(self.codec.new())
        except TypeError as error:
            raise InvalidValue(
                f"the state of {cls.__qualname__} ({self.codec.kind.__qualname__}) must be"
                f" constructible without arguments: {error}"
            ) from error

        if self.is_stateless:
            _check_stateless(self)

    def figures_of(self, work: str) -> TurnFigures:
        """Return what counts turns by the name of their work: by method, or by their kind."""
        found = self._figures.get(work)
        if found is None:
            kind, _, name = work.partition(" ")
            found = self.figures.of(self.name, name if kind in _NAMED else kind)
            if kind in _NAMED:
                self._figures[work] = found
        return found

    @cached_property
    def gate_waits(self) -> Durations:
        """How long answers waited for the commits before them."""
        return self.figures.gate(self.name)

    @property
    def is_durable(self) -> bool:
        """Whether the state is stored."""
        return self.options.persist == "durable"

    @property
    def is_stateless(self) -> bool:
        """Whether there is no actor behind a name, but activations as there is work for them."""
        return self.options.persist == "stateless"

    def make(self, activation: Activation) -> Actor[Any]:
        """Build the object of an activation."""
        instance = self.cls.__new__(self.cls)
        instance._activation = activation
        instance.__init__(ActorContext(activation))  # type: ignore[misc]
        return instance

    def set_timers(self, activation: Activation) -> None:
        """Set the timers that the class declares."""
        for name, mark in self.timers.items():
            activation.timers.set(
                name, getattr(activation.instance, name), every=mark.every, after=mark.after,
                keep_alive=mark.keep_alive,
            )  # fmt: skip


class ActorTypes:
    """The types that an app defines."""

    def __init__(self, events: Catalogue) -> None:
        self.events = events
        """The types of events that turns may log."""
        self.by_name: dict[str, ActorDefinition] = {}
        self.on_added: Callable[[], None] | None = None
        """Hears of types that are defined while a host serves."""
        self._served: frozenset[str] | None = None
        self.figures = ActorFigures()
        self.incoming: list[Filter] = []

    def add(self, definition: ActorDefinition) -> None:
        """Take a type in; raises `Conflict` if there is another of its name."""
        if definition.name in self.by_name:
            other = self.by_name[definition.name].cls
            raise Conflict(
                f"the actor type {definition.name!r} is defined twice: by {other.__qualname__} and"
                f" by {definition.cls.__qualname__}; give each its own name"
            )
        definition.figures, definition.incoming = self.figures, self.incoming
        definition.events = self.events
        self.by_name[definition.name] = definition
        if self.on_added is not None:
            self.on_added()

    def of_interface(self, interface: type, *, stateless: bool = False) -> str:
        """Return the one type that implements an interface."""
        names = sorted(
            definition.name for definition in self.by_name.values()
            if definition.is_stateless == stateless
            and any(issubclass(one, interface) for one in definition.implements)
        )  # fmt: skip
        if len(names) == 1:
            return names[0]
        if not names:
            kind = "stateless" if stateless else "actor"
            raise NotFound(
                f"no {kind} type of this app implements {interface.__qualname__}; give type=, or"
                f" define one with @app.{kind}(…, implements={interface.__qualname__})"
            )
        raise InvalidValue(
            f"{', '.join(names)} implement {interface.__qualname__}; say which by type=",
            pointer="type",
        )

    def serve_only(self, names: Iterable[str]) -> None:
        """Serve only the placement groups of these types, with all types in them."""
        self._served = frozenset(names) & self.by_name.keys()

    def groups(self) -> set[str]:
        """Return the placement groups that have types."""
        return {one.options.placement_group for one in self.by_name.values()}

    def served_groups(self) -> set[str]:
        """Return those that this host is to serve, as far as its settings name them."""
        if self._served is None:
            return self.groups()
        return {self.by_name[name].options.placement_group for name in self._served}


def default_max_local() -> int:
    """Return how many activations of a stateless type a host has at most, unless the type says."""
    cores = os.cpu_count() or 1
    return min(limits.ACTOR_STATELESS_MAX, limits.ACTOR_STATELESS_PER_CORE * cores)


def _check_stateless(definition: ActorDefinition) -> None:
    """Raise `InvalidValue` for a class that expects something stored."""
    name, kind = definition.cls.__qualname__, definition.codec.kind
    if kind not in (NoState, type(None)):
        raise InvalidValue(
            f"{name} declares the state {kind.__qualname__}, and {definition.name!r} is stateless;"
            " derive it from Actor[None], and keep caches in plain attributes"
        )
    if definition.reminder_handlers:
        raise InvalidValue(
            f"{', '.join(sorted(definition.reminder_handlers))} of {name}: a stateless type has no"
            " reminders; use timers, or an actor that calls it"
        )


def _state_type(cls: type[Actor[Any]]) -> type[Any]:
    """Return `S` of `Actor[S]`, also through base classes."""
    for base in cls.__mro__:
        for parent in getattr(base, "__orig_bases__", ()):
            origin = typing.get_origin(parent)
            if isinstance(origin, type) and issubclass(origin, Actor):
                (kind,) = typing.get_args(parent)
                if isinstance(kind, type) or typing.get_origin(kind) is not None:
                    return typing.cast("type[Any]", kind)
    return NoState


def _plain_methods(cls: type[Actor[Any]], names: Iterable[str]) -> frozenset[str]:
    return frozenset(
        each for each in names
        if not inspect.iscoroutinefunction(inspect.getattr_static(cls, each))
    )  # fmt: skip
