"""Ages of cached results: which are fresh, which are reloaded ahead, which are served stale.

    ages = Ages(AgeRules(ttl=60, refresh=5, stale=300))
    ages.ask("usd", now)  # LoadFirst(): load it, then call `loaded` or `failed`
    ages.ask("usd", now)  # WaitForLoad(): it is being loaded
    ages.loaded("usd", b"1.09", now)
    ages.ask("usd", now + 1)  # Serve(value=b"1.09", age=1.0)

At most one load of a key is under way. A failure is remembered for a second, so that a dead
back end is not asked by every caller.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct

FAILURE_SECONDS: Final = 1.0
KEYS_MAX: Final = 100_000


class AgeRules(Struct, frozen=True, kw_only=True):
    """How long a result is served."""

    ttl: float
    """A result is fresh for so many seconds."""
    refresh: float | None = None
    """So many seconds before its end a result in use is loaded again, while it is served."""
    stale: float = 0.0
    """For so many seconds after its end the last result is served if a load fails."""
    keys_max: int = KEYS_MAX


class Serve(Struct, frozen=True):
    """Answer with this value; with `load` also load it again, in the background."""

    value: Any
    age: float
    load: bool = False


class LoadFirst(Struct, frozen=True):
    """Load the value, and tell the end of it; others wait for that."""


class WaitForLoad(Struct, frozen=True):
    """The value is being loaded; ask again when that has ended."""


class Fail(Struct, frozen=True):
    """The last load failed, just now: answer with its error."""

    error: Any
    retry_after: float


CacheAnswer = Serve | LoadFirst | WaitForLoad | Fail


class _Entry:
    __slots__ = ("at", "error", "failed_at", "has_value", "loading", "used_at", "value")

    def __init__(self, now: float) -> None:
        self.value: Any = None
        self.has_value = False
        self.at = now
        """When the load of the value began: it is as old as that."""
        self.loading: float | None = None
        """When the load under way began."""
        self.error: Any = None
        self.failed_at: float | None = None
        self.used_at = now


class Ages:
    """The entries of a cache, with their ages; times are of one monotonic clock."""

    def __init__(self, rules: AgeRules) -> None:
        self.rules = rules
        self._entries: dict[str, _Entry] = {}
        """The key used longest ago first."""

    def __len__(self) -> int:
        return len(self._entries)

    def ask(self, key: str, now: float) -> CacheAnswer:
        """Return what a caller of a key gets; `LoadFirst` begins the load of it."""
        entry = self._entries.pop(key, None)
        if entry is None:
            self._make_room()
            entry = _Entry(now)
        self._entries[key] = entry
        entry.used_at = now
        rules, age = self.rules, now - entry.at
        if entry.has_value and age < rules.ttl:
            ahead = rules.refresh is not None and age >= rules.ttl - rules.refresh
            return Serve(entry.value, age, load=ahead and self._begin(entry, now))
        if entry.failed_at is not None and now - entry.failed_at < FAILURE_SECONDS:
            if entry.has_value and age < rules.ttl + rules.stale:
                return Serve(entry.value, age)
            return Fail(entry.error, FAILURE_SECONDS - (now - entry.failed_at))
        return LoadFirst() if self._begin(entry, now) else WaitForLoad()

    def loaded(self, key: str, value: Any, now: float) -> None:
        """Take in the result of a load."""
        entry = self._entries.setdefault(key, _Entry(now))
        began = now if entry.loading is None else entry.loading
        entry.value, entry.has_value, entry.at = value, True, began
        entry.loading = entry.error = entry.failed_at = None

    def failed(self, key: str, error: Any, now: float) -> Serve | Fail:
        """Take in a failed load; returns what those who waited for it get."""
        entry = self._entries.setdefault(key, _Entry(now))
        entry.loading, entry.error, entry.failed_at = None, error, now
        age = now - entry.at
        if entry.has_value and age < self.rules.ttl + self.rules.stale:
            return Serve(entry.value, age)
        return Fail(error, FAILURE_SECONDS)

    def canceled(self, key: str) -> None:
        """Take in that a load ended without a result: the next caller begins another."""
        if (entry := self._entries.get(key)) is not None:
            entry.loading = None

    def preload(self, keys: tuple[str, ...], now: float) -> list[str]:
        """Return those of some keys that are to be loaded now, without a caller."""
        found = []
        for key in keys:
            match self._peek(key, now):
                case LoadFirst() | Serve(load=True):
                    found.append(key)
        return found

    def keep(self, key: str, now: float) -> None:
        """Count a key as in use now, so that it is loaded ahead."""
        if (entry := self._entries.get(key)) is not None:
            entry.used_at = now

    def due(self, now: float) -> list[str]:
        """Return the keys to be loaded ahead now: about to end, and used since their load."""
        found: list[str] = []
        refresh = self.rules.refresh
        if refresh is None:
            return found
        for key, entry in self._entries.items():
            age = now - entry.at
            ends = entry.has_value and age >= self.rules.ttl - refresh
            rests = entry.failed_at is not None and now - entry.failed_at < FAILURE_SECONDS
            if ends and not rests and entry.used_at > entry.at and self._begin(entry, now):
                found.append(key)
        return found

    def forget_old(self, now: float) -> list[str]:
        """Forget entries that nobody would be served any more; returns their keys."""
        last = self.rules.ttl + self.rules.stale
        gone = [
            key for key, entry in self._entries.items()
            if entry.loading is None and now - entry.at >= last
            and (entry.failed_at is None or now - entry.failed_at >= FAILURE_SECONDS)
        ]  # fmt: skip
        for key in gone:
            del self._entries[key]
        return gone

    def invalidate(self, key: str) -> None:
        """Forget a value: the next caller loads it. A load under way is kept."""
        if (entry := self._entries.get(key)) is not None:
            entry.value, entry.has_value, entry.failed_at = None, False, None

    def _peek(self, key: str, now: float) -> CacheAnswer:
        used = key in self._entries and self._entries[key].used_at
        answer = self.ask(key, now)
        if used is not False:
            self._entries[key].used_at = used
        return answer

    def _begin(self, entry: _Entry, now: float) -> bool:
        if entry.loading is not None:
            return False
        entry.loading = now
        return True

    def _make_room(self) -> None:
        while len(self._entries) >= self.rules.keys_max:
            idle = next((key for key, one in self._entries.items() if one.loading is None), None)
            if idle is None:
                return
            del self._entries[idle]
