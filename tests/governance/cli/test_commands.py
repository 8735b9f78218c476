"""Pools, limits and resolvers on the command line, over HTTP and on the database."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.conftest import PRESET, Cli, Site

if TYPE_CHECKING:
    from collections.abc import Iterator

    from relevo.testing.databases import TestDatabases

PROGRAM = """
import relevo

app = relevo.App()
erp = app.governance.pool("erp", size=1)
"""


@pytest.fixture(scope="module")
def site(
    relevo_databases: TestDatabases, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    url = relevo_databases.create()
    with contextlib.ExitStack() as stack:
        folder = tmp_path_factory.mktemp("site")
        (folder / "shop.py").write_text(PROGRAM)
        cli = Cli(folder, stack, database_url=url, access_key=PRESET)
        host = cli.spawn(
            "run", "shop:app", "--name", "alpha", "--http", "127.0.0.1:0", "--output", "json"
        ).begin()
        yield Site(cli, host, url)
    relevo_databases.drop(url)


def ask(site: Site, *arguments: str, way: str = "http") -> Any:
    """Run a command that answers in JSON."""
    done = site.run(*arguments, "-o", "json", way=way)
    assert done.code == 0, done
    return done.json if done.out.strip() else None


def test_a_pool_is_made_used_and_removed(site: Site) -> None:
    assert ask(site, "pool", "create", "erp", "--size", "1") == {"created": True}
    leased = ask(site, "pool", "lease", "erp", "--use-key", "acme", way="database")
    refused = site.run("pool", "lease", "erp")
    assert refused.code == 6, refused
    assert "no permit" in refused.err
    (permit,) = ask(site, "pool", "permits", "erp")["items"]
    assert (permit["id"], permit["key"]) == (leased["id"], "acme")
    renewed = ask(site, "pool", "renew", "erp", leased["id"], "--ttl-seconds", "60")
    assert renewed["number"] == leased["number"]
    assert site.run("pool", "delete", "erp", "--yes").code == 4
    ask(site, "pool", "release", "erp", leased["id"])
    ask(site, "pool", "resize", "erp", "--size", "7", way="database")
    shown = ask(site, "pool", "show", "erp")
    assert (shown["size"], shown["in_use"]) == (7, 0)
    ask(site, "pool", "delete", "erp", "--yes")
    assert ask(site, "pool", "list")["items"] == []


def test_a_limit_is_made_and_charged(site: Site) -> None:
    rates = '[{"amount": 1, "per": 3600}]'
    assert ask(site, "limit", "create", "mail", rates) == {"created": True}
    assert ask(site, "limit", "acquire", "mail") == {"cost": 1}
    refused = site.run("limit", "acquire", "mail")
    assert refused.code == 6, refused
    assert "try again in" in refused.err
    assert ask(site, "limit", "list", way="database")["items"][0]["name"] == "mail"
    ask(site, "limit", "delete", "mail", "--yes")


def test_a_resolver_is_made_and_asked(site: Site) -> None:
    ask(site, "resolver", "create", "orders", "--max-stale", "0.1", "--use-ttl", "0.1")
    for name in ("db1", "db2"):
        ask(site, "resolver", "add-resource", "orders", name, "--data", f'{{"dsn": "{name}"}}')
    ask(site, "resolver", "add-partition", "orders", "eu", "--on", "db1")
    assert ask(site, "resolver", "resolve", "orders", "--entity", "alice")["data"] == {"dsn": "db1"}
    moved = ask(site, "resolver", "move", "orders", "--partition", "eu", "--to", "db2")
    assert moved == {"ended": True}
    assert ask(site, "resolver", "resolve", "orders", "--entity", "alice")["resource"] == "db2"
    ask(site, "resolver", "remove-resource", "orders", "db1", "--yes")
    assert "eu" in site.run("resolver", "partitions", "orders").out


def test_the_live_view_shows_pools_and_who_waits(site: Site) -> None:
    ask(site, "pool", "create", "busy", "--size", "3")
    ask(site, "pool", "lease", "busy")
    shown = ask(site, "actor", "watch", "--once")
    (busy,) = [one for one in shown["pools"] if one["name"] == "busy"]
    assert busy == {"name": "busy", "size": 3, "in_use": 1, "waiting": 0, "waiters": []}
    assert "busy" in site.run("actor", "watch", "--once").out
