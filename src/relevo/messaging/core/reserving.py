"""Slots of consumers: which class may use a free one.

Slots that a class has reserved and does not use are closed to the classes below it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from relevo.errors import InvalidValue
from relevo.messaging.model import PriorityClass

if TYPE_CHECKING:
    from collections.abc import Iterable

Obstacle = Literal["no_slot", "class_full", "reserved", "key_full"]


class Reservation(Struct, frozen=True):
    """Slots that classes below `of` may not use."""

    of: PriorityClass
    slots: int


class Slots(Struct, frozen=True, kw_only=True):
    """The slots of one set of consumers on one host, and their use."""

    free: int
    in_use: Mapping[str, int] = {}
    """Slots by the class whose messages are in them."""
    keys_in_use: Mapping[str, int] = {}
    """Slots by the fairness key of their messages."""
    reserved: tuple[Reservation, ...] = ()
    """Of the classes of all sources, each once."""
    max_per_class: Mapping[str, int] = {}
    max_per_fairness_key: int | None = None

    def obstacle(self, of: PriorityClass, key: str = "") -> Obstacle | None:
        """Return why a message of a class may not have a slot; None if it may."""
        if self.free < 1:
            return "no_slot"
        if _reached(self.max_per_class.get(of.name), self.in_use.get(of.name, 0)):
            return "class_full"
        if self.free <= sum(self._kept(one) for one in self.reserved if one.of.base > of.base):
            return "reserved"
        if _reached(self.max_per_fairness_key, self.keys_in_use.get(key, 0)):
            return "key_full"
        return None

    def take(self, of: str, key: str = "") -> Slots:
        """Return the slots after one more message of a class got one."""
        return replace(
            self,
            free=self.free - 1,
            in_use={**self.in_use, of: self.in_use.get(of, 0) + 1},
            keys_in_use={**self.keys_in_use, key: self.keys_in_use.get(key, 0) + 1},
        )

    def _kept(self, reservation: Reservation) -> int:
        return max(0, reservation.slots - self.in_use.get(reservation.of.name, 0))


def limits_text(slots: Slots) -> str:
    """Return the limits of `relevo.claim_messages`: what is free, reserved, capped and in use."""
    classes: dict[str, dict[str, Any]] = {}
    for name, used in slots.in_use.items():
        of = classes.setdefault(name.lower(), {})
        of["used"] = of.get("used", 0) + used
    for name, most in slots.max_per_class.items():
        classes.setdefault(name.lower(), {})["most"] = most
    for one in slots.reserved:
        classes.setdefault(one.of.name.lower(), {}).update(base=one.of.base, reserved=one.slots)
    limits: dict[str, Any] = {"free": slots.free, "classes": classes}
    if slots.max_per_fairness_key is not None:
        limits |= {"key_most": slots.max_per_fairness_key, "keys": dict(slots.keys_in_use)}
    return msgspec.json.encode(limits).decode()


def _reached(most: int | None, used: int) -> bool:
    return most is not None and used >= most


def reservations(
    classes: Iterable[PriorityClass], given: Mapping[str, int] | None, concurrency: int
) -> tuple[Reservation, ...]:
    """Return the slots that consumers reserve: as given, else as the classes of sources say."""
    known = {one.name.lower(): one for one in classes}
    wanted = {name: one.reserved for name, one in known.items()}
    for name, slots in (given or {}).items():
        if name.lower() not in known:
            raise InvalidValue(
                f"reserved names a class {name!r}, which no source has; the classes are"
                f" {', '.join(one.name for one in known.values())}",
                pointer="reserved",
            )
        wanted[name.lower()] = slots
    if min(wanted.values(), default=0) < 0 or sum(wanted.values()) > concurrency:
        raise InvalidValue(
            f"reserved is {wanted}, and there are {concurrency} slots; the numbers must not be"
            " negative, nor more than the slots together",
            pointer="reserved",
        )
    return tuple(Reservation(known[name], slots) for name, slots in wanted.items() if slots)
