"""Traces of jobs: from the submit to the run, and what later attempts are linked to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.trace import SpanKind, StatusCode

from relevo import Fail, RetryLater
from tests.jobs.office import until
from tests.support.spans import context, ids, is_child, linked

if TYPE_CHECKING:
    from tests.jobs.office import Office
    from tests.support.spans import Spans

pytestmark = pytest.mark.anyio


async def test_the_first_attempt_is_part_of_the_trace_of_the_submit(
    office: Office, spans: Spans
) -> None:
    def work(ctx: Any, order: int) -> None:
        with spans.opened("inside"):
            pass

    await office.host({"work": work})
    with spans.opened("request"):
        job = await office.jobs.submit("work", {"order": 7})
    await job.wait(10)
    submit, run = spans.one("submit work"), spans.one("process work")
    assert is_child(submit, of=spans.one("request"))
    assert is_child(run, of=submit)
    assert is_child(spans.one("inside"), of=run)  # in the thread of a plain function
    assert (submit.kind, run.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    common = {
        "messaging.system": "relevo", "messaging.destination.name": "work",
        "messaging.message.id": str(job.id),
    }  # fmt: skip
    assert submit.attributes == common | {
        "messaging.operation.name": "submit", "messaging.operation.type": "send",
    }  # fmt: skip
    assert run.attributes == common | {
        "messaging.operation.name": "process", "messaging.operation.type": "process",
        "relevo.lane": "default", "relevo.attempt": 1,
    }  # fmt: skip


async def test_later_attempts_are_linked_and_decisions_are_no_errors(
    office: Office, spans: Spans
) -> None:
    async def work(ctx: Any) -> None:
        if ctx.attempt == 1:
            raise RetryLater(0)
        if ctx.attempt == 2:
            raise Fail(None, "no")

    await office.host({"work": work}, retries=2)
    job = await office.jobs.submit("work")
    await office.until_status(job, 31)
    submit, (first, second) = spans.one("submit work"), spans.named("process work")
    assert is_child(first, of=submit)
    assert first.attributes is not None
    assert first.attributes["relevo.outcome"] == "RetryLater"
    assert first.status.status_code is StatusCode.UNSET
    assert second.parent is None
    assert linked(second) == {ids(submit)}
    assert context(second).trace_id != context(submit).trace_id
    assert second.attributes is not None
    assert second.attributes["error.type"] == "Fail"
    assert second.status.status_code is StatusCode.ERROR


async def test_jobs_of_jobs_are_in_the_trace_also_in_transactions(
    office: Office, spans: Spans
) -> None:
    async def parent(ctx: Any) -> None:
        async with ctx.transaction() as tx:
            await app.jobs.submit("child", tx=tx)

    async def child(ctx: Any) -> None: ...

    app = office.new_app()
    app.job("parent")(parent)
    app.job("child")(child)
    await office.serve(app)
    await office.jobs.submit_many("parent", [{}, {}])
    await until(lambda: len(spans.named("process child")) == 2, "both have run")
    submit = spans.one("submit parent")
    assert submit.attributes is not None
    assert submit.attributes["messaging.batch.message_count"] == 2
    for name, of in (("process parent", "submit parent"), ("submit child", "process parent"),
                     ("process child", "submit child")):  # fmt: skip
        for span in spans.named(name):
            assert any(is_child(span, of=other) for other in spans.named(of)), name


async def test_the_next_run_of_a_series_is_in_no_trace(office: Office, spans: Spans) -> None:
    async def work(ctx: Any) -> None: ...

    await office.host({"work": work})
    now = await office.app.now()
    job = await office.jobs.submit("work", recurrence="FREQ=MINUTELY", start=now)
    await job.wait(20)
    row = await office.database.fetchrow(
        "select details from relevo.job where series = $1 and status in (0, 10)", job.id
    )
    assert row is not None
    assert "traceparent" not in row["details"]
    assert is_child(spans.named("process work")[0], of=spans.one("submit work"))


async def test_nothing_is_stored_where_nothing_is_collected(office: Office) -> None:
    await office.jobs.submit("work")
    await office.jobs.submit_many("work", [{}] * 250)
    rows = await office.database.fetch("select details from relevo.job")
    assert [row["details"] for row in rows] == [None]
    assert await office.database.fetchval("select sum(size) from relevo.job_parcel") == 250
