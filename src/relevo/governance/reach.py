"""How programs that use nothing of the kit themselves reach it: some host begins to serve it.

A host of an app that uses none of the kit does not serve it. The first use, by a program, by an
operator or from another language, is noted in the database: all hosts serve the kit from then on.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from relevo.actors import KIT_GROUP
from relevo.errors import NoHost
from relevo.kernel.postgres import catalog
from relevo.kernel.postgres.polling import Question

if TYPE_CHECKING:
    from relevo.governance.service import Governance
    from relevo.kernel.part import Host

SQL = catalog.load("relevo.governance")
TOPIC: Final = "governance:serve"
"""Wakes hosts: some program may use the kit now."""
LOOP: Final = "governance.serve"
KNOWN_SECONDS: Final = 1.0
"""For so long a host is taken to serve the kit that did."""
ASK_SECONDS: Final = 15.0
POLL_SECONDS: Final = 10.0
"""Hosts that hear nothing look so often."""
ASK_AGAIN_SECONDS: Final = 1.0
LOOK_SECONDS: Final = 0.05


class KitReach:
    """Finds a host that serves the kit, or lets one begin to."""

    def __init__(self, governance: Governance) -> None:
        self._governance = governance
        self._known_until = 0.0
        """Loop time."""

    async def ensure(self) -> None:
        """Return when a host serves the kit; raises `NoHost` if none runs."""
        governance, clock = self._governance, asyncio.get_running_loop().time
        begin = ask_at = clock()
        is_host = governance.holders.leases is not None
        if begin < self._known_until or (is_host and governance.serves):
            return
        while True:
            row = await governance.database.fetchrow(SQL.kit_hosts, KIT_GROUP)
            assert row is not None
            if row["is_served"]:
                self._known_until = clock() + KNOWN_SECONDS
                return
            if is_host:
                governance.serve()
                return
            if not row["any_lives"] or clock() > begin + ASK_SECONDS:
                raise NoHost("no host serves pools, limits and resolvers; start one: relevo up")
            if clock() >= ask_at:
                await governance.database.write(SQL.ask_for_kit, idempotent=True)
                governance.wakeups.send(TOPIC)
                ask_at = clock() + ASK_AGAIN_SECONDS
            await asyncio.sleep(LOOK_SECONDS)

    async def let_serve(self, group: str) -> None:
        """Let a host begin to serve a placement group, if it is that of the kit."""
        if group == KIT_GROUP:
            await self.ensure()

    def start(self, host: Host) -> None:
        """Serve the kit on this host as soon as some program uses it."""
        host.supervisor.run(LOOP, self._serve_when_asked)

    async def stop(self, host: Host) -> None:
        """Listen no longer."""
        await host.supervisor.stop(LOOP)

    async def _serve_when_asked(self) -> None:
        question = Question(SQL.is_kit_used, every=POLL_SECONDS)
        with self._governance.wakeups.signal(TOPIC, question=question) as signal:
            governance = self._governance
            if governance.serves:
                await governance.database.write(SQL.ask_for_kit, idempotent=True)
                governance.wakeups.send(TOPIC)
            while not (governance.serves or await governance.database.fetchval(SQL.is_kit_used)):
                await signal.wait(signal.patience(POLL_SECONDS))
        governance.serve()
        await asyncio.Event().wait()  # a loop does not end by itself
