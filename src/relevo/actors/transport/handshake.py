"""How two processes prove to each other that they belong to one installation. Pure.

    dialer                                   listener
    Hello(range, cluster, host, …, challenge) ─►
                                          ◄─ Hello(…, challenge)
    Proof ─►
                                          ◄─ Proof

The last proof is also the welcome: a dialer that has it knows that its calls are taken in.

A proof is a MAC over its sender's role, both hellos as they were sent, and the listener's
certificate. So it fits one conversation and one direction only: no proof can be replayed,
reflected, or passed on by somebody in between, and no version can be forced down.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct

from relevo.actors.transport import frames
from relevo.actors.transport.credit import Window
from relevo.actors.transport.errors import BadFrame, PeerRefused, RefusalReason

if TYPE_CHECKING:
    from collections.abc import Iterable

Role = Literal["dialer", "listener"]
CHALLENGE_BYTES: Final = 32
PURPOSE: Final = "actors transport"
"""What the key is derived for: `MasterKey.derive(PURPOSE)`."""


class PeerIdentity(Struct, frozen=True):
    """A process: the life of a host, or a client."""

    host: str
    incarnation: str
    since: int = 0
    """When the incarnation registered, in microseconds of the store's time; 0 for a client."""
    address: str | None = None
    """Where it takes calls."""


class KnownHosts:
    """The youngest life that is known of each host name; older ones are refused."""

    def __init__(self) -> None:
        self._youngest: dict[str, PeerIdentity] = {}

    def learn(self, identity: PeerIdentity) -> bool:
        """Take note of a life; True if it is younger than what was known."""
        known = self._youngest.get(identity.host)
        if identity.since and (known is None or known.since < identity.since):
            self._youngest[identity.host] = identity
            return True
        return False

    def keep_only(self, hosts: Iterable[str]) -> None:
        """Forget all other names."""
        kept = set(hosts)
        self._youngest = {name: one for name, one in self._youngest.items() if name in kept}

    def is_superseded(self, identity: PeerIdentity) -> bool:
        """Whether a younger life of the same host is known."""
        known = self._youngest.get(identity.host)
        return known is not None and identity.since < known.since


class Handshake:
    """One side of a handshake: payloads in, payloads out, in the end a peer."""

    def __init__(
        self,
        role: Role,
        me: PeerIdentity,
        *,
        cluster: str,
        key: bytes,
        challenge: bytes,
        known: KnownHosts,
        window: Window = Window(),  # noqa: B008 - frozen
        binding: bytes = b"",
    ) -> None:
        assert len(challenge) == CHALLENGE_BYTES
        self.role: Role = role
        self.me = me
        self._cluster = cluster
        self._key = key
        self._known = known
        self.binding = binding
        """Digest of the listener's certificate; empty without TLS."""
        hello = frames.Hello(
            frames.PROTOCOL_MIN, frames.PROTOCOL_MAX, role, cluster, me.host, me.incarnation,
            me.since, challenge, window.calls, window.bytes, me.address,
        )  # fmt: skip
        self._hello = frames.encode(hello)
        self._their_hello = b""
        self._candidate: PeerIdentity | None = None
        self.peer: PeerIdentity | None = None
        """The other side, once it has proved itself."""
        self.protocol = 0
        self.window = Window(0, 0)
        """What the peer grants."""

    def begin(self) -> list[bytes]:
        """Return the payloads to send first."""
        return [self._hello] if self.role == "dialer" else []

    def receive(self, payload: bytes) -> list[bytes]:
        """Take in a payload; return those to send. Raises `PeerRefused` or `BadFrame`."""
        match frames.decode(payload):
            case frames.Hello() as hello if self._candidate is None:
                return self._on_hello(hello, payload)
            case frames.Proof() as proof if self._candidate is not None:
                return self._on_proof(proof, self._candidate)
            case frames.GoAway(reason, message):
                raise PeerRefused(f"the peer refused: {message}", reason=_as_reason(reason))
            case frame:
                raise BadFrame(f"{type(frame).__name__} in the middle of a handshake")

    def _on_hello(self, hello: frames.Hello, payload: bytes) -> list[bytes]:
        self.protocol = self._agreed(hello)
        if len(hello.challenge) != CHALLENGE_BYTES:
            raise BadFrame(f"a challenge of {len(hello.challenge)} bytes")
        self.window = Window(hello.window_calls, hello.window_bytes)
        self._their_hello = payload
        self._candidate = PeerIdentity(hello.host, hello.incarnation, hello.since, hello.address)
        self._check_life(self._candidate)
        return [self._hello] if self.role == "listener" else [self._proof(self.role)]

    def _agreed(self, hello: frames.Hello) -> int:
        """Return the version to speak; refuses a peer that does not belong here."""
        version = min(hello.high, frames.PROTOCOL_MAX)
        if version < max(hello.low, frames.PROTOCOL_MIN):
            raise PeerRefused(
                f"host {hello.host!r} speaks versions {hello.low} to {hello.high} of the protocol,"
                f" this one {frames.PROTOCOL_MIN} to {frames.PROTOCOL_MAX}; update the older one",
                reason="protocol",
            )
        if hello.role != _other(self.role) or hello.incarnation == self.me.incarnation:
            raise PeerRefused(
                f"host {hello.host!r} answers as {hello.role!r} with incarnation"
                f" {hello.incarnation}: this process talks to itself",
                reason="role",
            )
        if not hmac.compare_digest(hello.cluster.encode(), self._cluster.encode()):
            raise PeerRefused(
                f"host {hello.host!r} belongs to another database ({hello.cluster}, here"
                f" {self._cluster})",
                reason="cluster",
            )
        return version

    def _on_proof(self, proof: frames.Proof, candidate: PeerIdentity) -> list[bytes]:
        expected = self._mac(_other(self.role))
        if not hmac.compare_digest(proof.mac, expected):
            raise PeerRefused(
                f"host {candidate.host!r} does not know the master key of this installation; give"
                " all hosts the same secret_key",
                reason="key",
            )
        self._check_life(candidate)
        self.peer = candidate
        self._known.learn(candidate)
        return [self._proof(self.role)] if self.role == "listener" else []

    def _check_life(self, candidate: PeerIdentity) -> None:
        if self._known.is_superseded(candidate):
            raise PeerRefused(
                f"incarnation {candidate.incarnation} of host {candidate.host!r} has been followed"
                " by a younger one",
                reason="incarnation",
            )

    def _proof(self, role: Role) -> bytes:
        return frames.encode(frames.Proof(self._mac(role)))

    def _mac(self, role: Role) -> bytes:
        hellos = (self._hello, self._their_hello)
        dialers, listeners = hellos if self.role == "dialer" else hellos[::-1]
        mac = hmac.new(self._key, digestmod=hashlib.sha256)
        for part in (b"relevo actors transport", role.encode(), dialers, listeners, self.binding):
            mac.update(len(part).to_bytes(8, "big") + part)
        return mac.digest()


def _other(role: Role) -> Role:
    return "listener" if role == "dialer" else "dialer"


def _as_reason(text: str) -> RefusalReason:
    match text:
        case "protocol" | "cluster" | "role" | "incarnation" | "key" | "address" | "busy":
            return text
        case _:
            return "unexpected"
