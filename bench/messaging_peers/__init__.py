"""Brokers, measured by the same clock and with the same roles as ours.

Their servers are those of the machine (`apt-get install rabbitmq-server redis-server`), their
clients are installed outside the repository, as `bench.jobs_peers` says. What is missing is
skipped.
"""

from __future__ import annotations

import tempfile
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.jobs_peers.install import Peer
from bench.messaging_peers.servers import rabbitmq, redis

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

HERE: Final = Path(__file__).parent
RABBITMQ: Final = "rabbitmq"
PEERS: Final = {
    RABBITMQ: Peer(
        name="aio-pika", language="python", packages=("aio-pika==9.5.5", "uvloop"),
        program=HERE / "rabbitmq_side.py",
    ),
    "redis, appendfsync always": Peer(
        name="redis-py", language="python", packages=("redis==5.2.1", "uvloop"),
        program=HERE / "redis_side.py",
    ),
    "redis, appendfsync everysec": Peer(
        name="redis-py", language="python", packages=("redis==5.2.1", "uvloop"),
        program=HERE / "redis_side.py",
    ),
}  # fmt: skip


@asynccontextmanager
async def server(name: str) -> AsyncIterator[str]:
    """Run the server of a peer in a folder that is gone afterwards; yields its URL."""
    with tempfile.TemporaryDirectory(prefix="relevo-bench-peer-") as folder:
        async with _server(name, Path(folder)) as url:
            yield url


def _server(name: str, folder: Path) -> AbstractAsyncContextManager[str]:
    return rabbitmq(folder) if name == RABBITMQ else redis(folder, name.rpartition(" ")[2])
