"""Chains as clients see them: which job another waits for, and how an operator lifts that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from relevo.jobs import states
from relevo.jobs.core import codes
from relevo.jobs.errors import JobMissing, JobRefused
from relevo.jobs.querying.query import EVERYBODY, JobQuery
from relevo.kernel.postgres import catalog

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from relevo.kernel.postgres import Database, Transaction, Wakeups
    from relevo.kernel.querying.model import Caller

SQL = catalog.load("relevo.jobs")
SET_ASIDE: Final = "taken out of the chain of its token: the jobs behind it no longer wait for it"


class Chains:
    """Looks at the chains of one database, and takes jobs out of them."""

    def __init__(self, database: Database, wakeups: Wakeups) -> None:
        self._database = database
        self._wakeups = wakeups

    async def blocked_by(
        self, ids: Sequence[UUID], caller: Caller = EVERYBODY
    ) -> dict[UUID, UUID | None]:
        """Return for each job that waits in a chain the job that it waits for.

        None stands for one that the caller may not see.
        """
        rows = await self._database.fetch(SQL.chain_heads, list(ids)) if ids else []
        heads = {row["head"] for row in rows}
        if heads and caller.scope != "all":
            heads = {job.id for job in await JobQuery(self._database, caller).where(id=heads)}
        return {row["id"]: row["head"] if row["head"] in heads else None for row in rows}

    async def unblock(self, id: UUID, *, user: UUID | None = None) -> UUID:  # noqa: A002
        """Take the job that this one waits for out of their chain; returns which that was.

        The rest of the chain goes on in its order. The job that was taken out keeps its state and
        its time, and runs apart from the others. One that runs at this moment is not taken out:
        two jobs of a token would run at once.
        """
        head: UUID = await self._database.run(lambda tx: self._unblock(tx, id, user))
        self._wakeups.send("jobs")
        return head

    async def _unblock(self, tx: Transaction, id: UUID, user: UUID | None) -> UUID:  # noqa: A002
        found = await tx.fetchrow(SQL.chain_of, id)
        if found is None:
            raise JobMissing(f"there is no job {id}, or it has ended")
        key = f"c{found['chain']}"
        head = None
        if found["chain"] is not None:
            await tx.execute(SQL.lock_gates, [key])
            head = await tx.fetchrow(SQL.lock_head, id, found["chain"])
        if head is None:
            raise JobRefused(codes.CANNOT_CHANGE, f"job {id} waits for no other job")
        if head["status"] in states.LOCKED:
            raise JobRefused(
                codes.CANNOT_CHANGE,
                f"job {id} waits for job {head['id']}, which runs on {head['host_name']}; cancel"
                " that one, or wait for its end",
            )
        await tx.execute(SQL.leave_chain, head["id"], SET_ASIDE, user)
        await tx.execute(SQL.open_locked_gates, [key])
        await tx.execute(SQL.announce_unblocked, head["id"])
        taken_out: UUID = head["id"]
        return taken_out
