"""Bounds on connections, requests, long polls and streams, in all and for each caller.

A key may send so many requests per second; `Throttle` counts them in the memory of each host.

Slots follow one rule of shares: no caller holds more than is left for the others. A single caller
gets half of them, two get a third each, and a new caller always gets one.

Connections over a bound are not turned away at once, since one of them may be a probe: they are
served probes and nothing else, have little time, and the oldest goes when one more comes.
"""

from __future__ import annotations

import resource
import time
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct

from relevo import limits
from relevo.errors import Overloaded, RateLimited, SettingsError
from relevo.kernel.networks import Networks, subscriber
from relevo.kernel.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable

log = get_logger(__name__)
_BUCKETS_SWEPT_AT: Final = 1_000
PEERS_LOGGED_MAX: Final = 1_000
"""Peers whose last line is remembered; with more in one second, the others get none."""


class RequestShares:
    """Slots of one kind, by holder."""

    def __init__(self, what: str, most: int) -> None:
        self.what = what
        self.most = most
        self._used = 0
        self._held: dict[str, int] = {}

    def take(self, holder: str) -> None:
        """Take a slot; raises `Overloaded` if there is none, `RateLimited` if they are others'."""
        held, left = self._held.get(holder, 0), self.most - self._used
        if held >= left:
            raise self._refusal(held, left)
        self._held[holder] = held + 1
        self._used += 1

    def give(self, holder: str) -> None:
        """Return a slot."""
        self._used -= 1
        held = self._held[holder] - 1
        if held:
            self._held[holder] = held
        else:
            del self._held[holder]

    def _refusal(self, held: int, left: int) -> Overloaded | RateLimited:
        if left <= 0:
            return Overloaded(f"this host has {self._used} {self.what}, as many as it takes")
        return RateLimited(
            f"you have {held} {self.what} on this host, and {left} are left for others; wait until"
            " some of yours have ended"
        )


class Slot:
    """The slot that an exchange holds, if any."""

    __slots__ = ("_holder", "_shares")

    def __init__(self) -> None:
        self._shares: RequestShares | None = None
        self._holder = ""

    def take(self, shares: RequestShares, holder: str) -> None:
        """Hold a slot of `shares`, in the place of the one held before."""
        self.leave()
        shares.take(holder)
        self._shares, self._holder = shares, holder

    def leave(self) -> None:
        """Hold none."""
        if self._shares is not None:
            self._shares.give(self._holder)
            self._shares = None


