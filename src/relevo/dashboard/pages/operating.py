"""Hosts, leases, webhooks, access keys, the audit and settings."""

from __future__ import annotations

from typing import Any, Final

from relevo.dashboard.lists import Column, Form, Input, Section, list_page
from relevo.dashboard.page import Action
from relevo.http.access.roles import ROLES

HOSTS: Final = Section(
    name="hosts", operation="hosts.list", thing=("name",), key=("name", "started_at"),
    acts_on="live",
    columns=(
        Column("name"), Column("live", "flag"), Column("draining", "flag"),
        Column("leases", "number"), Column("version"), Column("address"), Column("labels", "json"),
        Column("started_at", "time"), Column("ended_at", "time"), Column("end_reason"),
    ),
    actions=("hosts.drain", "hosts.resume"), empty="relevo up",
)  # fmt: skip
LEASES: Final = Section(
    name="leases", operation="leases.list", thing=("kind", "unit", "name"),
    given={"kind": "?kind", "unit": "?unit"},
    columns=(
        Column("kind", link="/leases?kind={kind}"), Column("unit", link="/leases?unit={unit}"),
        Column("name", link="/leases/{kind}/{unit}/{name}"), Column("owner"),
        Column("epoch", "number"), Column("state", "status"), Column("handoff_to"),
        Column("moved_at", "time"), Column("clean", "flag"),
    ),
    actions=("leases.pause", "leases.resume"),
)  # fmt: skip
LEASE: Final = (
    Section(
        name="lease", operation="leases.list", given={"kind": "{kind}", "unit": "{unit}"},
        key=("name",),
        columns=(
            Column("name", link="/leases/{kind}/{unit}/{name}"), Column("owner"),
            Column("epoch", "number"), Column("state", "status"), Column("handoff_to"),
            Column("handoff_until", "time"), Column("moved_at", "time"), Column("clean", "flag"),
        ),
    ),
    Section(
        name="hosts", operation="hosts.list", key=("name", "started_at"),
        columns=(
            Column("name"), Column("live", "flag"), Column("draining", "flag"),
            Column("leases", "number"),
        ),
    ),
)  # fmt: skip
KEYS: Final = Section(
    name="keys", operation="keys.list", thing=("id",),
    columns=(
        Column("id"), Column("name"), Column("kind"), Column("roles"), Column("scopes"),
        Column("state", "status"), Column("created_at", "time"), Column("expires_at", "time"),
        Column("last_used_at", "time"),
    ),
    actions=("keys.revoke",), empty="relevo key create --name ci --role viewer",
)  # fmt: skip
WEBHOOKS: Final = Section(
    name="webhooks", operation="webhooks.list", thing=("name",),
    columns=(
        Column("name", link="/webhooks/{name}"), Column("url"), Column("state", "status"),
        Column("reason"), Column("waiting", "number"), Column("dead", "number"),
        Column("failures", "number"), Column("failing_since", "time"),
        Column("last_attempt_at", "time"),
    ),
    actions=("webhooks.pause", "webhooks.resume"),
    empty="relevo webhook create --name shop --to https://example.com/events",
)  # fmt: skip
WEBHOOK: Final = (
    Section(
        name="webhook", operation="webhooks.get", facts=True, given={"name": "{name}"},
        columns=(
            Column("url"), Column("state", "status"), Column("reason"), Column("format"),
            Column("types"), Column("filter"), Column("waiting", "number"),
            Column("dead", "number"), Column("failures", "number"),
            Column("failing_since", "time"), Column("last_attempt_at", "time"),
            Column("created_at", "time"),
        ),
        thing=("name",), actions=("webhooks.pause", "webhooks.resume"),
    ),
    Section(
        name="deliveries", operation="webhooks.deliveries.list", given={"name": "{name}"},
        thing=("{name}", "id"),
        actions=("webhooks.deliveries.replay", "webhooks.deliveries.discard"),
        columns=(
            Column("id", "number"), Column("type"), Column("subject"), Column("attempts", "number"),
            Column("status"), Column("error", "says"), Column("at", "time"),
            Column("last_attempt_at", "time"),
        ),
    ),
)  # fmt: skip
AUDIT: Final = Section(
    name="audit", operation="audit.list",
    given={"by": "?by", "operation": "?operation", "resource": "?resource"},
    columns=(
        Column("at", "time"), Column("by_name", link="/audit?by={by_id}"),
        Column("operation", link="/audit?operation={operation}"), Column("resource"),
        Column("reason", "says"), Column("outcome"),
    ),
)  # fmt: skip
SETTINGS: Final = Section(
    name="settings", operation="settings.read", paged=False, key=("name",),
    columns=(
        Column("name"), Column("value", "json"), Column("origin"), Column("default", "json"),
    ),
    rows=lambda answer: [_setting(each) for each in answer.items],
)  # fmt: skip


