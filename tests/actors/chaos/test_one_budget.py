"""One budget for jobs, messages and actors, while hosts are killed: never above, and all move."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from relevo import App
from relevo.errors import RelevoError
from relevo.governance.core.windows import Rate
from relevo.jobs.model import Lane
from relevo.messaging import Message
from tests.actors.chaos.budgeted import KINDS, PER_SECOND, PERMITS, Spender
from tests.actors.hosts.site import open_site

if TYPE_CHECKING:
    from relevo.kernel.postgres import Database
    from tests.actors.hosts.site import Site

pytestmark = pytest.mark.anyio
HOSTS = ("a", "b")
CALLERS = 12
WORK = 5_000
LENT_SECONDS = 0.25
"""How long a token may be used after it was lent."""
MEASURED_SECONDS = 20.0


class Spenders:
    """Callers of the actor that spends; each has an actor of its own."""

    def __init__(self, app: App) -> None:
        loop = asyncio.get_running_loop()
        self._app = app
        self._callers = [loop.create_task(self._spend(f"s{one}")) for one in range(CALLERS)]

    async def _spend(self, key: str) -> None:
        for number in count():
            with suppress(RelevoError):  # its host was killed, or the budget had no room in time
                await self._app.actor(Spender, key, type="spender").spend(number)

    async def cancel(self) -> None:
        for caller in self._callers:
            caller.cancel()
        await asyncio.gather(*self._callers, return_exceptions=True)


def entered(site: Site) -> Counter[str]:
    return Counter(one["kind"] for one in site.cluster.records("enter"))


async def until_all_move(site: Site) -> None:
    """Wait until each kind has begun a few bodies more."""
    before = entered(site)

    def moved() -> bool:
        return all(entered(site)[kind] >= before[kind] + 2 for kind in KINDS)

    await site.cluster.until(moved, lambda: f"each moves: {before}, then {entered(site)}")


def check_never_above(records: list[dict[str, Any]]) -> None:
    begun = {one["name"]: one["at"] for one in records if one["event"] == "enter"}
    ended = {one["name"]: one["at"] for one in records if one["event"] == "leave"}
    # A host that was killed did not say when its bodies ended: at least they had begun.
    steps = [(at, 1) for at in begun.values()]
    steps += [(ended.get(name, at), -1) for name, at in begun.items()]
    running = most = 0
    for _, change in sorted(steps, key=lambda step: (step[0], -step[1])):
        running += change
        most = max(most, running)
    assert 0 < most <= PERMITS  # I44
    span = max(begun.values()) - min(begun.values()) + LENT_SECONDS
    assert len(begun) <= PER_SECOND * (int(span) + 2)  # I46: each second has its ten at most


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("kills", [3, pytest.param(100, marks=pytest.mark.soak)])
async def test_a_budget_holds_for_all_while_hosts_are_killed(
    database: Database, relevo_url: str, kills: int
) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    dice = random.Random(seed)
    async with open_site(database, relevo_url, "tests.actors.chaos.budgeted:host") as site:
        await site.start(*HOSTS)
        await site.app.jobs.submit_many("charge", [{}] * WORK, lane="erp")
        queue = site.app.queue("orders")
        for _ in range(WORK // 500):
            await queue.send_many([Message(b"")] * 500)
        site.ledgers.append(Spenders(site.app))
        await until_all_move(site)
        for _ in range(kills):
            name = dice.choice(HOSTS)
            site.cluster.nodes[name].kill()
            await site.cluster.start(name)
            await until_all_move(site)
        check_never_above(site.cluster.records())
        print(f"{kills} kills, {dict(entered(site))}")


@pytest.mark.soak
@pytest.mark.timeout(300)
async def test_a_limited_lane_uses_what_the_limit_allows(relevo_url: str) -> None:
    app, begun, began = App(relevo_url), 0, asyncio.Event()
    app.governance.pool("erp", size=PERMITS)
    app.governance.limit("mail", rates=[Rate(PER_SECOND, per=1)])
    app.jobs.configure(Lane(name="erp", slots=8, pool="erp", limit="mail"))

    @app.job("charge", lane="erp")
    async def charge() -> None:
        nonlocal begun
        begun += 1
        began.set()

    async with app:
        await app.jobs.submit_many("charge", [{}] * 1_000)
        async with app.host():
            async with asyncio.timeout(30):
                await began.wait()
            before = begun
            await asyncio.sleep(MEASURED_SECONDS)
            found = begun - before
    allowed = PER_SECOND * MEASURED_SECONDS
    print(f"{found} of {allowed:g}")
    assert 0.75 * allowed <= found <= allowed + PER_SECOND
