from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.router.floor import Floor

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from relevo import App
    from relevo.testing.clock import Clock


@pytest.fixture
def desk(app: App, clock: Clock) -> Floor:
    """A router that nobody matches: what calls do by themselves."""
    return Floor(app, clock)


@pytest.fixture
async def floor(app: App, clock: Clock) -> AsyncIterator[Floor]:
    """A router with its matcher at work."""
    async with app.host(name="host"):
        yield Floor(app, clock)
