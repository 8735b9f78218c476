"""System jobs over HTTP: submit, find, follow, command, and who sees what."""

from __future__ import annotations

import asyncio
import uuid
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from relevo.http import paging
from relevo.http.access.key_model import NewKey
from relevo.jobs import Fail
from relevo.jobs.model import Lane
from tests.http.table import code

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.http.conftest import Reply, Site

pytestmark = pytest.mark.anyio

JOBS = "/v1/jobs"


async def submit(site: Site, handler: str = "mail", **told: Any) -> str:
    made = await site.ask("POST", JOBS, key="producer", json={"handler": handler, **told})
    assert made.status == 201, made.body
    return str(made.json["id"])


async def job(site: Site, key: str) -> Any:
    return (await site.ask("GET", f"{JOBS}/{key}", key="viewer")).json


async def command(site: Site, key: str, verb: str, **told: Any) -> Reply:
    return await site.ask("POST", f"{JOBS}/{key}:{verb}", key="operator", json=told)


@asynccontextmanager
async def served(site: Site) -> AsyncIterator[None]:
    app = site.services.app

    @app.job("mail")
    async def mail(ctx: Any, to: str = "ana") -> dict[str, str]:
        return {"sent": to}

    @app.job("bad")
    async def bad(ctx: Any) -> None:
        raise Fail(None, "there is no such customer")

    async with app.host():
        yield


async def test_a_job_is_submitted_run_and_waited_for(site: Site) -> None:
    async with served(site):
        key = await submit(site, data={"to": "bo"})
        ended = (await site.ask("GET", f"{JOBS}/{key}/end", key="viewer")).json
        assert (ended["done"], ended["job"]["status"]) == (True, "succeeded")
        payload = (await site.ask("GET", f"{JOBS}/{key}/payload", key="admin")).json
        assert (payload["data"], payload["result"]) == ({"to": "bo"}, {"sent": "bo"})


async def test_a_failure_tells_people_why_and_programs_the_code(site: Site) -> None:
    async with served(site):
        key = await submit(site, "bad")
        found = (await site.ask("GET", f"{JOBS}/{key}/end", key="viewer")).json["job"]
        assert (found["status"], found["friendly_message"], found["error_code"]) == (
            "failed", "there is no such customer", "0x80040265",
        )  # fmt: skip
        view = (await site.ask("GET", "/v1/job-views/failures", key="viewer")).json["items"]
        assert [(one["extension"], one["code"], one["last_id"]) for one in view] == [
            ("bad", "0x80040265", key)
        ]


async def test_what_users_put_in_needs_a_permission_of_its_own(site: Site) -> None:
    key = await submit(site, data={"to": "secret"})
    seen = await site.ask("GET", f"{JOBS}/{key}", key="viewer")
    assert b"secret" not in seen.body  # A28
    refused = await site.ask("GET", f"{JOBS}/{key}/payload", key="viewer")
    assert (refused.status, code(refused)) == (403, "forbidden")
    listed = await site.ask("GET", JOBS, key="producer")
    assert listed.status == 403


async def test_pages_give_every_job_once_in_either_order(site: Site) -> None:
    keys = [await submit(site, data={"to": str(n)}) for n in range(7)]
    for order, wanted in (("oldest", keys), ("newest", keys[::-1])):
        found: list[str] = []
        target = f"{JOBS}?limit=3&order={order}"
        while True:
            page = (await site.ask("GET", target, key="viewer")).json
            found += [one["id"] for one in page["items"]]
            if page["next"] is None:
                break
            target = f"{JOBS}?limit=3&order={order}&cursor={page['next']}"
        assert found == wanted  # A22


async def test_a_list_is_narrowed_by_what_jobs_are(site: Site) -> None:
    first = await submit(site, token="t")
    second = await submit(site, token="t")
    later = await submit(site, start="2100-01-01T00:00:00Z", name="later mail")
    other = await submit(site, "other", lane="bulk")

    async def ids(query: str) -> list[str]:
        page = await site.ask("GET", f"{JOBS}?order=oldest&{query}", key="viewer")
        assert page.status == 200, page.body
        return [one["id"] for one in page.json["items"]]

    assert await ids("token=t") == [first, second]
    assert await ids("state=suspended") == [later]
    assert await ids("status=waiting_for_resources&status=waiting&lane=default") == [
        first, second, later,
    ]  # fmt: skip
    assert await ids("handler=other&type=54") == [other]
    assert await ids("state=completed") == []
    assert await ids("filter=" + quote("contains(name,'LATER')")) == [later]
    assert await ids("filter=" + quote("owninguser/fullname eq 'nobody'")) == []  # A24
    assert await ids("filter=" + quote("AsyncOperation_BulkDeleteOperation/any()")) == []
    assert await ids("created_before=2001-01-01T00:00:00Z") == []


