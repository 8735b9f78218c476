"""Actors and governance: types on hosts, dead letters, quarantine, pools, limits, resolvers."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote

from relevo.dashboard.charts import ChartOf
from relevo.dashboard.lists import Column, Form, Input, Section, list_page
from relevo.dashboard.page import Action

_FIGURES: Final = "actors.figures"


def _page_of(actor: Any) -> str:
    """Return the page of an actor by its canonical id: its type, a slash, and its key."""
    kind, _, key = actor.id.partition("/")
    return f"/actors/{quote(kind, safe='')}/{quote(key, safe='')}"


ACTORS: Final = (
    Section(
        name="actor_work", operation=_FIGURES, paged=False, rows=lambda found: found.stored,
        columns=(
            Column("type", link="/actors/{type}"), Column("reminders", "number"),
            Column("messages", "number"), Column("failing", "number"), Column("dead", "number"),
            Column("late_seconds", "seconds"),
        ),
    ),
    Section(
        name="actor_types", operation=_FIGURES, paged=False, rows=lambda found: found.here,
        columns=(
            Column("type", link="/actors/{type}"), Column("activations", "number"),
            Column("turns", "number"), Column("waiting", "number"), Column("deferred", "number"),
        ),
    ),
    Section(
        name="actor_slots", operation=_FIGURES, paged=False, rows=lambda found: found.slots,
        matrix=("placement_group", "host", "slots"),
        columns=(
            Column("placement_group"), Column("host"), Column("slots", "number"),
            Column("moving", "number"),
        ),
    ),
    Section(
        name="actor_letters", operation="actors.letters.list", thing=("id",),
        columns=(
            Column("actor"), Column("kind"), Column("method"), Column("error", "says"),
            Column("attempt", "number"), Column("dead_at", "time"),
        ),
        actions=("actors.letters.redrive", "actors.letters.discard"),
    ),
    Section(
        name="actor_quarantine", operation="actors.quarantine.list", key=("id",),
        columns=(
            Column("id", link=_page_of), Column("schema", "number"),
            Column("quarantine_error", "says"), Column("quarantined_at", "time"),
            Column("bytes", "number"),
        ),
    ),
)  # fmt: skip
OF_TYPE: Final = Section(
    name="actors", operation="actors.list", given={"type": "{type}"},
    key=("id",),
    columns=(
        Column("id", link=_page_of), Column("host"), Column("revision", "number"),
        Column("updated_at", "time"), Column("quarantined_at", "time"),
    ),
)  # fmt: skip
_ONE: Final = {"type": "{type}", "key": "{key}"}
ACTOR: Final = (
    Section(
        name="actor", operation="actors.get", facts=True, given=_ONE,
        columns=(
            Column("id"), Column("host"), Column("placement_group"), Column("slot", "number"),
            Column("epoch", "number"), Column("revision", "number"), Column("schema", "number"),
            Column("bytes", "number"), Column("updated_at", "time"),
            Column("quarantined_at", "time"),
        ),
    ),
    Section(
        name="activation", operation="actors.activation", facts=True, given=_ONE,
        columns=(
            Column("host"), Column("state", "status"), Column("turns", "number"),
            Column("waiting", "number"), Column("deferred", "number"),
            Column("idle_seconds", "seconds"),
        ),
    ),
    Section(
        name="actor_reminders", operation="actors.reminders.list", given=_ONE, key=("name",),
        columns=(
            Column("name"), Column("method"), Column("due", "time"), Column("every", "seconds"),
            Column("recurrence"), Column("attempt", "number"), Column("error", "says"),
        ),
    ),
    Section(
        name="actor_errors", operation="actors.errors", given=_ONE, paged=False,
        columns=(
            Column("kind"), Column("name"), Column("error", "says"), Column("attempt", "number"),
            Column("at", "time"), Column("dead", "flag"),
        ),
    ),
)  # fmt: skip
_OF_ONE: Final = ("type", "key")
ACTOR_FORMS: Final = (
    Form("actors.deactivate", _OF_ONE),
    Form("actors.move", _OF_ONE, (Input("to"),)),
    Form("actors.quarantine.retry", _OF_ONE),
    Form("actors.quarantine.reset", _OF_ONE),
    Form("actors.delete", _OF_ONE),
)
_RESOLVER_FORMS: Final = (
    Form(
        "resolvers.move", ("name",),
        (
            Input("to"), Input("partition", required=False), Input("entity", required=False),
            Input("resource", required=False),
        ),
    ),
    Form(
        "resolvers.drain", ("name",),
        (Input("resource"), Input("json.draining", "choice", False, ("true", "false"))),
    ),
    Form(
        "resolvers.split", ("name",),
        (Input("partition"), Input("into"), Input("at", required=False)),
    ),
    Form("resolvers.merge", ("name",), (Input("partition"), Input("into"))),
)  # fmt: skip
POOLS: Final = Section(
    name="pools", operation="pools.list",
    columns=(
        Column("name", link="/governance/pools/{name}"), Column("size", "number"),
        Column("in_use", "number"), Column("waiting", "number"),
    ),
    empty="relevo pool create payments --size 8",
)  # fmt: skip
LIMITS: Final = Section(
    name="limits", operation="limits.list",
    columns=(
        Column("name"), Column("rates", "json"), Column("burst", "number"),
        Column("keys", "number"), Column("waiting", "number"),
    ),
    empty="relevo limit create partner-api '[{\"amount\": 10, \"per\": 1}]'",
)  # fmt: skip
RESOLVERS: Final = Section(
    name="resolvers", operation="resolvers.list",
    columns=(
        Column("name", link="/governance/resolvers/{name}"), Column("assign"),
        Column("entities", "number"), Column("partitions", "number"),
        Column("resources", "number"), Column("moving", "number"),
    ),
    empty="relevo resolver create tenants",
)  # fmt: skip
_NAMED: Final = {"name": "{name}"}
POOL: Final = (
    Section(
        name="pool", operation="pools.get", facts=True, given=_NAMED,
        columns=(
            Column("size", "number"), Column("in_use", "number"), Column("waiting", "number"),
            Column("per_key", "number"), Column("burst", "flag"), Column("max_waiters", "number"),
            Column("items"), Column("waiters", "json"),
        ),
    ),
    Section(
        name="permits", operation="pools.permits", given=_NAMED,
        columns=(
            Column("number", "number"), Column("key"), Column("weight", "number"), Column("item"),
            Column("host"), Column("expires_at", "time"),
        ),
    ),
)  # fmt: skip
RESOLVER: Final = (
    Section(
        name="resolver", operation="resolvers.get", facts=True, given=_NAMED,
        columns=(
            Column("assign"), Column("entities", "number"), Column("partitions", "number"),
            Column("resources", "number"), Column("max_stale", "seconds"), Column("moves", "json"),
        ),
    ),
    Section(
        name="resources", operation="resolvers.resources", given=_NAMED,
        columns=(
            Column("name"), Column("capacity", "number"), Column("partitions", "number"),
            Column("draining", "flag"), Column("generation", "number"),
        ),
    ),
    Section(
        name="partitions", operation="resolvers.partitions", given=_NAMED,
        columns=(
            Column("name"), Column("resource"), Column("generation", "number"), Column("low"),
        ),
    ),
)  # fmt: skip

PAGES: Final = (
    list_page(
        "actors", "/actors", *ACTORS, group="work",
        charts=(ChartOf("actors", ("actors.messages", "actors.dead")),),
    ),
    list_page("actor_type", "/actors/{type}", OF_TYPE, under="actors"),
    list_page("actor", "/actors/{type}/{key}", *ACTOR, under="actors", forms=ACTOR_FORMS),
    list_page("governance", "/governance", POOLS, LIMITS, RESOLVERS, group="work"),
    list_page(
        "pool", "/governance/pools/{name}", *POOL, under="governance",
        forms=(Form("pools.resize", ("name",), (Input("size", "number"),)),),
    ),
    list_page(
        "resolver", "/governance/resolvers/{name}", *RESOLVER, under="governance",
        forms=_RESOLVER_FORMS,
    ),
)  # fmt: skip
ACTIONS: Final = (
    Action(operation="actors.letters.redrive"),
    Action(operation="actors.letters.discard", confirm=True, danger=True),
    Action(operation="actors.deactivate", key="type/key"),
    Action(operation="actors.move", key="type/key"),
    Action(operation="actors.quarantine.retry", key="type/key"),
    Action(operation="actors.quarantine.reset", key="type/key", confirm=True, danger=True),
    Action(operation="actors.delete", key="type/key", confirm=True, danger=True),
    Action(operation="pools.resize", key="name"),
    Action(operation="resolvers.move", key="name", confirm=True),
    Action(operation="resolvers.drain", key="name"),
    Action(operation="resolvers.split", key="name", confirm=True),
    Action(operation="resolvers.merge", key="name", confirm=True),
)
