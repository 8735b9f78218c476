"""Results of a cache that a process keeps for itself, and how long it trusts them.

    replicas = Replicas(ttl=60)
    replicas.put("usd", "v1", data, age=3.0, asked_at=now)
    replicas.get("usd", now)  # Kept(data=..., age=3.0)

A result is trusted for a second after the cache was asked for it; then the cache is asked whether
its version still holds, and only a newer one travels. So what is invalidated anywhere is served
nowhere a second later.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

TRUST_SECONDS: Final = 1.0
KEYS_MAX: Final = 10_000


class Kept(Struct, frozen=True):
    """A result of a back end, as it is kept."""

    data: bytes
    age: float


class _Replica(Struct):
    version: str
    data: bytes
    loaded_at: float
    asked_at: float


class Replicas:
    """What one process keeps; times are of its monotonic clock."""

    def __init__(self, ttl: float, *, keys_max: int = KEYS_MAX) -> None:
        self._ttl = ttl
        self._keys_max = keys_max
        self._replicas: dict[str, _Replica] = {}
        """The key used longest ago first."""

    def __len__(self) -> int:
        return len(self._replicas)

    def get(self, key: str, now: float) -> Kept | None:
        """Return a result that is trusted now."""
        replica = self._replicas.get(key)
        if replica is None or now - replica.asked_at >= TRUST_SECONDS:
            return None
        age = now - replica.loaded_at
        if age >= self._ttl:
            return None
        self._replicas[key] = self._replicas.pop(key)
        return Kept(replica.data, age)

    def version(self, key: str) -> str:
        """Return the version that is kept; empty if there is none."""
        replica = self._replicas.get(key)
        return "" if replica is None else replica.version

    def put(self, key: str, version: str, data: bytes, age: float, asked_at: float) -> None:
        """Keep a result that was asked for at a time, and had an age then or later."""
        self._replicas.pop(key, None)
        self._replicas[key] = _Replica(version, data, asked_at - age, asked_at)
        while len(self._replicas) > self._keys_max:
            del self._replicas[next(iter(self._replicas))]

    def confirm(self, key: str, version: str, age: float, asked_at: float) -> Kept | None:
        """Trust a version again, for it was the present one when it was asked for."""
        replica = self._replicas.get(key)
        if replica is None or replica.version != version:
            return None
        replica.asked_at = max(replica.asked_at, asked_at)
        return Kept(replica.data, age)

    def forget(self, key: str) -> None:
        """Forget a result."""
        self._replicas.pop(key, None)
