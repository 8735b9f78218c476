"""What operators and keys have changed is written down, whoever asks by whatever way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from relevo import limits
from relevo.audit.service import AuditedCall, AuditFilter
from relevo.cli.calling.local_calls import LocalCalls
from relevo.http.access import roles
from relevo.http.access.auditing import is_audited
from relevo.http.access.authenticator import LOCAL_ADMIN, call
from relevo.http.operations import OPERATIONS, operation

if TYPE_CHECKING:
    from tests.http.conftest import Site

pytestmark = pytest.mark.anyio
OF_PROGRAMS = {
    "actors:call", "governance:use", "items:read", "items:write", "jobs:submit",
    "messages:receive", "messages:send", "offers:answer", "queues:read", "router:work",
}  # fmt: skip
"""Permissions by which programs work at their own rate, or only read."""


def test_every_change_is_audited_or_the_work_of_programs() -> None:
    unaudited = {
        each.name for each in OPERATIONS
        if each.method != "GET" and not is_audited(each) and each.permission not in OF_PROGRAMS
    }  # fmt: skip
    assert unaudited == {"router.classify", "bulk_deletes.preview"}
    assert not OF_PROGRAMS & roles.AUDITED
    assert roles.PERMISSIONS.keys() >= roles.AUDITED


async def test_changes_are_written_down_with_outcome_and_reason(site: Site) -> None:
    reason = {"Relevo-Reason": "für die Küche"}
    await site.ask("PUT", "/v1/queues/mail", key="admin", json={}, headers=reason)
    await site.ask("PATCH", "/v1/queues/none", key="operator", json={"max_delivery_count": 3})
    await site.ask("DELETE", "/v1/queues/mail", key="viewer")  # refused before anything is done
    made = await site.ask("POST", "/v1/keys", key="admin", json={"name": "ci", "roles": ["viewer"]})
    hook = {"name": "billing", "url": "https://hooks.example/?token=hush"}
    hooked = await site.ask("POST", "/v1/webhooks", key="admin", json=hook)
    pause = {"reason": "maintenance"}
    await site.ask("POST", "/v1/webhooks/billing:pause", key="admin", json=pause)
    await site.ask("POST", "/v1/queues/mail/messages", key="admin", json={"body": "hi"})
    page = await site.ask("GET", "/v1/audit", key="viewer")
    entries = page.json["items"]
    assert [
        (one["operation"], one["resource"], one["outcome"], one["reason"]) for one in entries
    ] == [
        ("webhooks.pause", "/v1/webhooks/billing:pause", "done", "maintenance"),
        ("webhooks.create", "/v1/webhooks/billing", "done", None),
        ("keys.create", f"/v1/keys/{made.json['key']['id']}", "done", None),
        ("queues.update", "/v1/queues/none", "not_found", None),
        ("queues.create", "/v1/queues/mail", "done", "für die Küche"),
    ]
    assert entries[0]["by_id"] == entries[1]["by_id"] != entries[3]["by_id"]
    for secret in ("hush", made.json["secret"], hooked.json["secret"]):
        assert secret.encode() not in page.body
    log = await site.services.app.events.read()
    told = [one.data for one in log.events if one.type == "relevo.audit.recorded"]
    assert sorted(one["operation"] for one in told) == sorted(one["operation"] for one in entries)
    assert "hush" not in str(told)


async def test_entries_are_found_by_key_operation_resource_and_time(site: Site) -> None:
    for name in ("a", "b", "a_c"):
        await site.ask("PUT", f"/v1/queues/{name}", key="admin", json={})
    await site.ask("DELETE", "/v1/queues/b", key="operator")

    async def found(query: str) -> list[str]:
        answer = await site.ask("GET", f"/v1/audit?{query}", key="admin")
        return [one["resource"] for one in answer.json["items"]]

    assert await found("operation=queues.drop") == ["/v1/queues/b"]
    assert len(await found("operation=queues")) == 4
    assert await found("operation=queue") == []
    assert await found("resource=/v1/queues/a_") == ["/v1/queues/a_c"]
    assert await found("resource=%25") == []
    assert await found("until=2020-01-01T00:00:00Z") == []
    (dropped,) = (await site.ask("GET", "/v1/audit?operation=queues.drop", key="admin")).json[
        "items"
    ]
    assert await found(f"by={dropped['by_id']}") == ["/v1/queues/b"]
    first = await site.ask("GET", "/v1/audit?limit=3", key="admin")
    rest = await site.ask("GET", f"/v1/audit?limit=3&cursor={first.json['next']}", key="admin")
    assert len(first.json["items"]) + len(rest.json["items"]) == 4


async def test_calls_in_process_are_written_down_and_bad_reasons_refused(site: Site) -> None:
    created: Any = operation("queues.create")
    command = created.request(queue="inside")
    await call(created, site.services, LOCAL_ADMIN, command, reason="by hand")
    (entry,) = await site.services.app.audit.list()
    assert (entry.by_id, entry.reason, entry.outcome) == ("local", "by hand", "done")
    await LocalCalls(site.services.app, "agent").call(operation("hosts.list"), {})
    (entry,) = await site.services.app.audit.list(AuditFilter(caller="agent"))
    assert (entry.by_id, entry.operation) == ("local", "hosts.list")
    for reason in ("x" * (limits.AUDIT_REASON_LENGTH_MAX + 1), "two\nlines"):
        dropped: Any = operation("queues.drop")
        command = dropped.request(queue="inside")
        with pytest.raises(Exception, match="one line of at most"):
            await call(dropped, site.services, LOCAL_ADMIN, command, reason=reason)
    assert len(await site.services.app.audit.list()) == 2


async def test_an_entry_whose_host_was_killed_has_no_outcome(site: Site) -> None:
    audit = site.services.app.audit
    entry = AuditedCall(by_id="k", by_name="n", operation="a.b", resource="/a", reason=None)
    number = await audit.begin(entry)
    (found,) = await audit.list()
    assert (found.outcome, found.ended_at) == (None, None)
    await audit.end(number, entry)
    await audit.end(number, entry, "other")  # repeated after an unknown outcome
    (found,) = await audit.list()
    assert found.outcome == "done"
    page = await site.services.app.events.read()
    assert len([one for one in page.events if one.type == "relevo.audit.recorded"]) == 1


async def test_every_call_of_an_agent_is_written_down_also_refused_ones(site: Site) -> None:
    agent = {"Relevo-Caller": "agent"}
    job = {"handler": "mail", "data": {"text": "hush"}}
    await site.ask("GET", "/v1/hosts?limit=7", key="viewer", headers=agent)
    refused = await site.ask("POST", "/v1/jobs?x=hush", key="viewer", json=job, headers=agent)
    assert refused.status == 403
    made = await site.ask(
        "POST", "/v1/jobs", key="producer", json=job, headers={**agent, "Idempotency-Key": "1"}
    )
    scoped = await site.ask(
        "POST", "/v1/keys", key="admin",
        json={"name": "n", "roles": ["worker"], "scopes": ["worker:ana"]},
    )  # fmt: skip
    for headers in (agent, {**agent, "Idempotency-Key": "2"}):
        secret = scoped.json["secret"]
        path = "/v1/pools/p/permits"
        assert (await site.ask("POST", path, key=secret, json={}, headers=headers)).status == 403
    await site.ask("GET", "/v1/hosts", key="viewer")
    wrong = await site.ask("GET", "/v1/hosts", key="viewer", headers={"Relevo-Caller": "person"})
    assert (wrong.status, wrong.json["pointer"]) == (400, "Relevo-Caller")
    page = await site.ask("GET", "/v1/audit?caller=agent", key="viewer")
    assert [(one["operation"], one["resource"], one["outcome"]) for one in page.json["items"]] == [
        ("pools.lease", "/v1/pools/p/permits", "forbidden"),
        ("pools.lease", "/v1/pools/p/permits", "forbidden"),
        ("jobs.submit", f"/v1/jobs/{made.json['id']}", "done"),
        ("jobs.submit", "/v1/jobs", "forbidden"),
        ("hosts.list", "/v1/hosts", "done"),
    ]
    everything = await site.ask("GET", "/v1/audit", key="viewer")
    assert [one["caller"] for one in everything.json["items"]].count(None) == 1  # the key
    assert b"hush" not in everything.body
    log = await site.services.app.events.read()
    told = [one.data for one in log.events if one.type == "relevo.audit.recorded"]
    assert [one.get("caller") for one in told].count("agent") == 5
