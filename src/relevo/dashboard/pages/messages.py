"""Queues, topics and subscriptions: classes with waits and targets, peeks, dead letters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from relevo.dashboard.charts import ChartOf
from relevo.dashboard.lists import Column, Form, Input, Section, list_page
from relevo.dashboard.page import Action

if TYPE_CHECKING:
    from collections.abc import Sequence

COUNTS: Final = (
    Column("active", "number"), Column("oldest_age", "seconds"), Column("locked", "number"),
    Column("scheduled", "number"), Column("deferred", "number"), Column("dead_letter", "number"),
    Column("completed", "number"), Column("in_target_share", "share"),
)  # fmt: skip
_MESSAGE: Final = (
    Column("sequence_number", "number"), Column("message_id"), Column("state", "status"),
    Column("priority", "number"), Column("priority_class"), Column("delivery_count", "number"),
    Column("enqueued_at", "time"), Column("visible_at", "time"), Column("session_id"),
    Column("subject"),
)  # fmt: skip
_DEAD: Final = (
    Column("sequence_number", "number"), Column("message_id"), Column("dead_letter_reason"),
    Column("dead_letter_description", "says"), Column("delivery_count", "number"),
    Column("enqueued_at", "time"),
)  # fmt: skip
_ENTITY: Final = (
    Column("status", "status"), Column("messages.active", "number"),
    Column("messages.oldest_age", "seconds"), Column("messages.locked", "number"),
    Column("messages.scheduled", "number"), Column("messages.dead_letter", "number"),
    Column("ordering", "json"), Column("classes", "json"), Column("fair", "flag"),
    Column("lock_duration", "seconds"), Column("max_delivery_count", "number"),
    Column("default_message_ttl", "seconds"), Column("requires_session", "flag"),
    Column("forward_to"), Column("user_metadata"), Column("created_at", "time"),
)  # fmt: skip


def _page_of(entity: Any) -> str:
    name = entity.path if hasattr(entity, "path") else entity["path"]
    kind = entity.kind if hasattr(entity, "kind") else entity["kind"]
    if kind == "subscription":
        topic, _, subscription = _split(name)
        return f"/topics/{quote(topic, safe='')}/subscriptions/{quote(subscription, safe='')}"
    return f"/{kind}s/{quote(name, safe='')}"


def _split(path: str) -> tuple[str, str, str]:
    return path.rpartition("/subscriptions/")


def _by_class(answer: Any) -> Sequence[Any]:
    """Return a row for each class of each entity."""
    rows = []
    for entity in answer.items:
        for name, counts in entity.classes.items():
            judged = counts.in_target + counts.out_of_target
            shown = {column.field: getattr(counts, column.field, None) for column in COUNTS}
            rows.append(
                {
                    **shown,
                    "path": entity.path,
                    "kind": entity.kind,
                    "class": name,
                    "in_target_share": counts.in_target / judged if judged else None,
                }
            )
    return rows


FIGURES: Final = Section(
    name="entities", operation="messages.figures", rows=_by_class,
    columns=(Column("path", link=_page_of), Column("kind"), Column("class"), *COUNTS),
    empty="relevo queue create render && relevo queue send render 'hello' --priority 7",
)  # fmt: skip
CONSUMERS: Final = Section(
    name="consumers", operation="consumers.list",
    columns=(
        Column("name", link="/consumers/{name}"), Column("state", "status"), Column("reason"),
        Column("until", "time"), Column("sources"), Column("definition.concurrency", "number"),
        Column("hosts_serving"), Column("updated_at", "time"),
    ),
    rows=lambda answer: [_Consumers(each) for each in answer.items],
    thing=("name",), actions=("consumers.pause", "consumers.resume"),
)  # fmt: skip
_NAMED: Final = {"name": "{name}"}
CONSUMER: Final = (
    Section(
        name="consumer", operation="consumers.get", facts=True, given=_NAMED,
        columns=(
            Column("state", "status"), Column("reason", "says"), Column("until", "time"),
            Column("sources"), Column("definition.concurrency", "number"),
            Column("definition", "json"), Column("updated_at", "time"),
        ),
    ),
    Section(
        name="replicas", operation="consumers.get", given=_NAMED, paged=False, key=("host",),
        rows=lambda found: found.hosts,
        columns=(Column("host"), Column("slots", "number"), Column("held", "json")),
    ),
)  # fmt: skip


class _Consumers:
    """Consumers with the names of the hosts that serve them."""

    def __init__(self, view: Any) -> None:
        self._view = view
        self.hosts_serving = [host.host for host in view.hosts]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._view, name)


def _details(prefix: str, given: dict[str, str], entity: str) -> tuple[Section, ...]:
    """Return the sections of a queue or subscription."""
    return (
        Section(
            name="entity", operation=f"{entity}.get", facts=True, given=given, columns=_ENTITY,
        ),
        Section(
            name="served_next", operation=f"{prefix}messages.peek",
            given=given | {"order": "service"}, columns=_MESSAGE,
            key=("sequence_number",),
        ),
        Section(
            name="dead_letters", operation=f"{prefix}dead_letters.peek", given=given,
            columns=_DEAD, key=("sequence_number",),
        ),
        Section(
            name="sessions", operation=f"{prefix}sessions.list", given=given,
            columns=(
                Column("session_id"), Column("held", "flag"), Column("locked_until", "time"),
                Column("updated_at", "time"),
            ),
        ),
    )  # fmt: skip


def _forms(prefix: str, thing: tuple[str, ...]) -> tuple[Form, ...]:
    more = (Input("filter", required=False), Input("limit", "number", required=False))
    return (
        Form(f"{prefix}dead_letters.redrive", thing, more),
        Form(f"{prefix}dead_letters.purge", thing),
        Form(f"{prefix}messages.purge", thing),
    )


_QUEUE: Final = {"queue": "{queue}"}
_OF_TOPIC: Final = {"topic": "{topic}"}
_SUBSCRIPTION: Final = {"topic": "{topic}", "subscription": "{subscription}"}
_SUBSCRIPTIONS: Final = Section(
    name="subscriptions", operation="subscriptions.list", given=_OF_TOPIC,
    columns=(
        Column("name", link=lambda each: _page_of({"path": _path(each), "kind": "subscription"})),
        Column("status", "status"), Column("messages.active", "number"),
        Column("messages.dead_letter", "number"), Column("forward_to"),
    ),
    empty="relevo subscription create orders urgent",
)  # fmt: skip
_TOPIC: Final = Section(
    name="entity", operation="topics.get", facts=True, given=_OF_TOPIC,
    columns=(
        Column("status", "status"), Column("classes", "json"),
        Column("default_message_ttl", "seconds"), Column("user_metadata"),
        Column("created_at", "time"),
    ),
)  # fmt: skip
_RULES: Final = Section(
    name="rules", operation="rules.list", given=_SUBSCRIPTION,
    columns=(Column("name"), Column("filter", "json"), Column("action")),
)  # fmt: skip


def _path(subscription: Any) -> str:
    return f"{subscription.topic}/subscriptions/{subscription.name}"


PAGES: Final = (
    list_page(
        "queues", "/queues", FIGURES, CONSUMERS, group="work",
        charts=(
            ChartOf("messages", ("messages.sent", "messages.completed"), rates=True),
            ChartOf(
                "message_wait", ("messages.waited_seconds",), unit="s", per="messages.delivered"
            ),
        ),
    ),
    list_page(
        "queue", "/queues/{queue}", *_details("", _QUEUE, "queues"),
        forms=_forms("", ("queue",)), under="queues",
    ),
    list_page(
        "consumer", "/consumers/{name}", *CONSUMER, under="queues",
        forms=(
            Form(
                "consumers.pause", ("name",),
                (Input("reason", required=False), Input("in.until", "duration", required=False)),
            ),
            Form("consumers.resume", ("name",)),
        ),
    ),
    list_page("topic", "/topics/{topic}", _TOPIC, _SUBSCRIPTIONS, under="queues"),
    list_page(
        "subscription", "/topics/{topic}/subscriptions/{subscription}",
        *_details("subscriptions.", _SUBSCRIPTION, "subscriptions"), _RULES,
        forms=_forms("subscriptions.", ("topic", "subscription")), under="queues",
    ),
)  # fmt: skip
_PURGES: Final = ("messages.purge", "dead_letters.purge")
ACTIONS: Final = (
    Action(operation="consumers.pause", key="name"),
    Action(operation="consumers.resume", key="name"),
    Action(operation="dead_letters.redrive", key="queue"),
    Action(operation="subscriptions.dead_letters.redrive", key="topic/subscription"),
    *(Action(operation=name, key="queue", confirm=True, danger=True) for name in _PURGES),
    *(
        Action(
            operation=f"subscriptions.{name}", key="topic/subscription", confirm=True, danger=True
        )
        for name in _PURGES
    ),
)
