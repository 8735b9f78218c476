"""Test support for Relevo itself and for its users.

The pytest plugin has fixtures: `relevo_url` and `database` (a migrated database per test), `app`,
and `clock` (time travel). `Cluster`, `Proxy` and `FaultBoard` kill, freeze and disconnect real host
processes; `check_invariants` verifies the history of leases.
"""

from relevo.testing.actor_test import ActorTest
from relevo.testing.clock import Clock
from relevo.testing.cluster import Cluster, Node
from relevo.testing.databases import TestDatabases
from relevo.testing.faults import FaultBoard
from relevo.testing.proxy import Proxy
from relevo.testing.trace import Act, OwnerChange, Violation, check_invariants

__all__ = [
    "Act",
    "ActorTest",
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
