"""`app.webhooks`: webhooks, their secrets and their deliveries."""

from __future__ import annotations

import secrets as randomness
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Unpack
from uuid import UUID, uuid4

import msgspec

from relevo import limits
from relevo.errors import Conflict, InvalidValue, NotFound
from relevo.kernel import checking
from relevo.kernel.outbound.addresses import Allowed
from relevo.kernel.part import Service
from relevo.kernel.postgres import catalog
from relevo.router.wire.credentials import redacted
from relevo.webhooks import definitions, events
from relevo.webhooks.core import signing
from relevo.webhooks.core.retry import WAITS
from relevo.webhooks.definitions import WebhookChange, WebhookDefinition
from relevo.webhooks.model import (
    Delivery,
    DeliveryState,
    SecretRotated,
    Webhook,
    WebhookCreated,
    WebhookSecret,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import asyncpg

    from relevo.kernel.events import EventLog
    from relevo.kernel.postgres import Transaction
    from relevo.kernel.sealing import Vault
    from relevo.settings import Settings
    from relevo.webhooks.core.envelopes import EventFormat

SQL = catalog.load(__package__)
DELIVERIES: Final = "webhooks:deliveries"
"""Wakes senders: there are events to send, or a webhook was changed."""
DEFINED: Final = "webhooks:defined"
"""Wakes hosts: a webhook was made or removed."""
CHANGED_MAX: Final = 10_000
"""Deliveries that one command replays or discards."""
_SECRET_BYTES: Final = 32


class Webhooks(Service):
    """The webhooks of an installation.

    >>> made = await app.webhooks.create("billing", "https://billing.example/hooks")
    ...     # doctest: +SKIP
    """

    def __init__(self, log: EventLog, settings: Settings, vault: Vault) -> None:
        super().__init__(log.connection)
        self.log = log
        self.vault = vault
        self.allowed = Allowed.parse(settings.outbound_allow)
        self.public_host = settings.public_hosts[0] if settings.public_hosts else None
        log.catalogue.register(*events.TYPES)

    async def create(
        self,
        name: str,
        url: str,
        *,
        types: Sequence[str] = ("*",),
        filter: str | None = None,  # noqa: A002 - the public word
        format: EventFormat = "cloudevents",  # noqa: A002 - the public word
        retry: Sequence[float] = WAITS,
        secret: str | None = None,
        since: datetime | None = None,
    ) -> WebhookCreated:
        """Make a webhook; its secret is shown this once.

        Events from `since` on are sent, as far as the log still has them; by default those that
        happen from now on. `filter` is a condition on the event's fields, and `retry` the seconds
        between attempts. Raises `Conflict` if the name is taken, `InvalidValue` otherwise.
        """
        definitions.checked_name(name)
        wanted = WebhookDefinition(
            url=url, types=tuple(types), filter=filter, format=format, retry=tuple(retry)
        )
        definitions.checked(wanted, self.allowed, self.log.catalogue)
        if since is not None:
            await self._check_since(since)
        plain = randomness.token_bytes(_SECRET_BYTES) if secret is None else signing.read(secret)
        webhook_id, secret_id = uuid4(), uuid4()
        sealed = await self._seal(plain, webhook_id)

        async def work(tx: Transaction) -> None:
            await tx.execute(SQL.lock_webhooks)
            if await tx.fetchval(SQL.count_webhooks) >= limits.WEBHOOKS_MAX:
                raise Conflict(
                    f"there are {limits.WEBHOOKS_MAX} webhooks, and no more are taken; remove one"
                )
            made = await tx.fetchval(
                SQL.insert_webhook, webhook_id, name, url, format, list(types), filter,
                list(map(float, retry)), *_beginning(format, since),
            )  # fmt: skip
            if made is None:
                stored = await tx.fetchrow(SQL.lock_webhook, name)
                if stored is None or stored["id"] != webhook_id:  # else by an attempt before
                    raise Conflict(f"there is a webhook {name!r} already; change or remove it")
            await tx.execute(SQL.insert_secret, secret_id, webhook_id, sealed)

        await self.database.run(work, idempotent=True)
        self._defined()
        return WebhookCreated(webhook=await self.get(name), secret=signing.written(plain))

    async def get(self, name: str) -> Webhook:
        """Return a webhook; raises `NotFound`."""
        rows = await self.database.fetch(SQL.list_webhooks, "", name, 1)
        if not rows:
            raise _missing(name)
        return _webhook(rows[0])

    async def update(self, name: str, **change: Unpack[WebhookChange]) -> Webhook:
        """Change what a webhook sends, or where; what waits goes to the new address.

        Attempts begin anew. An endpoint in Event Grid's form is asked again when its address
        changes. Raises `NotFound` or `InvalidValue`.
        """

        async def work(tx: Transaction) -> None:
            row = await _locked(tx, name)
            old = WebhookDefinition(
                url=row["url"], types=tuple(row["types"]), filter=row["filter"],
                format=row["format"], retry=tuple(row["retry"]),
            )  # fmt: skip
            given: dict[str, Any] = dict(change)
            for field in {"types", "retry"} & given.keys():
                given[field] = tuple(given[field])
            new = msgspec.structs.replace(old, **given)
            definitions.checked(new, self.allowed, self.log.catalogue)
            state, reason = row["state"], row["reason"]
            code, seconds = row["validation_code"], None
            if (new.url, new.format) != (old.url, old.format):
                begun, _, code, seconds = _beginning(new.format, None)
                state = begun if state in ("enabled", "validating") else state
            await tx.execute(
                SQL.update_webhook, row["id"], new.url, new.format, list(new.types), new.filter,
                list(new.retry), state, reason, code, seconds,
            )  # fmt: skip

        await self.database.run(work, idempotent=True)
        self._defined()
        return await self.get(name)

    async def pause(self, name: str, reason: str | None = None) -> Webhook:
        """Hold deliveries back; events go on being collected, and are sent when it is resumed."""

        async def work(tx: Transaction) -> None:
            row = await _locked(tx, name)
            if row["state"] == "disabled":
                raise Conflict(f"the webhook {name!r} is disabled; resume it first")
            await tx.execute(SQL.pause_webhook, row["id"], reason)

        await self.database.run(work, idempotent=True)
        self._defined()
        return await self.get(name)

    async def resume(self, name: str) -> Webhook:
        """Let a paused or disabled webhook go on; what waited is sent.

        Events of the time in which it was disabled were not collected.
        """

        async def work(tx: Transaction) -> None:
            row = await _locked(tx, name)
            if row["state"] in ("enabled", "validating"):
                return
            state, _, code, seconds = _beginning(row["format"], None)
            await tx.execute(
                SQL.update_webhook, row["id"], row["url"], row["format"], row["types"],
                row["filter"], row["retry"], state, None, code, seconds,
            )  # fmt: skip

        await self.database.run(work, idempotent=True)
        self._defined()
        return await self.get(name)

    async def delete(self, name: str) -> None:
        """Remove a webhook with all that waits for it."""
        if not await self.database.write(SQL.delete_webhook, name):
            raise _missing(name)
        self._defined()

    async def rotate(
        self,
        name: str,
        *,
        secret: str | None = None,
        overlap: timedelta | float = limits.WEBHOOK_OVERLAP_SECONDS_DEFAULT,
    ) -> SecretRotated:
        """Replace the secret; the ones before sign beside the new one until `overlap` is over."""
        seconds = checking.seconds(overlap)
        if not 0 <= seconds <= limits.WEBHOOK_OVERLAP_SECONDS_MAX:
            raise InvalidValue(
                f"overlap is 0 to {limits.WEBHOOK_OVERLAP_SECONDS_MAX:g} s, not {seconds:g}",
                pointer="/overlap_seconds",
            )
        plain = randomness.token_bytes(_SECRET_BYTES) if secret is None else signing.read(secret)
        secret_id = uuid4()
        webhook_id = await self._id(name)
        sealed = await self._seal(plain, webhook_id)

        async def work(tx: Transaction) -> datetime:
            row = await _locked(tx, name)
            if row["id"] != webhook_id:
                raise Conflict(f"the webhook {name!r} was replaced meanwhile; rotate again")
            signing_now = await tx.fetch(SQL.signing_secrets, webhook_id)
            known = any(one["id"] == secret_id for one in signing_now)
            if seconds and not known and len(signing_now) >= limits.WEBHOOK_SECRETS_MAX:
                raise Conflict(
                    f"{limits.WEBHOOK_SECRETS_MAX} secrets of {name!r} sign already; wait until"
                    " one has expired, or rotate with an overlap of 0"
                )
            await tx.execute(SQL.insert_secret, secret_id, webhook_id, sealed)
            ended = await tx.fetch(SQL.expire_secrets, webhook_id, secret_id, seconds)
            return max((one["expires_at"] for one in ended), default=datetime.now(UTC))

        old_until = await self.database.run(work, idempotent=True)
        return SecretRotated(secret=signing.written(plain), old_until=old_until)

    async def deliveries(
        self, name: str, state: DeliveryState = "dead", *, after: int = 0,
        limit: int = limits.PAGE_ROWS_DEFAULT,
    ) -> list[Delivery]:  # fmt: skip
        """Return a page of deliveries of a state, by id; dead letters by default."""
        await self._id(name)
        rows = await self.database.fetch(SQL.list_deliveries, name, state, after, limit)
        return [Delivery(**dict(row)) for row in rows]

    async def replay(
        self, name: str, delivery: int | None = None, *, state: DeliveryState = "dead",
        limit: int = CHANGED_MAX,
    ) -> int:  # fmt: skip
        """Send a delivery again, or the first of a state; returns how many will be.

        They are sent as if they were new, before what waits; so not in the order of their subject.
        """
        found = await self._changed(SQL.replay_deliveries, name, delivery, state, limit)
        self.wakeups.send(DELIVERIES)
        return found

    async def discard(
        self, name: str, delivery: int | None = None, *, state: DeliveryState = "dead",
        limit: int = CHANGED_MAX,
    ) -> int:  # fmt: skip
        """Remove a delivery, or the first of a state, without sending it; returns how many."""
        found = await self._changed(SQL.discard_deliveries, name, delivery, state, limit)
        self.wakeups.send(DELIVERIES)
        return found

    async def validate(self, name: str, code: UUID) -> None:
        """Take the code of a validation event; raises `NotFound` for any other code."""
        if not await self.database.write(SQL.validate_webhook, name, code, idempotent=True):
            raise NotFound("there is no webhook that waits for this code; it may have expired")
        self.wakeups.send(DELIVERIES)

    async def list(self, after: str = "", limit: int = limits.PAGE_ROWS_MAX) -> list[Webhook]:
        """Return a page of webhooks by name."""
        return [_webhook(row) for row in await self.database.fetch(
            SQL.list_webhooks, after, None, limit
        )]  # fmt: skip

    async def _changed(
        self, sql: str, name: str, delivery: int | None, state: DeliveryState, limit: int
    ) -> int:
        await self._id(name)
        if not 1 <= limit <= CHANGED_MAX:
            raise InvalidValue(f"limit is 1 to {CHANGED_MAX}, not {limit}", pointer="/limit")
        rows = await self.database.write(sql, name, delivery, state, limit, idempotent=True)
        if delivery is not None and not rows:
            raise NotFound(f"the webhook {name!r} has no delivery {delivery}")
        return len(rows)

    async def _id(self, name: str) -> UUID:
        rows = await self.database.fetch(SQL.list_webhooks, "", name, 1)
        if not rows:
            raise _missing(name)
        found: UUID = rows[0]["id"]
        return found

    async def _seal(self, plain: bytes, webhook_id: UUID) -> bytes:
        return (await self.vault.key()).seal(plain, secret_owner(webhook_id))

    async def _check_since(self, since: datetime) -> None:
        if since.tzinfo is None:
            raise InvalidValue("since is an instant with a time zone", pointer="/since")
        before = (await self.log.state()).trimmed_before
        if before is not None and since < before:
            raise InvalidValue(
                f"events before {before.isoformat()} are no longer kept; since may not be earlier",
                pointer="/since",
            )

    def _defined(self) -> None:
        self.wakeups.send(DEFINED, DELIVERIES)


def secret_owner(webhook_id: UUID) -> str:
    """Return the owner for which a webhook's secrets are sealed."""
    return f"webhook/{webhook_id}"


def _beginning(
    form: EventFormat, since: datetime | None
) -> tuple[str, datetime | None, UUID | None, float | None]:
    """Return state, start, validation code and seconds for the answer of a webhook that begins."""
    if form == "eventgrid":
        return "validating", since, uuid4(), limits.WEBHOOK_VALIDATION_SECONDS_MAX
    return "enabled", since, None, None


async def _locked(tx: Transaction, name: str) -> asyncpg.Record:
    row = await tx.fetchrow(SQL.lock_webhook, name)
    if row is None:
        raise _missing(name)
    return row


def _missing(name: str) -> NotFound:
    return NotFound(f"there is no webhook {name!r}; `relevo webhook list` shows all")


def _webhook(row: asyncpg.Record) -> Webhook:
    values: dict[str, Any] = {
        field: row[field] for field in Webhook.__struct_fields__ if field != "secrets"
    }
    values |= {"url": redacted(row["url"]), "types": tuple(row["types"])}
    values["retry"] = tuple(row["retry"])
    return Webhook(
        **values, secrets=msgspec.json.decode(row["secrets"], type=tuple[WebhookSecret, ...])
    )
