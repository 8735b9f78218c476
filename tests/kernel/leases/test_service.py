from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

import pytest

from relevo import App, settings
from relevo.errors import Conflict, HostSuperseded, LeaseLost, SettingsMismatch, TooLarge
from relevo.kernel.leases import SINGLETON, Membership, UnitSettings, loops
from relevo.kernel.leases.hosts import Deadline, instant
from relevo.kernel.leases.loops import Duty
from relevo.kernel.part import Part
from relevo.kernel.postgres.pool.endpoint import Endpoint

if TYPE_CHECKING:
    from relevo.kernel.leases import Lease
    from relevo.kernel.postgres import Database
    from relevo.testing.clock import Clock
    from tests.kernel.leases.conftest import Fleet

pytestmark = pytest.mark.anyio


async def test_one_host_gets_everything_and_shares_when_others_come(fleet: Fleet) -> None:  # B1, B3
    await fleet.join(await fleet.host("a"), 10)
    await fleet.until_counts({"a": 10})
    await fleet.join(await fleet.host("b"), 10)
    await fleet.until_counts({"a": 5, "b": 5})
    await fleet.join(await fleet.host("c"), 10)

    async def shared() -> bool:
        counts = await fleet.counts()
        return len(counts) == 3 and max(counts.values()) - min(counts.values()) <= 1

    await fleet.until(shared, "three hosts share")


async def test_a_host_that_owns_nothing_is_counted_and_idles(fleet: Fleet) -> None:  # B3
    for name in ("a", "b", "c"):
        await fleet.join(await fleet.host(name), 2)

    async def two_of_three() -> bool:
        counts = await fleet.counts()
        return sorted(counts.values()) == [1, 1] and None not in counts

    await fleet.until(two_of_three, "two hosts own one each")


async def test_a_clean_stop_leaves_nothing_unowned(fleet: Fleet) -> None:  # B5
    for name in ("a", "b"):
        await fleet.join(await fleet.host(name), 6)
    await fleet.until_counts({"a": 3, "b": 3})
    await fleet.leave("a")
    await fleet.until_counts({"b": 6})
    assert all(lease.clean for lease in (await fleet.leases()).values())


async def test_leaving_one_unit_keeps_the_other(fleet: Fleet) -> None:
    units = {}
    for name in ("a", "b"):
        app = await fleet.host(name)
        units[name] = await fleet.join(app, 4, unit="u")
        await fleet.join(app, 4, unit="v")
    await fleet.until_counts({"a": 2, "b": 2}, "u")
    await fleet.until_counts({"a": 2, "b": 2}, "v")
    await fleet.apps["a"].leases.leave(units["a"])
    await fleet.until_counts({"b": 4}, "u")
    assert await fleet.counts("v") == {"a": 2, "b": 2}


async def test_weights_minima_and_maxima_are_respected(fleet: Fleet) -> None:  # B3
    await fleet.join(await fleet.host("small"), 9, membership=Membership(max_leases=2))
    await fleet.until_counts({"small": 2, None: 7})
    await fleet.join(await fleet.host("big"), 9, membership=Membership(weight=3.0))
    await fleet.until_counts({"small": 2, "big": 7})


async def test_a_drained_host_hands_over_and_may_come_back(fleet: Fleet) -> None:  # B4
    for name in ("a", "b"):
        await fleet.join(await fleet.host(name), 4)
    await fleet.until_counts({"a": 2, "b": 2})
    await fleet.directory.drain("a")
    await fleet.until_counts({"b": 4})
    health = await fleet.apps["a"].health()
    assert health.ok or "host is draining" in health.reasons
    await fleet.directory.drain("a", draining=False)
    await fleet.until_counts({"a": 2, "b": 2})


async def test_a_lease_can_be_moved_and_paused_by_an_operator(fleet: Fleet) -> None:
    for name in ("a", "b"):
        await fleet.join(await fleet.host(name), 2)
    await fleet.until_counts({"a": 1, "b": 1})
    mine = next(n for n, lease in (await fleet.leases()).items() if lease.owner == "a")
    await fleet.directory.set_state("feed", "u", mine, "paused")
    await fleet.until_counts({None: 1, "b": 1})
    await fleet.directory.set_state("feed", "u", mine, "active")
    await fleet.until_counts({"a": 1, "b": 1})
    before = (await fleet.leases())[mine].epoch
    await fleet.directory.move("feed", "u", mine, to="b")

    async def moved() -> bool:
        return (await fleet.leases())[mine].epoch > before

    await fleet.until(moved, "the lease moved")
    with pytest.raises(Conflict, match="cannot move"):
        await fleet.directory.move("feed", "u", mine, to="nobody")


