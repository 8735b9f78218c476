"""Authentication and authorisation: requests pass `Authenticator`, then `authorise`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import msgspec
from msgspec import Struct

from relevo.dataverse.users.model import Reach
from relevo.errors import Forbidden, Unauthenticated
from relevo.http.access import auditing, roles, signing
from relevo.http.access.replays import READS, Replays
from relevo.jobs.model import SYSTEM
from relevo.kernel.operation import PUBLIC, Operation
from relevo.messaging.core.classes import Inflation

if TYPE_CHECKING:
    from datetime import datetime

    from relevo.audit.service import CallerKind
    from relevo.http.access.code_flow import CodeFlow
    from relevo.http.access.keyring import AccessKey, KeyRing
    from relevo.http.access.oidc import Issuer
    from relevo.http.request import Head
    from relevo.http.services import Services


class Principal(Struct, frozen=True, kw_only=True):
    """The caller of an operation: a key, a token's subject, or the local administrator."""

    id: str
    name: str
    permissions: frozenset[str] = frozenset()
    scopes: tuple[str, ...] = ()
    """Patterns of the resources it may touch, such as `queue:mail-*`; none is no restriction."""
    user: UUID | None = None
    """The user who owns its rows; None for a token's subject, which is found by `id`."""
    reach: Mapping[str, Reach] = {}
    """How far permissions reach that do not reach everything."""
    disabled: bool = False
    """Whether its user is disabled, which overrides the key's permissions."""
    max_class: str | None = None
    """The highest class that it sends messages with; None is any."""
    max_class_mode: Inflation = "downgrade"
    """What becomes of a message of a higher class."""


ANONYMOUS: Final = Principal(id="", name="anonymous")
LOCAL_ADMIN: Final = Principal(
    id="local",
    name="local administrator",
    permissions=roles.permissions_of(("admin",)),
    user=SYSTEM,
)
"""The caller of the CLI beside the database, which could change every row anyway."""


def authorise(principal: Principal, operation: Operation, command: Any = None) -> None:
    """Return if the principal may do this, else raise `Forbidden`; the only place that decides it.

    With a command, the scopes are held against the resource it touches. A key with scopes reaches
    only operations that name their resource.
    """
    if operation.permission == PUBLIC:
        return
    if principal.disabled:
        raise Forbidden(f"the user of {principal.name!r} is disabled; ask an administrator")
    known = operation.permission in roles.PERMISSIONS
    if not known or operation.permission not in principal.permissions:
        raise Forbidden(
            f"{operation.name} needs the permission {operation.permission!r}, which none of this"
            " key's roles grants; use another key"
        )
    if principal.reach.get(operation.permission, "all") != "all" and not operation.minds_reach:
        raise Forbidden(
            f"{operation.name} concerns the rows of all users, and this key's permission covers"
            f" {principal.reach[operation.permission]!r} only; use another key"
        )
    if not principal.scopes:
        return
    if operation.scope is None and operation.checks_scopes:
        return
    if operation.scope is None:
        raise Forbidden(
            f"{operation.name} is not bound to one resource, and this key is limited to"
            f" {', '.join(principal.scopes)}; use a key without scopes"
        )
    resource = None if command is None else operation.resource(command)
    if resource and not reaches(principal, resource):
        raise Forbidden(
            f"{resource!r} is outside of this key's scopes ({', '.join(principal.scopes)})"
        )


async def call(
    operation: Operation,
    services: Services,
    principal: Principal,
    command: Any,
    *,
    stream: bool = False,
    reason: str | None = None,
    caller: CallerKind | None = None,
) -> Any:
    """Authorise and run an operation: the one way in, for HTTP, the dashboard and the CLI.

    Changes by administrators are written into the audit, with the `reason`; of an agent, all calls.
    """
    await admit(operation, services, principal, caller, command)
    handler = operation.stream if stream and operation.stream else operation.handler
    if not auditing.is_audited(operation, caller):
        return await handler(services, principal, command)
    run = partial(handler, services, principal, command)
    return await auditing.audited(services, principal, operation, command, reason, run, caller)


async def admit(
    operation: Operation, services: Services, principal: Principal, caller: CallerKind | None,
    command: Any = None, path: str = "",
) -> None:  # fmt: skip
    """Do as `authorise` does, and write down what an AI agent is refused.

    As long as there is no command, the `path` says what it is about.
    """
    try:
        authorise(principal, operation, command)
    except Forbidden as error:
        if caller == "agent":
            resource = path if command is None else auditing.resource_of(operation, command)
            await auditing.refused(services, principal, operation, resource, error)
        raise


