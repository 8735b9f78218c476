"""PostgreSQL as Relevo uses it: embedded or external, grouped calls, named SQL, one clock."""

from relevo.postgres.database import Database, Transaction
from relevo.postgres.grouping import Group
from relevo.postgres.wakeups import Signal, Wakeups

__all__ = ["Database", "Group", "Signal", "Transaction", "Wakeups"]
