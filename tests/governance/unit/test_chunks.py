"""Chunks of a pool: hosts never use more than the pool counts for them, whatever gets lost."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from relevo.errors import InvalidValue
from relevo.governance.core.chunks import IDLE_SECONDS, Chunk, ChunkMessage, Need
from relevo.governance.core.fairness import Waiter
from relevo.governance.core.lending import ChunkAsk, Lending, Loan
from relevo.governance.core.permits import Holder, PermitLedger, PermitState
from relevo.governance.core.pools import Grant, Pool, PoolOptions, Request
from tests.conftest import examples

OPTIONS = PoolOptions(size=5, per_key=4, burst=True)


class Host:
    """A life of a host, with one chunk, and callers that wait or hold permits."""

    def __init__(self, name: str, key: str, now: float) -> None:
        self.name, self.key = name, key
        self.chunk = Chunk(now)
        self.waiting: dict[int, int] = {}
        self.held: list[int] = []
        self.asks: list[ChunkAsk] = []
        """Sent, and perhaps to arrive more than once."""
        self.answers: list[tuple[int, Loan]] = []

    def served(self, waiters: list[Waiter]) -> None:
        for waiter in waiters:
            self.held.append(self.waiting.pop(waiter.number))

    def send(self, now: float) -> ChunkAsk:
        ask = ChunkAsk(ticket=self.name, key=self.key, host=self.name, message=self.chunk.ask(now))
        self.asks.append(ask)
        return ask

    def hear(self, seq: int, loan: Loan, now: float) -> None:
        assert not loan.is_lost
        self.served(self.chunk.learn(seq, granted=loan.granted, recalled=loan.recalled, now=now))


class Chunks(RuleBasedStateMachine):
    """Three hosts and callers that ask the pool by themselves, over messages that go astray."""

    def __init__(self) -> None:
        super().__init__()
        self.now, self.number, self.lives = 0.0, 0, 3
        self.pool, self.lending = self.made(PermitLedger(OPTIONS.size))
        self.hosts = {number: Host(f"life {number}", "xyx"[number], 0.0) for number in range(3)}
        self.asking: set[int] = set()
        self.plain: list[int] = []
        self.most = OPTIONS.size

    def made(self, ledger: PermitLedger) -> tuple[Pool, Lending]:
        pool = Pool(OPTIONS, ledger)
        return pool, Lending(pool)

    def took(self, grants: list[Grant]) -> None:
        for grant in self.lending.took(grants):
            if grant.chunk is None:
                self.asking.remove(grant.waiter)
                self.plain.append(grant.permit.number)

    @rule(host=st.integers(0, 2), weight=st.integers(1, 3), priority=st.integers(3, 5))
    def enter(self, host: int, weight: int, priority: int) -> None:
        one = self.hosts[host]
        if one.chunk.take(weight):
            one.held.append(weight)
            return
        self.number += 1
        one.waiting[self.number] = weight
        waiter = Waiter(self.number, "", self.now, weight, priority)
        one.served(one.chunk.wait(waiter, self.now))

    @rule(host=st.integers(0, 2))
    def leave(self, host: int) -> None:
        one = self.hosts[host]
        if one.held:
            one.served(one.chunk.release(one.held.pop(), self.now))

    @rule(host=st.integers(0, 2))
    def give_up(self, host: int) -> None:
        one = self.hosts[host]
        if one.waiting:
            number, _ = one.waiting.popitem()
            assert one.chunk.cancel(number)

    @rule(host=st.integers(0, 2))
    def tell(self, host: int) -> None:
        one = self.hosts[host]
        if one.chunk.must_ask(self.now):
            one.send(self.now)

    @rule(data=st.data(), host=st.integers(0, 2), again=st.booleans())
    def arrive(self, data: st.DataObject, host: int, again: bool) -> None:
        """Messages arrive late, in any order, and more than once."""
        one = self.hosts[host]
        if one.asks:
            ask = data.draw(st.sampled_from(one.asks))
            if not again:
                one.asks.remove(ask)
            self.took(self.lending.tell(ask, self.now))
            one.answers.append((ask.message.seq, self.lending.loan(ask)))

    @rule(data=st.data(), host=st.integers(0, 2), lost=st.booleans())
    def answer(self, data: st.DataObject, host: int, lost: bool) -> None:
        one = self.hosts[host]
        if one.answers:
            seq, loan = one.answers.pop(data.draw(st.integers(0, len(one.answers) - 1)))
            if lost:
                one.chunk.failed(seq)
            else:
                one.hear(seq, loan, self.now)

    @rule(host=st.integers(0, 2))
    def host_ends(self, host: int) -> None:
        """What is on its way from it may arrive before the pool hears of its end."""
        one = self.hosts[host]
        for ask in one.asks:
            self.took(self.lending.tell(ask, self.now))
        self.lending.drop(one.name)
        self.took(self.pool.tick(self.now, {one.name}))
        self.hosts[host] = Host(f"life {self.lives}", one.key, self.now)
        self.lives += 1

    @rule(host=st.integers(0, 2))
    def chunk_is_over(self, host: int) -> None:
        """A host that needs nothing more says so, until the pool has heard it."""
        one = self.hosts[host]
        if one.chunk.is_over():
            number = self.pool.chunks.get(one.name)
            self.lending.drop(one.name)
            self.took(self.pool.release([] if number is None else [number], self.now))
            self.hosts[host] = Host(f"life {self.lives}", one.key, self.now)
            self.lives += 1

    @rule()
    def ask_plainly(self) -> None:
        coming = self.pool._number + 1
        self.asking.add(coming)
        _, grants = self.pool.ask(Request(key="x", holder=Holder(name="caller")), self.now)
        self.took(grants)

    @rule()
    @precondition(lambda self: self.plain)
    def release_plainly(self) -> None:
        self.took(self.pool.release([self.plain.pop()], self.now))

    @rule(seconds=st.floats(0.1, 1.5))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(size=st.integers(0, 7))
    def resize(self, size: int) -> None:
        self.took(self.pool.change(msgspec.structs.replace(self.pool.options, size=size), self.now))
        self.most = max(size, self.pool.ledger.in_use)

    @rule()
    def the_actor_moves(self) -> None:
        """Permits and what was given back are stored; what waits is asked for anew."""
        state = msgspec.msgpack.decode(
            msgspec.msgpack.encode(self.pool.ledger.state()), type=PermitState
        )
        back = {
            name: (self.lending.returned(name), self.pool.chunk(name))
            for name in list(self.pool.chunks)
            if name in self.lending
        }
        options = self.pool.options
        self.pool, self.lending = self.made(PermitLedger.restored(state))
        self.pool.options = options
        for name, (returned, permit) in back.items():
            if permit is not None:
                self.lending.restore(name, permit, returned)
        self.asking.clear()

    @invariant()
    def no_host_uses_more_than_the_pool_counts_for_it(self) -> None:
        for host in self.hosts.values():
            assert host.chunk.in_use == sum(host.held)
            assert host.chunk.waiting == len(host.waiting)
            permit = self.pool.chunk(host.name)
            assert sum(host.held) <= host.chunk.size  # I44
            assert host.chunk.size <= (0 if permit is None else permit.weight)  # I44

    @invariant()
    def the_pool_grants_no_more_than_its_size(self) -> None:
        self.most = max(self.pool.ledger.size, min(self.most, self.pool.ledger.in_use))
        assert self.pool.ledger.in_use <= self.most  # I44

    def teardown(self) -> None:
        """When nothing gets lost any more, each caller is served and everything comes back."""
        self.took(self.pool.change(OPTIONS, self.now))
        for _ in range(60):
            self.now += IDLE_SECONDS
            while self.plain:
                self.release_plainly()
            for number, host in list(self.hosts.items()):
                self.chunk_is_over(number)
                while host.held:
                    host.served(host.chunk.release(host.held.pop(), self.now))
                host.chunk.failed(host.chunk._seq)  # each long wait for an answer has an end
                if host.chunk.must_ask(self.now):
                    ask = host.send(self.now)
                    self.took(self.lending.tell(ask, self.now))
                    host.hear(ask.message.seq, self.lending.loan(ask), self.now)
        assert not any(host.waiting for host in self.hosts.values())
        assert not self.asking
        assert not self.pool.ledger.in_use
        assert all(host.chunk.is_over() for host in self.hosts.values())


TestChunks = Chunks.TestCase
TestChunks.settings = settings(max_examples=examples(150), stateful_step_count=40)


def told(pool: Pool, lending: Lending, name: str, **message: Any) -> Loan:
    defaults = {"seq": 1, "granted": 0, "returned": 0}
    ask = ChunkAsk(ticket=name, key="", host=name, message=ChunkMessage(**{**defaults, **message}))
    lending.tell(ask, 0.0)
    return lending.loan(ask)


def test_a_host_borrows_ahead_while_nobody_else_waits() -> None:
    pool = Pool(PoolOptions(size=10))
    lending = Lending(pool)
    loan = told(pool, lending, "a", needs=(Need(),), ahead=3)
    assert (loan.granted, loan.recalled) == (4, False)
    pool.ask(Request(weight=9), 0.0)
    loan = told(pool, lending, "a", seq=2, granted=4)
    assert (loan.granted, loan.recalled) == (4, True)
    loan = told(pool, lending, "a", seq=3, granted=4, returned=4, needs=(Need(),), ahead=3)
    assert loan.granted == 5  # 9 of 10 are in use, and this is the tenth: nothing ahead
    assert pool.ledger.in_use == 10


def test_what_the_pool_does_not_know_of_is_lost() -> None:
    pool = Pool(PoolOptions(size=10))
    assert told(pool, Lending(pool), "a", granted=4).is_lost


def test_a_need_that_is_never_granted_is_refused() -> None:
    pool = Pool(PoolOptions(size=2))
    with pytest.raises(InvalidValue):
        told(pool, Lending(pool), "a", needs=(Need(3),))


def test_the_number_of_a_chunk_that_begins_anew_is_higher() -> None:
    pool = Pool(PoolOptions(size=1))
    lending = Lending(pool)
    first = told(pool, lending, "a", needs=(Need(),))
    told(pool, lending, "a", seq=2, granted=1, returned=1)
    second = told(pool, lending, "b", needs=(Need(),))
    assert second.number > first.number > 0
