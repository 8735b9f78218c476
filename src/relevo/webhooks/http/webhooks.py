"""`/v1/webhooks`: where events are sent, and which."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from relevo import limits
from relevo.errors import Conflict, InvalidExpression, NotFound
from relevo.http import paging
from relevo.http.paging import Cursor, Limit, Page
from relevo.kernel.operation import PUBLIC, Operations
from relevo.kernel.pages import first
from relevo.webhooks.core.envelopes import EventFormat
from relevo.webhooks.core.retry import WAITS
from relevo.webhooks.model import SecretRotated, Webhook, WebhookCreated

if TYPE_CHECKING:
    from relevo.http.access.authenticator import Principal
    from relevo.http.services import Services

SCOPE = "webhook:{name}"
operation = Operations(scope=SCOPE, errors=(NotFound,))

WebhookName = Annotated[
    str, Meta(max_length=limits.WEBHOOK_NAME_LENGTH_MAX, description="The webhook's name.")
]
Url = Annotated[
    str,
    Meta(
        max_length=limits.URL_BYTES_MAX,
        description="Where events are sent by POST. By https, and to addresses of the internet;"
        " the setting `outbound_allow` opens others.",
    ),
]
EventTypes = Annotated[
    tuple[str, ...],
    Meta(
        min_length=1,
        max_length=limits.WEBHOOK_TYPES_MAX,
        description="The types of events, such as `relevo.job.completed` or `relevo.job.*`; `*` is"
        " all. Azure's names of router events count, too.",
    ),
]
Condition = Annotated[
    str,
    Meta(
        max_length=limits.FILTER_LENGTH_MAX,
        description="A condition that events must meet, such as `data.lane = 'post'`.",
    ),
]
Form = Annotated[
    EventFormat, Meta(description="`cloudevents` is CloudEvents 1.0, `eventgrid` Event Grid's.")
]
Retry = Annotated[
    tuple[float, ...],
    Meta(
        max_length=limits.WEBHOOK_ATTEMPTS_MAX - 1,
        description="Seconds between the attempts for one event.",
    ),
]
Secret = Annotated[
    str,
    Meta(
        max_length=200,
        description="`whsec_` and base64 of 24 to 64 bytes. Without it, a new one is made.",
    ),
]


class ByWebhook(Struct, frozen=True, kw_only=True):
    """Which webhook."""

    name: WebhookName


class ListWebhooks(Struct, frozen=True, kw_only=True):
    """Which page of webhooks."""

    cursor: Cursor | None = None
    limit: Limit = limits.PAGE_ROWS_DEFAULT


@operation("webhooks.list", "GET /v1/webhooks", "webhooks:read", scope=None, errors=())
async def list_webhooks(services: Services, _: Principal, command: ListWebhooks) -> Page[Webhook]:
    """List webhooks by name."""
    after = paging.decode(command.cursor, str) or ""
    found = await services.app.webhooks.list(after, command.limit + 1)
    return paging.page(services.page_bytes, first(found, command.limit), lambda one: one.name)


@operation("webhooks.get", "GET /v1/webhooks/{name}", "webhooks:read")
async def get_webhook(services: Services, _: Principal, command: ByWebhook) -> Webhook:
    """Show a webhook: its state, its failures, and how many events wait for it."""
    return await services.app.webhooks.get(command.name)


class CreateWebhook(ByWebhook, frozen=True, kw_only=True):
    """The properties of a new webhook."""

    to: Url = msgspec.field(name="url")  # `--url` of the CLI is the host that is called
    types: EventTypes = ("*",)
    filter: Condition | None = None
    format: Form = "cloudevents"
    retry: Retry = WAITS
    secret: Secret | None = None
    since: (
        Annotated[
            datetime,
            Meta(tz=True, description="Send events from this instant on; by default from now on."),
        ]
        | None
    ) = None


@operation(
    "webhooks.create",
    "POST /v1/webhooks",
    "webhooks:manage",
    errors=(Conflict, InvalidExpression),
    status=201,
)
async def create_webhook(
    services: Services, _: Principal, command: CreateWebhook
) -> WebhookCreated:
    """Make a webhook; its secret is shown this once."""
    given = msgspec.structs.asdict(command)
    return await services.app.webhooks.create(given.pop("name"), given.pop("to"), **given)


class UpdateWebhook(ByWebhook, frozen=True, kw_only=True):
    """What changes; what is left out stays."""

    to: Url | UnsetType = msgspec.field(default=UNSET, name="url")
    types: EventTypes | UnsetType = UNSET
    filter: Condition | UnsetType | None = UNSET
    format: Form | UnsetType = UNSET
    retry: Retry | UnsetType = UNSET


@operation(
    "webhooks.update",
    "PATCH /v1/webhooks/{name}",
    "webhooks:manage",
    errors=(NotFound, InvalidExpression),
)
async def update_webhook(services: Services, _: Principal, command: UpdateWebhook) -> Webhook:
    """Change a webhook; what waits is sent to the new address."""
    given = {k: v for k, v in msgspec.structs.asdict(command).items() if v is not UNSET}
    if "to" in given:
        given["url"] = given.pop("to")
    return await services.app.webhooks.update(given.pop("name"), **given)


@operation("webhooks.delete", "DELETE /v1/webhooks/{name}", "webhooks:manage")
async def delete_webhook(services: Services, _: Principal, command: ByWebhook) -> None:
    """Remove a webhook with all that waits for it."""
    await services.app.webhooks.delete(command.name)


class PauseWebhook(ByWebhook, frozen=True, kw_only=True):
    """Which webhook is paused, and why."""

    reason: (
        Annotated[
            str, Meta(max_length=limits.WEBHOOK_REASON_LENGTH_MAX, description="Why, for people.")
        ]
        | None
    ) = None


@operation(
    "webhooks.pause",
    "POST /v1/webhooks/{name}:pause",
    "webhooks:manage",
    errors=(NotFound, Conflict),
)
async def pause_webhook(services: Services, _: Principal, command: PauseWebhook) -> Webhook:
    """Hold deliveries back; events go on being collected."""
    return await services.app.webhooks.pause(command.name, command.reason)


@operation("webhooks.resume", "POST /v1/webhooks/{name}:resume", "webhooks:manage")
async def resume_webhook(services: Services, _: Principal, command: ByWebhook) -> Webhook:
    """Let a paused or disabled webhook go on."""
    return await services.app.webhooks.resume(command.name)


class RotateSecret(ByWebhook, frozen=True, kw_only=True):
    """The new secret of a webhook, and for how long the old ones still sign."""

    secret: Secret | None = None
    overlap_seconds: Annotated[
        float,
        Meta(
            ge=0,
            le=limits.WEBHOOK_OVERLAP_SECONDS_MAX,
            description="How long the secrets before sign beside the new one.",
        ),
    ] = limits.WEBHOOK_OVERLAP_SECONDS_DEFAULT


@operation(
    "webhooks.rotate",
    "POST /v1/webhooks/{name}:rotate",
    "webhooks:manage",
    errors=(NotFound, Conflict),
)
async def rotate_secret(services: Services, _: Principal, command: RotateSecret) -> SecretRotated:
    """Replace the secret of a webhook; the new one is shown this once."""
    return await services.app.webhooks.rotate(
        command.name, secret=command.secret, overlap=command.overlap_seconds
    )


class ConfirmWebhook(ByWebhook, frozen=True, kw_only=True):
    """The code of a validation event."""

    code: Annotated[UUID, Meta(description="The code that was sent to the webhook's address.")]


class Confirmed(Struct, frozen=True):
    """What whoever opens the address of a validation event sees."""

    webhook: str
    confirmed: bool = True


@operation("webhooks.validate", "GET /v1/webhooks/{name}:validate", PUBLIC)
async def validate_webhook(services: Services, _: Principal, command: ConfirmWebhook) -> Confirmed:
    """Confirm a webhook in Event Grid's form, by the code in its validation event."""
    await services.app.webhooks.validate(command.name, command.code)
    return Confirmed(command.name)
