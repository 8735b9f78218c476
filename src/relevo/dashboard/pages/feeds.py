"""Containers and change feeds: lag in items and seconds, leases by host, dead letters."""

from __future__ import annotations

from typing import Final

from relevo.dashboard.charts import ChartOf
from relevo.dashboard.lists import Column, Form, Input, Section, list_page
from relevo.dashboard.page import Action

_FEED: Final = {"container": "{container}", "name": "{name}"}
FEEDS: Final = Section(
    name="feeds", operation="feeds.list",
    columns=(
        Column("name", link="/feeds/{container}/{name}"), Column("container"), Column("mode"),
        Column("leases", "number"), Column("estimated_lag", "number"),
        Column("lag_seconds", "seconds"), Column("leases_in"),
    ),
)  # fmt: skip
CONTAINERS: Final = Section(
    name="containers", operation="containers.list",
    columns=(
        Column("name"), Column("partition_key"), Column("ttl_seconds", "seconds"),
        Column("versions_seconds", "seconds"), Column("previous_images", "flag"),
        Column("created_at", "time"),
    ),
    empty="relevo container create --name orders --partition-key /city",
)  # fmt: skip
LEASES: Final = Section(
    name="feed_leases", operation="feeds.get", given=_FEED, key=("lease_token",),
    columns=(
        Column("lease_token", link="/leases/feed/leases%2F{container}%2F{name}/{lease_token}"),
        Column("owner"), Column("state", "status"),
        Column("estimated_lag", "number"), Column("lag_seconds", "seconds"),
        Column("position_ts", "time"), Column("attempts", "number"),
        Column("stalled_for", "seconds"), Column("properties", "json"),
    ),
)  # fmt: skip
LETTERS: Final = Section(
    name="feed_dead_letters", operation="letters.list", given=_FEED,
    columns=(
        Column("id", "number"), Column("item_id"), Column("partition_key"), Column("reason"),
        Column("error_type"), Column("attempts", "number"), Column("first_failed_at", "time"),
        Column("last_failed_at", "time"), Column("host"),
    ),
)  # fmt: skip

PAGES: Final = (
    list_page(
        "feeds", "/feeds", FEEDS, CONTAINERS, group="work",
        charts=(
            ChartOf("feed_lag", ("feeds.lag_seconds",), unit="s"),
            ChartOf("feeds_behind", ("feeds.behind",)),
        ),
    ),
    list_page(
        "feed", "/feeds/{container}/{name}", LEASES, LETTERS, under="feeds",
        forms=(
            Form("feeds.pause", ("container", "name")),
            Form("feeds.resume", ("container", "name")),
            Form("feeds.rewind", ("container", "name"), (Input("json.to"),)),
            Form("letters.redrive", ("container", "name"), (Input("id", "number"),)),
            Form("letters.discard", ("container", "name"), (Input("id", "number"),)),
        ),
    ),
)  # fmt: skip
ACTIONS: Final = (
    Action(operation="feeds.pause", key="container/name"),
    Action(operation="feeds.resume", key="container/name"),
    Action(operation="feeds.rewind", key="container/name", confirm=True, danger=True),
    Action(operation="letters.redrive", key="container/name"),
    Action(operation="letters.discard", key="container/name", confirm=True, danger=True),
)