async def test_positions_survive_a_change_of_owner_and_never_go_back(fleet: Fleet) -> None:  # L3
    seen: list[tuple[int, int]] = []

    async def count(lease: Lease) -> None:
        while not lease.stopping.is_set():
            seen.append((lease.epoch, lease.position.get("n", 0)))
            await lease.save({"n": lease.position.get("n", 0) + 1})
            await asyncio.sleep(0)

    for name in ("a", "b"):
        await fleet.join(await fleet.host(name), 1, holder=count)
    await fleet.until(lambda: _reached(seen, 5), "some positions were saved")
    (owner,) = await fleet.counts()
    assert owner is not None
    epoch, saved = seen[-1]
    await fleet.leave(owner)
    await fleet.until(lambda: _reached(seen, saved + 5, after=epoch), "the other goes on")
    assert [n for _, n in seen] == sorted(n for _, n in seen)


async def _reached(seen: list[tuple[int, int]], n: int, *, after: int = 0) -> bool:
    return bool(seen) and seen[-1][1] >= n and seen[-1][0] > after


async def test_a_stale_owner_cannot_save_and_changes_nothing(
    fleet: Fleet, database: Database
) -> None:  # L2, L3
    app = await fleet.host("a")
    await fleet.join(app, 1)
    lease = await fleet.a_lease_of(app)
    await lease.save({"n": 1})
    await database.write(
        "update relevo.lease set epoch = epoch + 1 where id = $1", lease.fence.lease_id
    )
    with pytest.raises(LeaseLost):
        await lease.save({"n": 2})
    assert (await fleet.leases())["000"].position == {"n": 1}


async def test_a_position_too_large_is_refused_by_name(fleet: Fleet) -> None:
    app = await fleet.host("a")
    await fleet.join(app, 1)
    lease = await fleet.a_lease_of(app)
    with pytest.raises(TooLarge, match="too large"):
        await lease.save({"n": "x" * 100_000})


async def test_a_holder_that_fails_is_run_again_on_the_same_lease(fleet: Fleet) -> None:
    epochs: list[int] = []

    async def fragile(lease: Lease) -> None:
        epochs.append(lease.epoch)
        if len(epochs) < 3:
            raise RuntimeError("not yet")
        await lease.stopping.wait()

    await fleet.join(await fleet.host("a"), 1, holder=fragile)

    async def thrice() -> bool:
        return len(epochs) == 3

    await fleet.until(thrice, "the holder ran three times")
    assert len(set(epochs)) == 1


async def test_a_lapsed_host_takes_a_new_incarnation_and_begins_again(
    fleet: Fleet, clock: Clock
) -> None:  # I6
    app = await fleet.host("a")
    await fleet.join(app, 3)
    await fleet.until_counts({"a": 3})
    before = app.leases.life.incarnation
    old = [lease for lease in app.leases.held if lease.unit == "u"]
    await clock.advance(60, hosts_lapse=True)

    async def again() -> bool:
        owners = {lease.owner_incarnation for lease in (await fleet.leases()).values()}
        return app.leases.life.incarnation != before and owners == {app.leases.life.incarnation}

    await fleet.until(again, "a new life owns the leases")
    assert all(lease.over for lease in old)
    with pytest.raises(LeaseLost):
        old[0].check()


async def test_a_superseded_host_says_so_and_stays_down(fleet: Fleet) -> None:  # L9
    first = await fleet.host("a")
    await fleet.join(first, 2)
    await fleet.until_counts({"a": 2})
    second = await fleet.host("a")
    await fleet.join(second, 2)
    async with asyncio.timeout(10):
        await first.leases.superseded.wait()
    assert first.leases.held == []
    with pytest.raises(HostSuperseded):
        await fleet.join(first, 2)
    assert "took over as host a" in " ".join((await first.health()).reasons)

    async def owns() -> bool:
        owners = {lease.owner_incarnation for lease in (await fleet.leases()).values()}
        return owners == {second.leases.life.incarnation}

    await fleet.until(owns, "the second process owns everything")


async def test_other_settings_for_the_same_unit_are_refused(fleet: Fleet) -> None:
    await fleet.join(await fleet.host("a"), 1)
    with pytest.raises(SettingsMismatch, match="same settings"):
        await fleet.join(await fleet.host("b"), 1, settings=SINGLETON)


