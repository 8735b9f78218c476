"""Fenced ownership of work: hosts with one heartbeat, leases with epochs, one balancer.

    unit = await leases.join("feed", "billing", holder, leases=["a", "b", "c"])

`holder(lease)` runs on one host at a time for each lease; it works until `lease.stopping` is set
and writes in the lease's name only under `fence`.
"""

from relevo.kernel.leases.directory import Directory
from relevo.kernel.leases.fencing import fence, require
from relevo.kernel.leases.held import Holder, Lease
from relevo.kernel.leases.model import (
    ACTORS,
    FEED,
    SINGLETON,
    Fence,
    HostInfo,
    LeaseConfig,
    LeaseInfo,
    Membership,
    UnitSettings,
)
from relevo.kernel.leases.service import Leases
from relevo.kernel.leases.units import Unit

__all__ = [
    "ACTORS",
    "FEED",
    "SINGLETON",
    "Directory",
    "Fence",
    "Holder",
    "HostInfo",
    "Lease",
    "LeaseConfig",
    "LeaseInfo",
    "Leases",
    "Membership",
    "Unit",
    "UnitSettings",
    "fence",
    "require",
]