def _setting(setting: Any) -> dict[str, Any]:
    covered = "…" if setting.secret and setting.origin != "default" else setting.value
    return {
        "name": setting.name, "value": covered, "origin": setting.origin,
        "default": setting.default,
    }  # fmt: skip


PAGES: Final = (
    list_page("hosts", "/hosts", HOSTS, group="operate"),
    list_page("leases", "/leases", LEASES, group="operate"),
    list_page(
        "lease", "/leases/{kind}/{unit}/{name}", *LEASE, under="leases",
        forms=(
            Form("leases.move", ("kind", "unit", "name"), (Input("to"),)),
            Form("leases.pause", ("kind", "unit", "name")),
            Form("leases.resume", ("kind", "unit", "name")),
        ),
    ),
    list_page(
        "webhooks", "/webhooks", WEBHOOKS, group="operate",
        forms=(
            Form(
                "webhooks.create", (),
                (
                    Input("name"), Input("url"), Input("list.types", required=False),
                    Input("filter", required=False),
                    Input("format", "choice", False, ("cloudevents", "eventgrid")),
                ),
            ),
        ),
    ),
    list_page(
        "webhook", "/webhooks/{name}", *WEBHOOK, under="webhooks",
        forms=(
            Form("webhooks.rotate", ("name",), (Input("overlap_seconds", "number", False),)),
            Form("webhooks.deliveries.replay_all", ("name",)),
            Form("webhooks.deliveries.discard_all", ("name",)),
            Form("webhooks.delete", ("name",)),
        ),
    ),
    list_page(
        "keys", "/keys", KEYS, group="operate",
        forms=(
            Form(
                "keys.create", (),
                (
                    Input("name"), Input("list.roles", "several", choices=tuple(ROLES)),
                    Input("kind", "choice", False, ("bearer", "signing")),
                    Input("list.scopes", required=False),
                    Input("in.expires_at", "duration", required=False),
                ),
            ),
        ),
    ),
    list_page("audit", "/audit", AUDIT, group="operate"),
    list_page("settings", "/settings", SETTINGS, group="operate"),
)  # fmt: skip
ACTIONS: Final = (
    Action(operation="hosts.drain", key="name", confirm=True),
    Action(operation="hosts.resume", key="name"),
    Action(operation="leases.pause", key="kind/unit/name", confirm=True),
    Action(operation="leases.resume", key="kind/unit/name"),
    Action(operation="webhooks.pause", key="name"),
    Action(operation="webhooks.resume", key="name"),
    Action(operation="leases.move", key="kind/unit/name"),
    Action(operation="webhooks.create", key="", secret=True),
    Action(operation="webhooks.rotate", key="name", secret=True),
    Action(operation="webhooks.delete", key="name", confirm=True, danger=True, then="/webhooks"),
    Action(operation="webhooks.deliveries.replay", key="name/id"),
    Action(operation="webhooks.deliveries.discard", key="name/id", confirm=True, danger=True),
    Action(operation="keys.create", key="", secret=True),
    Action(operation="webhooks.deliveries.replay_all", key="name"),
    Action(operation="webhooks.deliveries.discard_all", key="name", confirm=True, danger=True),
    Action(operation="keys.revoke", confirm=True, danger=True),
)
