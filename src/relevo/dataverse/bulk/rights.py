"""What a bulk operation may still do: no more than its owner's keys allow when it runs (9)."""

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
    """Return a query that reaches no further than rights do; raises `Fail` without them."""
    needed = ("bulk.run", "job.delete") if query.of_jobs else ("bulk.run",)
    for right in needed:
        if right not in rights:
            raise Fail(
                codes.FORBIDDEN, f"user {owner} has no right {right} any more: none of its keys"
                " gives it; give it one that does, or have another user do it",
            )  # fmt: skip
    return replace(
        query, scope=narrower(query.scope, rights.get("job.read", "own")),
        reach=narrower(query.reach, rights.get("job.delete", "own")),
    )  # fmt: skip
