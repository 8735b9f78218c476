"""Who takes calls for a slot: what a process has read or been told, which is only a hint. Pure.

Epochs of a slot only grow, so of two statements the one with the higher epoch is the younger.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable


class Route(Struct, frozen=True):
    """The owner of a slot in an epoch, and where it takes calls."""

    epoch: int = 0
    address: str | None = None
    """None while the slot has no owner, or while it is not known."""
    owner: str | None = None
    """Name of the host, if known."""
    in_order_from: int | None = None
    """The owners from this epoch on let go in order: all answers had left before the next owner
    began. None if that is not known, and the present owner may have followed one that was lost.
    """


NOWHERE = Route()


class RouteTable:
    """The routes of the slots of a placement group.

    A statement about a slot counts if its epoch is higher than the known one, or if it adds the
    address of the same epoch. Whatever comes late is dropped.
    """

    def __init__(self) -> None:
        self._routes: dict[int, Route] = {}
        self.slots = 0
        """How many slots the group has; 0 before the first read, and if nobody serves it."""

    def route(self, slot: int) -> Route:
        """Return what is known of a slot; `NOWHERE` if nothing is."""
        return self._routes.get(slot, NOWHERE)

    def read(self, routes: Iterable[tuple[int, Route]]) -> bool:
        """Take in all slots, as the store has them; True if a slot has a new epoch."""
        count, is_news = 0, False
        for slot, route in routes:
            count += 1
            is_news = is_news or route.epoch > self.route(slot).epoch
            self.learn(slot, route)
            known = self._routes[slot]
            if known.epoch == route.epoch and known != route:
                self._routes[slot] = route  # the owner has moved its address, or has ended
        self.slots = count
        return is_news

    def learn(self, slot: int, route: Route) -> bool:
        """Take in what an answer says of a slot; True if that is news."""
        known = self._routes.get(slot)
        if known is None or route.epoch > known.epoch:
            self._routes[slot] = route
            return True
        if route.epoch == known.epoch and known.address is None and route.address is not None:
            in_order = known.in_order_from if route.in_order_from is None else route.in_order_from
            self._routes[slot] = msgspec.structs.replace(route, in_order_from=in_order)
            return True
        return False

    def forget_address(self, slot: int, epoch: int) -> None:
        """The owner of an epoch could not be reached: its address is to be read again."""
        known = self.route(slot)
        if known.epoch == epoch and known.address is not None:
            self._routes[slot] = Route(epoch, in_order_from=known.in_order_from)

    def is_late(self, slot: int, epoch: int) -> bool:
        """Whether an answer comes from an owner that was lost, and is known to have been followed.

        One that let go in order had given its answers before: they may still be on their way.
        """
        route = self.route(slot)
        first = route.epoch if route.in_order_from is None else route.in_order_from
        return epoch < first


def route_topic(unit_id: int) -> str:
    """Return the wake-up that a holder sends when it begins to take calls for a slot.

    It is not that of the unit, which makes every balancer read.
    """
    return f"route:{unit_id}"
