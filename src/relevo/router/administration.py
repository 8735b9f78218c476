"""Policies and queues: read, merged, checked and deleted, one change at a time.

What refers to what is checked under the lock of all policies and queues, which commands on jobs
take shared: nothing comes to refer to what is being deleted. Secrets lie sealed in the database.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

import msgspec
from msgspec import Struct

from relevo.core.decoding import json_object
from relevo.errors import InUse, NotFound, ReferenceNotFound, SettingsError
from relevo.events import Event
from relevo.postgres import catalog
from relevo.router import documents, events, model
from relevo.router.checks import check_id
from relevo.router.conditions import Conditions
from relevo.router.documents import Document

if TYPE_CHECKING:
    from collections.abc import Iterator

    import asyncpg

    from relevo.core.pages import Fetched
    from relevo.events import EventLog
    from relevo.postgres import Database, Transaction

SQL = catalog.load(__package__)
Administered = Literal[
    "classificationPolicies", "distributionPolicies", "exceptionPolicies", "queues"
]
WORDS: Final[Mapping[str, str]] = {
    "classificationPolicies": "classification policy",
    "distributionPolicies": "distribution policy",
    "exceptionPolicies": "exception policy",
    "queues": "queue",
    "jobs": "job",
}
_SEALED: Final = "sealed:"


class Seal(Protocol):
    """Seals secrets for an owner and opens them again; `ValueError` for what it did not seal."""

    def seal(self, plain: bytes, owner: str) -> bytes:
        """Encrypt a secret of `owner`."""

    def open(self, sealed: bytes, owner: str) -> bytes:
        """Decrypt a secret of `owner`."""


class Sealer(Protocol):
    """Whoever has the key that secrets are sealed with."""

    async def key(self) -> Seal:
        """Return it; asked for only when there is a secret."""


class Stored(Struct, frozen=True, kw_only=True):
    """A policy or queue as it is stored."""

    kind: Administered
    id: str
    number: int
    """Where it stands in the order of creation."""
    version: int
    modified_at: datetime
    document: Document
    """As on the wire, secrets sealed."""
    created: bool = False
    """Whether the call that returns this has made it."""

    @property
    def etag(self) -> str:
        """Names this version, quotes included; never again that of another resource of its id."""
        return f'"{self.number:x}-{self.version:x}"'


class Reference(Struct, frozen=True):
    """A policy or queue that a document names, and where."""

    kind: str
    id: str
    pointer: str = ""


class _Asked(Struct, frozen=True):
    """What a patch is to do."""

    kind: Administered
    id: str
    change: bytes | Mapping[str, Any]
    conditions: Conditions


class Administration:
    """The policies and queues of an installation.

    >>> await policies.patch("queues", "mail", {"distributionPolicyId": "d"})  # doctest: +SKIP
    """

    def __init__(self, database: Database, log: EventLog, sealer: Sealer) -> None:
        self._database = database
        self._log = log
        self._sealer = sealer
        log.catalogue.register(*events.TYPES)

    async def get(self, kind: Administered, resource_id: str) -> Stored:
        """Return a policy or queue, or raise `NotFound`."""
        row = await self._database.fetchrow(SQL.get_resource, kind, resource_id)
        if row is None:
            raise NotFound(f"there is no {WORDS[kind]} {resource_id!r}")
        return _stored(row)

    async def page(self, kind: Administered, after: int, limit: int) -> Fetched[Stored]:
        """Return those of a kind that were created after number `after`, in order.

        At most `limit`, and no more than a page has bytes.
        """
        found = await self._database.fetch_page(
            SQL.list_resources, kind, after, limit + 1, rows=limit
        )
        return found.each(_stored)

    async def patch(
        self,
        kind: Administered,
        resource_id: str,
        change: bytes | Mapping[str, Any],
        conditions: Conditions | None = None,
    ) -> Stored:
        """Create a policy or queue, or merge a change into it; bytes are the JSON of a change.

        Conditions are looked at before the change. What changes nothing leaves its version as it
        is. Raises `ConditionNotMet`, `InvalidValue` or what is narrower, `ReferenceNotFound`.
        """
        check_id(resource_id, "/id")
        asked = _Asked(kind, resource_id, change, conditions or Conditions())

        async def work(tx: Transaction) -> Stored:
            await tx.execute(SQL.lock_resources)
            return await self._apply(tx, asked, *await self._plan(tx, asked))

        # Most calls that change nothing, and all that are wrong, are found out without the lock.
        current, new = await self._plan(self._database, asked)
        if new is None and current is not None:
            return current
        stored = await self._database.run(work)
        self._log.sent()
        return stored

    async def delete(self, kind: Administered, resource_id: str) -> None:
        """Delete a policy or queue; one that is not there stays so. Raises `InUse`."""

        async def work(tx: Transaction) -> None:
            await tx.execute(SQL.lock_resources)
            users = await tx.fetch(SQL.users_of, kind, resource_id)
            if users:
                named = ", ".join(f"{WORDS[row['kind']]} {row['id']!r}" for row in users[:3])
                more = " and others" if len(users) > 3 else ""
                raise InUse(
                    f"{WORDS[kind]} {resource_id!r} is used by {named}{more}; let go of it there"
                    " first"
                )
            row = await tx.fetchrow(SQL.delete_resource, kind, resource_id)
            if row is not None:
                gone = _stored(row)
                await self._announce(tx, msgspec.structs.replace(gone, version=gone.version + 1))

        if await self._database.fetchrow(SQL.get_resource, kind, resource_id) is not None:
            await self._database.run(work, idempotent=True)
            self._log.sent()

    async def define_channel(self, channel_id: str, name: str) -> None:
        """Give a channel a name, for people and for the strict mode that refuses others."""
        check_id(channel_id, "/id")

        async def work(tx: Transaction) -> None:
            await tx.execute(SQL.lock_resources)
            await tx.execute(SQL.put_channel, channel_id, name)

        await self._database.run(work, idempotent=True)

    async def channels(self) -> dict[str, str]:
        """Return the channels that were defined, with their names."""
        return {row["id"]: row["name"] for row in await self._database.fetch(SQL.channels)}

    async def opened(self, stored: Stored) -> Document:
        """Return a document with its secrets as they were given, for whoever uses them."""
        if not documents.secrets_in(stored.document):
            return stored.document
        return opened(stored.document, await self._sealer.key(), f"{stored.kind}/{stored.id}")

    async def _plan(
        self, connection: Database | Transaction, asked: _Asked
    ) -> tuple[Stored | None, Document | None]:
        """Return what is stored, and what is to be stored instead; None if it stays as it is."""
        row = await connection.fetchrow(SQL.get_resource, asked.kind, asked.id)
        current = None if row is None else _stored(row)
        asked.conditions.check(
            None if current is None else current.etag,
            None if current is None else current.modified_at,
        )
        change = asked.change
        given = json_object(change) if isinstance(change, bytes) else change
        old = None if current is None else await self.opened(current)
        found = model.checked(asked.kind, documents.merged(asked.kind, old, given))
        new = documents.settled(model.document_of(found))
        return current, (None if new == old else new)

    async def _apply(
        self, tx: Transaction, asked: _Asked, current: Stored | None, new: Document | None
    ) -> Stored:
        if new is None:
            assert current is not None
            return current
        await self._check_references(tx, current, asked.kind, new)
        body = msgspec.json.encode(await self._sealed(asked.kind, asked.id, new)).decode()
        statement = SQL.insert_resource if current is None else SQL.update_resource
        row = await tx.fetchrow(statement, asked.kind, asked.id, body)
        assert row is not None
        changed = msgspec.structs.replace(_stored(row), created=current is None)
        await self._announce(tx, changed)
        return changed

    async def _sealed(self, kind: str, resource_id: str, document: Document) -> Document:
        if not documents.secrets_in(document):
            return document
        key, owner = await self._sealer.key(), f"{kind}/{resource_id}"

        def seal(plain: str) -> str:
            return _SEALED + base64.b64encode(key.seal(plain.encode(), owner)).decode()

        found: Document = documents.with_secrets(document, seal)
        return found

    async def _check_references(
        self, tx: Transaction, current: Stored | None, kind: str, new: Document
    ) -> None:
        """Refuse a reference to what does not exist, unless it has been there before."""
        known = (
            set() if current is None else {_name(one) for one in references(kind, current.document)}
        )
        wanted = [one for one in references(kind, new) if _name(one) not in known]
        if not wanted:
            return
        rows = await tx.fetch(
            SQL.existing_resources, [one.kind for one in wanted], [one.id for one in wanted]
        )
        existing = {(row["kind"], row["id"]) for row in rows}
        for one in wanted:
            if _name(one) not in existing:
                raise ReferenceNotFound(
                    f"there is no {WORDS[one.kind]} {one.id!r}; create it first",
                    pointer=one.pointer,
                )

    async def _announce(self, tx: Transaction, stored: Stored) -> None:
        """Tell matchers; the last statement of a transaction."""
        subject = f"{stored.kind}/{stored.id}"
        data = events.Touched(resource=subject)
        await self._log.append(tx, [Event(events.TOUCHED, subject, stored.version, data)])


def opened(document: Document, key: Seal, owner: str) -> Document:
    """Return a stored document with its secrets as they were given; `owner` is `<kind>/<id>`.

    Raises `SettingsError` if they were sealed with another master key.
    """

    def open_(sealed: str) -> str:
        try:
            raw = base64.b64decode(sealed.removeprefix(_SEALED), validate=True)
            return key.open(raw, owner).decode()
        except (binascii.Error, ValueError):
            raise SettingsError(
                f"a secret of {owner} was sealed with another master key than this host has; set"
                " RELEVO_SECRET_KEY to that of the other hosts, or send the secret again"
            ) from None

    found: Document = documents.with_secrets(document, open_)
    return found


def references(kind: str, document: Document) -> Iterator[Reference]:
    """Yield the policies and queues that a policy or queue names."""
    for name, other in (
        ("distributionPolicyId", "distributionPolicies"),
        ("exceptionPolicyId", "exceptionPolicies"),
        ("fallbackQueueId", "queues"),
    ):
        if name in document:
            yield Reference(other, document[name], f"/{name}")
    for n, rule in enumerate(document.get("exceptionRules", ())):
        for m, action in enumerate(rule["actions"]):
            at = f"/exceptionRules/{n}/actions/{m}"
            if "queueId" in action:
                yield Reference("queues", action["queueId"], f"{at}/queueId")
            if "classificationPolicyId" in action:
                named = action["classificationPolicyId"]
                yield Reference("classificationPolicies", named, f"{at}/classificationPolicyId")


def _name(one: Reference) -> tuple[str, str]:
    return one.kind, one.id


def _stored(row: asyncpg.Record) -> Stored:
    return Stored(
        kind=row["kind"],
        id=row["id"],
        number=row["number"],
        version=row["version"],
        modified_at=row["modified_at"],
        document=msgspec.json.decode(row["body"]),
    )
