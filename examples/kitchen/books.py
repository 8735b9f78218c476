"""Checks the books: every order has ended exactly once, wherever one can look."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import kitchen

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

SETTLE_SECONDS_MAX = 60.0
Evidence = dict[str, Counter[str]]
"""What was found for each order, by its id: so many router jobs, receipts, and so on."""


async def evidence(customers: Iterable[str]) -> Evidence:
    """Look up what there is of every order, by its id."""
    app = kitchen.app
    delivered = kitchen.orders.query(where=[("status", "=", "delivered")])
    statements = [await app.actor(kitchen.Account, customer).statement() for customer in customers]
    return {
        "deliveries": Counter([item.id async for item in delivered]),
        "completed router jobs": Counter(
            [
                job.id
                async for job in app.router.jobs(status="closed")
                for assignment in job.assignments.values()
                if assignment.completed_at is not None
            ]
        ),
        "receipts": await receipts(),
        "ledger lines": Counter(line.split(",")[0] for line in ledger_lines()),
        "charges": Counter(order for each in statements for order in each.orders),
    }


async def receipts() -> Counter[str]:
    """Return the receipts of each order, by its id."""
    done = kitchen.app.jobs.query().where(handler="receipt", status="succeeded")
    return Counter([str(job.data["order"]) async for job in done])


async def settled(orders: Collection[str], customers: Collection[str]) -> Evidence:
    """Return the evidence as soon as no order lacks anything, or after `SETTLE_SECONDS_MAX`."""
    found = await evidence(customers)
    with suppress(TimeoutError):
        async with asyncio.timeout(SETTLE_SECONDS_MAX):
            while any(not counts.keys() >= set(orders) for counts in found.values()):
                await asyncio.sleep(0.5)
                found = await evidence(customers)
    return found


def ledger_lines() -> list[str]:
    """Return the lines of the ledger without its heading."""
    path = Path(kitchen.app.settings.home) / "receipts.csv"
    return path.read_text("utf-8").splitlines()[1:] if path.exists() else []


def faults(orders: Iterable[str], found: Mapping[str, Counter[str]]) -> list[str]:
    """Say for which orders there is not exactly one of everything."""
    return [
        f"order {order} has {counts[order]} {name}"
        for order in orders
        for name, counts in found.items()
        if counts[order] != 1
    ]


def verdict(orders: Iterable[str], found: Mapping[str, Counter[str]]) -> str:
    """Say whether every order has ended exactly once."""
    expected = list(orders)
    wrong = faults(expected, found)
    if wrong:
        return "\n".join(("The books are wrong:", *wrong))
    return f"{len(expected)} orders, each with exactly one of: {', '.join(found)}."