def cursor(*place: Any) -> str:
    return "cursor=" + paging.encode([*place, str(uuid.UUID(int=1))])


@pytest.mark.parametrize(
    "query",
    [
        "state=odd",
        "filter=nonsense+eq+1",
        "filter=nonsense/any()",
        "cursor=abc",
        cursor("2031-05-30T18:00:00Z", 2**63),
        cursor("2031-05-30T18:00:00Z", 2**64 + 1),
        cursor("2031-05-30T18:00:00", 1),
        cursor("0001-01-01T00:00:00+14:00", 1),
        "created_after=2026",
        "created_before=-1.5e9",
        "type=99999999999999999999",
        "limit=0",
        "unknown=1",
    ],
)
async def test_a_list_that_cannot_be_meant_is_refused(site: Site, query: str) -> None:
    assert (await site.ask("GET", f"{JOBS}?{query}", key="viewer")).status == 400


async def test_a_job_behind_others_of_its_token_says_whom_it_waits_for(site: Site) -> None:
    first = await submit(site, token="t")
    second = await submit(site, token="t")
    assert (await job(site, first))["blocked_by"] is None
    assert (await job(site, second))["blocked_by"] == first
    chains = (await site.ask("GET", "/v1/job-views/chains", key="viewer")).json["items"]
    assert [(one["token"], one["jobs"], one["head_id"]) for one in chains] == [("t", 1, first)]


async def test_a_job_of_one_user_blocks_no_chain_of_another(site: Site) -> None:
    keys = [await key_of(site, name, "job.submit:own") for name in ("ana", "eve")]
    told = {"handler": "mail", "token": "t"}
    far = {**told, "start": "2099-01-01T00:00:00Z"}
    assert (await site.ask("POST", JOBS, key=keys[1], json=far)).status == 201
    async with served(site):
        made = await site.ask("POST", JOBS, key=keys[0], json=told)
        ended = await site.ask("GET", f"{JOBS}/{made.json['id']}/end", key="viewer")
        assert (ended.json["done"], ended.json["job"]["status"]) == (True, "succeeded")


async def test_what_blocks_a_shared_chain_is_told_and_an_operator_lifts_it(site: Site) -> None:
    app = site.services.app
    app.jobs.configure(Lane(name="default", shared_tokens=True))
    async with served(site):
        mine = await key_of(site, "ana", "job.submit:own", "job.read:own", "job.write:own")
        far = {"handler": "mail", "token": "t", "start": "2099-01-01T00:00:00Z"}
        head = (await site.ask("POST", JOBS, key="producer", json=far)).json["id"]
        told = {"handler": "mail", "token": "t"}
        blocked = (await site.ask("POST", JOBS, key=mine, json=told)).json["id"]
        seen = (await site.ask("GET", f"{JOBS}/{blocked}", key=mine)).json
        assert (seen["blocked"], seen["blocked_by"]) == (True, None)
        assert (await job(site, blocked))["blocked_by"] == head
        refused = await site.ask("POST", f"{JOBS}/{blocked}:unblock", key=mine)
        assert refused.status == 403
        assert (await command(site, head, "unblock")).status == 409
        lifted = await command(site, blocked, "unblock")
        assert (lifted.status, lifted.json) == (200, {"taken_out": head})
        ended = await site.ask("GET", f"{JOBS}/{blocked}/end", key=mine)
        assert ended.json["job"]["status"] == "succeeded"
        assert (await job(site, head))["status"] == "waiting"
        assert (await command(site, blocked, "unblock")).status == 404


async def key_of(site: Site, name: str, *roles: str) -> str:
    """The key of a user of its own, with these roles."""
    user = await site.services.app.users.create_user(name)
    made = await site.services.keys.create(NewKey(name=name, roles=roles, user_id=user))
    return made.secret


async def test_commands_move_a_job_as_the_table_says(site: Site) -> None:
    key = await submit(site)
    refused = await command(site, key, "pause")
    assert (refused.status, code(refused)) == (409, "job_refused")  # A10
    assert (await command(site, key, "postpone", until="2100-01-01T00:00:00Z")).status == 204
    assert (await job(site, key))["status"] == "waiting"
    assert (await command(site, key, "resume")).status == 204
    assert (await job(site, key))["status"] == "waiting_for_resources"
    assert (await command(site, key, "cancel")).status == 204
    assert (await job(site, key))["status"] == "canceled"
    assert (await command(site, key, "cancel")).status == 409  # A4
    gone = await site.ask("DELETE", f"{JOBS}/{key}", key="operator")
    assert gone.status == 204
    assert (await site.ask("GET", f"{JOBS}/{key}", key="viewer")).status == 404


