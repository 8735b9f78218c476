"""Every accepted event is answered once, after it was written, and written in order."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from relevo.errors import Overloaded
from relevo.governance.core.buffers import BufferOptions, Intent, WriteAnswer, WriterBuffer
from tests.conftest import examples

OPTIONS = BufferOptions(max_batch=4, max_bytes=40, max_delay=1.0, max_buffer=12, id_seconds=30.0)


class Writers(RuleBasedStateMachine):
    """Callers, a sink that fails and rejects, and an owner that ends at any point."""

    def __init__(self) -> None:
        super().__init__()
        self.buffer = WriterBuffer(OPTIONS)
        self.now = 0.0
        self.ticket = 0
        self.accepted: list[bytes] = []
        """In the order of acceptance, without repeats that joined."""
        self.event_of: dict[int, bytes] = {}
        self.ended: dict[int, str] = {}
        self.sink: list[bytes] = []
        self.rejected: set[bytes] = set()
        self.closed: list[bytes] = []
        self.intent: Intent | None = None
        self.doubtful: set[bytes] = set()

    def answered(self, answers: list[WriteAnswer]) -> None:
        for answer in answers:
            assert answer.ticket not in self.ended  # I41: once
            self.ended[answer.ticket] = answer.outcome
            event = self.event_of[answer.ticket]
            if answer.outcome == "written":  # I42: not before
                assert self.sink[answer.number - 1] == event
            elif answer.outcome == "rejected":
                assert event not in self.sink

    @rule(size=st.integers(0, 30), name=st.sampled_from([None, None, "a", "b"]), bad=st.booleans())
    def accept(self, size: int, name: str | None, bad: bool) -> None:
        self.ticket += 1
        data = f"{name or self.ticket}".encode() + b"x" * (size if name is None else 5)
        waits = {self.event_of[one] for one in self.event_of if one not in self.ended}
        lately = data in self.sink
        try:
            answer = self.buffer.accept(self.ticket, data, now=self.now, id=name)
        except Overloaded:
            assert len(self.buffer) >= OPTIONS.max_buffer
            return
        self.event_of[self.ticket] = data
        if answer is not None:
            assert lately
            self.answered([answer])
        elif name is None or data not in waits:
            self.accepted.append(data)
            self.rejected.discard(data)
            if bad and name is None:
                self.rejected.add(data)

    @rule(seconds=st.floats(0, 2.0))
    def close(self, seconds: float) -> None:
        self.now += seconds
        due, waiting = self.buffer.due(self.now), len(self.buffer) - self.buffer.in_flight
        piece = self.buffer.close_batch(self.now)
        assert (piece is not None) == (due == 0.0)
        if piece is not None:
            assert len(piece.events) <= OPTIONS.max_batch
            if len(piece.events) > 1:
                assert sum(len(event.data) for event in piece.events) <= OPTIONS.max_bytes
            assert len(self.buffer) - self.buffer.in_flight == waiting - len(piece.events)
        if seconds >= 1.0 and waiting and self.buffer.piece is None:
            raise AssertionError("a batch is later than max_delay")

    @rule()
    def flush(self) -> None:
        self.buffer.flush()
        if self.buffer.piece is None and len(self.buffer):
            assert self.buffer.due(self.now) == 0.0

    @rule(how=st.sampled_from(["write", "write", "retry"]), knows=st.booleans())
    @precondition(lambda self: self.buffer.piece is not None)
    def sink_works(self, how: str, knows: bool) -> None:
        piece = self.buffer.piece
        assert piece is not None
        self.intent = self.buffer.intent()
        datas = [event.data for event in piece.events]
        bad = [index for index, data in enumerate(datas) if data in self.rejected]
        if how == "retry":
            return  # a transient error: the same piece stays in flight
        if bad:
            self.answered(self.buffer.rejected("not valid", bad if knows else None))
            return
        assert piece.first == len(self.sink) + 1
        self.sink += datas
        self.answered(self.buffer.written(self.now))

    @rule(wrote=st.booleans(), remembers=st.booleans())
    def the_owner_ends(self, wrote: bool, remembers: bool) -> None:
        """Its callers are told, the next owner learns from the sink what was written."""
        piece = self.buffer.piece
        intent = None if piece is None else self.buffer.intent()
        bad = piece is not None and any(one.data in self.rejected for one in piece.events)
        wrote = wrote and piece is not None and not bad
        if piece is not None and wrote:
            self.sink += [event.data for event in piece.events]
        self.answered(self.buffer.fail_all("the host has ended"))
        self.buffer = WriterBuffer(OPTIONS)
        if not remembers:
            told = WriterBuffer(OPTIONS).recover(intent, None, self.now)
            assert told is (False if intent is None else None)
        told = self.buffer.recover(intent, len(self.sink), self.now)
        assert told is wrote
        if intent is not None and wrote:
            for id_ in intent.ids:  # a repeat of what was written is not written again
                if id_ is not None:
                    self.ticket += 1
                    self.event_of[self.ticket] = self.sink[0]
                    assert self.buffer.accept(self.ticket, b"", now=self.now, id=id_) is not None
                    del self.event_of[self.ticket]
        self.accepted = [*self.sink]

    @rule(data=st.data())
    def a_caller_goes(self, data: st.DataObject) -> None:
        if waiting := sorted(one for one in self.event_of if one not in self.ended):
            ticket = data.draw(st.sampled_from(waiting))
            assert self.buffer.give_up(ticket)
            self.ended[ticket] = "gone"

    @invariant()
    def the_sink_has_events_in_the_order_of_acceptance(self) -> None:
        places = iter(self.accepted)
        assert all(any(event == place for place in places) for event in self.sink)  # I43

    @invariant()
    def numbers_have_no_gaps(self) -> None:
        assert self.buffer.next_number == len(self.sink) + 1

    def teardown(self) -> None:
        self.now += 5.0
        while self.buffer.piece is not None or self.buffer.close_batch(self.now) is not None:
            self.sink_works("write", knows=False)
        assert set(self.event_of) == set(self.ended)  # I41: all
        assert not len(self.buffer)


TestWriters = Writers.TestCase
TestWriters.settings = settings(max_examples=examples(200), stateful_step_count=40)


def test_bad_events_are_found_by_halves_and_the_others_keep_their_order() -> None:
    buffer = WriterBuffer(BufferOptions(max_delay=0))
    for ticket in range(10):
        buffer.accept(ticket, bytes([ticket]), now=0.0)
    buffer.close_batch(0.0)
    written: list[int] = []
    ended: dict[int, str] = {}
    while (piece := buffer.piece) is not None:
        values = [event.data[0] for event in piece.events]
        if {3, 7} & set(values):
            answers = buffer.rejected("bad")
        else:
            written += values
            answers = buffer.written(0.0)
        ended |= {answer.ticket: answer.outcome for answer in answers}
    assert written == [0, 1, 2, 4, 5, 6, 8, 9]
    assert {ticket for ticket, outcome in ended.items() if outcome == "rejected"} == {3, 7}


def test_events_that_come_during_a_write_belong_to_the_next() -> None:
    buffer = WriterBuffer(BufferOptions(max_delay=0))
    buffer.accept(1, b"a", now=0.0)
    buffer.close_batch(0.0)
    buffer.accept(2, b"b", now=0.0)
    assert [answer.ticket for answer in buffer.written(0.0)] == [1]
    piece = buffer.close_batch(0.0)
    assert piece is not None
    assert (piece.first, [event.data for event in piece.events]) == (2, [b"b"])


@pytest.mark.parametrize(
    ("options", "events"), [({"max_batch": 2}, 2), ({"max_bytes": 10}, 1), ({"max_delay": 0.0}, 1)]
)
def test_a_batch_closes_when_a_bound_is_reached(options: dict[str, Any], events: int) -> None:
    buffer = WriterBuffer(BufferOptions(**{"max_delay": 60.0, **options}))
    for ticket in range(events):
        assert buffer.due(0.0) != 0.0
        buffer.accept(ticket, b"0123456789", now=0.0)
    assert buffer.due(0.0) == 0.0
