"""One request of a webhook: its form, its signature, and what the receiver answers."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import quote
from uuid import UUID

import msgspec
from msgspec import Struct

from relevo.errors import OutboundFailed, OutboundRefused, SettingsError
from relevo.kernel.events import Recorded
from relevo.kernel.postgres import catalog
from relevo.webhooks.core import envelopes, retry, signing
from relevo.webhooks.core.envelopes import EventFormat
from relevo.webhooks.core.retry import AttemptOutcome
from relevo.webhooks.model import WebhookState
from relevo.webhooks.service import secret_owner

if TYPE_CHECKING:
    import asyncpg

    from relevo.kernel.outbound.client import Client, OutboundAnswer
    from relevo.kernel.postgres import Database
    from relevo.kernel.sealing import Vault

SQL = catalog.load(__package__)


class Endpoint(Struct, frozen=True, kw_only=True):
    """A webhook as its sender sees it."""

    id: UUID
    name: str
    url: str
    format: EventFormat
    state: WebhookState
    revision: int
    retry: tuple[float, ...]
    failures: int
    validation_code: UUID | None
    validation_until: datetime | None
    log: str
    """The incarnation of the event log."""
    now: datetime
    """The database's time when this was read."""
    secrets: tuple[bytes, ...]


async def read_endpoint(database: Database, vault: Vault, webhook_id: UUID) -> Endpoint | None:
    """Return a webhook with its opened secrets; None if it is gone.

    Raises `SettingsError` if a secret was sealed by another master key than this host's.
    """
    row = await database.fetchrow(SQL.webhook_to_send, webhook_id)
    if row is None:
        return None
    sealed = await database.fetch(SQL.signing_secrets, webhook_id)
    key = await vault.key()
    try:
        opened = tuple(key.open(one["sealed"], secret_owner(webhook_id)) for one in sealed)
    except ValueError:
        raise SettingsError(
            f"the secret of the webhook {row['name']!r} was sealed with another master key than"
            " this host has; set RELEVO_SECRET_KEY to that of the other hosts, or rotate the secret"
            " with an overlap of 0"
        ) from None
    plain = {name: row[name] for name in Endpoint.__struct_fields__ if name != "secrets"}
    return Endpoint(**{**plain, "retry": tuple(row["retry"])}, secrets=opened)


def recorded_of(row: asyncpg.Record, log: str) -> Recorded:
    """Return the event of a delivery."""
    names = ("stripe", "lsn", "at", "type", "schema", "subject", "version")
    body = msgspec.Raw(row["data"].encode())
    return Recorded(log=log, body=body, **{name: row[name] for name in names})


async def deliver(client: Client, endpoint: Endpoint, row: asyncpg.Record) -> AttemptOutcome:
    """Send an event once; every failure is an outcome."""
    event = recorded_of(row, row["event_id"].partition(":")[0])
    body = envelopes.body(event, endpoint.format)
    headers = envelopes.headers(endpoint.format, endpoint.name, row["attempts"] + 1, event.schema)
    answer = await _post(client, endpoint, row["event_id"], body, headers)
    if isinstance(answer, AttemptOutcome):
        return answer
    return retry.judged(answer.status, answer.headers, datetime.now(UTC))


async def validate(
    client: Client, endpoint: Endpoint, public_host: str | None
) -> tuple[bool, str | None]:
    """Ask an endpoint in Event Grid's form whether it wants events; returns a reason if not."""
    code = endpoint.validation_code
    assert code is not None
    url = None
    if public_host is not None:
        name = quote(endpoint.name, safe="")
        url = f"https://{public_host}/v1/webhooks/{name}:validate?code={code}"
    body = envelopes.validation(code, url, endpoint.log, endpoint.now)
    headers = envelopes.validation_headers(endpoint.name)
    answer = await _post(client, endpoint, str(code), body, headers)
    if isinstance(answer, AttemptOutcome):
        return False, answer.error
    if not 200 <= answer.status < 300:
        return False, f"answered the validation event with status {answer.status}"
    if not envelopes.confirms(answer.body, code):
        return False, "answered the validation event without its code as validationResponse"
    return True, None


async def _post(
    client: Client, endpoint: Endpoint, message_id: str, body: bytes, headers: dict[str, str]
) -> OutboundAnswer | AttemptOutcome:
    seconds = int(datetime.now(UTC).timestamp())
    signed = signing.headers(endpoint.secrets, message_id, seconds, body)
    try:
        return await client.post(endpoint.url, body, {**headers, **signed}, secret=True)
    except (OutboundFailed, OutboundRefused) as error:
        return AttemptOutcome(verdict="failed", error=error.message)
