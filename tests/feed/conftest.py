from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from relevo.kernel.part import Connection
from relevo.kernel.postgres import Wakeups
from relevo.store import Store
from relevo.store.service import StorePart

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from relevo.kernel.postgres import Database


@pytest.fixture
def wakeups(database: Database) -> Wakeups:
    return Wakeups(database)


@pytest.fixture
async def store(database: Database, wakeups: Wakeups) -> AsyncIterator[Store]:
    store = Store(Connection(database, wakeups))
    yield store
    await StorePart(store).close()
