"""A kitchen on Relevo: orders are items, cooks are router workers, deliveries are messages.

Receipts are system jobs; they charge customers through a pool and a limit, and one writer keeps the
ledger. A customer's account is an actor.

`relevo up kitchen:app` runs a host, `python kitchen.py Ana` a cook; `tour.py` shows both at work.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

import msgspec

import relevo
from relevo.actors import Actor, Interface

if TYPE_CHECKING:
    from collections.abc import Sequence

COST_OF = {"pizza": 50, "donair": 33, "burger": 25}
"""How much of a cook's capacity of 100 a dish takes."""
PRICE_OF = {"pizza": 12, "donair": 8, "burger": 9, "paella": 16}
SPECIAL = "paella"
"""Only Dora can make it, whose program uses Microsoft's client: see official.py."""
QUEUE = "orders"
OFFER_SECONDS = 2.0
COOKING_SECONDS = 0.2
ORDERS_KEPT = 1_000
PAYING = "Uxía"
"""Her orders are delivered before those of other customers."""

app = relevo.App()
orders = app.container("orders", partition_key="/city")
deliveries = app.priority_topic("deliveries", {"high": 4, "low": 1})
payments = app.governance.pool("payments", size=2)
charges = app.governance.limit("charges", rates=[relevo.Rate(20, per=1)])
ledger = app.governance.writer(
    "ledger", sink=relevo.CsvSink(f"{app.settings.home}/{{key}}.csv", ["order", "customer"])
)


class Account(Interface):
    """What others may ask of a customer's account."""

    async def charge(self, order: str, price: int) -> None:
        """Put an order on the account."""

    async def statement(self) -> AccountState:
        """Return what is on the account."""


class AccountState(msgspec.Struct):
    """What a customer has ordered, and owes."""

    orders: list[str] = msgspec.field(default_factory=list)
    """The last `ORDERS_KEPT`."""
    count: int = 0
    owed: int = 0


@app.actor("account", implements=Account)
class AccountActor(Actor[AccountState]):
    """One account; any host may hold it, and only one at a time does."""

    async def charge(self, order: str, price: int) -> None:
        """Put an order on the account."""
        self.state.orders = [*self.state.orders[1 - ORDERS_KEPT :], order]
        self.state.count += 1
        self.state.owed += price

    async def statement(self) -> AccountState:
        """Return what is on the account."""
        return self.state


@app.job("receipt", token=lambda customer, order: customer)
async def receipt(customer: str, order: str) -> str:
    """Charge the customer and write the receipt. Those of one customer are written in order.

    The payment provider takes two at a time and 20 a second, from all hosts together. One writer
    holds the ledger, and answers when the line is on disk; a repeated receipt adds no second line.
    """
    async with payments.lease(timeout=30):
        await charges.acquire(timeout=30)
    await ledger["receipts"].write({"order": order, "customer": customer}, id=f"order-{order}")
    return f"order {order}"


@app.job("report")
async def report() -> int:
    """Count the receipts of the day."""
    return await app.jobs.query().where(handler="receipt").count()


@deliveries.on_messages("high")
@deliveries.on_messages("low")
async def deliver(msg: relevo.Received) -> None:
    """Bring an order to its customer."""
    order = msg.properties
    status = {"op": "set", "path": "/status", "value": "delivered"}
    await orders.patch(str(order["order"]), order["city"], [status])


@orders.on_changes("kitchen", start="beginning")
async def follow_orders(ctx: Any, changes: Sequence[relevo.Change[Any]]) -> None:
    """Route new orders to cooks; send cooked ones on their way, with a receipt.

    A batch may come twice. The order's id makes a repeated router job the same job. Deliveries,
    receipts and charges are committed together with the checkpoint of the batch.
    """
    for order in (change.item for change in changes):
        if order["status"] == "new":
            await app.router.create_job(
                channel(order["dish"]), job_id=order["id"], queue=QUEUE,
                tags={"city": order["city"], "dish": order["dish"]},
            )  # fmt: skip
    async with ctx.transaction() as tx:
        for order in (change.item for change in changes):
            if order["status"] == "cooked":
                await receipt.using(tx=tx).submit(order["customer"], order["id"])
                account = app.actors.send(app.actor(Account, order["customer"]), tx=tx)
                await account.charge(order["id"], PRICE_OF[order["dish"]])
                about = {"order": order["id"], "city": order["city"]}
                wanted = "high" if order["customer"] == PAYING else "low"
                await deliveries.send(b"", properties={"Priority": wanted, **about}, tx=tx)


def channel(dish: str) -> str:
    """Return the router's channel for a dish, such as `MakePizza`."""
    return f"Make{dish.title()}"


async def furnish() -> None:
    """Define the channels, the distribution policy and the queue; safe to repeat."""
    for dish in (*COST_OF, SPECIAL):
        await app.router.define_channel(channel(dish), f"Make a {dish}")
    await app.router.set_distribution_policy("fair", offer_ttl=OFFER_SECONDS)
    await app.router.set_queue(QUEUE, distribution_policy="fair")


async def register(cook: str) -> None:
    """Register a cook; from now on the router makes offers to it."""
    await app.router.register_worker(
        cook,
        queues=[QUEUE],
        total_capacity=100,
        channels={channel(dish): cost for dish, cost in COST_OF.items()},
    )


async def prepare(offer: relevo.Offer, seconds: float = COOKING_SECONDS) -> None:
    """Accept an offer, cook the dish and mark the order; raises `OfferGone` if it is too late."""
    async with offer.accepted() as job:
        await asyncio.sleep(seconds)
        await mark_cooked(offer.job_id, job.tags["city"])


async def mark_cooked(order: str, city: str) -> None:
    """Mark an order; its receipt follows."""
    await orders.patch(order, city, [{"op": "set", "path": "/status", "value": "cooked"}])


async def work(cook: str) -> None:
    """Register a cook and prepare everything that it is offered."""
    async with app:
        await furnish()
        await register(cook)
        async for offer in app.router.worker(cook).offers():
            await prepare(offer)
            print(cook, "has prepared order", offer.job_id, flush=True)


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1]))
