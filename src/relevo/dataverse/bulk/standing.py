"""What an installation has by itself: a daily bulk delete of succeeded jobs.

It is made once, by whoever leads for a minute, and stays what people make of it: it waits for
somebody to resume it, then it runs and recurs; canceled or deleted it does not come back. It never
begins by itself: retention removes these records already, and who has switched that off wants them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from relevo.dataverse.bulk.deleting import Deletion
from relevo.dataverse.bulk.model import Criteria, Criterion, RowQuery
from relevo.dataverse.bulk.sources import SQL
from relevo.jobs import states, submission
from relevo.jobs.core.operation_types import BULK_DELETE
from relevo.jobs.model import Recurrence
from relevo.jobs.querying.catalogue import JOBS
from relevo.jobs.submission import new_id
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
    """Make the series if it was never made; returns whether it was made now."""

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
