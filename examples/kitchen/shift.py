"""A shift in the kitchen: simulated customers who order, and cooks who answer offers."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import kitchen
import relevo

if TYPE_CHECKING:
    from random import Random

COOKS = ("Ana", "Bo", "Carla")
CUSTOMERS = ("Iria", "Uxía", "Xoán")
CITIES = ("Vigo", "Lugo", "Ourense", "Pontevedra", "Ferrol", "Santiago")
ORDER_SECONDS = 0.8
COOKING_SECONDS = (0.5, 3.0)
DECLINED = 0.04
IGNORED = 0.02
"""Shares of the offers that a cook declines, or lets expire and takes a break."""
BREAK_SECONDS = 5.0


class Shift:
    """Customers and cooks who work side by side; `status_of` follows every order of the shift."""

    def __init__(self, first: int, random: Random, *, pause: float = ORDER_SECONDS) -> None:
        self.status_of: dict[str, str] = {}
        self.doing: dict[str, str] = dict.fromkeys(COOKS, "waits for an offer")
        self.cooked: Counter[str] = Counter()
        self._next = first
        self._random = random
        self._pause = pause
        self._hurried = pause == 0
        self._changed = asyncio.Condition()
        self._stopping = asyncio.Event()
        self._stopped = asyncio.Event()

    async def run(self, orders: int | None = None) -> None:
        """Work until canceled; customers place so many orders, or go on."""
        await asyncio.gather(*map(kitchen.register, COOKS))
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow())
            for cook in COOKS:
                group.create_task(self._cook(cook))
            group.create_task(self._place(orders))

    def stop_orders(self) -> None:
        """Let customers order nothing more."""
        self._stopping.set()

    async def delivered(self, count: int) -> None:
        """Wait until so many orders have reached their customers."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._states()["delivered"] >= count)

    async def all_delivered(self) -> None:
        """Wait until customers have stopped to order, and no order is open."""
        await self._stopped.wait()
        await self.delivered(len(self.status_of))

    def _states(self) -> Counter[str]:
        return Counter(self.status_of.values())

    async def _place(self, orders: int | None) -> None:
        placed = 0
        while placed != orders and not self._stopping.is_set():
            await place(self._next, self._random.choice(tuple(kitchen.COST_OF)))
            self.status_of.setdefault(str(self._next), "new")
            self._next += 1
            placed += 1
            with suppress(TimeoutError):
                async with asyncio.timeout(self._random.uniform(0.3, 1.7) * self._pause):
                    await self._stopping.wait()
        self._stopped.set()

    async def _follow(self) -> None:
        """Read the change feed as any program can, to know the status of every order."""
        following = kitchen.orders.read_changes(start="beginning", wait=math.inf)
        async for page in following:
            async with self._changed:
                for change in page.changes:
                    if change.id in self.status_of or int(change.id) >= self._next:
                        self.status_of[change.id] = change.item["status"]
                self._changed.notify_all()

    async def _cook(self, name: str) -> None:
        async with asyncio.TaskGroup() as group:
            async for offer in kitchen.app.router.worker(name).offers():
                group.create_task(self._answer(name, offer))

    async def _answer(self, cook: str, offer: relevo.Offer) -> None:
        tags: Any = offer.about.job_tags
        about = f"order {offer.job_id} ({tags['dish']} for {tags['city']})"
        mood = 1.0 if self._hurried else self._random.random()
        try:
            if mood < DECLINED:
                await offer.decline()
                self.doing[cook] = f"declined {about}"
            elif mood < DECLINED + IGNORED:
                await self._take_a_break(cook)
            else:
                self.doing[cook] = f"cooks {about}"
                seconds = 0.0 if self._hurried else self._random.uniform(*COOKING_SECONDS)
                await kitchen.prepare(offer, seconds)
                self.cooked[cook] += 1
        except relevo.OfferGone:
            self.doing[cook] = f"was too late for {about}"

    async def _take_a_break(self, cook: str) -> None:
        """Answer no offer: when it expires, the router offers nothing until the cook is back."""
        self.doing[cook] = "takes a break and answers no offer"
        while (await kitchen.app.router.get_worker(cook)).available_for_offers:
            await asyncio.sleep(0.5)
        await asyncio.sleep(BREAK_SECONDS)
        await kitchen.register(cook)
        self.doing[cook] = "is back from a break"


async def place(number: int, dish: str) -> None:
    """Store an order; the feed does the rest."""
    await kitchen.orders.create(
        {
            "id": str(number),
            "city": city_of(number),
            "dish": dish,
            "customer": CUSTOMERS[number % len(CUSTOMERS)],
            "status": "new",
        }
    )


def city_of(order: int) -> str:
    """Return the city that an order comes from."""
    return CITIES[order % len(CITIES)]
