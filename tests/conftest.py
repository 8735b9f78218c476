from __future__ import annotations

import gc
import os
import re

import pytest
from hypothesis import settings

from relevo.testing import cluster
from tests.support import forks

pytest_plugins = ["tests.support.folder_times", "tests.support.spans"]

# Machines that run tests are busy; slowness belongs to bench/, not to a property's deadline. `make
# test` tries the same examples every time, so that what passes once passes again; `make soak` looks
# for new ones, and for more of them.
SOAKING = "RELEVO_EXAMPLES" in os.environ
EXAMPLES = int(os.environ.get("RELEVO_EXAMPLES", "25"))
settings.register_profile("relevo", deadline=None, max_examples=EXAMPLES, derandomize=not SOAKING)
settings.load_profile("relevo")


def examples(full: int) -> int:
    """Return how many examples to try for a property of many cases: a fifth in `make test`."""
    return full if SOAKING else full // 5


# Collecting tests makes a million objects that all stay; to look for garbage among them takes a
# fifth of its time.
gc.disable()


LONGEST = re.compile(
    r"/(chaos|docs|faults|hosts)/|/test_(crash\w*|processes|acceptance|kitchen|strangers|full_disk|fences"
    r"|lone_jobs|brakes|schema|contention)\.py$"
)
"""Files with tests of many seconds: first, so that no core waits for one of them at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest files; all else keeps its order."""
    items.sort(key=lambda item: LONGEST.search(item.path.as_posix()) is None)


def pytest_collection_finish() -> None:
    """What is loaded stays: collections need not walk through thousands of tests every time."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True, scope="session")
def forked_nodes() -> None:
    """Nodes of clusters do not import Relevo each for itself."""
    cluster.start_process = forks.start_node
