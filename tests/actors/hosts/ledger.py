"""What callers were told, to be compared with what the actors hold in the end."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from relevo.errors import RelevoError
from tests.actors.hosts.programs import TYPE, Tally

if TYPE_CHECKING:
    from relevo import App


class Ledger:
    """Callers of a few actors; each call has a tag of its own."""

    def __init__(self, app: App, actors: int, *, timeout: float = 30.0) -> None:
        self._app = app
        self._timeout = timeout
        self.keys = [f"k{n}" for n in range(actors)]
        self.succeeded: dict[str, dict[str, int]] = defaultdict(dict)
        self.not_run: dict[str, set[str]] = defaultdict(set)
        self.unknown: dict[str, set[str]] = defaultdict(set)
        self.errors: Counter[str] = Counter()
        self.calls = 0
        self._stopping = False
        self._callers: list[asyncio.Task[None]] = []

    def tally(self, key: str) -> Tally:
        return self._app.actor(Tally, key, type=TYPE)

    def start(self, callers: int, kinds: tuple[str, ...] = ("add",)) -> None:
        loop = asyncio.get_running_loop()
        for n in range(callers):
            kind, key = kinds[n % len(kinds)], self.keys[n % len(self.keys)]
            self._callers.append(loop.create_task(self._call(f"{n}", key, kind)))

    async def stop(self) -> None:
        self._stopping = True
        await asyncio.gather(*self._callers)

    async def once(self, key: str, tag: str, kind: str = "add") -> None:
        proxy = self.tally(key)
        options: dict[str, object] = {"timeout": self._timeout}
        if kind == "id":
            options["call_id"] = tag
        called = proxy.with_(**options)  # type: ignore[attr-defined]
        self.calls += 1
        try:
            total = await (called.put(tag) if kind == "put" else called.add(tag))
        except RelevoError as error:
            self.errors[type(error).__name__] += 1
            executed = getattr(error, "executed", None)
            (self.unknown if executed is None else self.not_run)[key].add(tag)
        else:
            self.succeeded[key][tag] = total

    async def _call(self, caller: str, key: str, kind: str) -> None:
        number = 0
        while not self._stopping:
            number += 1
            await self.once(key, f"{kind}-{caller}-{number}", kind)

    async def check(self) -> None:
        """Compare: successes count once, what did not run counts never, the rest once at most."""
        for key in self.keys:
            counts = await self.tally(key).counts()
            for tag in self.succeeded[key]:
                if tag.startswith("put-"):
                    assert counts.get(tag, 0) >= 1, (key, tag)
                else:
                    assert counts.get(tag) == 1, (key, tag, counts.get(tag))
            for tag in self.not_run[key]:
                assert tag not in counts, (key, tag, "was said not to have taken effect")
            for tag in self.unknown[key]:
                assert tag.startswith("put-") or counts.get(tag, 0) <= 1, (key, tag)
            known = self.succeeded[key].keys() | self.unknown[key]
            assert counts.keys() <= known, (key, counts.keys() - known)
            totals = list(self.succeeded[key].values())
            assert len(set(totals)) == len(totals), f"two turns of {key} began with one state"
