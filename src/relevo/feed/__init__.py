"""The change feed: what has changed in a container, and who has dealt with it.

    orders = app.container("orders", partition_key="/city")

    @orders.on_changes("kitchen")
    async def cook(changes): ...

Hosts that serve a processor share its changes by leases, at least once; with `ctx.transaction()`
effects in the same database happen exactly once.
"""

from relevo.feed.container import FeedContainer
from relevo.feed.model import Change, FeedRange, Metadata, Page
from relevo.feed.operating.dead_letters import DeadLetter, DeadLetters
from relevo.feed.operating.estimator import Estimator, LeaseLag, TotalLag
from relevo.feed.operating.operations import Snapshot, UnitHandle, UnitState
from relevo.feed.processing.context import Context, Diagnostics
from relevo.feed.processing.health import ProcessorHealth, Stall
from relevo.feed.processing.memory import MemoryLeases
from relevo.feed.processing.pacing import CheckpointEvery
from relevo.feed.processing.processor import Processor
from relevo.feed.reading.filters import Filter
from relevo.feed.reading.pull import Reader
from relevo.feed.service import Feeds

__all__ = [
    "Change",
    "CheckpointEvery",
    "Context",
    "DeadLetter",
    "DeadLetters",
    "Diagnostics",
    "Estimator",
    "FeedContainer",
    "FeedRange",
    "Feeds",
    "Filter",
    "LeaseLag",
    "MemoryLeases",
    "Metadata",
    "Page",
    "Processor",
    "ProcessorHealth",
    "Reader",
    "Snapshot",
    "Stall",
    "TotalLag",
    "UnitHandle",
    "UnitState",
]