def reaches(principal: Principal, resource: str) -> bool:
    """Whether a resource, such as `worker:ana`, lies within a principal's scopes."""
    scopes = principal.scopes
    return not scopes or any(fnmatchcase(resource, pattern) for pattern in scopes)


class AuthenticatedCaller(Struct, frozen=True):
    """A principal whose request head was genuine."""

    principal: Principal
    check_body: Callable[[bytes], None] | None = None
    """Raises `Unauthenticated` if the body was not signed, or the request is a replay;
    None if it was not signed."""


class Authenticator:
    """Turns the `Authorization` header into a principal, from keys that are held in memory."""

    def __init__(
        self,
        ring: KeyRing,
        *,
        public_hosts: tuple[str, ...],
        skew_seconds: float,
        issuer: Issuer | None = None,
        flow: CodeFlow | None = None,
    ) -> None:
        self.flow = flow
        """Signs people in at the issuer; None if the settings name no client."""
        self._ring = ring
        self._issuer = issuer
        self._public_hosts = tuple(host.encode() for host in public_hosts)
        self._skew_seconds = skew_seconds
        self._replays = Replays(skew_seconds)

    async def authenticate(self, head: Head) -> AuthenticatedCaller:
        """Return the sender of a request, judged by its head alone; raises `Unauthenticated`.

        The body of a signed request is checked when it has been read, by `check_body`, so that
        unauthenticated clients cannot make a host keep bodies.
        """
        sent = head.values(b"authorization")
        if len(sent) != 1:
            raise Unauthenticated(
                "send one Authorization header: `Bearer <key>`, or an HMAC-SHA256 signature"
            )
        scheme, _, rest = sent[0].partition(b" ")
        match scheme.lower():
            case b"bearer":
                return await self.bearer(rest.strip())
            case b"hmac-sha256":
                return await self._signature(head, rest.strip())
            case _:
                raise Unauthenticated(
                    "the Authorization header is neither `Bearer` nor `HMAC-SHA256`"
                )

    async def bearer(self, token: bytes) -> AuthenticatedCaller:
        """Return the holder of a key or of an issuer's token; raises `Unauthenticated`."""
        if self._issuer is not None and self._issuer.is_token(token):
            await self._ring.signing_keys(fresh=False)  # which also reads the time
            principal = await self._issuer.principal(token, self._ring.now())
            disabled = await self._ring.is_disabled(principal.id)
            return AuthenticatedCaller(msgspec.structs.replace(principal, disabled=disabled))
        key = await self._ring.by_hash(hashlib.sha256(token).digest())
        if key is None:
            raise Unauthenticated("this key is unknown, revoked or expired")
        return AuthenticatedCaller(self._use(key))

    async def identity(self, claims: Mapping[str, Any]) -> Principal:
        """Return who claims stand for that were verified when they signed in."""
        assert self._issuer is not None
        await self._ring.signing_keys(fresh=False)  # which also reads the time
        principal = self._issuer.principal_of(claims)
        disabled = await self._ring.is_disabled(principal.id)
        return msgspec.structs.replace(principal, disabled=disabled)

    async def now(self) -> datetime:
        """Return the database's time."""
        await self._ring.signing_keys(fresh=False)
        return self._ring.now()

    async def _signature(self, head: Head, text: bytes) -> AuthenticatedCaller:
        signature = signing.parse(text)
        texts = signing.texts_to_sign(signature, head, self._public_hosts)
        # Memory may not know a key that was made elsewhere a moment ago; then the database does.
        for fresh in (False, True):
            keys = await self._ring.signing_keys(fresh=fresh)
            date = signing.check_date(signature, head, self._ring.now(), self._skew_seconds)
            found = signing.match(signature, texts, {key.id: key.secret for key in keys})
            if found is not None:
                key = next(key for key in keys if key.id == found)
                return AuthenticatedCaller(
                    self._use(key), partial(self._check_body, head, signature, date)
                )
        raise Unauthenticated("the signature is not that of any valid key over this request")

    def _check_body(
        self, head: Head, signature: signing.Signature, date: datetime, body: bytes
    ) -> None:
        """Refuse a body that was not signed, and a replayed request."""
        signing.check_body(head, body)
        if head.method not in READS:
            self._replays.check(signature.text, date, self._ring.now())

    def _use(self, key: AccessKey) -> Principal:
        self._ring.note_use(key)
        return key.principal
