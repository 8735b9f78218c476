"""The change feed: every change of a container, in order, and how far each reader is.

    orders = app.container("orders", partition_key="/city")

    @orders.on_changes("kitchen")
    async def cook(changes): ...

Hosts that serve a processor share its changes by leases, at least once; with `ctx.transaction()`
effects in the same database happen exactly once.
"""

from relevo.feed.container import FeedContainer
from relevo.feed.model import Change, ChangePage, FeedRange, Metadata
from relevo.feed.operating.dead_letters import DeadLetter, DeadLetters
from relevo.feed.operating.estimator import Estimator, LeaseLag, TotalLag
from relevo.feed.operating.operations import Snapshot, UnitHandle, UnitState
from relevo.feed.processing.context import ChangeContext, Diagnostics
from relevo.feed.processing.memory_leases import MemoryLeases
from relevo.feed.processing.pacing import CheckpointEvery
from relevo.feed.processing.processor import Processor, ProcessorHealth, Stall
from relevo.feed.reading.filters import Filter
from relevo.feed.reading.pull import Reader
from relevo.feed.service import Feeds

__all__ = [
    "Change",
    "ChangeContext",
    "ChangePage",
    "CheckpointEvery",
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
    "Processor",
    "ProcessorHealth",
    "Reader",
    "Snapshot",
    "Stall",
    "TotalLag",
    "UnitHandle",
    "UnitState",
]
