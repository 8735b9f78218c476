from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.actors.hosts.site import open_site

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from relevo.kernel.postgres import Database
    from tests.actors.hosts.site import Site

TALLIES = "tests.actors.hosts.programs:tallies"


@pytest.fixture
async def site(database: Database, relevo_url: str) -> AsyncIterator[Site]:
    async with open_site(database, relevo_url, TALLIES) as made:
        yield made
