"""The user behind a request on the Dataverse surface, its rights, and the tables it may see."""

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
"""The permission to see tables of the pipeline, whose rows are items."""
SQL = catalog.load("relevo.dataverse")


class Requester(Struct, frozen=True):
    """The user of a request, with the tables it may see."""

    user: User
    caller: Caller
    catalogue: Catalogue

    def table(self, set_name: str) -> Table:
        """Return a table by its entity set name; raises `NotFound`."""
        table = self.catalogue.by_set.get(set_name)
        if table is None:
            raise NotFound(
                f"there is no resource {set_name[:64]!r} here; the service document lists them"
            )
        return table


async def requester_of(services: Services, principal: Principal) -> Requester:
    """Return the user of a request; raises `Forbidden` if it is disabled."""
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
        # A narrower reach would have to be checked row by row.
        may_read_payload=PAYLOAD in principal.permissions
        and wider(of_payload, reach) == of_payload,
        language=user.language,
        zone=user.zone,
    )
    return Requester(user, caller, catalogue(services, principal))


def catalogue(services: Services, principal: Principal) -> Catalogue:
    """Return the tables a caller may see: jobs, the tables related to them, and the pipeline's.

    Tables of the pipeline need the permission to read items.
    """
    others: tuple[Table, ...] = ()
    if RECORDS in principal.permissions:
        taken = {surrounding.name for surrounding in RELATED_TABLES} | {job_catalogue.JOBS.name}
        registered = services.app.pipeline.registry.tables.values()
        others = tuple(one.served for one in registered if one.name not in taken)
    return job_catalogue.served((*RELATED_TABLES, *others))


def need(principal: Principal, permission: str, right: str) -> None:
    """Raise `Forbidden` without a permission that depends on the content of the request."""
    if permission not in principal.permissions:
        raise Forbidden(f"this request needs the right {right}; use a key that has it")


async def scope_of(
    services: Services,
    principal: Principal,
    requester: Requester,
    permission: str,
    jobs: Iterable[UUID],
) -> CommandScope:
    """Return the owners whose jobs a permission reaches, among the owners of some jobs."""
    mine = frozenset({requester.user.id, *requester.user.teams})
    match principal.reach.get(permission, "all"):
        case "all":
            return CommandScope()
        case "own":
            return CommandScope(mine)
        case _:
            database = services.app.database
            rows = await database.fetch(SQL.owners_in_unit, list(jobs), requester.user.unit)
            return CommandScope(mine | {row["owner"] for row in rows})


async def page_key(services: Services) -> bytes:
    """Return the key that signs page positions of queries; the same on all hosts."""
    master = await services.app.vault.key()
    return master.derive("pages of queries")
