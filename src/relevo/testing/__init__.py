"""What Relevo's own tests and its users' tests stand on.

Fixtures come with the pytest plugin: `relevo_url` and `database` (a migrated database per test),
`app`, `clock` (time travel). Real host processes are killed, frozen and cut off through `Cluster`,
`Proxy` and `FaultBoard`; `check_invariants` judges what the leases went through.
"""

from relevo.testing.clock import Clock
from relevo.testing.cluster import Cluster, Node
from relevo.testing.databases import TestDatabases
from relevo.testing.faults import FaultBoard
from relevo.testing.proxy import Proxy
from relevo.testing.trace import Act, OwnerChange, Violation, check_invariants

__all__ = [
    "Act",
    "Clock",
    "Cluster",
    "FaultBoard",
    "Node",
    "OwnerChange",
    "Proxy",
    "TestDatabases",
    "Violation",
    "check_invariants",
]
