"""Who asks on the Dataverse surface: a user with rights, and the tables that it is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from relevo.dataverse.users.model import User, wider
from relevo.errors import Forbidden, NotFound
from relevo.jobs.commands import CommandScope
from relevo.jobs.querying import catalogue as job_catalogue
from relevo.jobs.querying.related_tables import RELATED_TABLES
from relevo.kernel.postgres import catalog
from relevo.kernel.querying.catalogue import Catalogue, Table
from relevo.kernel.querying.model import Caller

if TYPE_CHECKING:
    from collections.abc import Iterable
    from uuid import UUID

    from relevo.http.access.authenticator import Principal
    from relevo.http.services import Services

READ: Final = "jobs:read"
PAYLOAD: Final = "jobs:payload"
RECORDS: Final = "items:read"
"""What a caller needs to be shown the tables of the pipeline: their rows are items."""
SQL = catalog.load("relevo.dataverse")


class Asker(Struct, frozen=True):
    """A user at the surface."""

    user: User
    caller: Caller
    catalogue: Catalogue

    def table(self, set_name: str) -> Table:
        """Return a table by its entity set name; raises `NotFound`."""
        found = self.catalogue.by_set.get(set_name)
        if found is None:
            raise NotFound(
                f"there is no resource {set_name[:64]!r} here; the service document lists them"
            )
        return found


async def asker(services: Services, principal: Principal) -> Asker:
    """Return who asks, with what it may see."""
    users = services.app.users
    known = principal.user
    if known is None:
        known = await users.known_as(principal.id, principal.name)
    user = await users.admitted(known)
    reach = principal.reach.get(READ, "all")
    of_payload = principal.reach.get(PAYLOAD, "all")
    caller = Caller(
        user_id=user.id,
        unit=user.unit,
        scope=reach,
        teams=user.teams,
        # One that does not reach all rows that are seen would have to be asked row by row.
        may_read_payload=PAYLOAD in principal.permissions
        and wider(of_payload, reach) == of_payload,
        language=user.language,
        zone=user.zone,
    )
    return Asker(user, caller, catalogue(services, principal))


def catalogue(services: Services, principal: Principal) -> Catalogue:
    """Return the tables that a caller is shown: jobs, what is around them, those of the pipeline.

    To who may not read items there are none of the latter, wherever a request could name them.
    """
    others: tuple[Table, ...] = ()
    if RECORDS in principal.permissions:
        taken = {one.name for one in RELATED_TABLES} | {job_catalogue.JOBS.name}
        registered = services.app.pipeline.registry.tables.values()
        others = tuple(one.served for one in registered if one.name not in taken)
    return job_catalogue.served((*RELATED_TABLES, *others))


def need(principal: Principal, permission: str, right: str) -> None:
    """Raise `Forbidden` without a right that depends on what is asked."""
    if permission not in principal.permissions:
        raise Forbidden(f"this needs the right {right}; use a key that has it")


async def scope_of(
    services: Services, principal: Principal, who: Asker, permission: str, jobs: Iterable[UUID]
) -> CommandScope:
    """Return whose jobs a permission reaches, among some jobs."""
    mine = frozenset({who.user.id, *who.user.teams})
    match principal.reach.get(permission, "all"):
        case "all":
            return CommandScope()
        case "own":
            return CommandScope(mine)
        case _:
            database = services.app.database
            rows = await database.fetch(SQL.owners_in_unit, list(jobs), who.user.unit)
            return CommandScope(mine | {row["owner"] for row in rows})


async def page_key(services: Services) -> bytes:
    """Return the key that positions in queries are signed under; the same on all hosts."""
    master = await services.app.vault.key()
    return master.derive("pages of queries")
