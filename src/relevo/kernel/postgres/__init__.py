"""PostgreSQL as Relevo uses it: embedded or external, grouped calls, named SQL, one clock."""

from relevo.kernel.postgres.database import Database, Transaction
from relevo.kernel.postgres.grouping import Group
from relevo.kernel.postgres.wakeups import Signal, Wakeups

__all__ = ["Database", "Group", "Signal", "Transaction", "Wakeups"]
