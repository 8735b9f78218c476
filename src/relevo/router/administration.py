"""Policies and queues: read, merged, checked and deleted, one change at a time.

References are checked under the lock of all policies and queues, which commands on jobs
take shared: nothing comes to refer to what is being deleted. What takes time, to merge a change and
to read the rules that come of it, is done before, in a thread; under the lock only the version is
compared. Secrets lie sealed in the database.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
from msgspec import Struct

from relevo.errors import InUse, NotFound, ReferenceNotFound
from relevo.kernel import cpu
from relevo.kernel.decoding import json_object
from relevo.kernel.events import Event
from relevo.kernel.postgres import catalog
from relevo.router import events, model
from relevo.router.commands import Conditions
from relevo.router.wire import credentials, documents
from relevo.router.wire.documents import Document, check_id

if TYPE_CHECKING:
    from collections.abc import Iterator

    import asyncpg

    from relevo.kernel.events import EventLog
    from relevo.kernel.pages import Fetched
    from relevo.kernel.postgres import Database, Transaction
    from relevo.router.wire.credentials import Seal, Sealer

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


_PLANS_MAX: Final = 3
"""How often a change is worked out anew because of others before it is done under the lock."""


class StoredResource(Struct, frozen=True, kw_only=True):
    """A policy or queue as it is stored."""

    kind: Administered
    id: str
    number: int
    """Where it stands in the order of creation."""
    version: int
    modified_at: datetime
    document: Document
    """As on the wire, secrets sealed."""
    size: int
    """Of its JSON, in bytes."""
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
    """A patch that was asked for."""

    kind: Administered
    id: str
    change: bytes | Mapping[str, Any]
    conditions: Conditions


class _Plan(Struct, frozen=True):
    """The result of a patch, before it is written."""

    current: StoredResource | None
    """The stored document that it was merged into."""
    new: Document | None
    """The document to store instead; None if nothing changes."""
    body: str = ""
    """The same as it is stored, secrets sealed."""

    def holds_for(self, row: asyncpg.Record | None) -> bool:
        """Whether the stored document is still the one it was merged into."""
        if row is None or self.current is None:
            return row is None and self.current is None
        return (row["number"], row["version"]) == (self.current.number, self.current.version)


class Administration:
    """The policies and queues of an installation.

    >>> await policies.patch("queues", "mail", {"distributionPolicyId": "d"})  # doctest: +SKIP
    """

    def __init__(self, database: Database, log: EventLog, sealer: Sealer) -> None:
        self._database = database
        self._log = log
        self._sealer = sealer
        log.catalogue.register(*events.TYPES)

    async def get(self, kind: Administered, resource_id: str) -> StoredResource:
        """Return a policy or queue, or raise `NotFound`."""
        row = await self._database.fetchrow(SQL.get_resource, kind, resource_id)
        if row is None:
            raise NotFound(f"there is no {WORDS[kind]} {resource_id!r}")
        return _stored(row)

    async def page(self, kind: Administered, after: int, limit: int) -> Fetched[StoredResource]:
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
    ) -> StoredResource:
        """Create a policy or queue, or merge a change into it; bytes are the JSON of a change.

        Conditions are looked at before the change. What changes nothing leaves its version as it
        is. Raises `ConditionNotMet`, `InvalidValue` or what is narrower, `ReferenceNotFound`.
        """
        check_id(resource_id, "/id")
        asked = _Asked(kind, resource_id, change, conditions or Conditions())
        for _ in range(_PLANS_MAX):
            plan = await self._plan(self._database, asked)
            if plan.new is None and plan.current is not None:
                return plan.current
            stored = await self._database.run(partial(self._apply, asked, plan))
            if stored is not None:
                break
        else:
            stored = await self._database.run(partial(self._plan_and_apply, asked))
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

    async def opened(self, stored: StoredResource) -> Document:
        """Return a document with its secrets in plain text, for the code that uses them."""
        if not documents.secrets_in(stored.document):
            return stored.document
        owner = f"{stored.kind}/{stored.id}"
        return credentials.opened(stored.document, await self._sealer.key(), owner)

    async def _plan(self, connection: Database | Transaction, asked: _Asked) -> _Plan:
        """Compute the result of a patch, off the event loop."""
        row = await connection.fetchrow(SQL.get_resource, asked.kind, asked.id)
        current = None if row is None else _stored(row)
        asked.conditions.check(
            None if current is None else current.etag,
            None if current is None else current.modified_at,
        )
        holds_secrets = row is not None and credentials.SEALED in row["body"]
        key = await self._sealer.key() if holds_secrets else None
        new = await cpu.off_loop(_merged, asked, current, key)
        if new is None:
            return _Plan(current, None)
        stored = await self._sealed(asked, new)
        return _Plan(current, new, msgspec.json.encode(stored).decode())

    async def _sealed(self, asked: _Asked, document: Document) -> Document:
        if not documents.secrets_in(document):
            return document
        key = await self._sealer.key()
        return credentials.sealed(document, key, f"{asked.kind}/{asked.id}")

    async def _apply(self, asked: _Asked, plan: _Plan, tx: Transaction) -> StoredResource | None:
        """Write the result; None if the stored document has changed meanwhile."""
        await tx.execute(SQL.lock_resources)
        row = await tx.fetchrow(SQL.version_of_resource, asked.kind, asked.id)
        return await self._write(tx, asked, plan) if plan.holds_for(row) else None

    async def _plan_and_apply(self, asked: _Asked, tx: Transaction) -> StoredResource:
        """The same under the lock, for what others change all the time: its rules have been read,
        so that only the change has to be merged."""
        await tx.execute(SQL.lock_resources)
        plan = await self._plan(tx, asked)
        if plan.new is None and plan.current is not None:
            return plan.current
        return await self._write(tx, asked, plan)

    async def _write(self, tx: Transaction, asked: _Asked, plan: _Plan) -> StoredResource:
        current = plan.current
        assert plan.new is not None
        await self._check_references(tx, current, asked.kind, plan.new)
        statement = SQL.insert_resource if current is None else SQL.update_resource
        row = await tx.fetchrow(statement, asked.kind, asked.id, plan.body)
        assert row is not None
        changed = msgspec.structs.replace(_stored(row), created=current is None)
        await self._announce(tx, changed)
        return changed

    async def _check_references(
        self, tx: Transaction, current: StoredResource | None, kind: str, new: Document
    ) -> None:
        """Refuse a reference to a missing resource, unless the document had it before."""
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

    async def _announce(self, tx: Transaction, stored: StoredResource) -> None:
        """Append the event that wakes the matcher; the last statement of a transaction."""
        subject = f"{stored.kind}/{stored.id}"
        data = events.Touched(resource=subject)
        await self._log.append(tx, [Event(events.TOUCHED, subject, stored.version, data)])


def _merged(asked: _Asked, current: StoredResource | None, key: Seal | None) -> Document | None:
    """Return the stored document with a change merged in, checked; None if equal."""
    change = asked.change
    given = json_object(change) if isinstance(change, bytes) else change
    old = None if current is None else current.document
    if old is not None and key is not None:
        old = credentials.opened(old, key, f"{asked.kind}/{asked.id}")
        credentials.check_origins(old, given)
    found = model.checked(asked.kind, documents.merged(asked.kind, old, given))
    new: Document = documents.settled(model.document_of(found))
    return None if new == old else new


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


def _stored(row: asyncpg.Record) -> StoredResource:
    return StoredResource(
        kind=row["kind"],
        id=row["id"],
        number=row["number"],
        version=row["version"],
        modified_at=row["modified_at"],
        document=msgspec.json.decode(row["body"]),
        size=len(row["body"]),
    )
