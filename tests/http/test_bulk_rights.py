"""A bulk delete acts with the rights that its owner has when it runs (async-service 9)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from relevo.dataverse.bulk import engine
from relevo.dataverse.http import bulk_deletes
from relevo.http.access import roles
from relevo.http.access.authenticator import Principal
from relevo.http.access.key_model import NewKey
from relevo.jobs.core import codes
from relevo.jobs.errors import JobFailed

if TYPE_CHECKING:
    from uuid import UUID

    from relevo import App
    from tests.http.conftest import Site

pytestmark = pytest.mark.anyio

V1 = "/v1/bulk-deletes"
DATAVERSE = "/api/data/v9.2/BulkDelete"
LATER = "2100-01-01T00:00:00Z"


class Office:
    """Ana and Bob of one unit, Eve of another, each with a job that is over."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.app: App = site.services.app
        self.jobs: dict[str, UUID] = {}
        self.users: dict[str, UUID] = {}

    async def open(self) -> Office:
        self.app.serve_bulk()
        unit = await self.app.users.create_unit("Vigo")
        for name, place in (("ana", unit), ("bob", unit), ("eve", None)):
            self.users[name] = await self.app.users.create_user(name, unit=place)
            job = await self.app.jobs.submit("nothing", owner=self.users[name])
            await job.cancel()
            self.jobs[name] = job.id
        return self

    async def key(self, *given: str) -> str:
        """Give Ana a key; returns its id, which is also what the site calls it."""
        made = await self.site.services.keys.create(
            NewKey(name="ana", roles=given, user_id=self.users["ana"])
        )
        self.site.secrets[made.key.id] = made.secret
        return made.key.id

    async def revoke(self, key: str) -> None:
        await self.site.services.keys.revoke(key)

    async def asked(self, key: str, surface: str = V1) -> UUID:
        """Ask for a deletion of all jobs that are over, for later."""
        body: dict[str, Any] = {"queries": [{"jobs": True}], "start": LATER}
        if surface == DATAVERSE:
            body = {
                "JobName": "tidy", "StartDateTime": LATER,
                "QuerySet": [{"EntityName": "asyncoperation"}],
            }  # fmt: skip
        reply = await self.site.ask("POST", surface, key=key, json=body)
        assert reply.status in (200, 201), reply.body
        found: UUID = self.app.jobs.handle(reply.json.get("JobId") or reply.json["id"]).id
        return found

    async def run(self, job: UUID) -> dict[str, Any]:
        handle = self.app.jobs.handle(job)
        await handle.resume()
        async with self.app.host():
            result: dict[str, Any] = await handle.wait(60)
        return result

    async def left(self) -> set[str]:
        ids = {one.id for one in await self.app.jobs.query().where(handler="nothing")}
        return {name for name, id_ in self.jobs.items() if id_ in ids}


@pytest.fixture
async def office(site: Site) -> Office:
    return await Office(site).open()


@pytest.mark.parametrize("surface", [V1, DATAVERSE])
async def test_a_deletion_reaches_no_further_than_what_its_owner_may_delete_by_then(
    office: Office, surface: str
) -> None:
    key = await office.key("bulk.run:all", "job.delete:all")
    await office.key("bulk.run:all", "job.delete:own")
    job = await office.asked(key, surface)
    await office.revoke(key)
    assert await office.run(job) == {"success": 1, "failure": 0}
    assert await office.left() == {"bob", "eve"}


@pytest.mark.parametrize("surface", [V1, DATAVERSE])
@pytest.mark.parametrize("kept", [("job.delete:all",), ("bulk.run:all",), ()])
async def test_a_deletion_fails_if_its_owner_may_not_delete_any_more(
    office: Office, surface: str, kept: tuple[str, ...]
) -> None:
    key = await office.key("bulk.run:all", "job.delete:all")
    if kept:
        await office.key(*kept)
    job = await office.asked(key, surface)
    await office.revoke(key)
    with pytest.raises(JobFailed, match=r"no longer has the right (bulk.run|job.delete)"):
        await office.run(job)
    assert (await office.app.jobs.handle(job).get()).error_code == codes.FORBIDDEN
    assert await office.left() == {"ana", "bob", "eve"}


async def test_items_are_deleted_only_while_the_owner_may_run_bulk_operations(
    office: Office,
) -> None:
    orders = office.app.container("orders", "/city")
    await orders.create({"id": "1", "city": "Vigo"})
    key = await office.key("bulk.run:all", "producer")
    body = {"queries": [{"container": "orders"}], "start": LATER}
    reply = await office.site.ask("POST", V1, key=key, json=body)
    await office.revoke(key)
    with pytest.raises(JobFailed, match=r"no longer has the right bulk.run"):
        await office.run(reply.json["id"])
    assert [one.id async for one in orders.query()] == ["1"]


async def test_more_rights_than_there_were_let_it_delete_no_more(office: Office) -> None:
    key = await office.key("bulk.run:all", "job.delete:own")
    job = await office.asked(key)
    await office.key("admin")
    assert await office.run(job) == {"success": 1, "failure": 0}
    assert await office.left() == {"bob", "eve"}


async def test_rights_that_are_lost_in_the_middle_count_from_the_next_chunk_on(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "CHUNK_ROWS", 1)
    ordinary = engine.BulkRun._take

    async def take(self: Any, *args: Any) -> Any:
        at = await ordinary(self, *args)
        await office.revoke(key)
        return at

    monkeypatch.setattr(engine.BulkRun, "_take", take)
    key = await office.key("bulk.run:all", "job.delete:all")
    await office.key("bulk.run:all", "job.delete:unit")
    assert (await office.run(await office.asked(key)))["success"] == 2
    assert await office.left() == {"eve"}


@pytest.mark.parametrize("surface", [V1, DATAVERSE])
async def test_a_right_for_a_unit_deletes_what_is_its(office: Office, surface: str) -> None:
    key = await office.key("bulk.run:all", "job.delete:unit")
    assert await office.run(await office.asked(key, surface)) == {"success": 2, "failure": 0}
    assert await office.left() == {"eve"}


async def test_who_came_with_a_token_keeps_what_it_allowed(office: Office) -> None:
    given = ("bulk.run:all", "job.delete:own")
    eve = await office.app.users.known_as("oidc:eve", "eve")
    mine = await office.app.jobs.submit("nothing", owner=eve)
    await mine.cancel()
    principal = Principal(
        id="oidc:eve", name="eve", permissions=roles.permissions_of(given),
        reach=roles.reach_of(given),
    )  # fmt: skip
    command = bulk_deletes.CreateBulkDelete(queries=(bulk_deletes.BulkRows(jobs=True),))
    made = await bulk_deletes.create(office.site.services, principal, command)
    async with office.app.host():
        found = await office.app.jobs.handle(made.id).wait(60)
    assert found == {"success": 1, "failure": 0}
    assert await office.left() == {"ana", "bob", "eve"}


async def test_a_look_counts_only_what_the_caller_may_see(office: Office) -> None:
    # A27
    key = await office.key("bulk.run:all", "job.delete:all", "job.read:own")
    reply = await office.site.ask("POST", f"{V1}:preview", key=key, json={"jobs": True})
    assert reply.json["count"] == 1
    assert [one["id"] for one in reply.json["sample"]] == [str(office.jobs["ana"])]
