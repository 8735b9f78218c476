"""Spans of HTTP requests, and what they store: one trace from the client to the handler."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
from opentelemetry.trace import SpanKind, StatusCode

from tests.http.table import TABLE
from tests.support.spans import context, is_child

if TYPE_CHECKING:
    from tests.http.conftest import Opens
    from tests.support.spans import Spans

pytestmark = pytest.mark.anyio
CLIENT = f"00-{'a' * 32}-{'b' * 16}-01"


async def test_a_request_continues_the_trace_of_its_client(open_site: Opens, spans: Spans) -> None:
    async with open_site(operations=TABLE) as site:
        sent = {"traceparent": CLIENT}
        body = {"handler": "mail", "data": {"secret": "hush"}}
        made = await site.ask("POST", "/v1/jobs?x=hush", key="admin", json=body, headers=sent)
        assert made.status == 400
        made = await site.ask("POST", "/v1/jobs", key="admin", json=body, headers=sent)
        await site.ask("GET", "/v1/broken", key="admin")
        await site.ask("GET", "/nowhere?token=hush", headers={"traceparent": "nonsense"})
        details = await site.services.app.database.fetchval("select details from relevo.job")
    refused, served = spans.named("POST /v1/jobs")
    assert served.parent is not None
    assert (f"{served.parent.trace_id:032x}", f"{served.parent.span_id:016x}") == (
        "a" * 32, "b" * 16,
    )  # fmt: skip
    assert served.kind is SpanKind.SERVER
    assert served.attributes == {
        "http.request.method": "POST", "http.route": "/v1/jobs", "http.response.status_code": 201,
        "relevo.operation": "jobs.submit",
    }  # fmt: skip
    assert refused.status.status_code is StatusCode.UNSET
    submit = spans.one("submit mail")
    assert is_child(submit, of=served)
    assert msgspec.json.decode(details) == {
        "traceparent": f"00-{'a' * 32}-{context(submit).span_id:016x}-01"
    }
    broken, nowhere = spans.one("GET /v1/broken"), spans.one("GET")
    assert broken.attributes is not None
    assert broken.attributes["error.type"] == "500"
    assert broken.status.status_code is StatusCode.ERROR
    assert nowhere.parent is None
    assert "hush" not in "".join(one.to_json() for one in spans.ended)
    assert made.json["id"] == str(submit.attributes and submit.attributes["messaging.message.id"])


async def test_a_request_inside_of_an_instrumented_program_is_part_of_its_span(
    open_site: Opens, spans: Spans
) -> None:
    """As under a middleware that has read the header already."""
    with spans.opened("middleware"):
        async with open_site() as site:  # its server inherits the context
            await site.ask("GET", "/livez", headers={"traceparent": CLIENT})
    assert is_child(spans.one("GET /livez"), of=spans.one("middleware"))
