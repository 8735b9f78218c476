"""What callers were told of events, messages, reminders and permits, and what there is of them."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from relevo.errors import RelevoError
from relevo.kernel.leases.hosts import instant
from tests.actors.chaos.programs import ADMITTED_MAX, PERMITS, Relay, use

if TYPE_CHECKING:
    from pathlib import Path

    from relevo import App
    from tests.actors.chaos.programs import Kit
    from tests.actors.hosts.site import Site

PACE_SECONDS = 0.02
"""Between two calls of a caller: what is told is kept, in states as well as here."""
STOP_SECONDS = 90.0
"""Callers end with their call; each has a deadline of 30 s, and writes are repeated."""
RELAYS = ("r0", "r1", "r2", "r3")
KEYS = ("x", "y")


class KitLedger:
    """Callers of relays and writers, and users of the pool, in the process of the test."""

    def __init__(self, app: App, kit: Kit, folder: Path) -> None:
        self._app = app
        self._kit = kit
        self._folder = folder
        self.written: dict[tuple[str, str], list[str]] = defaultdict(list)
        """Events by writer and key, each caller's in its order; all were said to be accepted."""
        self.passed: set[str] = set()
        self.not_passed: set[str] = set()
        self.records: list[dict[str, Any]] = []
        self.errors: Counter[str] = Counter()
        self.last_error = ""
        self._stopping = False
        self._callers: list[asyncio.Task[None]] = []

    def relay(self, key: str) -> Relay:
        return self._app.actor(Relay, key)

    def record(self, event: str, *, at: float | None = None, **details: Any) -> None:
        entry = {"at": instant() if at is None else at, "host": "client", "event": event}
        self.records.append(entry | details)

    async def start(self) -> None:
        for key in RELAYS:
            await self.relay(key).begin()
        loop = asyncio.get_running_loop()
        for number, key in enumerate(RELAYS):
            self._callers.append(loop.create_task(self._pass_on(key, number)))
        for name in ("direct", "stored"):
            for number in range(4):
                self._callers.append(loop.create_task(self._write(name, number)))
        self._callers.append(loop.create_task(use(self._kit, "client", self.record)))

    async def stop(self) -> None:
        self._stopping = True
        self._callers.pop().cancel()  # the user of the pool has no end
        _, late = await asyncio.wait(self._callers, timeout=STOP_SECONDS)
        assert not late, [
            self.last_error,
            self.errors,
            *(f"{one.get_name()}: {one.get_stack()}" for one in late),
        ]
        await asyncio.gather(*self._callers)

    async def cancel(self) -> None:
        for caller in self._callers:
            caller.cancel()
        await asyncio.gather(*self._callers, return_exceptions=True)

    async def _pass_on(self, key: str, caller: int) -> None:
        number = 0
        while not self._stopping:
            number += 1
            tag, to = f"{caller}-{number}", RELAYS[(caller + number) % len(RELAYS)]
            try:
                await self.relay(key).pass_on(tag, self.relay(to))
            except RelevoError as error:
                self.errors[f"pass_on {type(error).__name__}"] += 1
                if getattr(error, "executed", None) is False:
                    self.not_passed.add(tag)
            else:
                self.passed.add(tag)
            await asyncio.sleep(PACE_SECONDS)

    async def _write(self, name: str, caller: int) -> None:
        """Write one event after the other, each until it is accepted; its id makes it single."""
        key, number = KEYS[caller % len(KEYS)], 0
        writer = (self._kit.direct if name == "direct" else self._kit.stored)[key]
        while not self._stopping:
            number += 1
            event = f"{caller}-{number}"
            while True:
                try:
                    await writer.write(event, id=event)
                    break
                except RelevoError as error:
                    self.errors[f"write {type(error).__name__}"] += 1
                    self.last_error = repr(error)
            self.written[name, key].append(event)
            await asyncio.sleep(PACE_SECONDS)

    # -- checks -----------------------------------------------------------------------------------

    async def check(self, site: Site) -> None:
        await self._check_messages(site)
        await self._check_reminders(site)
        await self._check_events(site)
        self._check_permits([*site.cluster.records(), *self.records])
        await self._all_permits_are_there()

    async def _check_messages(self, site: Site) -> None:
        """Messages of stored turns are handled once and in order, and no others. I23, I29."""
        sent = {key: await self.relay(key).sent() for key in RELAYS}

        async def all_taken() -> bool:
            for receiver in RELAYS:
                taken = await self.relay(receiver).taken()
                for sender in RELAYS:
                    if taken.get(sender, []) != sent[sender].get(receiver, []):
                        return False
            return True

        await site.cluster.until(all_taken, "each message is handled once, in order")
        tags = [tag for of in sent.values() for each in of.values() for tag in each]
        assert len(set(tags)) == len(tags), "a turn took effect twice"
        assert self.passed <= set(tags)
        assert not self.not_passed & set(tags)
        assert self.passed

    async def _check_reminders(self, site: Site) -> None:
        """Each occurrence on the grid counts once, and they go on. I34, I35."""
        for key in RELAYS:
            before = len(await self.relay(key).ticks())

            async def more(key: str = key, before: int = before) -> bool:
                return len(await self.relay(key).ticks()) > before

            await site.cluster.until(more, f"the reminder of {key} fires")
            ticks = await self.relay(key).ticks()
            for (due, folded), (following, _) in pairwise(ticks):
                assert round(following - due) == 1 + folded, (key, due, folded, following)

    async def _check_events(self, site: Site) -> None:
        """Accepted events are there once, whole, and each caller's in its order. I41 to I43."""
        for (name, key), accepted in self.written.items():
            path = self._folder / f"{name}-{key}.log"

            def complete(path: Path = path, accepted: list[str] = accepted) -> bool:
                return len(path.read_text().splitlines()) >= len(accepted)

            await site.cluster.until(complete, f"all events are in {path.name}")
            lines = path.read_text().splitlines()
            assert len(set(lines)) == len(lines), f"events are doubled in {path.name}"
            assert set(lines) == set(accepted), set(lines) ^ set(accepted)
            for caller in range(4):
                mine = [int(line.split("-")[1]) for line in lines if line[0] == str(caller)]
                assert mine == sorted(mine), f"events of caller {caller} changed their order"

    def _check_permits(self, records: list[dict[str, Any]]) -> None:
        """At no instant more are in use than there are; no cost above the rate. I44, I46."""
        entered = {one["number"]: one["at"] for one in records if one["event"] == "enter"}
        left = {one["number"]: one["at"] for one in records if one["event"] == "leave"}
        assert len(entered) == sum(one["event"] == "enter" for one in records), "granted twice"
        steps = [(at, 1) for at in entered.values()]
        # A host that was killed did not say when: at least its body had begun.
        steps += [(left.get(number, at), -1) for number, at in entered.items()]
        in_use = most = 0
        for _, change in sorted(steps, key=lambda step: (step[0], -step[1])):
            in_use += change
            most = max(most, in_use)
        assert 0 < most <= PERMITS, most
        assert sum(one["event"] == "admitted" for one in records) <= ADMITTED_MAX

    async def _all_permits_are_there(self) -> None:
        """None is lost: all can be held at once."""
        held = asyncio.Barrier(PERMITS)

        async def hold() -> None:
            async with self._kit.pool.lease("client", timeout=60):
                await held.wait()

        async with asyncio.timeout(90):
            await asyncio.gather(*(hold() for _ in range(PERMITS)))
