"""What the fences of a commit cost: the same batch with and without them."""

from __future__ import annotations

import re
import time
from statistics import median
from typing import TYPE_CHECKING, Final

import asyncpg

from bench import Figure
from bench.actor_parts.common import scaled
from relevo.actors.core.deltas import Delta
from relevo.actors.core.folding import fold
from relevo.actors.storing.commits import columns

if TYPE_CHECKING:
    from relevo import App
    from relevo.kernel.leases import Fence

TURNS: Final = 512
"""Of as many actors, in one batch."""
BOUNDS: Final = {1: 1.15, 32: 1.15, 100: 1.25, 256: 1.4}
_FENCES: Final = re.compile(r"  holds := array\(.*?order by f\.n\);\n", re.S)


async def fences(app: App, url: str) -> list[Figure]:
    """Measure batches over several numbers of slots."""
    connection = await asyncpg.connect(url)
    try:
        fenced = await connection.fetchval(
            "select pg_get_functiondef('relevo.commit_turns'::regproc::oid)"
        )
        bare, found = _FENCES.subn("", fenced)
        assert found == 1, "commit_turns has no fences to leave out"
        await connection.execute(bare.replace("relevo.commit_turns(", "public.commit_turns(", 1))
        owned = [slot.lease.fence for (_, n), slot in sorted(app.actors.runtime.slots.items())]
        figures = []
        for slots, bound in BOUNDS.items():
            took = await _beside(connection, owned[:slots])
            figures.append(
                Figure(
                    name=f"commit of {TURNS} turns over {slots} slots, without fences beside",
                    measured=took["relevo"] * 1e3, unit="ms", beside=took["public"] * 1e3,
                    bound=bound, sense="at_most",
                )
            )  # fmt: skip
        return figures
    finally:
        await connection.close()


async def _beside(connection: asyncpg.Connection, fences: list[Fence]) -> dict[str, float]:
    times: dict[str, list[float]] = {"relevo": [], "public": []}
    for base in range(scaled(30)):
        for schema, taken in times.items():
            deltas = [
                _delta(f"bench-{schema}-{len(fences)}/i:{n}", fences[n % len(fences)], base)
                for n in range(TURNS)
            ]
            arguments = columns(fold(deltas)[0])
            marks = ", ".join(f"${n}" for n in range(1, len(arguments) + 2))
            call = f"select * from {schema}.commit_turns({marks})"
            began = time.perf_counter()
            refused = await connection.fetch(call, base + 1, *arguments)
            taken.append(time.perf_counter() - began)
            assert not refused, refused
    return {schema: median(taken[1:] or taken) for schema, taken in times.items()}


def _delta(actor: str, fence: Fence, base: int) -> Delta:
    return Delta(
        actor, fence.lease_id, fence.epoch, "default", int(fence.name), 0, base, b"\x81" * 8
    )
