"""Routes: of two statements about a slot the one with the higher epoch counts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from relevo.actors.core.routing import NOWHERE, Route, RouteTable

routes = st.builds(Route, st.integers(0, 5), st.none() | st.sampled_from(["unix:/a", "unix:/b"]))


@given(st.lists(st.tuples(st.booleans(), routes), max_size=20))
def test_the_epoch_of_a_route_never_falls(told: list[tuple[bool, Route]]) -> None:
    table, highest = RouteTable(), 0
    for is_read, route in told:
        if is_read:
            table.read([(3, route)])
        else:
            table.learn(3, route)
        highest = max(highest, route.epoch)
        assert table.route(3).epoch == highest
        assert table.is_late(3, highest - 1) or highest == 0  # how it was followed is not known
        assert not table.is_late(3, highest)


@given(st.lists(st.sampled_from(["hand over", "release", "lose"]), max_size=12), st.data())
def test_only_answers_of_lost_owners_are_late(steps: list[str], data: st.DataObject) -> None:
    epoch, in_order_from, owners = 1, 0, [1]
    lost: set[int] = set()
    table = RouteTable()
    for step in steps:
        if step == "lose":
            lost |= set(owners)
            in_order_from = epoch + 1
        epoch += 2 if step == "release" else 1
        owners.append(epoch)
        if data.draw(st.booleans()):  # it need not hear of each
            table.read([(0, Route(epoch, "unix:/a", "a", in_order_from))])
    table.read([(0, Route(epoch, "unix:/a", "a", in_order_from))])
    for owner in owners:
        assert table.is_late(0, owner) == (owner in lost)


def test_a_learnt_owner_replaces_the_one_that_was_read() -> None:
    table = RouteTable()
    table.read([(0, Route(4, "unix:/a")), (1, Route(1, "unix:/b"))])
    assert table.slots == 2
    assert table.learn(0, Route(5, "unix:/b"))
    assert not table.learn(0, Route(4, "unix:/a"))
    table.read([(0, Route(4, "unix:/a")), (1, Route(1, "unix:/b"))])  # a read that is late
    assert table.route(0) == Route(5, "unix:/b")


def test_a_higher_epoch_without_an_address_gets_it_later() -> None:
    table = RouteTable()
    table.learn(0, Route(4, "unix:/a"))
    table.learn(0, Route(5))
    assert table.route(0).address is None
    assert table.learn(0, Route(5, "unix:/b"))
    assert not table.learn(0, Route(5, "unix:/c"))
    assert table.route(0) == Route(5, "unix:/b")


def test_an_owner_that_ended_is_forgotten_in_its_own_epoch() -> None:
    table = RouteTable()
    table.read([(0, Route(4, "unix:/a", "host-a"))])
    table.read([(0, Route(4))])
    assert table.route(0).address is None


def test_an_address_that_fails_is_forgotten_only_for_its_epoch() -> None:
    table = RouteTable()
    table.learn(0, Route(4, "unix:/a"))
    table.forget_address(0, 3)
    assert table.route(0).address == "unix:/a"
    table.forget_address(0, 4)
    assert table.route(0) == Route(4)
    assert table.route(1) == NOWHERE
