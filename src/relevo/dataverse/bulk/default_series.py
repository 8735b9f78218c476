"""The series that every installation has: a daily bulk delete of succeeded jobs.

The leader creates it once, after leading for a minute, and suspended: retention removes these
records anyway, and an operator who disabled retention wants to keep them. After a resume it runs
and recurs. If an operator cancels or deletes it, it is not created again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from relevo.dataverse.bulk.deletion import Deletion
from relevo.dataverse.bulk.model import Criteria, Criterion, RowQuery
from relevo.dataverse.bulk.sources import SQL
from relevo.jobs import states
from relevo.jobs.core.operation_types import BULK_DELETE
from relevo.jobs.model import Recurrence
from relevo.jobs.querying.catalogue import JOBS
from relevo.jobs.submitting import submission
from relevo.jobs.submitting.submission import new_id
from relevo.kernel.postgres import clock

if TYPE_CHECKING:
    from relevo.kernel.postgres import Database, Transaction

NAME: Final = "Delete succeeded jobs"
DAYS: Final = 30
PATTERN: Final = "FREQ=DAILY;INTERVAL=1;"
_QUERY: Final = RowQuery(
    table=JOBS.name,
    criteria=Criteria(
        tests=(
            Criterion(column="statuscode", operator="eq", values=(str(states.SUCCEEDED),)),
            Criterion(column="completedon", operator="olderthan-x-days", values=(str(DAYS),)),
        )
    ),
)


async def establish(database: Database, handler: str, lane: str) -> bool:
    """Create the series unless it was ever created; return whether this call did."""

    async def work(tx: Transaction) -> bool:
        id_ = new_id()
        if not await tx.fetch(SQL.begin_standing, NAME, id_):
            return False
        job = submission.checked(
            handler, msgspec.to_builtins(Deletion(queries=(_QUERY,))), id=id_, name=NAME, lane=lane,
            options={"operation_type": BULK_DELETE},
        )  # fmt: skip
        now = await clock.now(tx)
        job = submission.recurring(Recurrence(pattern=PATTERN), now, BULK_DELETE)(job)
        await submission.submit_in(tx, msgspec.structs.replace(job, start=None))
        queries = msgspec.json.encode([_QUERY]).decode()
        await tx.execute(SQL.begin, id_, BULK_DELETE, NAME, queries, None)
        return True

    return await database.run(work)
