"""The change feed: what has changed in a container, and who has dealt with it.

    orders = app.container("orders", partition_key="/city")

    @orders.on_changes("kitchen")
    async def cook(changes): ...

Hosts that serve a processor share its changes by leases, at least once; with `ctx.transaction()`
effects in the same database happen exactly once.
"""

from relevo.feed.container import FeedContainer
from relevo.feed.context import Context, Diagnostics
from relevo.feed.dead_letters import DeadLetter, DeadLetters
from relevo.feed.estimator import Estimator, LeaseLag, TotalLag
from relevo.feed.filters import Filter
from relevo.feed.health import ProcessorHealth, Stall
from relevo.feed.memory import MemoryLeases
from relevo.feed.model import Change, FeedRange, Metadata, Page
from relevo.feed.operations import Snapshot, UnitHandle, UnitState
from relevo.feed.pacing import CheckpointEvery
from relevo.feed.processor import Processor
from relevo.feed.pull import Reader
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
