"""`relevo run` on a terminal: what it shows, what Ctrl-C says, and what it leaves behind."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING

import asyncpg
import pytest

from relevo.cli.hosts.draining import NAMES_MAX, sentence
from relevo.kernel.supervision import Draining
from tests.e2e.conftest import until
from tests.kernel.postgres.embedded_bench import open_folder

if TYPE_CHECKING:
    from tests.e2e.conftest import Cli, Terminal

pytestmark = pytest.mark.skipif(os.name != "posix", reason="terminals")

PROGRAM = """
import asyncio
from pathlib import Path

import relevo

app = relevo.App()
orders = app.container("orders", partition_key="/city")


@app.job("report")
async def report(ctx):
    while not Path("finish").exists():
        await asyncio.sleep(0.02)


@orders.on_changes("kitchen")
async def kitchen(changes): ...
"""


def _ctrl_c(terminal: Terminal) -> None:
    """Press Ctrl-C: a terminal sends the signal to the whole group."""
    os.killpg(terminal.process.pid, signal.SIGINT)


async def _execute(url: str, sql: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute(sql)
    await connection.close()


def _runs_report(cli: Cli) -> bool:
    jobs = cli("job", "list", "--state", "locked", "-o", "json").json["items"]
    return [job["status"] for job in jobs] == ["in_progress"]


def test_a_host_says_what_it_waits_for_again_and_again_and_ends_when_that_has_ended(
    cli: Cli,
) -> None:
    (cli.folder / "shop.py").write_text(PROGRAM)
    job = cli("job", "submit", "report").out.strip()
    terminal = cli.on_terminal("run", "shop:app")
    until(lambda: _runs_report(cli), "the job runs")
    _ctrl_c(terminal)
    said = f"s for job report ({job}). Ctrl-C again ends it at once"
    while terminal.said.count(said) < 2:
        terminal.read_until(said)
        assert terminal.read_more(), terminal.said
    (cli.folder / "finish").touch()
    assert terminal.end() == 0, terminal.said
    assert terminal.said.count("closing connections") < 3, "it stops when its jobs have ended"
    assert cli("job", "wait", job).code == 0


def test_a_second_ctrl_c_leaves_no_server_behind_even_while_it_starts(cli: Cli) -> None:
    with open_folder() as folder:
        cli.environment |= {"RELEVO_HOME": str(folder / "home"), "RELEVO_DATABASE_URL": ""}
        (cli.folder / "shop.py").write_text(PROGRAM)
        first = cli.on_terminal("run", "shop:app")
        until(lambda: bool(list(folder.rglob("postgres.server.lock"))), "a server is being made")
        _ctrl_c(first)
        _ctrl_c(first)
        assert first.end() in (0, 128 + signal.SIGINT), first.said
        assert not list(folder.rglob("postmaster.pid"))

        second = cli.on_terminal("run", "shop:app")
        second.read_until("nothing runs at this moment")
        cli("job", "submit", "report")
        second.read_until("report")
        _ctrl_c(second)
        second.read_until("Ctrl-C again ends it at once")
        _ctrl_c(second)
        assert second.end() == 128 + signal.SIGINT, second.said
        assert not list(folder.rglob("postmaster.pid"))


def test_the_view_shows_feeds_and_the_router_and_says_since_when_it_is_stale(
    cli: Cli, relevo_url: str
) -> None:
    (cli.folder / "shop.py").write_text(PROGRAM)
    cli("router", "distribution-policy", "create", "fair", '{"offerExpiresAfterSeconds": 60}')
    cli("router", "queue", "create", "calls", '{"distributionPolicyId": "fair"}')
    terminal = cli.on_terminal("run", "shop:app")
    for text in ("kitchen", "orders", "router queue", "calls", "nothing runs at this moment"):
        terminal.read_until(text)
    asyncio.run(_execute(relevo_url, "alter table relevo.router_resource rename to elsewhere"))
    terminal.read_until("not refreshed since")
    asyncio.run(_execute(relevo_url, "alter table relevo.elsewhere rename to router_resource"))
    refreshed = terminal.said.count("router queue")
    while terminal.said.count("router queue") < refreshed + 2:
        assert terminal.read_more(), terminal.said
    _ctrl_c(terminal)
    assert terminal.end() == 0, terminal.said


def test_the_sentence_names_the_first_few_and_counts_the_others() -> None:
    work = tuple(f"job {n}\x1b[2J" for n in range(NAMES_MAX + 2))
    said = sentence(Draining(work, 0.0))
    assert "waiting up to 0 s for job 0\\x1b[2J, job 1" in said
    assert "job 4\\x1b[2J and 2 more. Ctrl-C again" in said
    assert sentence(None).startswith("stopping: closing connections. Ctrl-C again")
