"""The jobs and workers of the router, and why each waits."""

from __future__ import annotations

from typing import Final

from relevo.dashboard.lists import Column, Section, list_page
from relevo.dashboard.page import Action

JOBS: Final = Section(
    name="router_jobs", operation="router.jobs.list",
    given={"queueId": "?queueId", "status": "?status", "channelId": "?channelId"},
    columns=(
        Column("id", link="/router/jobs/{id}"), Column("status", "status"),
        Column("queue_id"), Column("channel_id"), Column("priority", "number"),
        Column("enqueued_at", "time"), Column("scheduled_at", "time"),
        Column("disposition_code"), Column("labels", "json"),
    ),
    thing=("id",), actions=("router.jobs.reclassify", "router.jobs.cancel"),
    empty="relevo router job create order-1 '{\"channelId\": \"calls\", \"queueId\": \"calls\"}'",
)  # fmt: skip
_ID: Final = {"id": "{id}"}
_OF_JOB: Final = "router.explain.job"
_OF_WORKER: Final = "router.explain.worker"
_COUNTED: Final = (Column("count", "number"), Column("reason"), Column("selector", "json"))


JOB: Final = (
    Section(
        name="router_why", facts=True, thing=("job_id",),
        columns=(
            Column("status", "status"), Column("says", "says"),
            Column("queue_id"), Column("position", "number"), Column("verdict"),
        ),
        actions=("router.jobs.reclassify", "router.jobs.cancel"),
        operation=_OF_JOB, given=_ID, paged=False,
    ),
    Section(
        name="router_candidates", rows=lambda found: found.candidates,
        columns=(
            Column("worker_id", link="/router/workers/{worker_id}"),
            Column("load_ratio", "share"), Column("idle_since", "time"), Column("score", "number"),
        ), operation=_OF_JOB, given=_ID, paged=False,
    ),
    Section(
        name="router_ruled_out", rows=lambda found: found.ruled_out,
        columns=(*_COUNTED, Column("labels", "json"), Column("workers")),
        operation=_OF_JOB, given=_ID, paged=False,
    ),
    Section(
        name="router_offers_made", rows=lambda found: found.offers,
        columns=(
            Column("worker_id", link="/router/workers/{worker_id}"), Column("state", "status"),
            Column("reason"), Column("offered_at", "time"), Column("ended_at", "time"),
        ), operation=_OF_JOB, given=_ID, paged=False,
    ),
    Section(
        name="router_job", operation="router.jobs.get", facts=True, given=_ID,
        columns=(
            Column("channel_id"), Column("priority", "number"), Column("enqueued_at", "time"),
            Column("labels", "json"), Column("tags", "json"),
            Column("requested_worker_selectors", "json"),
            Column("attached_worker_selectors", "json"), Column("notes", "json"),
        ),
    ),
)  # fmt: skip
WORKER: Final = (
    Section(
        name="router_why", facts=True,
        columns=(
            Column("state", "status"), Column("says", "says"), Column("load_ratio", "share"),
            Column("eligible_for"),
        ), operation=_OF_WORKER, given=_ID, paged=False,
    ),
    Section(
        name="router_not_for_it", rows=lambda found: found.ruled_out,
        columns=(*_COUNTED, Column("queue_id"), Column("channel_id"), Column("jobs")),
        operation=_OF_WORKER, given=_ID, paged=False,
    ),
    Section(
        name="router_worker", operation="router.workers.get", facts=True, given=_ID,
        columns=(
            Column("queues"), Column("capacity", "number"), Column("available_for_offers", "flag"),
            Column("channels", "json"), Column("labels", "json"), Column("assigned_jobs", "json"),
            Column("offers", "json"),
        ),
    ),
)  # fmt: skip
PAGES: Final = (
    list_page("router_jobs", "/router/jobs", JOBS, under="router"),
    list_page("router_job", "/router/jobs/{id}", *JOB, under="router"),
    list_page("router_worker", "/router/workers/{id}", *WORKER, under="router"),
)
ACTIONS: Final = (
    Action(operation="router.jobs.reclassify"),
    Action(operation="router.jobs.cancel", confirm=True, danger=True),
)
