"""Other actors for Python, measured beside ours: xoscar and Pykka, in processes of their own.

They are installed outside the repository, as the peers of jobs are.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Final

from bench.jobs_peers import Unavailable, default_folder
from bench.jobs_peers.install import Peer, installed

HERE: Final = Path(__file__).parent
SECONDS_MAX: Final = 120.0
PEERS: Final = {
    peer.name: peer
    for peer in (
        Peer(
            name="xoscar",
            language="python",
            packages=("xoscar==0.12.2", "uvloop"),
            program=HERE / "xoscar_side.py",
        ),
        Peer(
            name="pykka",
            language="python",
            packages=("pykka==4.5.0",),
            program=HERE / "pykka_side.py",
        ),
    )
}


async def programs() -> dict[str, list[str]]:
    """Return how the peers are started that can be installed here."""
    found = {}
    for name, peer in PEERS.items():
        try:
            found[name] = await asyncio.to_thread(installed, peer, default_folder())
        except Unavailable as error:
            print(f"skipped: {error}", file=sys.stderr)
    return found


async def asked(program: list[str], calls: int, callers: int, actors: int) -> tuple[float, float]:
    """Let a peer make calls; return calls per second and microseconds of CPU per call."""
    process = await asyncio.create_subprocess_exec(
        *program, str(calls), str(callers), str(actors), stdout=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(SECONDS_MAX):
        out, _ = await process.communicate()
    answer = json.loads(out)
    return answer["per_second"], answer["cpu"]
