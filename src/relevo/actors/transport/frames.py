"""The frames that travel between processes: four bytes of length, then a MessagePack array. Pure.

Decoding is total. Whatever bytes arrive, the outcome is a frame or a `BadFrame`, and no more than
one unfinished frame is held. Nothing is unpickled. Bodies stay encoded: only the two ends of a call
look into them. New fields are added at the end, with defaults.
"""

from __future__ import annotations

import math
from struct import Struct as Layout
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from msgspec import Meta, Struct

from relevo import limits
from relevo.actors.core.calls import Answer, Call
from relevo.actors.transport.errors import BadFrame
from relevo.errors import TooLarge

if TYPE_CHECKING:
    from collections.abc import Iterator

PROTOCOL_MIN: Final = 1
PROTOCOL_MAX: Final = 1
HEADER_BYTES: Final = 4
_HEADER: Final = Layout(">I")
_NO_LENGTH: Final = bytes(HEADER_BYTES)

Number = Annotated[int, Meta(ge=1, le=2**53)]
"""Of a request; rises with each one on a connection."""
Amount = Annotated[int, Meta(ge=0, le=2**40)]
Name = Annotated[str, Meta(max_length=512)]


class Hello(Struct, array_like=True, frozen=True, tag=1):
    """The first frame of each side: the identity that the proof is bound to."""

    low: int
    high: int
    """The versions of the protocol that the sender speaks."""
    role: Name
    cluster: Name
    host: Name
    incarnation: Name
    since: int
    challenge: bytes
    window_calls: Amount
    window_bytes: Amount
    """What the sender grants."""
    address: Annotated[str, Meta(max_length=1_024)] | None = None
    """Where the sender takes calls; None for a client."""


class Proof(Struct, array_like=True, frozen=True, tag=2):
    """Shows that the sender knows the key and means this conversation."""

    mac: bytes


class CallFrame(Struct, array_like=True, frozen=True, tag=3, gc=False):
    """A call; its answer carries the same number."""

    number: Number
    call: Call


class AnswerFrame(Struct, array_like=True, frozen=True, tag=4, gc=False):
    """The answer to a call or to a subscription."""

    number: Number
    answer: Answer


class Cancel(Struct, array_like=True, frozen=True, tag=5, gc=False):
    """The caller no longer waits for the answer of a number."""

    number: Number


class Credit(Struct, array_like=True, frozen=True, tag=6, gc=False):
    """So many calls and bytes more may be sent."""

    calls: Amount
    bytes: Amount


class Subscribe(Struct, array_like=True, frozen=True, tag=7, gc=False):
    """Asks for events, or renews a subscription; answered as a call is."""

    number: Number
    subscription: Number
    body: bytes


class Unsubscribe(Struct, array_like=True, frozen=True, tag=8, gc=False):
    """Ends a subscription of the sender."""

    subscription: Number


class EventFrame(Struct, array_like=True, frozen=True, tag=9, gc=False):
    """An event of a subscription; a gap in the sequence shows what was dropped."""

    subscription: Number
    sequence: int
    body: bytes


class Probe(Struct, array_like=True, frozen=True, tag=10, gc=False):
    """Follows a chain of waiting calls to find a deadlock."""

    body: bytes


class Ping(Struct, array_like=True, frozen=True, tag=11, gc=False):
    """Asks a silent peer for a sign."""


class Pong(Struct, array_like=True, frozen=True, tag=12, gc=False):
    """The sign."""


class GoAway(Struct, array_like=True, frozen=True, tag=13, gc=False):
    """No requests follow from the sender, and none are welcome; what runs is answered.

    With a reason it is a refusal: the connection is closed at once.
    """

    reason: Name = ""
    message: Annotated[str, Meta(max_length=2_048)] = ""


TransportFrame = (
    Hello | Proof | CallFrame | AnswerFrame | Cancel | Credit | Subscribe | Unsubscribe
    | EventFrame | Probe | Ping | Pong | GoAway
)  # fmt: skip

