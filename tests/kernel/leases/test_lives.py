"""What happens where a host's life ends: names, zombies, late answers, stubborn holders."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from relevo.errors import LeaseLost, OutcomeUnknown
from relevo.kernel.leases import UnitSettings, balancer, keeper, life
from relevo.kernel.leases.hosts import Heart
from relevo.kernel.leases.service import SQL

if TYPE_CHECKING:
    from relevo.kernel.leases import Lease
    from relevo.kernel.postgres import Database
    from tests.kernel.leases.conftest import Fleet

pytestmark = pytest.mark.anyio
STRICT = UnitSettings(strict=True, handoff_timeout=1.0, rest=0.1)
LAPSE = "update relevo.host set lease_until = relevo.now() where incarnation = $1"


async def test_a_superseded_host_whose_row_is_gone_does_not_come_back(
    fleet: Fleet, database: Database
) -> None:  # L9
    first = await fleet.host("a", lease_renew=1.0)
    second = await fleet.host("a")
    await database.write(SQL.forget_hosts)  # before the first one's next heartbeat
    async with asyncio.timeout(10):
        await first.leases.superseded.wait()
    assert not second.leases.superseded.is_set()
    assert second.leases.may_act


async def test_a_lapsed_host_gives_way_to_its_replacement(
    fleet: Fleet, database: Database
) -> None:  # L9: a host that was cut off must not kill the one that took its place
    first = await fleet.host("a", lease_renew=1.0)
    await database.write(LAPSE, first.leases.life.incarnation)
    await database.write(SQL.end_lapsed_hosts)
    second = await fleet.host("a")
    async with asyncio.timeout(10):
        await first.leases.superseded.wait()
    assert second.leases.may_act


async def test_a_life_that_ends_while_it_joins_is_followed_by_another(
    fleet: Fleet, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:  # I6
    app = await fleet.host("a")
    await fleet.join(app, 2)
    begin, lives = life.begin, 0

    async def begin_and_lapse_once(*args: Any, **options: Any) -> Any:
        nonlocal lives
        made = await begin(*args, **options)
        lives += 1
        if lives == 1:
            await database.write(LAPSE, made.incarnation)
        return made

    monkeypatch.setattr("relevo.kernel.leases.service.begin", begin_and_lapse_once)
    await database.write(LAPSE, app.leases.life.incarnation)

    async def serves_again() -> bool:
        owners = {one.owner_incarnation for one in (await fleet.leases()).values()}
        return lives >= 2 and owners == {app.leases.life.incarnation}

    await fleet.until(serves_again, "a third life serves the unit")


async def test_a_late_answer_starts_nothing_in_an_ended_life(
    fleet: Fleet, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:  # I3, I6: the plan was committed, its answer came after the host had lapsed
    acted: list[tuple[str, int]] = []

    async def act(lease: Lease) -> None:
        while not lease.stopping.is_set():
            lease.check()
            acted.append((lease.fence.name, lease.epoch))
            await asyncio.sleep(0.01)

    fulfil, arrived, release = balancer.fulfil, asyncio.Event(), asyncio.Event()

    async def late(*args: Any, **options: Any) -> Any:
        outcome = await fulfil(*args, **options)
        if outcome.gained and not arrived.is_set():
            arrived.set()
            await release.wait()
        return outcome

    app = await fleet.host("a")
    monkeypatch.setattr(balancer, "fulfil", late)
    await fleet.join(app, 1, unit="strict", holder=act, settings=STRICT)
    await arrived.wait()
    old = app.leases.life
    await database.write(LAPSE, old.incarnation)
    async with asyncio.timeout(10):
        await old.ended
    release.set()

    async def goes_on() -> bool:
        return len(acted) > 5

    await fleet.until(goes_on, "the next life acts")
    assert {epoch for _, epoch in acted} == {max(epoch for _, epoch in acted)}
    assert old.keeper.leases == []
    assert old.deadline.passed


async def test_a_lease_that_was_given_up_may_not_act(fleet: Fleet) -> None:  # L5
    app = await fleet.host("a")
    unit = await fleet.join(app, 1)
    lease = await fleet.a_lease_of(app)
    await app.leases.leave(unit)
    assert not lease.may_act
    with pytest.raises(LeaseLost):
        lease.check()


async def test_the_heartbeat_survives_any_error(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = await fleet.host("a")
    renew, failures = Heart._renew, 0

    async def fragile(heart: Heart) -> Any:
        nonlocal failures
        if failures < 2:
            failures += 1
            raise RuntimeError("nobody expected this")
        return await renew(heart)

    beats = app.leases.life.heart.beats
    monkeypatch.setattr(Heart, "_renew", fragile)

    async def beats_on() -> bool:
        return failures == 2 and app.leases.life.heart.beats > beats + 1

    await fleet.until(beats_on, "renewals go on")


async def test_a_stop_during_a_lapse_leaves_nothing_running(
    fleet: Fleet, database: Database
) -> None:  # I6
    acted = 0

    async def act(lease: Lease) -> None:
        nonlocal acted
        while not lease.stopping.is_set():
            lease.check()
            acted += 1
            await asyncio.sleep(0.01)

    app = await fleet.host("a")
    await fleet.join(app, 1, holder=act)
    await fleet.a_lease_of(app)
    ended = app.leases.life
    stopping = asyncio.create_task(app.leases.stop(5.0))
    await database.write(LAPSE, ended.incarnation)
    await stopping
    assert ended.deadline.passed
    before = acted
    await asyncio.sleep(0)
    assert acted == before
    live = await database.fetchval(
        "select count(*) from relevo.host where ended_at is null and lease_until > relevo.now()"
    )
    assert live == 0


async def test_a_stop_whose_words_are_lost_stops_all_the_same(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = await fleet.host("a")
    await fleet.join(app, 1)
    lease = await fleet.a_lease_of(app)

    async def lost(*_: Any, **__: Any) -> Any:
        raise OutcomeUnknown("the answer was lost")

    monkeypatch.setattr(app.database, "write", lost)
    await app.leases.stop(5.0)
    assert not lease.may_act


async def test_a_holder_that_ignores_its_cancellation_does_not_keep_a_strict_lease(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:  # B1, actors 3.10
    monkeypatch.setattr(keeper, "ABORT_SECONDS", 0.3)
    free = asyncio.Event()
    ignored: list[Lease] = []

    async def ignore(lease: Lease) -> None:
        while not free.is_set():
            try:
                await free.wait()
            except asyncio.CancelledError:
                ignored.append(lease)

    app = await fleet.host("a")
    await fleet.join(app, 2, holder=ignore, settings=STRICT)
    await fleet.until_counts({"a": 2})
    await fleet.join(await fleet.host("b"), 2, settings=STRICT)
    await fleet.until_counts({"a": 1, "b": 1})
    assert ignored
    assert not ignored[0].may_act  # it runs on, fenced
    free.set()


async def test_a_withdrawn_request_does_not_cut_off_the_next_one(fleet: Fleet) -> None:
    cut: list[str] = []

    async def patient(lease: Lease) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cut.append(lease.name)
            raise

    app = await fleet.host("a")
    await fleet.join(app, 1, holder=patient, settings=STRICT)
    await fleet.a_lease_of(app)
    (held,) = [one for one in app.leases.life.keeper._held.values() if one.unit.name == "u"]
    held.lease.ask_to_stop("handoff")
    held.cut_later(0.01)
    held.recall()
    held.lease.ask_to_stop("handoff")
    held.cut_later(60.0)
    passed = asyncio.Event()
    asyncio.get_running_loop().call_later(0.02, passed.set)  # the loop calls in the order of time
    await passed.wait()
    assert cut == []
