"""`/v1/queues`, `/v1/topics` and their subscriptions: made, changed, listed and dropped.

The three kinds have the same five operations; `KINDS` of the properties says which kind has which.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from relevo import limits
from relevo.errors import ConditionNotMet, Conflict, EntityExists, InvalidExpression, NotFound
from relevo.http import paging
from relevo.http.etags import IfMatch, etag_of, version_of
from relevo.http.paging import Cursor, Limit, Page
from relevo.kernel.operation import Operations, OtherStatus, Versioned
from relevo.kernel.pages import Fetched
from relevo.messaging.core.entities import KINDS, EntityProperties
from relevo.messaging.http.places import QUEUE, SUBSCRIPTION, TOPIC, Addressed, request_at
from relevo.messaging.http.rules import RuleBody, rule_of
from relevo.messaging.operating.describing import MessageCounts, described

if TYPE_CHECKING:
    from collections.abc import Callable

    from relevo.http.access.authenticator import Principal
    from relevo.http.services import Services
    from relevo.kernel.operation import Handler
    from relevo.messaging.core.names import Path
    from relevo.messaging.entities import EntityRecord
    from relevo.messaging.model import EntityKind

operation = Operations()

PLACES: Final = (
    msgspec.structs.replace(QUEUE, noun="queues"),
    msgspec.structs.replace(TOPIC, noun="topics"),
    msgspec.structs.replace(SUBSCRIPTION, noun="subscriptions"),
)
DEFAULTS: Final = msgspec.structs.asdict(EntityProperties())
_HEADERS: Final = {"if_match": "If-Match"}
_ERRORS: Final = (NotFound, Conflict, ConditionNotMet, InvalidExpression)


def _properties(kind: EntityKind) -> list[msgspec.structs.FieldInfo]:
    return [one for one in msgspec.structs.fields(EntityProperties) if kind in KINDS[one.name]]


def _request(kind: EntityKind, name: str, doc: str, *more: Any) -> type[Struct]:
    """Return a command with the properties of a kind; what is not given stays unset."""
    fields = [(one.name, one.type | UnsetType, UNSET) for one in _properties(kind)]
    named = f"{name}{kind.capitalize()}"
    return msgspec.defstruct(
        named, [*fields, *more], frozen=True, kw_only=True, namespace={"__doc__": doc}
    )


def _view(kind: EntityKind) -> type[Struct]:
    fields = [(one.name, one.type) for one in _properties(kind)]
    common = [("name", str), *([("topic", str)] if kind == "subscription" else [])]
    return msgspec.defstruct(
        f"{kind.capitalize()}View",
        [
            *common, ("version", int), ("created_at", datetime), ("updated_at", datetime), *fields,
            ("messages", MessageCounts | UnsetType, UNSET),
            ("messages_by_class", dict[str, MessageCounts] | UnsetType, UNSET),
        ],
        frozen=True, kw_only=True, namespace={"__doc__": f"A {kind}, its properties and figures."},
    )  # fmt: skip


VIEWS: Final = {place.by.kind: _view(place.by.kind) for place in PLACES}
_IF_NONE = Annotated[
    str, Meta(pattern=r"^\*$", description="`*`: only if there is none of that name.")
]
_RULES = Annotated[
    dict[str, RuleBody],
    Meta(description="The rules of a new subscription, by name. Without it, all messages match."),
]
_MATCH: Final = ("if_match", IfMatch | None, None)
_PUT: Final = {
    kind: _request(
        kind, "Put", f"The properties of a {kind}; those that are left out have their defaults.",
        _MATCH, ("if_none_match", _IF_NONE | None, None),
        *([("rules", _RULES | UnsetType, UNSET)] if kind == "subscription" else []),
    )
    for kind in VIEWS
}  # fmt: skip
_PATCH: Final = {
    kind: _request(kind, "Patch", f"The properties of a {kind} that change.", _MATCH)
    for kind in VIEWS
}


def _each(
    verb: str, route: str, permission: str, summary: str, commands: dict[Any, Any], **options: Any
) -> Callable[[Handler], Handler]:
    """Declare a handler for all three kinds; `{}` is the route, and what the kind is called."""

    def declare(handler: Handler) -> Handler:
        for place in PLACES:
            kind = place.by.kind
            operation(
                f"{place.noun}.{verb}", route.replace("{}", place.route), permission,
                summary=summary.replace("{}", place.called),
                request=request_at(place, commands.get(kind, _Nothing)), scope=place.scope,
                **{"response": VIEWS[kind], **options},
            )(handler)  # fmt: skip
        return handler

    return declare


class _Nothing(Struct, frozen=True):
    """Nothing beside the path."""


def view(record: EntityRecord, **figures: Any) -> Any:
    """Return an entity as the API shows it."""
    fields = {one.name: getattr(record.properties, one.name) for one in _properties(record.kind)}
    if record.kind == "subscription":
        fields["topic"] = record.path.rpartition("/subscriptions/")[0]
    return VIEWS[record.kind](
        name=record.name, version=record.version, created_at=record.created_at,
        updated_at=record.updated_at, **fields, **figures,
    )  # fmt: skip


def _versioned(record: EntityRecord, *, created: bool = False, **figures: Any) -> Versioned[Any]:
    return Versioned(
        body=view(record, **figures), etag=etag_of(record.version), modified_at=record.updated_at,
        created=created,
    )  # fmt: skip


async def record_of(services: Services, command: Addressed) -> EntityRecord:
    """Return the entity that a command names; one of another kind is as if it was not there."""
    address = msgspec.structs.replace(command.address, sub_queue=None)
    record = await services.app.messaging.tools.entities.get(str(address))
    if record.kind != command.kind:
        raise NotFound(f"{record.path!r} is a {record.kind}; there is no {command.kind} there")
    return record


@_each(
    "create", "PUT {}", "queues:manage", "Create {}, or replace its properties.", _PUT,
    errors=(*_ERRORS, EntityExists), headers={**_HEADERS, "if_none_match": "If-None-Match"},
    fixed={"if_none_match": "*"},
    outcomes=(OtherStatus(201, lambda made: made.created, "It is new."),),
)  # fmt: skip
async def create(services: Services, _: Principal, command: Any) -> Versioned[Any]:
    """Create an entity, or replace its properties."""
    entities = services.app.messaging.tools.entities
    given = _given(command)
    rules = None if getattr(command, "rules", UNSET) is UNSET else command.rules
    stored = {name: rule_of(one, f"/rules/{name}") for name, one in (rules or {}).items()}
    path = str(command.address)
    if command.if_match is None:
        try:
            record = await entities.create(path, command.kind, given, rules=stored or None)
            return _versioned(record, created=True)
        except EntityExists:
            if command.if_none_match is not None:
                raise
    if rules is not None:
        raise Conflict(f"{path!r} exists; change its rules one by one, below {path}/rules")
    await record_of(services, command)
    defaults = {one.name: DEFAULTS[one.name] for one in _properties(command.kind)}
    record = await entities.update(
        path, {**defaults, **given}, version=version_of(command.if_match)
    )
    return _changed(services, record)


@_each(
    "update", "PATCH {}", "queues:manage", "Change properties of {}.", _PATCH, errors=_ERRORS,
    headers=_HEADERS,
)  # fmt: skip
async def update(services: Services, _: Principal, command: Any) -> Versioned[Any]:
    """Change properties; those that are left out stay as they are."""
    await record_of(services, command)
    record = await services.app.messaging.tools.entities.update(
        str(command.address), _given(command), version=version_of(command.if_match)
    )
    return _changed(services, record)


def _changed(services: Services, record: EntityRecord) -> Versioned[Any]:
    services.app.messaging.tools.definitions.forget(record.path)
    return _versioned(record)


def _given(command: Any) -> dict[str, Any]:
    fields = {one.name: getattr(command, one.name) for one in _properties(command.kind)}
    return {name: value for name, value in fields.items() if value is not UNSET}


@_each("get", "GET {}", "queues:read", "Show {} and what is in it.", {}, errors=(NotFound,))
async def get(services: Services, _: Principal, command: Any) -> Versioned[Any]:
    """Show an entity, its properties and what is in it."""
    record = await record_of(services, command)
    found = await described(services.app.database, record)
    return _versioned(record, messages=found.messages, messages_by_class=found.classes)


@_each(
    "drop", "DELETE {}", "queues:manage", "Remove {} and its messages.", {}, errors=(NotFound,),
    response=None,
)  # fmt: skip
async def drop(services: Services, _: Principal, command: Any) -> None:
    """Remove an entity and its messages."""
    await record_of(services, command)
    tools = services.app.messaging.tools
    await tools.entities.drop(str(command.address))
    tools.definitions.forget(str(command.address))


def _pages(kind: EntityKind) -> Any:
    pages: Any = Page
    return pages[VIEWS[kind]]


class ListEntities(Struct, frozen=True, kw_only=True):
    """Which page."""

    cursor: Cursor | None = None
    limit: Limit = limits.PAGE_ROWS_DEFAULT


async def _page(
    services: Services, kind: EntityKind, command: ListEntities, topic: Path | None = None
) -> Page[Any]:
    after = paging.decode(command.cursor, str) or ""
    entities = services.app.messaging.tools.entities
    of = None if topic is None else str(topic)
    found = await entities.list(kind, topic=of, after=after, limit=command.limit)
    more = bool(found) and bool(await entities.list(kind, topic=of, after=found[-1].path, limit=1))
    return paging.page(
        services.page_bytes, Fetched(found, more), lambda one: one.path.lower(), show=view
    )


@operation(
    "queues.list",
    "GET /v1/queues",
    "queues:read",
    response=_pages("queue"),
)
async def list_queues(services: Services, _: Principal, command: ListEntities) -> Page[Any]:
    """List queues."""
    return await _page(services, "queue", command)


@operation(
    "topics.list",
    "GET /v1/topics",
    "queues:read",
    response=_pages("topic"),
)
async def list_topics(services: Services, _: Principal, command: ListEntities) -> Page[Any]:
    """List topics."""
    return await _page(services, "topic", command)


@operation(
    "subscriptions.list", f"GET {TOPIC.route}/subscriptions", "queues:read",
    request=request_at(TOPIC, ListEntities), response=_pages("subscription"),
    scope=TOPIC.scope, errors=(NotFound,),
)  # fmt: skip
async def list_subscriptions(services: Services, _: Principal, command: Any) -> Page[Any]:
    """List the subscriptions of a topic."""
    await record_of(services, command)
    return await _page(services, "subscription", command, command.address)
