"""What tests of messaging need: definitions of entities on a fresh database."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from relevo.messaging.definitions import Definitions
from relevo.messaging.entities import Entities

if TYPE_CHECKING:
    from relevo.kernel.postgres import Database


@pytest.fixture
def entities(database: Database) -> Entities:
    return Entities(database)


@pytest.fixture
def definitions(database: Database) -> Definitions:
    return Definitions(database)
