"""Credit: what a sender uses and what a receiver grants never exceed the window."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from relevo.actors.transport.credit import ReceiveCredit, SendCredit, Window
from relevo.actors.transport.errors import BadFrame

WINDOW = Window(5, 100)


class Link(RuleBasedStateMachine):
    """Both ends of a connection, and what is on its way between them."""

    def __init__(self) -> None:
        super().__init__()
        self.sender, self.receiver = SendCredit(WINDOW), ReceiveCredit(WINDOW)
        self.on_the_way: list[int] = []
        self.taken_in: list[int] = []
        self.grants: list[tuple[int, int]] = []

    @rule(size=st.integers(0, 100))
    def send(self, size: int) -> None:
        fits = self.sender.calls >= 1 and self.sender.bytes >= size
        assert self.sender.take(size) is fits
        if fits:
            self.on_the_way.append(size)

    @precondition(lambda self: self.on_the_way)
    @rule()
    def arrive(self) -> None:
        size = self.on_the_way.pop(0)
        self.receiver.receive(size)
        self.taken_in.append(size)

    @precondition(lambda self: self.taken_in)
    @rule()
    def admit(self) -> None:
        self.receiver.admit(self.taken_in.pop(0))

    @rule()
    def grant(self) -> None:
        self.grants.append(self.receiver.grant())

    @precondition(lambda self: self.grants)
    @rule()
    def learn(self) -> None:
        self.sender.grant(*self.grants.pop(0))

    @invariant()
    def nothing_exceeds_the_window(self) -> None:
        under_way = [*self.on_the_way, *self.taken_in]
        assert len(under_way) <= WINDOW.calls
        assert sum(under_way) <= WINDOW.bytes

    @invariant()
    def no_credit_is_lost(self) -> None:
        granted_calls = sum(calls for calls, _ in self.grants)
        granted_bytes = sum(size for _, size in self.grants)
        under_way = [*self.on_the_way, *self.taken_in]
        assert self.sender.calls + len(under_way) + self.receiver.owed_calls + granted_calls == 5
        in_all = self.sender.bytes + sum(under_way) + self.receiver.owed_bytes + granted_bytes
        assert in_all == 100


TestLink = Link.TestCase


@given(st.lists(st.integers(0, 60), min_size=1, max_size=20))
def test_a_peer_that_ignores_its_credit_is_found_out(sizes: list[int]) -> None:
    receiver, calls, size = ReceiveCredit(WINDOW), 5, 100
    for each in sizes:
        if calls < 1 or size < each:
            with pytest.raises(BadFrame, match="without credit"):
                receiver.receive(each)
            return
        receiver.receive(each)
        calls, size = calls - 1, size - each


def test_a_grant_beyond_the_window_is_refused() -> None:
    with pytest.raises(BadFrame):
        SendCredit(WINDOW).grant(1, 0)
    sender = SendCredit(WINDOW)
    assert sender.take(10)
    with pytest.raises(BadFrame):
        sender.grant(1, 11)


def test_half_a_window_is_told_at_once() -> None:
    receiver, due = ReceiveCredit(WINDOW), []
    for size in (10, 45):
        receiver.receive(size)
        receiver.admit(size)
        due.append(receiver.is_due)
    assert due == [False, True]
    assert receiver.grant() == (2, 55)
    assert receiver.grant() == (0, 0)