class Throttle:
    """Lets `rate` requests per second of a key through, and up to `burst` at once after a pause."""

    def __init__(
        self, rate: float, burst: float, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate = rate
        self._burst = max(1.0, burst)
        self._clock = clock
        self._full_at: dict[str, float] = {}
        """When each bucket will be full again: the whole state of a bucket in one number."""

    def take(self, key_id: str) -> None:
        """Return if the key may send now, else raise `RateLimited` with the time to wait."""
        now = self._clock()
        full_at = max(self._full_at.get(key_id, now), now) + 1.0 / self._rate
        wait = full_at - now - self._burst / self._rate
        if wait > 1e-9:
            raise RateLimited(
                f"this key sends more than {self._rate:g} requests per second; wait {wait:.3f} s",
                retry_after=wait,
            )
        if key_id not in self._full_at and len(self._full_at) >= _BUCKETS_SWEPT_AT:
            self._full_at = {key: at for key, at in self._full_at.items() if at > now}
        self._full_at[key_id] = full_at


class HttpConnection(Protocol):
    """A connection, as the bounds see it."""

    def expire(self, now: float) -> int:
        """Close it if its time is over; returns the bytes that its peer has not taken yet."""

    def drop(self, reason: str) -> None:
        """Close it without a word."""


class ConnectionBounds(Struct, frozen=True, kw_only=True):
    """How many connections a server takes."""

    most: int
    per_address: int
    probes: int
    """How many more are taken for a moment, for probes."""
    backlog: int
    trusted: Networks = Networks()
    """Proxies: their clients share their address, so they have no bound but the one for all."""

    @classmethod
    def within(
        cls, descriptors: int, *, own: int = 0, trusted: Networks | None = None
    ) -> ConnectionBounds:
        """Return the bounds for a number of descriptors, less those that the host itself needs.

        `own` is what this host needs more than others. Raises `SettingsError` if too few are left.
        """
        probes = min(limits.PROBE_CONNECTIONS_MAX, descriptors // 8)
        backlog = min(limits.BACKLOG_MAX, descriptors // 8)
        free = descriptors - own - limits.DESCRIPTORS_KEPT - probes - backlog
        if free < limits.CONNECTIONS_MIN:
            need = 2 * (own + limits.DESCRIPTORS_KEPT)
            raise SettingsError(
                f"this process may open {descriptors} files, which leaves no room for connections;"
                f" allow it {need} or more with `ulimit -n {need}`"
            )
        most = min(free, limits.CONNECTIONS_MAX)
        return cls(
            most=most,
            per_address=most // 2,
            probes=probes,
            backlog=backlog,
            trusted=trusted or Networks(),
        )

    @classmethod
    def of_process(cls, *, own: int = 0, trusted: Networks | None = None) -> ConnectionBounds:
        """Return the bounds for the descriptors that this process may open."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        endless = soft in (resource.RLIM_INFINITY, -1)
        descriptors = 10 * limits.CONNECTIONS_MAX if endless else soft
        return cls.within(descriptors, own=own, trusted=trusted)


class HttpConnections:
    """The connections of a server."""

    def __init__(self, bounds: ConnectionBounds) -> None:
        self.bounds = bounds
        self.peers = PeerLog()
        self._admitted: dict[HttpConnection, str] = {}
        self._by_address: dict[str, int] = {}
        self._probes: dict[HttpConnection, None] = {}

    def enter(self, connection: HttpConnection, address: str) -> str | None:
        """Count a connection; returns the bound that it exceeds, and then it may only probe."""
        peer = subscriber(address)
        here = self._by_address.get(peer, 0)
        if len(self._admitted) >= self.bounds.most:
            bound = f"this host has {len(self._admitted)} connections, as many as it takes"
        elif here >= self.bounds.per_address and address not in self.bounds.trusted:
            bound = f"{here} connections of one address are open, as many as this host takes"
        else:
            self._admitted[connection] = peer
            self._by_address[peer] = here + 1
            return None
        self.peers.note(address, "http.crowded", reason=bound)
        if len(self._probes) >= self.bounds.probes:
            next(iter(self._probes)).drop("one more connection came than is taken for probes")
        self._probes[connection] = None
        return bound

    def leave(self, connection: HttpConnection) -> None:
        """Count a connection no longer."""
        self._probes.pop(connection, None)
        peer = self._admitted.pop(connection, None)
        if peer is not None:
            left = self._by_address[peer] - 1
            if left:
                self._by_address[peer] = left
            else:
                del self._by_address[peer]

    def sweep(self, now: float) -> None:
        """Close expired connections; if too many bytes are unsent, the slowest readers too."""
        unsent = {one: one.expire(now) for one in [*self._admitted, *self._probes]}
        total = sum(unsent.values())
        if total <= limits.UNSENT_BYTES_MAX:
            return
        for one in sorted(unsent, key=lambda one: -unsent[one]):
            if total <= limits.UNSENT_BYTES_MAX:
                break
            one.drop(f"{total} bytes wait for peers that do not read them")
            total -= unsent[one]


class PeerLog:
    """Logs faults of peers: at most one line per peer and second."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lines: dict[str, tuple[float, int]] = {}

    def note(self, address: str, event: str, *, reason: str) -> None:
        """Log an event of a peer, or count it for the next line."""
        now, peer = self._clock(), subscriber(address)
        at, more = self._lines.get(peer, (float("-inf"), 0))
        if now - at < 1.0:
            self._lines[peer] = (at, more + 1)
            return
        if peer not in self._lines and len(self._lines) >= PEERS_LOGGED_MAX:
            self._lines = {one: line for one, line in self._lines.items() if now - line[0] < 1.0}
            if len(self._lines) >= PEERS_LOGGED_MAX:
                return
        self._lines[peer] = (now, 0)
        counted = {"more": more} if more else {}
        log.warning(event, peer=peer, reason=reason, **counted)
