"""Relevo's own surface, `/v1`: problems as errors, unknown fields refused."""

from __future__ import annotations

import difflib
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Final
from uuid import UUID

import msgspec
from msgspec import Meta, Struct

from relevo import limits
from relevo.errors import Conflict, Forbidden, InvalidValue, NotFound
from relevo.http import answers, paging
from relevo.http.access import roles
from relevo.http.access.key_model import KeyCreated, KeyInfo, KeyKind, MaxClassMode, NewKey
from relevo.http.access.roles import ROLES, is_role, permissions_of
from relevo.http.answers import SECURITY, Surface
from relevo.http.paging import Cursor, Limit, Page
from relevo.kernel.leases.model import HostInfo, LeaseInfo
from relevo.kernel.operation import Operations
from relevo.kernel.pages import first

if TYPE_CHECKING:
    from relevo.http.access.authenticator import Principal
    from relevo.http.answers import Headers
    from relevo.http.request import Head
    from relevo.http.services import Services


operation = Operations()


def _headers(_: Head, request_id: str) -> Headers:
    return ((b"x-request-id", request_id.encode()), *SECURITY)


SURFACE: Final = Surface(
    segment="",
    render=answers.render,
    challenge=b'Bearer realm="relevo", HMAC-SHA256',
    strict=True,
    headers=_headers,
)


class ListHosts(Struct, frozen=True, kw_only=True):
    """Which page of hosts."""

    cursor: Cursor | None = None
    limit: Limit = limits.PAGE_ROWS_DEFAULT


@operation("hosts.list", "GET /v1/hosts", "hosts:read")
async def list_hosts(services: Services, _: Principal, command: ListHosts) -> Page[HostInfo]:
    """List the hosts."""
    after = paging.decode(command.cursor, tuple[str, UUID])
    found = await services.app.directory.host_page(after, command.limit)
    return paging.page(services.page_bytes, found, lambda host: (host.name, host.incarnation))


class ByHostName(Struct, frozen=True, kw_only=True):
    """Which host."""

    name: Annotated[str, Meta(max_length=limits.NAME_LENGTH_MAX, description="The host's name.")]


@operation("hosts.drain", "POST /v1/hosts/{name}:drain", "hosts:drain", errors=(NotFound,))
async def drain_host(services: Services, _: Principal, command: ByHostName) -> None:
    """Have a host hand over all it owns."""
    await services.app.directory.drain(command.name)


@operation("hosts.resume", "POST /v1/hosts/{name}:resume", "hosts:drain", errors=(NotFound,))
async def resume_host(services: Services, _: Principal, command: ByHostName) -> None:
    """Let a drained host take leases again."""
    await services.app.directory.drain(command.name, draining=False)


class ListLeases(Struct, frozen=True, kw_only=True):
    """Which page of leases, of which units."""

    kind: Annotated[str, Meta(description="Only units of this kind, such as `feed`.")] | None = None
    unit: Annotated[str, Meta(description="Only the unit of this name.")] | None = None
    cursor: Cursor | None = None
    limit: Limit = limits.PAGE_ROWS_DEFAULT


@operation("leases.list", "GET /v1/leases", "leases:read")
async def list_leases(services: Services, _: Principal, command: ListLeases) -> Page[LeaseInfo]:
    """List leases and their owners."""
    after = paging.decode(command.cursor, tuple[str, str, str])
    directory = services.app.directory
    found = await directory.lease_page(command.kind, command.unit, after, command.limit)
    return paging.page(
        services.page_bytes, found, lambda lease: (lease.kind, lease.unit, lease.name)
    )


class ByLease(Struct, frozen=True, kw_only=True):
    """Which lease."""

    kind: Annotated[str, Meta(description="The kind of its unit, such as `feed`.")]
    unit: Annotated[str, Meta(description="The name of its unit.")]
    name: Annotated[str, Meta(description="Its own name.")]


class MoveLease(ByLease, frozen=True, kw_only=True):
    """Which lease goes where."""

    to: Annotated[str, Meta(description="The name of a live host that serves the unit.")]


@operation(
    "leases.move", "POST /v1/leases/{kind}/{unit}/{name}:move", "leases:move", errors=(Conflict,)
)
async def move_lease(services: Services, _: Principal, command: MoveLease) -> None:
    """Ask for a lease to go to another host."""
    await services.app.directory.move(command.kind, command.unit, command.name, to=command.to)


@operation(
    "leases.pause", "POST /v1/leases/{kind}/{unit}/{name}:pause", "leases:pause", errors=(NotFound,)
)
async def pause_lease(services: Services, _: Principal, command: ByLease) -> None:
    """Make the owner of a lease release it, and keep other hosts from taking it."""
    directory = services.app.directory
    await directory.set_state(command.kind, command.unit, command.name, "paused")


