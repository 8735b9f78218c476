from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.pipeline.bundle import make

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from relevo import App


@pytest.fixture
async def app(relevo_url: str) -> AsyncIterator[App]:
    async with make(relevo_url) as app:
        yield app
