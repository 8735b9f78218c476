"""Events that actors emit to whoever subscribes; unlike those of the event log, none is stored.

class Scores(Events):
    changed: Event[int]

self.emit(Scores.changed, 5)                     # in a turn

async with proxy.subscribe(Scores) as stream:
    async for event in stream:
        match event:
            case Gap(): ...                      # some were lost
            case ActorEvent(): print(event.value)
"""

from __future__ import annotations

import typing
from typing import Any, Generic, TypeVar

from msgspec import Raw, Struct

from relevo.errors import InvalidValue

V = TypeVar("V")


class Event(Generic[V]):
    """A kind of event, with values of a type."""

    def __init__(self, name: str, kind: Any) -> None:
        self.name = name
        self.kind = kind

    def __repr__(self) -> str:
        return f"Event({self.name})"


class Events:
    """Base of the classes that list events: `changed: Event[Score]`."""

    def __init_subclass__(cls) -> None:
        for name, hint in typing.get_type_hints(cls).items():
            if typing.get_origin(hint) is not Event:
                raise InvalidValue(f"{cls.__name__}.{name} is no event; annotate it Event[…]")
            (kind,) = typing.get_args(hint)
            if name not in vars(cls) and not hasattr(cls, name):
                setattr(cls, name, Event(f"{cls.__name__}.{name}", kind))

    @classmethod
    def all(cls) -> dict[str, Event[Any]]:
        """Return its events by their full names."""
        found = [getattr(cls, name) for name in typing.get_type_hints(cls)]
        return {event.name: event for event in found}


class ActorEvent(Struct, frozen=True):
    """An event that an actor has emitted."""

    event: Any
    """The `Event` of which it is."""
    value: Any
    sequence: int
    """Grows by one with each event of the subscription."""


class Gap(Struct, frozen=True):
    """Events that were lost: the subscriber was too slow, or the actor has moved.

    After a move, how many were lost is not known: the gap stands for any number, even none.
    """

    first: int
    last: int


class EventMessage(Struct, frozen=True, array_like=True):
    """An event on its way."""

    event: str
    value: Raw


class SubscribeRequest(Struct, frozen=True, array_like=True):
    """A request for events of an actor."""

    actor: str
    events: tuple[str, ...]
