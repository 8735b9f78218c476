"""Bad networks: between hosts, and between a host and its database."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from relevo.errors import RelevoError
from tests.actors.hosts.conftest import TALLIES
from tests.actors.hosts.programs import TYPE, Tally
from tests.actors.hosts.site import open_site
from tests.actors.hosts.test_drains import keys_of
from tests.http.authority import Authority
from tests.kernel.postgres.servers import pgbouncer

if TYPE_CHECKING:
    from pathlib import Path

    from relevo.kernel.postgres import Database
    from tests.actors.hosts.site import Site

pytestmark = pytest.mark.anyio
KINDS = ("add", "put", "id")


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("cuts", [3, pytest.param(100, marks=pytest.mark.soak)])
async def test_a_database_that_ends_connections_after_commits_costs_no_caller_an_error(
    site: Site, cuts: int
) -> None:  # I22, I24, I27
    await site.start("a")
    proxy = site.cluster.nodes["a"].proxy
    ledger = site.ledger(actors=6)
    ledger.start(callers=9, kinds=KINDS)
    for _ in range(cuts):
        await site.until_called(ledger, 50)
        proxy.cut_downstream()  # what is committed from here on is not answered
        sent = proxy.transferred.upstream
        await proxy.until(lambda sent=sent: proxy.transferred.upstream > sent)  # type: ignore[misc]
        proxy.heal(drop=True)
    await ledger.stop()
    assert not ledger.errors
    await ledger.check()
    await site.check()


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kills", [1, pytest.param(50, marks=pytest.mark.soak)])
async def test_actors_behind_pgbouncer_in_transaction_mode(
    database: Database, relevo_url: str, kills: int
) -> None:  # I4, I22, I27
    dice = random.Random(kills)
    with pgbouncer(relevo_url) as url:
        async with open_site(database, url, TALLIES) as site:
            await site.start("a", "b")
            ledger = site.ledger(actors=6)
            ledger.start(callers=6, kinds=KINDS)
            for _ in range(kills):
                await site.until_called(ledger, 50)
                name = dice.choice("ab")
                site.cluster.nodes[name].kill()
                await site.cluster.start(name)
                await site.until_shared("a", "b")
                key = dice.choice(ledger.keys)
                await site.bring(
                    key, "b" if await site.app.actors.owner(site.ref(key)) == "a" else "a"
                )
            await ledger.stop()
            await ledger.check()
            await site.check()


async def test_a_host_that_nobody_reaches_runs_nothing_twice(site: Site) -> None:  # I27, I31
    nodes = {name: await site.cluster.start(name, peer=True) for name in ("a", "b")}
    await site.until_shared("a", "b")
    ledger = site.ledger(actors=6, timeout=3.0)
    ledger.start(callers=9, kinds=KINDS)
    for name in ("a", "b"):
        await site.until_called(ledger, 50)
        failed = ledger.errors.total()
        nodes[name].peer.cut()  # it lives, and owns its slots
        await site.cluster.until(lambda n=failed: ledger.errors.total() > n + 5, "calls fail")  # type: ignore[misc]
        nodes[name].peer.heal()
        await site.until_called(ledger, 50)
    await ledger.stop()
    await ledger.check()
    await site.check()
    assert set(ledger.errors) <= {"OutcomeUnknown", "DeadlineExceeded", "NoHost"}
    (one,), (other,) = await keys_of(site, "a", 1), await keys_of(site, "b", 1)
    visited = site.app.actor(Tally, one, type=TYPE), site.app.actor(Tally, other, type=TYPE)
    nodes["b"].peer.cut()  # from the other host, this time
    with pytest.raises(RelevoError):
        await visited[0].with_(timeout=1.0).visit(visited[1], "t")  # type: ignore[attr-defined]
    nodes["b"].peer.heal(drop=True)
    await visited[0].visit(visited[1], "u")
    assert (await visited[0].counts())["u"] == 1


async def test_hosts_and_clients_meet_over_tls(
    database: Database, relevo_url: str, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    files: dict[str, dict[str, Any]] = {}
    for name in ("a", "b", "client"):
        cert, key = authority.make_out(name)
        cert.write_bytes(cert.read_bytes() + authority.ca.read_bytes())
        files[name] = {"tls_cert": str(cert), "tls_key": str(key)}
    async with open_site(database, relevo_url, TALLIES, client=files["client"]) as site:
        for name in ("a", "b"):
            await site.cluster.start(name, actors_listen="127.0.0.1:0", **files[name])
        await site.until_shared("a", "b")
        ledger = site.ledger(actors=6)
        ledger.start(callers=6, kinds=KINDS)
        await site.until_called(ledger, 50)
        await site.bring("k0", "a")
        await site.bring("k0", "b")
        (one,), (other,) = await keys_of(site, "a", 1), await keys_of(site, "b", 1)
        visited = site.app.actor(Tally, other, type=TYPE)
        await site.app.actor(Tally, one, type=TYPE).visit(visited, "t")
        await ledger.stop()
        assert not ledger.errors
        await ledger.check()
        addresses = await database.fetch(
            "select address from relevo.member where address is not null"
        )
        assert all(row["address"].startswith("tls://") for row in addresses)
