"""Handshakes: both sides prove the key, of one conversation, in one installation."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relevo.actors.transport import frames
from relevo.actors.transport.credit import Window
from relevo.actors.transport.errors import BadFrame, PeerRefused
from relevo.actors.transport.handshake import Handshake, KnownHosts, PeerIdentity, Role

KEY = b"k" * 32
A = PeerIdentity("host-a", "1111", 10, "unix:/a")
B = PeerIdentity("host-b", "2222", 20)


def side(role: Role, me: PeerIdentity, **told: Any) -> Handshake:
    given = {
        "cluster": "cluster", "key": KEY, "challenge": me.incarnation[:1].encode() * 32,
        "known": KnownHosts(), **told,
    }  # fmt: skip
    return Handshake(role, me, **given)


def converse(dialer: Handshake, listener: Handshake) -> list[bytes]:
    """Let both talk until neither has anything to say; return what went over the wire."""
    wire: list[bytes] = []
    out, sender, taker = dialer.begin(), dialer, listener
    while out:
        wire += out
        out, sender, taker = [b for one in out for b in taker.receive(one)], taker, sender
    return wire


def test_both_sides_know_each_other_in_the_end() -> None:
    dialer, listener = side("dialer", A, window=Window(3, 300)), side("listener", B)
    converse(dialer, listener)
    assert (dialer.peer, listener.peer) == (B, A)
    assert listener.window == Window(3, 300)
    assert dialer.protocol == listener.protocol == frames.PROTOCOL_MAX


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ({"key": b"x" * 32}, "key"),
        ({"cluster": "other"}, "cluster"),
        ({"binding": b"another certificate"}, "key"),
    ],
)
@pytest.mark.parametrize("odd", ["dialer", "listener"])
def test_a_stranger_is_refused_by_name(told: dict[str, Any], reason: str, odd: str) -> None:
    dialer = side("dialer", A, **(told if odd == "dialer" else {}))
    listener = side("listener", B, **(told if odd == "listener" else {}))
    with pytest.raises(PeerRefused) as refused:
        converse(dialer, listener)
    assert refused.value.reason == reason
    assert (dialer.peer, listener.peer) == (None, None)


def test_an_older_life_of_a_host_is_refused_after_the_younger_was_seen() -> None:
    known = KnownHosts()
    converse(side("dialer", PeerIdentity("host-a", "3333", 11)), side("listener", B, known=known))
    with pytest.raises(PeerRefused) as refused:
        converse(side("dialer", A), side("listener", B, known=known))
    assert refused.value.reason == "incarnation"
    converse(side("dialer", PeerIdentity("host-a", "4444", 12)), side("listener", B, known=known))


def test_who_does_not_prove_itself_teaches_nothing() -> None:
    known = KnownHosts()
    with pytest.raises(PeerRefused):
        converse(
            side("dialer", PeerIdentity("host-a", "3333", 99), key=b"x" * 32),
            side("listener", B, known=known, key=b"x" * 31 + b"y"),
        )
    assert not known.is_superseded(A)


def test_a_recorded_conversation_cannot_be_played_again() -> None:
    wire = converse(side("dialer", A), side("listener", B))
    later = side("listener", B, challenge=b"fresh" + bytes(27))
    later.receive(wire[0])
    with pytest.raises(PeerRefused) as refused:
        later.receive(wire[2])
    assert refused.value.reason == "key"
    assert later.peer is None


def test_a_proof_cannot_be_reflected() -> None:
    dialer = side("dialer", A)
    hello = dialer.begin()[0]
    with pytest.raises(PeerRefused) as refused:
        side("dialer", B).receive(hello)
    assert refused.value.reason == "role"
    (hello,) = side("listener", B).receive(hello)
    (proof,) = dialer.receive(hello)
    with pytest.raises(PeerRefused) as refused:
        dialer.receive(proof)
    assert refused.value.reason == "key"


def test_a_mirror_that_changes_role_and_incarnation_is_refused() -> None:
    dialer = side("dialer", A)
    hello = frames.decode(dialer.begin()[0])
    assert isinstance(hello, frames.Hello)
    forged = msgspec.structs.replace(hello, role="listener", incarnation="9999")
    dialer.receive(frames.encode(forged))
    with pytest.raises(PeerRefused):
        dialer.receive(frames.encode(frames.Proof(bytes(32))))


def test_versions_without_an_overlap_are_refused() -> None:
    hello = frames.decode(side("dialer", A).begin()[0])
    assert isinstance(hello, frames.Hello)
    for low, high in ((7, 9), (-3, 0), (2, 1)):
        other = msgspec.structs.replace(hello, low=low, high=high)
        with pytest.raises(PeerRefused) as refused:
            side("listener", B).receive(frames.encode(other))
        assert refused.value.reason == "protocol"


def test_a_younger_protocol_with_more_fields_still_agrees() -> None:
    """The proof covers the bytes as they were sent, not what an older version knows of them."""
    dialer, listener = side("dialer", A), side("listener", B)
    richer = [*msgspec.msgpack.decode(dialer.begin()[0]), "a new field"]
    dialer._hello = msgspec.msgpack.encode(richer)
    converse(dialer, listener)
    assert (dialer.peer, listener.peer) == (B, A)


@given(st.lists(st.binary(max_size=80), max_size=3), st.sampled_from(["dialer", "listener"]))
def test_garbage_never_passes(payloads: list[bytes], role: Role) -> None:
    handshake = side(role, A)
    for payload in payloads:
        with pytest.raises((BadFrame, PeerRefused)):
            handshake.receive(payload)
    assert handshake.peer is None


def test_calls_before_the_proof_are_no_part_of_a_handshake() -> None:
    listener = side("listener", B)
    listener.receive(side("dialer", A).begin()[0])
    for early in (frames.Ping(), frames.Probe(b""), frames.Credit(1, 1)):
        with pytest.raises(BadFrame, match="in the middle of a handshake"):
            listener.receive(frames.encode(early))
