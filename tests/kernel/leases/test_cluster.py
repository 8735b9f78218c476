"""Real processes: killed, frozen and cut off from their database."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from relevo.kernel.leases import Directory
from relevo.kernel.postgres import Wakeups
from relevo.testing import trace
from relevo.testing.cluster import Cluster

if TYPE_CHECKING:
    from pathlib import Path

    from relevo.kernel.leases import LeaseInfo
    from relevo.kernel.postgres import Database

pytestmark = pytest.mark.anyio
SPREAD = "tests.kernel.leases.programs:spread"
QUICK = {"lease_expiration": 3.0, "lease_renew": 0.5, "lease_acquire": 1.0, "pool_size": 4}


class Bench:
    """A traced database and a cluster on it."""

    def __init__(self, database: Database, cluster: Cluster) -> None:
        self.database = database
        self.cluster = cluster
        self.directory = Directory(database, Wakeups(database))

    async def leases(self, unit: str) -> list[LeaseInfo]:
        return await self.directory.leases(unit=unit, limit=1000)

    async def counts(self, unit: str) -> dict[str | None, int]:
        found: dict[str | None, int] = {}
        for lease in await self.leases(unit):
            found[lease.owner] = found.get(lease.owner, 0) + 1
        return found

    async def until_shared(self, unit: str, *hosts: str, timeout: float = 60.0) -> None:
        async def shared() -> bool:
            counts = await self.counts(unit)
            return set(counts) == set(hosts) and max(counts.values()) - min(counts.values()) <= 1

        await self.cluster.until(shared, f"{unit} shared by {hosts}", timeout=timeout)

    async def check(self) -> list[trace.OwnerChange]:
        changes = await trace.owner_changes(self.database)
        acted = trace.acts(self.cluster.records())
        trace.check_invariants(changes, acted)
        assert acted, "the nodes did nothing; the check would prove nothing"
        return changes


@pytest.fixture
async def bench(
    database: Database, relevo_url: str, tmp_path: Path, request: pytest.FixtureRequest
) -> Any:
    environment, program = getattr(request, "param", ({}, SPREAD))
    await trace.install(database)
    async with Cluster(
        relevo_url, program, tmp_path, settings=QUICK, environment=environment
    ) as cluster:
        yield Bench(database, cluster)


async def test_a_killed_hosts_leases_run_elsewhere(bench: Bench) -> None:  # B5, L1, I2, I3
    a = await bench.cluster.start("a")
    await bench.cluster.start("b")
    for unit in ("strict", "lenient"):
        await bench.until_shared(unit, "a", "b")
    a.kill()
    for unit in ("strict", "lenient"):
        await bench.until_shared(unit, "b")
    await bench.check()


async def test_a_frozen_host_does_nothing_when_it_wakes(bench: Bench) -> None:  # L5, I5, I6
    a = await bench.cluster.start("a")
    await bench.cluster.start("b")
    await bench.until_shared("strict", "a", "b")
    before = a.records("act")[-1]["at"]
    a.freeze()
    await bench.until_shared("strict", "b")
    taken = {(c.unit, c.name): c.epoch for c in await trace.owner_changes(bench.database)}
    a.thaw()
    # It comes back with a new incarnation and is given leases again, under younger epochs.
    await bench.until_shared("strict", "a", "b")

    def late() -> list[dict[str, Any]]:
        return [r for r in a.records("act") if r["at"] > before + 0.5]

    await bench.cluster.until(lambda: bool(late()), "a acts again")
    assert all(r["epoch"] > taken[r["unit"], r["lease"]] for r in late())
    await bench.check()


async def test_a_host_cut_off_from_its_database_stops_acting(bench: Bench) -> None:  # L5, I5
    a = await bench.cluster.start("a")
    b = await bench.cluster.start("b")
    await bench.until_shared("strict", "a", "b")
    its = {lease.name for lease in await bench.leases("strict") if lease.owner == "a"}
    last_before = b.records()[-1]["at"]
    a.partition()
    await bench.until_shared("strict", "b")

    def taken_over() -> list[float]:
        return [r["at"] for r in b.records("act") if r["unit"] == "strict" and r["lease"] in its
                and r["at"] > last_before]  # fmt: skip

    await bench.cluster.until(lambda: bool(taken_over()), "b acts in a's place")
    assert max(r["at"] for r in a.records("act")) < min(taken_over())
    a.heal()
    await bench.until_shared("strict", "a", "b")
    await bench.check()


async def test_an_answer_that_is_lost_one_way_fences_as_well(bench: Bench) -> None:  # L5, I5
    a = await bench.cluster.start("a")
    await bench.cluster.start("b")
    await bench.until_shared("strict", "a", "b")
    a.proxy.cut_downstream()  # renewals arrive, their answers do not: it must stop all the same
    await bench.cluster.until(
        lambda: "heartbeat.failed" in a.log, "a renewal of a failed", timeout=30
    )
    a.proxy.heal(drop=True)
    await bench.until_shared("strict", "a", "b")
    await bench.check()


async def test_draining_hands_everything_over_without_a_gap(bench: Bench) -> None:  # B4, B5
    a = await bench.cluster.start("a")
    await bench.cluster.start("b")
    await bench.until_shared("lenient", "a", "b")
    a.terminate()
    assert a.process.wait(timeout=30) == 0
    await bench.until_shared("lenient", "b")
    await bench.check()
    assert all(lease.clean for lease in await bench.leases("lenient"))


async def test_the_second_process_with_a_name_wins(bench: Bench) -> None:  # L9
    first = await bench.cluster.start("a")
    await bench.until_shared("strict", "a")
    second = await bench.cluster.start("a")
    assert first.process.wait(timeout=30) == 9
    assert first.records("superseded")
    await bench.cluster.until(
        lambda: len({r["lease"] for r in second.records("act") if r["unit"] == "strict"}) == 8,
        "the second process holds all strict leases",
    )
    await bench.check()


async def test_hosts_with_clocks_an_hour_off_share_as_usual(bench: Bench) -> None:  # L6
    await bench.cluster.start("ahead", skew=3600)
    behind = await bench.cluster.start("behind", skew=-3600)
    await bench.cluster.start("right")
    for unit in ("strict", "lenient"):
        await bench.until_shared(unit, "ahead", "behind", "right")
    changes = len(await trace.owner_changes(bench.database))
    beats = len(behind.records())
    await bench.cluster.until(lambda: len(behind.records()) > beats + 300, "time has passed")
    assert len(await trace.owner_changes(bench.database)) == changes  # B1: nothing moves
    await bench.check()


@pytest.mark.parametrize(
    "bench",
    [pytest.param(({"PROGRAM_STRICT": s}, "tests.kernel.leases.programs:stubborn"), id=i)
     for s, i in (("0", "seized"), ("1", "cut-off"))],
    indirect=True,
)  # fmt: skip
async def test_a_holder_that_does_not_let_go_is_overcome(bench: Bench) -> None:  # B1
    await bench.cluster.start("a")
    await bench.until_shared("stubborn", "a")
    await bench.cluster.start("b")
    await bench.until_shared("stubborn", "a", "b")
    await bench.check()


@pytest.mark.parametrize(
    "bench", [({"PROGRAM_LEASES": "6"}, "tests.kernel.leases.programs:ledger")], indirect=True
)
async def test_a_stale_owners_writes_are_refused(bench: Bench) -> None:  # L2, I4
    await bench.database.run(
        lambda tx: tx.execute(
            "create table ledger (seq bigserial, lease text, epoch bigint, primary key (seq))"
        )
    )
    a = await bench.cluster.start("a")
    await bench.cluster.start("b")
    await bench.until_shared("ledger", "a", "b")
    for _ in range(2):
        a.freeze()
        await bench.until_shared("ledger", "b")
        a.thaw()
        await bench.until_shared("ledger", "a", "b")
    rows = await bench.database.fetch("select lease, epoch from ledger order by seq")
    newest: dict[str, int] = {}
    for row in rows:
        assert row["epoch"] >= newest.get(row["lease"], 0)
        newest[row["lease"]] = row["epoch"]
    changes = await trace.owner_changes(bench.database)
    assert max(c.epoch for c in changes) > 2
    trace.check_invariants(changes)


async def _chaos(bench: Bench, rounds: int, seed: int) -> None:
    """Kill, freeze and cut off nodes at random; then everything must be shared again."""
    rng = random.Random(seed)
    names = ["a", "b", "c"]
    for name in names:
        await bench.cluster.start(name)
    for _ in range(rounds):
        node = bench.cluster.nodes[rng.choice(names)]
        match rng.choice(["kill", "freeze", "partition", "reset", "term"]):
            case "kill":
                node.kill()
                await bench.cluster.start(node.name)
            case "term":
                node.terminate()
                node.process.wait(timeout=60)
                await bench.cluster.start(node.name)
            case "reset":
                node.proxy.reset()
            case "freeze":
                node.freeze()
                await _acts_pass(bench, rng.randrange(20, 400))
                node.thaw()
            case "partition":
                node.partition()
                await _acts_pass(bench, rng.randrange(20, 400))
                node.heal()
        await _acts_pass(bench, rng.randrange(10, 100))
    for unit in ("strict", "lenient"):
        await bench.until_shared(unit, *names, timeout=120)
    await bench.check()


async def _acts_pass(bench: Bench, count: int) -> None:
    """Let the cluster go on until its nodes have acted so often: time without a clock."""
    target = len(bench.cluster.records("act")) + count
    await bench.cluster.until(
        lambda: len(bench.cluster.records("act")) >= target, f"{count} more acts"
    )


async def test_random_faults_break_no_invariant(bench: Bench) -> None:  # L1, L2, L5, I2, I3, I5, I6
    await _chaos(bench, rounds=6, seed=20261115)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(5))
async def test_many_random_faults_break_no_invariant(bench: Bench, seed: int) -> None:
    await _chaos(bench, rounds=40, seed=seed)