_DECODER: Final = msgspec.msgpack.Decoder(TransportFrame)
_ENCODER: Final = msgspec.msgpack.Encoder()


class FrameReader:
    """Cuts a stream into payloads of frames; holds at most one that is not complete."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        """May be changed between two frames."""
        self._rest = bytearray()
        self._needed = HEADER_BYTES

    def feed(self, data: bytes) -> Iterator[memoryview]:
        """Return the payloads that are complete with these bytes; raises `BadFrame`.

        Iterate to the end, or not at all.
        """
        if self._rest:
            self._rest += data
            if len(self._rest) < self._needed:
                return
            data, self._rest = bytes(self._rest), bytearray()
        view, start, end = memoryview(data), 0, len(data)
        self._needed = HEADER_BYTES
        while end - start >= HEADER_BYTES:
            (size,) = _HEADER.unpack_from(data, start)
            if not 0 < size <= self.bytes_max:
                raise BadFrame(f"a frame of {size} bytes; it may have 1 to {self.bytes_max}")
            begin = start + HEADER_BYTES
            if end - begin < size:
                self._needed = HEADER_BYTES + size
                break
            start = begin + size
            yield view[begin:start]
        if start < end:
            self._rest += view[start:]

    @property
    def held(self) -> int:
        """Bytes of the unfinished frame."""
        return len(self._rest)


def decode(payload: bytes | memoryview) -> TransportFrame:
    """Return the frame of a payload; raises `BadFrame` for everything that is none."""
    try:
        frame: TransportFrame = _DECODER.decode(payload)
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError) as error:
        raise BadFrame(f"not a frame: {error}") from None
    if type(frame) is CallFrame and (fault := fault_of(frame.call)):
        raise BadFrame(f"not a call: {fault}")
    return frame


def encode(frame: TransportFrame) -> bytes:
    """Return the payload of a frame, without its length."""
    return _ENCODER.encode(frame)


def with_length(payload: bytes) -> bytes:
    """Return a payload as it goes over the wire."""
    return _HEADER.pack(len(payload)) + payload


def append(out: bytearray, frame: TransportFrame) -> int:
    """Add a frame to the bytes that wait to be written; return the size of its payload.

    Raises `TooLarge`, and leaves `out` as it was.
    """
    start = len(out)
    out += _NO_LENGTH
    try:
        _ENCODER.encode_into(frame, out, start + HEADER_BYTES)
    except BaseException:
        del out[start:]
        raise
    size = len(out) - start - HEADER_BYTES
    if size > limits.ACTOR_FRAME_BYTES_MAX:
        del out[start:]
        raise TooLarge(
            f"{size} bytes are too many for one call or answer; at most"
            f" {limits.ACTOR_FRAME_BYTES_MAX} travel between hosts"
        )
    _HEADER.pack_into(out, start, size)
    return size


def fault_of(call: Call) -> str | None:
    """Return which bound a call breaks, if any."""
    if not 0.0 <= call.timeout < math.inf:
        return f"{call.timeout} seconds are no timeout"
    if len(call.actor) > limits.ACTOR_NAME_LENGTH_MAX:
        return "the name of the actor is too long"
    if len(call.method) > limits.ACTOR_NAME_LENGTH_MAX or len(call.digest) > 256:
        return "the name or the digest of the method is too long"
    if call.call_id is not None and len(call.call_id) > limits.ACTOR_CALL_ID_LENGTH_MAX:
        return "the call id is too long"
    frames = call.chain.frames
    if frames:
        if len(frames) > limits.ACTOR_CHAIN_FRAMES_MAX:
            return f"{len(frames)} calls wait in its chain"
        if any(len(frame.actor) > limits.ACTOR_NAME_LENGTH_MAX for frame in frames):
            return "the name of an actor in its chain is too long"
    if call.headers:
        size = sum(len(name.encode()) + len(value.encode()) for name, value in call.headers.items())
        if size > limits.ACTOR_HEADERS_BYTES_MAX:
            return f"its headers have {size} bytes, of {limits.ACTOR_HEADERS_BYTES_MAX} allowed"
    return None