async def test_a_command_on_an_older_version_is_refused(site: Site) -> None:
    key = await submit(site)
    read = await site.ask("GET", f"{JOBS}/{key}", key="viewer")
    etag = {"If-Match": read.headers["ETag"]}
    until = {"until": "2100-01-01T00:00:00Z"}
    target = f"{JOBS}/{key}:postpone"
    done = await site.ask("POST", target, key="operator", json=until, headers=etag)
    assert done.status == 204, done.body
    stale = await site.ask("POST", target, key="operator", json=until, headers=etag)
    assert (stale.status, code(stale)) == (412, "stale_job")
    odd = await site.ask("POST", target, key="operator", json=until, headers={"If-Match": "x"})
    assert odd.status == 400


async def test_jobs_of_the_platform_take_no_commands(site: Site) -> None:
    made = await site.services.app.jobs.submit("tidy", system=True)
    refused = await command(site, str(made.id), "cancel")
    assert (refused.status, code(refused)) == (403, "platform_job")  # A12


async def test_what_cannot_be_submitted_is_refused_by_name(site: Site) -> None:
    for told, pointer in (
        ({"handler": ""}, "handler"),
        ({"handler": "mail", "lane": "fast"}, "lane"),
        ({"handler": "mail", "priority": 10}, "priority"),
        ({"handler": "mail", "start": "2100-01-01T00:00:00"}, "start"),
        ({"handler": "mail", "odd": 1}, "odd"),
    ):
        refused = await site.ask("POST", JOBS, key="producer", json=told)
        assert refused.status == 400, refused.body
        assert pointer in refused.json["detail"] + str(refused.json["pointer"])


@pytest.mark.parametrize("handler", ["relevo.dataverse.bulk.delete", "step:audit"])
async def test_what_relevo_itself_submits_cannot_be_submitted_by_name(
    site: Site, handler: str
) -> None:
    told = {"handler": handler, "data": {"queries": []}}
    assert (await site.ask("POST", JOBS, key="admin", json=told)).status == 403


async def test_a_series_is_submitted_and_ended(site: Site) -> None:
    key = await submit(site, recurrence={"pattern": "FREQ=DAILY", "start": "2100-01-01T03:00:00Z"})
    found = await job(site, key)
    assert (found["status"], found["pattern"]) == ("waiting", "FREQ=DAILY")
    assert found["postpone_until"].startswith("2100-01-01T03:00:00")
    assert (await command(site, key, "cancel", series=True)).status == 204
    bad = {"handler": "mail", "recurrence": {"pattern": "FREQ=SECONDLY"}}
    assert (await site.ask("POST", JOBS, key="producer", json=bad)).status in (400, 409)


async def test_waiting_ends_with_the_time_and_not_with_the_job(site: Site) -> None:
    key = await submit(site)
    asked = await site.ask("GET", f"{JOBS}/{key}/end?wait_seconds=0.05", key="viewer")
    assert (asked.json["done"], asked.json["job"]["status"]) == (False, "waiting_for_resources")
    never = await site.ask("GET", f"{JOBS}/{uuid.uuid4()}/end", key="viewer")
    assert never.status == 404


async def test_a_job_that_is_deleted_while_somebody_waits_has_not_succeeded(site: Site) -> None:
    key = await submit(site)
    waiting = asyncio.ensure_future(site.ask("GET", f"{JOBS}/{key}/end", key="viewer"))
    jobs = site.services.app.jobs
    while uuid.UUID(key) not in jobs._tools().waiting._awaited or jobs._tools().waiting.looks < 2:
        await asyncio.sleep(0.005)
    await jobs.handle(key).delete()
    assert (await waiting).json == {"done": True, "job": None, "deleted": True}


async def test_views_count_what_there_is(site: Site) -> None:
    await submit(site, name="letters")
    await submit(site, start="2100-01-01T00:00:00Z")

    async def rows(name: str) -> list[Any]:
        found = await site.ask("GET", name, key="viewer")
        assert found.status == 200, found.body
        items: list[Any] = found.json["items"]
        return items

    counts = await rows("/v1/job-views/counts")
    assert [(one["status"], one["type_label"], one["jobs"]) for one in counts] == [
        ("waiting_for_resources", "Execute Async Request", 1),
        ("waiting", "Execute Async Request", 1),
    ]
    (waiting,) = await rows("/v1/job-views/waiting")
    assert (waiting["lane"], waiting["jobs"]) == ("default", 1)
    (suspended,) = await rows("/v1/job-views/suspended")
    assert (suspended["jobs"], suspended["for_time"]) == (1, 1)
    assert {one["name"] for one in await rows("/v1/job-views/volumes")} == {"letters", "mail"}
    assert await rows("/v1/job-views/running") == []
    lanes = {one["name"]: one for one in await rows("/v1/lanes")}
    assert (lanes["default"]["ready"], lanes["default"]["suspended"]) == (1, 1)