async def test_exactly_one_host_does_the_housekeeping(fleet: Fleet) -> None:
    for name in ("a", "b", "c"):
        await fleet.host(name)

    async def one() -> bool:
        counts = await fleet.counts("main")
        return sum(counts.values()) == 1 and None not in counts

    await fleet.until(one, "one leader")
    (leader,) = await fleet.counts("main")
    assert leader is not None
    await fleet.leave(leader)

    async def another() -> bool:
        return await one() and leader not in await fleet.counts("main")

    await fleet.until(another, "another leader")


async def test_housekeeping_forgets_ended_hosts_and_raises_the_mark(
    fleet: Fleet, database: Database
) -> None:
    await fleet.host("a")
    await fleet.host("b")
    await fleet.leave("b")

    async def forgotten() -> bool:
        return [host.name for host in await fleet.directory.hosts()] == ["a"]

    await fleet.until(forgotten, "the ended host is gone", timeout=60)
    assert await database.fetchval("select mark > '-infinity' from relevo.clock")


async def test_a_new_leader_does_last_what_is_rare(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loops, "FIRST_SECONDS", 0.3)
    done: list[str] = []
    both = asyncio.Event()

    async def rare() -> None:
        done.append("rare")
        both.set()

    async def frequent() -> None:
        done.append("frequent")

    class Chores(Part[None]):
        def duties(self) -> list[Duty]:
            return [Duty("rare", 3_600.0, rare), Duty("frequent", 0.05, frequent)]

    app.parts.add(Chores(None))
    async with app.host():
        async with asyncio.timeout(30):
            await both.wait()
    assert done[0] == "frequent"
    assert done.count("rare") == 1


@pytest.mark.parametrize(("seconds", "passed"), [(60.0, False), (-0.001, True)])
def test_nothing_may_start_past_the_deadline(seconds: float, passed: bool) -> None:  # L5
    deadline = Deadline()
    deadline.renew(instant() + seconds)
    assert deadline.passed is passed


def test_a_host_that_never_renewed_may_not_act() -> None:  # L5
    assert Deadline().passed


def test_a_forked_child_may_not_act() -> None:  # L5
    deadline = Deadline()
    deadline.renew(instant() + 60)
    child = os.fork()
    if child == 0:
        os._exit(0 if deadline.passed and deadline.left < 0 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert not deadline.passed


async def test_an_idle_host_costs_few_statements_whatever_it_owns(
    fleet: Fleet, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:  # L7: 500 leases cost at most 5 statements a second
    statements: list[str] = []
    connect = Endpoint.connect

    async def counted(endpoint: Endpoint, **options: Any) -> Any:
        connection = await connect(endpoint, **options)
        connection.add_query_logger(lambda record: statements.append(record.query))
        return connection

    monkeypatch.setattr(Endpoint, "connect", counted)
    app = App(
        settings=settings.load({"database_url": database.endpoint.url}, environ={})
    )  # product defaults: renew 3 s, acquire 5 s
    async with app, app.host(name="idle"):
        await app.leases.join("feed", "many", fleet.hold, leases=[f"{i:03}" for i in range(500)])
        await fleet.until_counts({"idle": 500}, "many")
        heart = app.leases.life.heart
        statements.clear()
        beats = heart.beats
        async with asyncio.timeout(60):
            while heart.beats < beats + 2:
                await asyncio.sleep(0.05)
        spent = [sql for sql in statements if sql.startswith("/* relevo leases.")]
        beaten = heart.beats - beats
    assert 2 <= len(spent) <= 15 * (beaten + 1), spent  # a beat every three seconds
    assert await fleet.counts("many") == {None: 500}


async def test_a_strict_unit_never_has_its_leases_seized(fleet: Fleet) -> None:  # I3
    spans: list[tuple[str, int, str]] = []

    async def slow(lease: Lease) -> None:
        spans.append(("begin", lease.epoch, lease.name))
        try:
            await asyncio.Event().wait()  # ignores `stopping`; the host must cut it off
        finally:
            spans.append(("end", lease.epoch, lease.name))

    strict = UnitSettings(strict=True, handoff_timeout=0.3, rest=0.1)
    for name in ("a", "b"):
        await fleet.join(await fleet.host(name), 2, holder=slow, settings=strict)
    await fleet.until_counts({"a": 1, "b": 1})
    running: set[str] = set()
    for event, _, lease_name in spans:
        if event == "begin":
            assert lease_name not in running
            running.add(lease_name)
        else:
            running.discard(lease_name)
