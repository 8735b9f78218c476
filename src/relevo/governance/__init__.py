"""Governance of scarce resources: pools, rate limits, exclusive writers, caches and guards."""

from relevo.governance.caches import ResultCache
from relevo.governance.calls.cache_calls import Cached
from relevo.governance.calls.limit_calls import Admission, LimitView
from relevo.governance.calls.pool_calls import PoolView
from relevo.governance.cells import Cell, Cells
from relevo.governance.core.assignments import Resolution, Resource
from relevo.governance.core.breaking import BreakerRules
from relevo.governance.core.windows import Rate
from relevo.governance.errors import BreakerOpen, LoadFailed, PermitLost, Rejected, StaleSink
from relevo.governance.guards import ResourceGuard
from relevo.governance.pools import PermitFence, PoolPermit, ResourcePool
from relevo.governance.rate_limits import RateLimit
from relevo.governance.resolvers import Resolver
from relevo.governance.service import Governance
from relevo.governance.sinks import CallableSink, CsvSink, FileSink, Sink
from relevo.governance.writers import ExclusiveWriter, KeyWriter, WriteReceipt

__all__ = [
    "Admission",
    "BreakerOpen",
    "BreakerRules",
    "Cached",
    "CallableSink",
    "Cell",
    "Cells",
    "CsvSink",
    "ExclusiveWriter",
    "FileSink",
    "Governance",
    "KeyWriter",
    "LimitView",
    "LoadFailed",
    "PermitFence",
    "PermitLost",
    "PoolPermit",
    "PoolView",
    "Rate",
    "RateLimit",
    "Rejected",
    "Resolution",
    "Resolver",
    "Resource",
    "ResourceGuard",
    "ResourcePool",
    "ResultCache",
    "Sink",
    "StaleSink",
    "WriteReceipt",
]
