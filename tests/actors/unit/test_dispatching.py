"""Which activation takes which call: a model of calls, activations and time."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from relevo.actors.core.dispatching import SharedQueue, next_step
from relevo.errors import MailboxFull

NAMES = ("red", "green", "blue")


class Call:
    def __init__(self, name: str, number: int) -> None:
        self.name = name
        self.number = number
        self.is_queued = False


class Worker:
    def __init__(self, name: str) -> None:
        self.name = name
        self.call: Call | None = None
        self.is_leaving = False

    @property
    def is_free(self) -> bool:
        return self.call is None and not self.is_leaving


class Dispatching(RuleBasedStateMachine):
    """Calls arrive, end and are given up; activations that are to leave do so later."""

    def __init__(self) -> None:
        super().__init__()
        self.queue: SharedQueue[Call] = SharedQueue(50)
        self.workers: list[Worker] = []
        self.most = 2
        self.arrived = 0
        self.waiting: list[Call] = []
        self.begun: dict[str, list[int]] = {name: [] for name in NAMES}

    def settle(self) -> None:
        for _ in range(200):
            step = next_step(self.queue.names(), self.workers, self.most, lambda _: True)
            if step is None:
                return
            if step.action == "evict":
                assert step.worker is not None
                assert step.worker.is_free
                step.worker.is_leaving = True
                continue
            worker = step.worker or Worker(step.name)
            if step.action == "make":
                free = [one for one in self.workers if one.is_free and one.name == step.name]
                assert not free, "one was free"
                self.workers.append(worker)
            assert worker.is_free
            assert worker.name == step.name
            worker.call = self.queue.take(step.name)
            self.waiting.remove(worker.call)
            self.begun[step.name].append(worker.call.number)
        raise AssertionError("it does not come to rest")

    @rule(name=st.sampled_from(NAMES))
    def arrive(self, name: str) -> None:
        self.arrived += 1
        call = Call(name, self.arrived)
        try:
            self.queue.add(call)
        except MailboxFull:
            assert len(self.waiting) == 50
            return
        self.waiting.append(call)
        self.settle()

    @precondition(lambda self: any(one.call for one in self.workers))
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from([one for one in self.workers if one.call])).call = None
        self.settle()

    @precondition(lambda self: any(one.is_leaving for one in self.workers))
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        self.workers.remove(data.draw(st.sampled_from([w for w in self.workers if w.is_leaving])))
        self.settle()

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        call = data.draw(st.sampled_from(self.waiting))
        self.waiting.remove(call)
        self.queue.remove(call)

    @invariant()
    def is_bounded(self) -> None:
        assert len(self.workers) <= self.most  # I38

    @invariant()
    def counts_what_waits(self) -> None:
        assert self.queue.calls == len(self.waiting)

    @invariant()
    def begins_in_order(self) -> None:
        for numbers in self.begun.values():
            assert numbers == sorted(numbers)

    @invariant()
    def wastes_nothing(self) -> None:
        """While calls wait, no activation is idle and no room is left."""
        if self.waiting:
            assert len(self.workers) == self.most
            free = [one for one in self.workers if one.is_free]
            leaving = [one for one in self.workers if one.is_leaving]
            assert not free or leaving, "an idle one would have to leave"

    def teardown(self) -> None:
        """Every call begins once those before it have ended."""
        for _ in range(1_000):
            if not self.waiting:
                return
            for worker in list(self.workers):
                worker.call = None
                if worker.is_leaving:
                    self.workers.remove(worker)
            self.settle()
        raise AssertionError("a call waits for ever")


TestDispatching = Dispatching.TestCase
TestDispatching.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)


@given(st.lists(st.booleans(), max_size=30))
def test_calls_leave_the_queue_in_their_order(removed: list[bool]) -> None:
    queue: SharedQueue[Call] = SharedQueue(100)
    calls = [Call(NAMES[number % 3], number) for number in range(len(removed))]
    for call in calls:
        queue.add(call)
    for call, is_removed in zip(calls, removed, strict=True):
        if is_removed:
            queue.remove(call)
    kept = [call for call, is_removed in zip(calls, removed, strict=True) if not is_removed]
    assert queue.take_all() == kept
    assert queue.calls == 0


def test_a_full_queue_refuses() -> None:
    queue: SharedQueue[Call] = SharedQueue(1)
    queue.add(Call("red", 1))
    with pytest.raises(MailboxFull):
        queue.add(Call("red", 2))