async def test_a_key_with_a_reach_sees_and_moves_only_its_own(site: Site) -> None:
    rights = ("job.read:own", "job.submit:own", "job.write:own", "job.delete:own")
    made = await site.services.keys.create(NewKey(name="own", roles=rights))
    site.secrets["own"] = made.secret
    foreign = await submit(site)
    reply = await site.ask("POST", JOBS, key="own", json={"handler": "mail"})
    assert reply.status == 201, reply.body
    mine = reply.json["id"]
    seen = (await site.ask("GET", JOBS, key="own")).json["items"]
    assert [one["id"] for one in seen] == [mine]  # A27
    for method, target in (
        ("GET", f"{JOBS}/{foreign}"),
        ("GET", f"{JOBS}/{foreign}/end"),
        ("POST", f"{JOBS}/{foreign}:cancel"),
        ("DELETE", f"{JOBS}/{foreign}"),
    ):
        assert (await site.ask(method, target, key="own")).status == 404, target
    assert (await site.ask("GET", "/v1/job-views/counts", key="own")).status == 403
    assert (await site.ask("POST", f"{JOBS}/{mine}:cancel", key="own")).status == 204


async def test_all_that_match_are_commanded_in_pages(site: Site) -> None:
    keys = [await submit(site, "nobody", name=f"n{n}") for n in range(5)]
    other = await submit(site, "else")
    ask = {"handler": "nobody", "dry_run": True}
    seen = (await site.ask("POST", f"{JOBS}:cancel", key="operator", json=ask)).json
    assert (seen["matched"], seen["done"], seen["handlers"]) == (5, 0, {"nobody": 5})
    ask = {"handler": "nobody", "most": 3}
    first = (await site.ask("POST", f"{JOBS}:cancel", key="operator", json=ask)).json
    assert (first["done"], first["next"] is None) == (3, False)
    ask["cursor"] = first["next"]
    last = (await site.ask("POST", f"{JOBS}:cancel", key="operator", json=ask)).json
    assert (last["done"], last["next"]) == (2, None)
    refused = await site.ask("POST", f"{JOBS}:pause", key="operator", json={"handler": "nobody"})
    assert set(refused.json["refusals"]) == set(keys)
    again = {"handler": "nobody", "status": ["canceled"]}
    assert (await site.ask("POST", f"{JOBS}:retry", key="operator", json=again)).json["done"] == 5
    until = {"handler": "nobody", "until": "2100-01-01T00:00:00Z"}
    done = await site.ask("POST", f"{JOBS}:postpone", key="operator", json=until)
    assert done.json["done"] == 5
    done = await site.ask("POST", f"{JOBS}:resume", key="operator", json={"handler": "nobody"})
    assert done.json["done"] == 5
    assert (await job(site, other))["status"] == "waiting_for_resources"
    bare = await site.ask("POST", f"{JOBS}:cancel", key="operator", json={})
    assert (bare.status, code(bare)) == (400, "invalid_value")
    denied = await site.ask("POST", f"{JOBS}:delete", key="viewer", json={"handler": "nobody"})
    assert denied.status == 403
    gone = await site.ask("POST", f"{JOBS}:delete", key="admin", json={"handler": "nobody"})
    assert gone.json["done"] == 5


async def test_a_job_is_run_again_with_other_data_and_its_attempts_are_shown(site: Site) -> None:
    async with served(site):
        first = await submit(site, "bad", name="first")
        await site.ask("GET", f"{JOBS}/{first}/end", key="viewer")
        shown = (await site.ask("GET", f"{JOBS}/{first}/payload", key="admin")).json
        assert [each["attempt"] for each in shown["attempts"]] == [1]
        assert "no such customer" in shown["attempts"][0]["message"]
        made = await site.ask("POST", f"{JOBS}/{first}:run-again", key="admin", json={"name": "b"})
        assert made.status == 201, made.body
        again = await job(site, made.json["id"])
        assert (again["origin"], again["name"], again["handler"]) == (first, "b", "bad")
        missing = await site.ask("POST", f"{JOBS}/{uuid.uuid4()}:run-again", key="admin", json={})
        assert (missing.status, code(missing)) == (404, "job_missing")
