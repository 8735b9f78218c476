"""A cook whose program uses Microsoft's Job Router client: only its endpoint and key are Relevo's.

`python official.py Dora http://127.0.0.1:8080 <key>` works until it is stopped.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from azure.communication.jobrouter.aio import JobRouterClient
from azure.communication.jobrouter.models import RouterChannel, RouterWorker
from azure.core.credentials import AzureKeyCredential

from kitchen import COOKING_SECONDS, QUEUE, SPECIAL, channel

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

LOOK_SECONDS = 0.1


async def work(cook: str, endpoint: str, key: str) -> AsyncGenerator[str, None]:
    """Register a cook of the special dish; prepare every offer, and yield the order's id."""
    async with JobRouterClient(endpoint, AzureKeyCredential(key)) as router:
        worker = RouterWorker(
            queues=[QUEUE],
            capacity=100,
            channels=[RouterChannel(channel_id=channel(SPECIAL), capacity_cost_per_job=50)],
            available_for_offers=True,
        )
        await router.upsert_worker(cook, worker)
        while True:
            worker = await router.get_worker(cook)
            for offer in worker.offers or ():
                accepted = await router.accept_job_offer(cook, offer.offer_id)
                await asyncio.sleep(COOKING_SECONDS)
                await router.complete_job(accepted.job_id, accepted.assignment_id)
                await router.close_job(accepted.job_id, accepted.assignment_id)
                yield accepted.job_id
            await asyncio.sleep(LOOK_SECONDS)


async def main(cook: str, endpoint: str, key: str) -> None:
    """Say what the cook has prepared."""
    async for order in work(cook, endpoint, key):
        print(cook, "has prepared order", order, flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:4]))