@operation(
    "leases.resume",
    "POST /v1/leases/{kind}/{unit}/{name}:resume",
    "leases:pause",
    errors=(NotFound,),
)
async def resume_lease(services: Services, _: Principal, command: ByLease) -> None:
    """Let a paused or blocked lease be owned again."""
    directory = services.app.directory
    await directory.set_state(command.kind, command.unit, command.name, "active")


class ListKeys(Struct, frozen=True, kw_only=True):
    """Which page of keys."""

    cursor: Cursor | None = None
    limit: Limit = limits.PAGE_ROWS_DEFAULT


@operation("keys.list", "GET /v1/keys", "keys:read")
async def list_keys(services: Services, _: Principal, command: ListKeys) -> Page[KeyInfo]:
    """List access keys.

    In the order they were made, also revoked ones.
    """
    after = paging.decode(command.cursor, tuple[datetime, str])
    found = first(await services.keys.list(after, command.limit + 1), command.limit)
    return paging.page(services.page_bytes, found, lambda key: (key.created_at, key.id))


RoleName = Annotated[
    str,
    Meta(
        max_length=limits.NAME_LENGTH_MAX + limits.ROUTER_ID_LENGTH_MAX,
        description="; ".join(f"`{name}`: {role.sentence}" for name, role in ROLES.items()),
    ),
]
Scope = Annotated[
    str,
    Meta(
        pattern=r"^[a-z_]+:[^\x00-\x1f]+$",
        max_length=limits.NAME_LENGTH_MAX,
        description="A kind of resource and a pattern for its name, such as `queue:mail-*`.",
    ),
]


class CreateKey(Struct, frozen=True, kw_only=True):
    """The properties of a new key."""

    name: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=limits.KEY_NAME_LENGTH_MAX,
            pattern=r"^[^\x00-\x1f\x7f]+$",
            description="For people, to know it by.",
        ),
    ]
    roles: Annotated[tuple[RoleName, ...], Meta(min_length=1, max_length=len(ROLES))]
    kind: Annotated[
        KeyKind,
        Meta(description="`bearer` is only sent as it is; `signing` can also sign requests."),
    ] = "bearer"
    scopes: Annotated[tuple[Scope, ...], Meta(max_length=limits.KEY_SCOPES_MAX)] = ()
    expires_at: Annotated[datetime, Meta(tz=True)] | None = None
    user_id: (
        Annotated[UUID, Meta(description="The user it belongs to; without it, a new one.")] | None
    ) = None
    max_class: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=limits.MESSAGE_RULE_NAME_LENGTH_MAX,
                description="The highest class that it sends messages with. Without it, any.",
            ),
        ]
        | None
    ) = None
    max_class_mode: (
        Annotated[
            MaxClassMode,
            Meta(
                description="Whether a message of a higher class is refused, or sent with"
                " `max_class`. Without it, `downgrade`."
            ),
        ]
        | None
    ) = None


@operation("keys.create", "POST /v1/keys", "keys:write", errors=(Conflict,), status=201)
async def create_key(services: Services, principal: Principal, command: CreateKey) -> KeyCreated:
    """Make an access key; its secret is shown this once.

    Nobody can give more than they have.
    """
    for index, role in enumerate(command.roles):
        if not is_role(role):
            close = difflib.get_close_matches(role, ROLES, n=1) or list(ROLES)
            raise InvalidValue(
                f"there is no role {role!r}; use {' or '.join(close)}", pointer=f"/roles/{index}"
            )
    beyond = {
        permission
        for permission in permissions_of(command.roles)
        if not roles.covers(principal.permissions, principal.reach, permission, command.roles)
    }
    if beyond:
        raise Forbidden(
            f"these roles grant more than you may do yourself: {', '.join(sorted(beyond))}"
        )
    if principal.max_class is not None and command.max_class != principal.max_class:
        raise Forbidden(
            f"this key sends up to the class {principal.max_class!r}, and cannot make one without"
            f" that bound; set max_class to {principal.max_class!r}"
        )
    if command.max_class is None and command.max_class_mode is not None:
        raise InvalidValue("max_class_mode needs max_class", pointer="/max_class_mode")
    return await services.keys.create(NewKey(**msgspec.structs.asdict(command)))


class ByKeyId(Struct, frozen=True, kw_only=True):
    """Which key."""

    id: Annotated[str, Meta(max_length=limits.NAME_LENGTH_MAX, description="The key's id.")]


@operation("keys.get", "GET /v1/keys/{id}", "keys:read", errors=(NotFound,))
async def get_key(services: Services, _: Principal, command: ByKeyId) -> KeyInfo:
    """Show an access key."""
    return await services.keys.get(command.id)


@operation("keys.revoke", "DELETE /v1/keys/{id}", "keys:write", errors=(NotFound,))
async def revoke_key(services: Services, _: Principal, command: ByKeyId) -> KeyInfo:
    """End an access key for good; again changes nothing."""
    return await services.keys.revoke(command.id)
