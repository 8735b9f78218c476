"""A program with actors, run by the command line; one for all tests of a module."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from tests.e2e.conftest import PRESET, Cli, Site

if TYPE_CHECKING:
    from collections.abc import Iterator

    from relevo.testing.databases import TestDatabases

PROGRAM = '''
import relevo
from msgspec import Struct
from relevo.actors import Actor, Interface

app = relevo.App()


class Account(Interface):
    """An account in cents."""

    async def deposit(self, cents: int) -> int: ...


class AccountState(Struct):
    cents: int = 0


@app.actor("account", implements=Account)
class AccountActor(Actor[AccountState]):
    async def deposit(self, cents: int) -> int:
        self.state.cents += cents
        return self.state.cents


class Echo(Interface):
    async def echo(self, text: str) -> str: ...


@app.stateless("echo", implements=Echo, max_local=7)
class EchoActor(Actor[None]):
    async def echo(self, text: str) -> str:
        return text
'''


@pytest.fixture(scope="module")
def site(
    relevo_databases: TestDatabases, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    url = relevo_databases.create()
    with contextlib.ExitStack() as stack:
        folder = tmp_path_factory.mktemp("site")
        (folder / "bank.py").write_text(PROGRAM)
        cli = Cli(folder, stack, database_url=url, access_key=PRESET, actors_slots="4")
        host = cli.spawn(
            "run", "bank:app", "--name", "alpha", "--http", "127.0.0.1:0", "--output", "json"
        ).begin()
        yield Site(cli, host, url)
    relevo_databases.drop(url)
