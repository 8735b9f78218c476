"""Limits a bulk operation to what its owner's keys allow while it runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING
from uuid import UUID

from msgspec.structs import replace

from relevo.dataverse.users.model import Reach, narrower
from relevo.jobs.core import codes
from relevo.kernel.running.verdicts import Fail

if TYPE_CHECKING:
    from relevo.dataverse.bulk.model import RowQuery

RightsOf = Callable[[UUID | None], Awaitable[Mapping[str, Reach]]]
"""Returns the rights that a user has now."""


def allowed(query: RowQuery, owner: UUID | None, rights: Mapping[str, Reach]) -> RowQuery:
    """Narrow a query to the reach of the rights; raises `Fail` if a right is missing."""
    needed = ("bulk.run", "job.delete") if query.of_jobs else ("bulk.run",)
    for right in needed:
        if right not in rights:
            raise Fail(
                codes.FORBIDDEN, f"user {owner} no longer has the right {right}: none of its keys"
                " grants it; create such a key, or submit the job as another user",
            )  # fmt: skip
    return replace(
        query, scope=narrower(query.scope, rights.get("job.read", "own")),
        reach=narrower(query.reach, rights.get("job.delete", "own")),
    )  # fmt: skip
