"""The event loop under the worst requests that are taken: none of them holds up the others."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec
import pytest

from relevo import limits
from relevo.http.operations import OPERATIONS
from tests.http.routing import JOB, WORKER, V, Wire
from tests.support.watchdog import watching

if TYPE_CHECKING:
    from collections.abc import Iterator

    from relevo.kernel.operation import Operation
    from tests.http.conftest import Reply, Site

pytestmark = pytest.mark.anyio
SIZE = limits.BODY_BYTES_MAX - 512
RULE = limits.EXPRESSION_BYTES_MAX
NUL = b'"\\\\u0000"'
"""A text in which something is looked for that cannot be stored, and in all that is beside it."""


def array(size: int) -> bytes:
    """The JSON with the most values in so many bytes."""
    return b"[null," + NUL + b",0" * ((size - len(NUL) - 7) // 2) + b"]"


def objects(size: int) -> bytes:
    """The JSON with the most objects."""
    return b"[null," + NUL + b",{}" * ((size - len(NUL) - 7) // 3) + b"]"


def members(size: int) -> bytes:
    """The JSON with the most members."""
    named = b",".join(b'"%06d":0' % number for number in range(size // 11 - 1))
    return b'{"":' + NUL + b"," + named + b"}"


async def send(site: Site, method: str, target: str, body: bytes | None = None) -> Reply:
    """Send a request of an admin and see that it has not held the loop for too long."""
    headers = {"Content-Type": "application/json"} if body is not None else None
    with watching() as watched:
        reply = await site.ask(method, target, key="admin", data=body, headers=headers)
    watched.assert_never_held(f"{method} {target} {(body or b'')[:60]!r}")
    assert reply.status < 500 or b":no_host" in reply.body, reply.body
    return reply


def takers() -> Iterator[tuple[Operation, str, bytes]]:
    """Every field of every operation that takes an array or an object, and one that is too long."""
    for operation in OPERATIONS:
        if operation.takes_body and operation.body is not None:
            yield operation, "", b'{"x":' + array(SIZE) + b"}"
        elif operation.takes_body:
            for field in msgspec.structs.fields(operation.request):
                for sample, made in (([], array), ({}, members)):
                    if field.encode_name in operation.elsewhere or not _takes(field.type, sample):
                        continue
                    yield operation, field.encode_name, made(SIZE)


def _takes(kind: Any, sample: Any) -> bool:
    try:
        msgspec.convert(sample, kind)
    except msgspec.ValidationError:
        return False
    return True


def target(operation: Operation) -> str:
    path = re.sub(r"\{(\w+)\}", "x", operation.path).replace("/api/data/x", "/api/data/v9.2")
    return f"{path}?{V}" if path.startswith("/routing") else path


async def test_no_long_body_of_any_operation_holds_up_the_others(site: Site) -> None:
    for operation, field, value in takers():
        body = b'{"%s":%s}' % (field.encode(), value) if field else value
        await send(site, operation.method, target(operation), body)


async def test_no_item_holds_up_the_others(site: Site) -> None:
    told = {"name": "orders", "partition_key": ["/city"]}
    await site.ask("POST", "/v1/containers", key="admin", json=told)
    items = "/v1/containers/orders/items"
    for number, value in enumerate((array(SIZE), members(SIZE), objects(SIZE), objects(SIZE))):
        item = b'{"item":{"id":"%d","city":"x","a":%s}}' % (number, value)
        assert (await send(site, "PUT", items, item)).status == 200
        found = await send(site, "GET", f"{items}/{number}?partition_key=%22x%22")
        assert found.status == 200
    assert (await send(site, "POST", f"{items}:query", b"{}")).status == 200
    changes = "/v1/containers/orders/changes:read"
    assert (await send(site, "POST", changes, b"{}")).status == 200
    some = [b'{"id":"%d","city":"x","a":%s}' % (n, objects(SIZE // 105)) for n in range(100)]
    steps = b",".join(b'{"kind":"upsert","item":%s}' % one for one in some)
    body = b'{"partition_key":"x","steps":[%s]}' % steps
    assert (await send(site, "POST", f"{items}:batch", body)).status == 200
    body = b'{"items":[%s]}' % b",".join(some)
    assert (await send(site, "POST", f"{items}:bulk", body)).status == 200
    patch = b'{"partition_key":"x","operations":[{"op":"set","path":"/b","value":1}]}'
    assert (await send(site, "PATCH", f"{items}/2", patch)).status == 200


async def test_no_query_of_items_and_no_filter_of_a_feed_holds_up_the_others(site: Site) -> None:
    told = {"name": "orders", "partition_key": ["/city"]}
    await site.ask("POST", "/v1/containers", key="admin", json=told)
    choices = b'["/a/b","in",[%s]]' % b",".join(b'"%028d"' % number for number in range(1_000))
    where = b"[%s]" % b",".join([choices] * 32)
    path = b'["/%s","=",1]' % (b"a/" * 15_000)
    for conditions in (where, b"[%s]" % b",".join([path] * 32)):
        for way in ("items:query", "changes:read"):
            body = b'{"where":%s}' % conditions
            await send(site, "POST", f"/v1/containers/orders/{way}", body)


async def test_no_system_job_holds_up_the_others(site: Site) -> None:
    for value in (array(SIZE), members(SIZE), objects(SIZE)):
        body = b'{"handler":"x","data":{"a":%s}}' % value
        reply = await send(site, "POST", "/v1/jobs", body)
        assert reply.status < 300, reply.body
        await send(site, "GET", f"/v1/jobs/{reply.json['id']}/payload")
    await send(site, "GET", "/v1/jobs")


NEVER = [
    "FREQ=DAILY;INTERVAL=364;BYDAY=MO",
    "FREQ=DAILY;INTERVAL=343;BYMONTHDAY=31;BYDAY=MO",
    "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30;BYDAY="
    + ",".join(f"{nth}{day}" for nth in range(1, 6) for day in ("MO", "TU", "WE", "TH", "FR")),
    "FREQ=MINUTELY;INTERVAL=2;BYMINUTE=1;BYMONTH=12;BYMONTHDAY=31;BYDAY=FR",
    "FREQ=HOURLY;INTERVAL=364;BYMONTH=4;BYMONTHDAY=30,31;BYDAY=MO,TU;BYHOUR=2",
]


@pytest.mark.parametrize("pattern", NEVER)
async def test_a_recurrence_that_never_fits_is_refused_and_holds_up_nobody(
    site: Site, pattern: str
) -> None:
    start = "2026-03-31T10:00:00Z"
    told = {"pattern": pattern, "start": start, "timezone": "Europe/Madrid"}
    body = {"handler": "x", "recurrence": told}
    reply = await send(site, "POST", "/v1/jobs", msgspec.json.encode(body))
    assert (reply.status, reply.json["code"]) == (400, "invalid_recurrence")
    assert "never fits" in reply.json["detail"] or "has no instant" in reply.json["detail"]
    made = {"handler": "x", "recurrence": {"pattern": "FREQ=DAILY", "start": start}}
    job = (await send(site, "POST", "/v1/jobs", msgspec.json.encode(made))).json["id"]
    change = msgspec.json.encode({"recurrencepattern": pattern})
    changed = await send(site, "PATCH", f"/api/data/v9.2/asyncoperations({job})", change)
    assert changed.status == 400


async def test_a_series_with_too_many_instants_to_count_is_refused(site: Site) -> None:
    told = {"pattern": "FREQ=MINUTELY;BYHOUR=1,2,3;COUNT=1000000", "start": "1970-01-01T00:00:00Z"}
    body = msgspec.json.encode({"handler": "x", "recurrence": told})
    reply = await send(site, "POST", "/v1/jobs", body)
    assert (reply.status, reply.json["code"]) == (400, "invalid_recurrence")
    assert "too many instants to be counted" in reply.json["detail"]


async def test_no_bulk_deletion_holds_up_the_others(site: Site) -> None:
    size = limits.QUERY_BODY_BYTES_MAX - 1_024
    condition = b'{"AttributeName":"depth","Operator":"In","Values":[%s]}'
    one = condition % b",".join([b"1"] * 1_900)
    hostile = [
        condition % b",".join([b"1"] * (size // 2)),
        b",".join([one] * 400),
        b",".join([condition % b"1"] * (size // 60)),
    ]
    for conditions in hostile:
        query = b'{"EntityName":"asyncoperation","Criteria":{"Conditions":[%s]}}' % conditions
        body = b'{"JobName":"x","QuerySet":[%s],"SendEmailNotification":false,' % query
        body += b'"ToRecipients":[],"CCRecipients":[],"RecurrencePattern":""}'
        reply = await send(site, "POST", "/api/data/v9.2/BulkDelete", body)
        assert reply.status == 400, reply.body
    long = repeated("depth eq 1", " or ", 6_900)
    body = msgspec.json.encode({"queries": [{"table": "asyncoperation", "filter": long}] * 20})
    await send(site, "POST", "/v1/bulk-deletes", body)


def repeated(part: str, by: str, size: int) -> str:
    return by.join([part] * ((size - len(part)) // (len(part) + len(by)) + 1))


LIST = ",".join(["1"] * 2_000)
QUERIES = {
    "long chain": {"$filter": repeated("depth eq 1", " or ", 6_900)},
    "too long a chain": {"$filter": repeated("depth eq 1", " or ", 32_000)},
    "lists": {"$filter": repeated(f"depth in ({LIST})", " or ", 28_000)},
    "negations": {"$filter": repeated("not " * 40 + "depth eq 1", " or ", 31_000)},
    "parentheses": {"$filter": "(" * 32_000},
    "columns": {"$select": repeated("name", ",", 31_000)},
    "orders": {"$orderby": repeated("name", ",", 31_000)},
    "groups": {"$apply": f"groupby(({repeated('name', ',', 31_000)}))"},
    "alias": {
        "$filter": repeated(
            "Microsoft.Dynamics.CRM.In(PropertyName='name',PropertyValues=@p)", " or ", 19_000
        ),
        "@p": "[" + ",".join(["'1'"] * 2_000) + "]",
    },
    "conditions": {
        "fetchXml": "<fetch><entity name='asyncoperation'><filter type='or'>"
        + "<condition attribute='depth' operator='eq' value='1'/>" * 490
        + "</filter></entity></fetch>"
    },
    "values": {
        "fetchXml": "<fetch><entity name='asyncoperation'><filter><condition attribute='depth'"
        " operator='in'>" + "<value>1</value>" * 1_900 + "</condition></filter></entity></fetch>"
    },
    "filters": {
        "fetchXml": "<fetch><entity name='asyncoperation'>"
        + "<filter/>" * 3_000
        + "</entity></fetch>"
    },
    "attributes": {
        "fetchXml": "<fetch><entity name='asyncoperation'>"
        + "".join(f"<attribute name='name' alias='a{n}'/>" for n in range(700))
        + "</entity></fetch>"
    },
}  # fmt: skip


@pytest.mark.parametrize("name", QUERIES)
async def test_no_query_holds_up_the_others(site: Site, name: str) -> None:
    safe = "$@(),:/'*!-._~[]<>="
    query = "&".join(f"{key}={quote(text, safe=safe)}" for key, text in QUERIES[name].items())
    reply = await send(site, "GET", f"/api/data/v9.2/asyncoperations?{query.replace('<', '%3C')}")
    assert reply.status in (200, 400, 414), reply.body
    if "$filter" in QUERIES[name]:
        text = quote(QUERIES[name]["$filter"][:6_000], safe="")
        await send(site, "GET", f"/v1/jobs?filter={text}")
        path = "EntityDefinitions(LogicalName='asyncoperation')/Attributes"
        text = quote(repeated("startswith(LogicalName,'a')", " or ", 12_000))
        await send(site, "GET", f"/api/data/v9.2/{path}?$filter={text}")


HOSTILE_RULES = {
    "sum": repeated("1", "+", RULE),
    "arguments": f"Max({repeated('1', ',', RULE - 6)})",
    "searches": repeated("Find(job.p,job.h)", "&", RULE),
    "affixes": repeated("StartsWith(job.s,job.s)", " or ", RULE),
}
LABELS = {"p": "a" * 600 + "b" + "a" * 600, "h": "a" * 2_499, "s": "Σ" * 4_000}


@pytest.mark.parametrize("name", HOSTILE_RULES)
async def test_no_rule_holds_up_the_others(site: Site, name: str) -> None:
    wire, rule = Wire(site), {"kind": "expression", "expression": HOSTILE_RULES[name]}
    await wire.queue()
    for path, policy in (
        ("classificationPolicies/c", {"prioritizationRule": rule, "fallbackQueueId": "q"}),
        ("distributionPolicies/d", {"mode": {"kind": "bestWorker", "scoringRule": rule}}),
    ):
        body = msgspec.json.encode(policy)
        assert (await send(site, "PATCH", f"/routing/{path}?{V}", body)).status < 300
    for number in range(60):
        await wire.patch(f"workers/w{number}", {**WORKER, "labels": LABELS})
    with watching() as watched:
        async with site.services.app.host():
            for number in range(5):
                asked = {**JOB, "labels": LABELS, "classificationPolicyId": "c", "queueId": None}
                await wire.patch(f"jobs/j{number}", asked)
            await settled(wire)
    watched.assert_never_held(name)
    tried = "/v1/router/classification-policies/c:try"
    await send(site, "POST", tried, msgspec.json.encode({"labels": LABELS}))
    await wire.patch("jobs/e", {**JOB, "labels": LABELS})
    await send(site, "GET", "/v1/router/jobs/e/explanation")


async def settled(wire: Wire) -> None:
    """Wait until no job is to be classified any more, and those that wait were looked at."""
    while True:
        jobs = (await wire.get("jobs?status=pendingClassification")).json["value"]
        if not jobs:
            return


async def test_no_policy_holds_up_the_others(site: Site) -> None:
    wire = Wire(site)
    await wire.queue()
    value = b'{"fallbackQueueId":"q","prioritizationRule":{"kind":"static","value":%s}}'
    selector = b'{"key":"a","labelOperator":"equal","value":1}'
    attachment = b'{"kind":"conditional","condition":{"kind":"static","value":true},'
    attachment += b'"queueSelectors":[%s]}' % b",".join([selector] * 100)
    attached = b'{"queueSelectorAttachments":[%s]}' % b",".join([attachment] * 100)
    for body in (value % array(SIZE - 200), value % objects(SIZE - 200), attached):
        await send(site, "PATCH", f"/routing/classificationPolicies/c?{V}", body)
        await send(site, "GET", f"/routing/classificationPolicies/c?{V}")
        await send(site, "GET", f"/routing/classificationPolicies?{V}")
    for number in range(20):
        await wire.patch(f"jobs/j{number}", {**JOB, "labels": {"Id": "x", **LABELS}})
    selectors = [{"key": f"k{n}", "labelOperator": "notEqual", "value": "x" * 4_000}
                 for n in range(100)]  # fmt: skip
    body = msgspec.json.encode({**JOB, "requestedWorkerSelectors": selectors})
    await send(site, "PATCH", f"/routing/jobs/s?{V}", body)
    await send(site, "GET", "/v1/router/jobs/s/explanation")
