"""A pool and the hosts that use it: never above the size, and every permit comes back."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from relevo.errors import InvalidValue, NotFound
from relevo.governance.core.permits import Holder, PermitLedger, PermitState
from relevo.governance.core.pools import Grant, Pool, PoolOptions, Request
from relevo.governance.errors import PoolExhausted
from tests.conftest import examples

HOSTS = ("a", "b", "c")


class Pools(RuleBasedStateMachine):
    """Hosts and outsiders on one pool that is resized, and whose actor restarts."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.pool = Pool(PoolOptions(size=5, per_key=3, burst=True, max_waiters=8))
        self.waiting: dict[int, Request] = {}
        self.held: dict[int, int] = {}
        self.shrunk_from = 5
        self.numbers: set[int] = set()

    def took(self, grants: list[Grant]) -> None:
        for grant in grants:
            request = self.waiting.pop(grant.waiter)
            assert grant.permit.weight == request.weight
            assert grant.permit.number > max(self.numbers, default=0)  # only grow
            self.numbers.add(grant.permit.number)
            self.held[grant.permit.number] = request.weight
        if grants:  # I44
            assert self.pool.ledger.in_use <= self.pool.ledger.size

    @rule(
        key=st.sampled_from("xyz"), weight=st.integers(1, 3),
        host=st.sampled_from([*HOSTS, None]), priority=st.integers(0, 9),
    )  # fmt: skip
    def ask(self, key: str, weight: int, host: str | None, priority: int) -> None:
        request = Request(
            key=key, weight=weight, priority=priority, holder=Holder(host=host),
            ttl=None if host else 5.0,
        )  # fmt: skip
        coming = self.pool._number + 1
        self.waiting[coming] = request
        try:
            number, grants = self.pool.ask(request, self.now)
        except PoolExhausted:
            del self.waiting[coming]
            assert len(self.waiting) == 8
        else:
            assert number == coming
            self.took(grants)

    @rule(data=st.data())
    def release_twice(self, data: st.DataObject) -> None:
        if self.held:
            number = data.draw(st.sampled_from(sorted(self.held)))
            for _ in range(2):
                self.took(self.pool.release([number], self.now))
            self.held.pop(number, None)

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        if self.waiting:
            number = data.draw(st.sampled_from(sorted(self.waiting)))
            del self.waiting[number]
            assert self.pool.cancel(number)
            assert not self.pool.cancel(number)

    @rule(seconds=st.floats(0.1, 6.0), ended=st.sets(st.sampled_from(HOSTS), max_size=1))
    def time_passes(self, seconds: float, ended: set[str]) -> None:
        self.now += seconds
        gone = {
            one.number for one in self.pool.ledger
            if one.holder.host in ended
            or (one.expires_at is not None and one.expires_at <= self.now)
        }  # fmt: skip
        for number in gone:
            self.held.pop(number, None)
        self.took(self.pool.tick(self.now, ended))
        assert not gone & {one.number for one in self.pool.ledger}

    @rule(size=st.integers(0, 9))
    def resize(self, size: int) -> None:
        before = {one.number for one in self.pool.ledger}
        options = msgspec.structs.replace(self.pool.options, size=size)
        self.took(self.pool.change(options, self.now))
        assert before <= {one.number for one in self.pool.ledger}  # nothing is revoked

    @rule()
    def the_actor_moves(self) -> None:
        """The permits are what was stored; who waited asks anew."""
        stored = msgspec.msgpack.encode(self.pool.ledger.state())
        ledger = PermitLedger.restored(msgspec.msgpack.decode(stored, type=PermitState))
        self.pool = Pool(self.pool.options, ledger)
        self.waiting.clear()
        self.took(self.pool.tick(self.now))

    @invariant()
    def the_ledger_knows_what_is_held(self) -> None:
        assert {one.number: one.weight for one in self.pool.ledger} == self.held
        assert self.pool.ledger.in_use == sum(self.held.values())
        assert self.pool.waiting == len(self.waiting)


TestPools = Pools.TestCase
TestPools.settings = settings(max_examples=examples(120), stateful_step_count=40)


def test_items_are_granted_one_by_one_and_in_turn() -> None:
    ledger = PermitLedger(0, items=["x", "y"])
    first, second = (ledger.grant("", 1, Holder(host="a")) for _ in range(2))
    assert first
    assert second
    assert {first.item, second.item} == {"x", "y"}
    assert ledger.grant("", 1, Holder()) is None
    ledger.set_items(["y", "z"])  # x is in use, and goes when it comes back
    third = ledger.grant("", 1, Holder())
    assert third is None  # x and y are in use of two
    ledger.release(first.number)
    third = ledger.grant("", 1, Holder())
    assert third is not None
    assert third.item == "z"
    ledger.release(second.number)
    again = ledger.grant("", 1, Holder())
    assert again is not None
    assert again.item == "y"


def test_a_permit_that_ended_cannot_be_renewed() -> None:
    ledger = PermitLedger(1)
    permit = ledger.grant("", 1, Holder(name="script"), expires_at=5.0)
    assert permit is not None
    assert ledger.renew(permit.number, 9.0).expires_at == 9.0
    assert not ledger.expire(8.0)
    assert [one.number for one in ledger.expire(9.0)] == [permit.number]
    with pytest.raises(NotFound):
        ledger.renew(permit.number, 20.0)


@pytest.mark.parametrize(
    "request_",
    [Request(weight=0), Request(weight=6), Request(priority=10), Request(priority=-1)],
)
def test_what_is_never_granted_is_refused(request_: Request) -> None:
    pool = Pool(PoolOptions(size=5))
    with pytest.raises(InvalidValue):
        pool.ask(request_, 0.0)
    assert not pool.waiting


@pytest.mark.parametrize("options", [{"size": -1}, {"size": True}, {"items": ("x", "x")}])
def test_sizes_and_items_are_checked(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        Pool(PoolOptions(**options))
