"""Slots of consumers: which class may use a free one.

Slots that a class has reserved and does not use are closed to the classes below it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from msgspec import Struct
from msgspec.structs import replace

from relevo.errors import InvalidValue

if TYPE_CHECKING:
    from relevo.messaging.model import PriorityClass

Obstacle = Literal["no_slot", "class_full", "reserved", "key_full"]


class Slots(Struct, frozen=True, kw_only=True):
    """The slots of one set of consumers on one host, and who uses them."""

    free: int
    in_use: Mapping[str, int] = {}
    """Slots by the class whose messages are in them."""
    keys_in_use: Mapping[str, int] = {}
    """Slots by the fairness key of their messages."""
    reserved: Mapping[str, int] = {}
    max_per_class: Mapping[str, int] = {}
    max_per_fairness_key: int | None = None

    def obstacle(self, of: str, above: Sequence[str], key: str = "") -> Obstacle | None:
        """Return why a message of a class may not have a slot; None if it may.

        `above` names the classes of higher priority.
        """
        if self.free < 1:
            return "no_slot"
        if self.in_use.get(of, 0) >= self.max_per_class.get(of, self.free + self.used):
            return "class_full"
        if self.free <= sum(self._kept(name) for name in above):
            return "reserved"
        if (
            self.max_per_fairness_key is not None
            and self.keys_in_use.get(key, 0) >= self.max_per_fairness_key
        ):
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

    @property
    def used(self) -> int:
        """How many are in use."""
        return sum(self.in_use.values())

    def _kept(self, name: str) -> int:
        return max(0, self.reserved.get(name, 0) - self.in_use.get(name, 0))


def above(classes: Sequence[PriorityClass], of: PriorityClass) -> tuple[str, ...]:
    """Return the names of the classes of higher priority."""
    return tuple(one.name for one in classes if one.base > of.base)


def reserved_slots(
    classes: Sequence[PriorityClass], given: Mapping[str, int] | None, concurrency: int
) -> dict[str, int]:
    """Return the slots that consumers reserve: as given, else as their classes say."""
    known = {one.name.lower(): one for one in classes}
    found = {one.name: one.reserved for one in classes if one.reserved}
    for name, slots in (given or {}).items():
        if name.lower() not in known:
            raise InvalidValue(
                f"reserved names a class {name!r}, which no source has; the classes are"
                f" {', '.join(one.name for one in classes)}",
                pointer="reserved",
            )
        found[known[name.lower()].name] = slots
    if min(found.values(), default=0) < 0 or sum(found.values()) > concurrency:
        raise InvalidValue(
            f"reserved is {found}, and there are {concurrency} slots; the numbers must not be"
            " negative, nor more than the slots together",
            pointer="reserved",
        )
    return found
