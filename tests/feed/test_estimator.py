"""The estimator: true lag in every mode, stalls, totals for autoscalers; it changes nothing."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from relevo import App, settings
from relevo.errors import InvalidValue
from relevo.feed.operating import estimator as estimators
from relevo.feed.operating.estimator import Estimator, LagFigures, TotalLag
from relevo.feed.processing import host as processors
from tests.feed.test_processor import Kitchen, kitchen

if TYPE_CHECKING:
    from relevo.feed.model import Change
    from relevo.store import Store
    from relevo.testing.clock import Clock

__all__ = ["kitchen"]
pytestmark = pytest.mark.anyio
LEASES = """
select l.* from relevo.lease l join relevo.feed_lease f on f.lease_id = l.id order by l.id
"""


def estimator(kitchen: Kitchen) -> Estimator:
    return Estimator(kitchen.database, "orders", "kitchen", "leases")


async def test_lag_of_all_versions_counts_versions_and_deletes(
    kitchen: Kitchen, store: Store
) -> None:  # E1, E2
    await kitchen.orders.drop()
    kitchen.orders = store.container("orders", "/city", ranges=2, versions=timedelta(days=1))
    await kitchen.orders.describe()
    processor = await kitchen.serve(mode="all_versions")
    await processors.stop(processor)
    before = await kitchen.database.fetch(LEASES)
    for _ in range(3):
        await kitchen.write(1, 2)
    await kitchen.orders.delete("1", "c1")
    total = await estimator(kitchen).total()
    assert (total.estimated_lag, total.exact, total.initialised) == (7, True, True)
    assert await kitchen.database.fetch(LEASES) == before
    await kitchen.serve("b", mode="all_versions")
    await kitchen.until(lambda: len(kitchen.delivered) == 7, "all are delivered")
    await kitchen.hosts["b"].aclose()
    total = await estimator(kitchen).total()
    assert (total.estimated_lag, total.lag_seconds, total.lagging) == (0, 0.0, 0)


async def test_what_is_too_much_to_count_is_extrapolated(
    kitchen: Kitchen, monkeypatch: pytest.MonkeyPatch
) -> None:  # 15.2
    monkeypatch.setattr(estimators, "COUNT_MAX", 50)
    processor = await kitchen.serve(start="beginning")
    await processors.stop(processor)
    for start in range(0, 400, 20):
        await kitchen.orders.bulk([{"id": str(n), "city": "x"} for n in range(start, start + 20)])
    total = await estimator(kitchen).total()
    assert not total.exact
    assert 300 <= total.estimated_lag <= 500
    assert total.lagging == 1


async def test_a_call_that_takes_too_long_shows_until_it_ends(
    kitchen: Kitchen, clock: Clock
) -> None:  # 10.7, P11
    stalled, gate = asyncio.Event(), asyncio.Event()

    async def slow(changes: list[Change[Any]]) -> None:
        await gate.wait()
        await kitchen.cook(changes)

    processor = await kitchen.serve(handler=slow, stall_after=0.05)
    processor.on_stall(lambda token, stall: stalled.set())
    await kitchen.write(1)
    async with asyncio.timeout(30):
        await stalled.wait()
    states = await estimator(kitchen).current_state()
    assert [one.stalled_for > 0 for one in states].count(True) == 1
    assert (await estimator(kitchen).total()).stalled_for > 0
    gate.set()
    await kitchen.until_delivered(1)
    await kitchen.hosts["a"].aclose()
    states = await estimator(kitchen).current_state()
    assert not any(one.stalled_for for one in states)
    assert any(one.position_ts is not None for one in states)


async def test_the_event_log_has_estimators_and_units_too(relevo_url: str) -> None:  # E1
    app = App(settings=settings.load({"database_url": relevo_url}, environ={}))
    seen: list[Any] = []
    served = asyncio.Event()

    @app.events.on_events("audit")
    async def audit(events: list[Any]) -> None:
        seen.extend(events)
        served.set()

    async with app:
        before: list[TotalLag] = []
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await app.events.estimator_loop("audit", before.append, every=0.01)
        assert before
        assert before[0] == TotalLag(initialised=False)
        async with app.host():
            pass
        async with app.database.transaction() as tx:
            await tx.execute(
                "select relevo.append_events(array['a.b', 'a.b'], array[1, 1]::smallint[],"
                " array['s', 't'], array[1, 1], array['{}', '{}'])"
            )
        total = await app.events.change_feed_estimator("audit").total()
        assert (total.estimated_lag, total.exact) == (2, True)
        assert (await app.events.unit("audit").state()).mode == "events"


async def test_the_push_form_calls_back_with_totals_and_survives_its_callback(
    kitchen: Kitchen,
) -> None:  # 15.3
    told: list[TotalLag] = []
    enough = asyncio.Event()

    async def note(total: TotalLag) -> None:
        told.append(total)
        if len(told) == 1:
            raise RuntimeError("no")
        if len(told) == 3:
            enough.set()

    watching = asyncio.create_task(estimator(kitchen).watch(note, every=0.01))
    async with asyncio.timeout(30):
        await enough.wait()
    watching.cancel()
    assert not told[0].initialised
    with pytest.raises(InvalidValue, match="every"):
        await estimator(kitchen).watch(note, every=0)


def test_desired_instances_are_bounded_by_leases_with_lag() -> None:  # 15.4
    total = TotalLag(estimated_lag=950, leases=8, lagging=3)
    assert total.desired_instances(100) == 3
    assert total.desired_instances(500) == 2
    assert TotalLag().desired_instances(100) == 0
    with pytest.raises(InvalidValue):
        total.desired_instances(0)


async def test_the_leading_host_shows_what_autoscalers_follow(kitchen: Kitchen) -> None:  # 15.4
    figures = LagFigures(target_lag=5)
    processor = await kitchen.serve(start="beginning")
    await processors.stop(processor)
    await kitchen.write(*range(40))
    await figures.measure(kitchen.database)
    metrics = kitchen.database.metrics
    shown = metrics.render().decode()
    assert 'relevo_feed_pending{unit="leases/orders/kitchen"} 40.0' in shown
    lagging = (await estimator(kitchen).total()).lagging
    assert 1 < lagging < 8
    desired = f'relevo_feed_desired_hosts{{unit="leases/orders/kitchen"}} {lagging}.0'
    assert desired in shown
    figures.forget_old(metrics)
    assert metrics.render().decode() == shown
    LagFigures(target_lag=5).forget_old(metrics)  # one that never measured, or long ago
    assert "relevo_feed_pending{" not in metrics.render().decode()
