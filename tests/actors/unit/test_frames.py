"""Frames: what is written is read, and whatever else arrives is one named error."""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relevo import limits
from relevo.actors.core.calls import Call, Chain, Frame, MovedTo, Raised, Refused, Returned
from relevo.actors.transport import frames
from relevo.actors.transport.errors import BadFrame
from relevo.errors import TooLarge

texts = st.text(st.characters(codec="utf-8"), max_size=20)
seconds = st.floats(0, 1e6)
chains = st.builds(
    Chain, st.integers(0, 2**63), st.lists(st.builds(Frame, texts, st.integers(0, 9))).map(tuple)
)
calls = st.builds(
    Call, texts, texts, st.binary(max_size=50), seconds, chains, st.integers(0, 2**62), texts,
    st.none() | texts, st.dictionaries(texts, texts, max_size=3), st.booleans(), seconds,
)  # fmt: skip
answers = st.one_of(
    st.builds(Returned, st.binary(), st.integers(0, 9)),
    st.builds(Raised, texts, st.binary(), texts),
    st.builds(Refused, texts, texts, st.none() | st.booleans(), seconds),
    st.builds(MovedTo, st.integers(0, 9), st.none() | texts, seconds),
)
numbers = st.integers(1, 2**53)
written = st.one_of(
    st.builds(frames.CallFrame, numbers, calls),
    st.builds(frames.AnswerFrame, numbers, answers),
    st.builds(frames.Cancel, numbers),
    st.builds(frames.Credit, st.integers(0, 2**40), st.integers(0, 2**40)),
    st.builds(frames.Subscribe, numbers, numbers, st.binary()),
    st.builds(frames.Unsubscribe, numbers),
    st.builds(frames.EventFrame, numbers, st.integers(0, 2**60), st.binary()),
    st.builds(frames.Probe, st.binary()),
    st.builds(frames.Ping),
    st.builds(frames.Pong),
    st.builds(frames.GoAway, texts, texts),
)


def read_all(data: bytes, cuts: list[int], bytes_max: int = 10_000) -> list[frames.TransportFrame]:
    """What a peer reads of bytes that arrive in pieces."""
    reader, found = frames.FrameReader(bytes_max), []
    edges = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    for start, end in itertools.pairwise(edges):
        found += [frames.decode(payload) for payload in reader.feed(data[start:end])]
        assert reader.held < bytes_max + frames.HEADER_BYTES
    return found


@given(st.lists(written, max_size=6), st.lists(st.integers(0, 2_000), max_size=8))
def test_frames_arrive_as_they_were_sent_however_they_are_cut(
    sent: list[frames.TransportFrame], cuts: list[int]
) -> None:
    out = bytearray()
    for frame in sent:
        before = len(out)
        assert frames.append(out, frame) == len(out) - before - frames.HEADER_BYTES
    assert read_all(bytes(out), cuts) == sent


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=4))
def test_any_bytes_are_frames_or_one_error(data: bytes, cuts: list[int]) -> None:
    hostile(data, cuts)


@given(written, st.data())
def test_a_damaged_frame_is_a_frame_or_one_error(
    frame: frames.TransportFrame, data: st.DataObject
) -> None:
    out = bytearray()
    frames.append(out, frame)
    for _ in range(data.draw(st.integers(1, 4))):
        out[data.draw(st.integers(0, len(out) - 1))] = data.draw(st.integers(0, 255))
    hostile(bytes(out), [])


def hostile(data: bytes, cuts: list[int]) -> None:
    with contextlib.suppress(BadFrame):
        read_all(data, cuts)


@pytest.mark.parametrize(
    "payload",
    [
        pickle.dumps({"a": 1}),
        pickle.dumps(print, protocol=0),
        b"\xdd\xff\xff\xff\xff",
        b"\xdc\xff\xff\x03\x01",
        b"\x93\x03\x01\xdd\xff\xff\xff\xff",
        b"\x92\x0a\xc6\xff\xff\xff\xffaa",
        b"\x91" * 100_000,
        b"\x81\xa1a" * 50_000 + b"\x01",
        b"\x92\x63\x01",
        b"\x92\x05\x00",
        b"\x92\x05\xff",
        b"\x91\x0b\x00",
        b"\xc1",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x93\x0d\xa2\xff\xfe\xa0",
    ],
)
def test_what_is_no_frame_is_refused(payload: bytes) -> None:
    with pytest.raises(BadFrame):
        frames.decode(payload)


def test_a_frame_that_announces_too_much_is_refused_before_it_is_held() -> None:
    reader = frames.FrameReader(1_000)
    with pytest.raises(BadFrame, match="1001 bytes"):
        list(reader.feed((1_001).to_bytes(4, "big")))
    assert reader.held == 0
    with pytest.raises(BadFrame, match="0 bytes"):
        list(frames.FrameReader(1_000).feed(bytes(4)))


def test_a_call_that_is_too_large_leaves_the_others_as_they_were() -> None:
    out = bytearray()
    frames.append(out, frames.Ping())
    before = bytes(out)
    with pytest.raises(TooLarge):
        frames.append(out, frames.Probe(bytes(limits.ACTOR_FRAME_BYTES_MAX)))
    assert bytes(out) == before
    with pytest.raises(TypeError):
        frames.append(out, frames.Probe(object()))  # type: ignore[arg-type]
    assert bytes(out) == before


@pytest.mark.parametrize(
    "broken",
    [
        {"timeout": float("nan")},
        {"timeout": float("inf")},
        {"timeout": -1.0},
        {"actor": "a" * 10_000},
        {"method": "m" * 10_000},
        {"digest": "d" * 10_000},
        {"call_id": "c" * 10_000},
        {"headers": {"h": "v" * 10_000}},
        {"chain": Chain(1, tuple(Frame("a/i:1", n) for n in range(1_000)))},
        {"chain": Chain(1, (Frame("a" * 10_000, 1),))},
    ],
)
def test_a_call_beyond_its_bounds_is_refused(broken: dict[str, Any]) -> None:
    call = Call("a/i:1", "m", b"", 1.0, Chain(1))
    frames.decode(frames.encode(frames.CallFrame(1, call)))
    bad = msgspec.structs.replace(call, **broken)
    with pytest.raises(BadFrame, match="not a call"):
        frames.decode(frames.encode(frames.CallFrame(1, bad)))


_GUIDED: Final = """
import sys
import atheris
with atheris.instrument_imports():
    from tests.actors.unit.test_frames import hostile

def one(data):
    hostile(data, [len(data) // 2])

atheris.Setup(sys.argv, one)
atheris.Fuzz()
"""


@pytest.mark.soak
def test_a_minute_of_guided_bytes_is_read_or_refused() -> None:
    if importlib.util.find_spec("atheris") is None:
        pytest.skip("atheris is not installed; install it to run a minute of guided fuzzing")
    done = subprocess.run(  # it ends its process when the time is over
        [sys.executable, "-c", _GUIDED, "-max_total_time=60", "-max_len=4096"],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4_000:]
