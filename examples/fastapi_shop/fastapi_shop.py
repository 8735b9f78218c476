"""A shop on FastAPI: an order and its receipt are one commit.

    uvicorn fastapi_shop:web                                     # in this folder
    curl -X POST localhost:8000/orders -H 'content-type: application/json' -d '{"dish": "soup"}'

The process serves the web application and runs its jobs. `RELEVO_DATABASE_URL` names the database;
without it Relevo starts its own in `.relevo`.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import msgspec
from fastapi import Depends, FastAPI, HTTPException
from pydantic import BaseModel

import relevo
from relevo.integrations.starlette import StarletteIntegration

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

app = relevo.App()


@app.job("receipt", retries=5)
async def receipt(order: int, dish: str) -> str:
    """Write the receipt of an order."""
    return f"order {order}: {dish}"


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    """Make the shop's own table; Relevo is connected already."""
    await app.database.write(
        "create table if not exists shop_order (id serial primary key, dish text not null)"
    )
    yield


integration = StarletteIntegration(app, lifespan=lifespan)
Tx = Annotated[relevo.Transaction, Depends(integration.transaction, scope="function")]

web = FastAPI(lifespan=integration.lifespan)
web.mount("/relevo", integration.http_api)


class Order(BaseModel):
    """What a customer wants."""

    dish: str


@web.post("/orders", status_code=201)
async def order(wanted: Order, tx: Tx) -> dict[str, object]:
    """Store an order and submit its receipt: both, or neither."""
    number = await tx.fetchval(
        "insert into shop_order (dish) values ($1) returning id", wanted.dish
    )
    job = await receipt.using(tx=tx).submit(order=number, dish=wanted.dish)
    if wanted.dish == "nothing":
        raise HTTPException(422, "nothing is not a dish")
    return {"order": number, "job": str(job.id)}


@web.get("/orders")
async def orders() -> list[str]:
    """List the dishes that were ordered."""
    rows = await app.database.fetch("select dish from shop_order order by id")
    return [row["dish"] for row in rows]


@web.get("/receipts/{job}")
async def read_receipt(job: UUID) -> dict[str, object]:
    """Return a receipt, or the status of its job."""
    try:
        found = await app.jobs.get(job)
    except relevo.JobMissing:
        raise HTTPException(404, "no such receipt") from None
    return {"status": found.status, "receipt": msgspec.to_builtins(found.result)}
