"""Who asks on the Dataverse surface: a user with rights, and the tables that it is shown."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import TYPE_CHECKING, Final
from uuid import UUID

from msgspec import Struct

from relevo.errors import Forbidden, NotFound
from relevo.jobs import catalogue as job_catalogue
from relevo.jobs.commands import Scope
from relevo.jobs.surroundings import SURROUNDINGS
from relevo.querying.catalogue import Catalogue, Table
from relevo.querying.model import Caller
from relevo.users.model import User

if TYPE_CHECKING:
    from collections.abc import Iterable

    from relevo.api.auth import Principal
    from relevo.api.services import Services

READ: Final = "jobs:read"
PAYLOAD: Final = "jobs:payload"
_PURPOSE: Final = "relevo: pages of queries"


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
    caller = Caller(
        user_id=user.id,
        unit=user.unit,
        scope=principal.reach.get(READ, "all"),
        teams=user.teams,
        # A payload that is not read as far as its rows would be seen in rows of others.
        may_read_payload=PAYLOAD in principal.permissions
        and principal.reach.get(PAYLOAD, "all") in ("all", principal.reach.get(READ, "all")),
        language=user.language,
        zone=user.zone,
    )
    return Asker(user, caller, catalogue(services))


def catalogue(services: Services) -> Catalogue:
    """Return the tables that are served: jobs, what is around them, and those of the pipeline."""
    registered = services.app.pipeline.registry.tables.values()
    return _catalogue(tuple(one.served for one in registered))


class _Keyed(tuple[Table, ...]):
    """Tables that are the same if their names are: what a name means never changes in a process."""

    def __hash__(self) -> int:
        return hash(tuple(one.name for one in self))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Keyed) and [a.name for a in self] == [b.name for b in other]


def _catalogue(registered: tuple[Table, ...]) -> Catalogue:
    return _made(_Keyed(registered))


@lru_cache(maxsize=16)
def _made(registered: _Keyed) -> Catalogue:
    taken = {one.name for one in SURROUNDINGS} | {job_catalogue.JOBS.name}
    return job_catalogue.served((*SURROUNDINGS, *(t for t in registered if t.name not in taken)))


def need(principal: Principal, permission: str, right: str) -> None:
    """Raise `Forbidden` without a right that depends on what is asked."""
    if permission not in principal.permissions:
        raise Forbidden(f"this needs the right {right}; use a key that has it")


async def scope_of(
    services: Services, principal: Principal, who: Asker, permission: str, jobs: Iterable[UUID]
) -> Scope:
    """Return whose jobs a permission reaches, among some jobs."""
    mine = frozenset({who.user.id, *who.user.teams})
    match principal.reach.get(permission, "all"):
        case "all":
            return Scope()
        case "own":
            return Scope(mine)
        case _:
            owners = await services.app.jobs.owners_of(list(jobs))
            return Scope(mine | await services.app.users.in_unit(owners, who.user.unit))


async def page_key(services: Services) -> bytes:
    """Return the key that positions in queries are signed under; the same on all hosts."""
    master = await services.app.vault.key()
    return hashlib.sha256(f"{_PURPOSE} {master.fingerprint}".encode()).digest()
