"""The official Python client of Dataverse, unmodified, over TLS, against a Relevo host."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
import anyio.to_thread
import pytest
from azure.core.credentials import AccessToken
from PowerPlatform.Dataverse.client import DataverseClient
from PowerPlatform.Dataverse.core.errors import HttpError

from relevo.http.tls import client_tls
from tests.dataverse.http.conftest import Dataverse
from tests.dataverse.http.test_rows import FETCHXML_SAMPLE
from tests.http.authority import Authority

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from tests.http.conftest import Opens

pytestmark = pytest.mark.anyio


class Key:
    """A credential that is a key of Relevo."""

    def __init__(self, secret: str) -> None:
        self.secret = secret

    def get_token(self, *_: str, **__: Any) -> AccessToken:
        return AccessToken(self.secret, 2**40)


class Client:
    """Runs calls of the official client in a thread, since it blocks."""

    def __init__(self, dataverse: Dataverse) -> None:
        self.dataverse = dataverse
        self.official = DataverseClient(
            dataverse.site.address.url, Key(dataverse.site.secrets["admin"])
        )

    async def run(self, call: Callable[[DataverseClient], Any]) -> Any:
        return await anyio.to_thread.run_sync(call, self.official)


@asynccontextmanager
async def opened(
    open_site: Opens, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Client]:
    folder = tmp_path / "certificates"
    folder.mkdir()
    authority = Authority(folder)
    cert, key = authority.make_out("host")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(authority.ca))
    connector = aiohttp.TCPConnector(ssl=client_tls(authority.ca))
    async with (
        # The client keeps a connection as long as somebody holds an error that came over it, and
        # says no word of TLS on it; the host need not wait for one.
        open_site(tls_cert=cert, tls_key=key, grace_seconds=1) as site,
        aiohttp.ClientSession(connector=connector) as session,
    ):
        await site.session.close()
        site.session = session
        client = Client(Dataverse(site))
        with client.official:  # which closes its connections
            yield client


@pytest.fixture
async def client(
    open_site: Opens, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Client]:
    """The official client of a host that serves https."""
    async with opened(open_site, tmp_path, monkeypatch) as found:
        yield found


async def test_a_job_is_retrieved_with_columns_and_expansions(client: Client) -> None:
    job = str(await client.dataverse.submit(name="nightly"))
    record = await client.run(
        lambda one: one.records.retrieve(
            "asyncoperation",
            job,
            select=["name", "statuscode"],
            expand=["owninguser"],
            include_annotations="*",
        )
    )
    assert record["name"] == "nightly"
    assert record["owninguser"]["fullname"] == "SYSTEM"
    formatted = "statuscode@OData.Community.Display.V1.FormattedValue"
    assert record[formatted] == "Waiting For Resources"


async def test_jobs_are_listed_page_by_page_with_a_cap(client: Client) -> None:
    # R7
    for n in range(7):
        await client.dataverse.submit(name=f"job {n}")
    pages = await client.run(
        lambda one: list(
            one.records.list_pages(
                "asyncoperation",
                select=["name"],
                filter="statecode eq 0",
                orderby=["createdon"],
                top=5,
                page_size=2,
            )
        )
    )
    names = [[record["name"] for record in page] for page in pages]
    assert names == [["job 0", "job 1"], ["job 2", "job 3"], ["job 4"]]
    counted = await client.run(
        lambda one: one.records.list("asyncoperation", select=["name"], count=True)
    )
    assert len(counted) == 7


async def test_jobs_are_changed_by_numbers_and_by_labels(client: Client) -> None:
    ids = [str(await client.dataverse.submit()) for _ in range(3)]
    far = "2091-01-31T10:00:00Z"
    await client.run(
        lambda one: one.records.update("asyncoperation", ids[0], {"postponeuntil": far})
    )
    await client.run(
        lambda one: one.records.update("asyncoperation", ids[1:], {"postponeuntil": far})
    )
    rows = await client.dataverse.rows("asyncoperations?$select=statuscode,postponeuntil")
    assert {(row["statuscode"], row["postponeuntil"]) for row in rows} == {(10, far)}
    await client.run(
        lambda one: one.records.update(
            "asyncoperation", ids[0], {"statecode": "Completed", "statuscode": "Canceled"}
        )
    )
    await client.run(
        lambda one: one.records.update(
            "asyncoperation", ids[1:], [{"statecode": 0}, {"statecode": 3}]
        )
    )
    rows = await client.dataverse.rows("asyncoperations?$select=statuscode&$orderby=sequence")
    assert [row["statuscode"] for row in rows] == [32, 0, 32]


async def test_a_refused_change_comes_as_an_error_with_its_code(client: Client) -> None:
    job = str(await client.dataverse.submit())

    def pause(one: DataverseClient) -> None:
        one.records.update("asyncoperation", job, {"statecode": 1})

    with pytest.raises(HttpError, match="has not started") as refused:
        await client.run(pause)
    assert refused.value.status_code == 400
    assert refused.value.details["service_error_code"] == "0x80044167"
    assert refused.value.details["service_request_id"]


async def test_a_job_is_deleted(client: Client) -> None:
    job = str(await client.dataverse.submit())
    await client.run(lambda one: one.records.delete("asyncoperation", job))
    assert await client.dataverse.rows("asyncoperations") == []


async def test_many_jobs_are_deleted_by_a_job(client: Client) -> None:
    app = client.dataverse.site.services.app
    app.serve_bulk()
    ids = [await client.dataverse.submit() for _ in range(3)]
    await client.dataverse.force(30, *ids)
    async with app.host():
        chosen = [str(job) for job in ids[:2]]
        job = await client.run(lambda one: one.records.delete("asyncoperation", chosen))
        assert await app.jobs.handle(job).wait(timeout=30) == {"success": 2, "failure": 0}
    rows = await client.dataverse.rows("asyncoperations?$filter=operationtype eq 54")
    assert [row["asyncoperationid"] for row in rows] == [str(ids[2])]


async def test_creating_a_job_is_refused(client: Client) -> None:
    with pytest.raises(HttpError) as refused:
        await client.run(lambda one: one.records.create("asyncoperation", {"name": "x"}))
    assert refused.value.status_code == 405


async def test_fetchxml_runs_through_all_pages(client: Client) -> None:
    for _ in range(5):
        await client.dataverse.submit()
    sample = await client.run(lambda one: one.query.fetchxml(FETCHXML_SAMPLE).execute())
    assert len(sample) == 5
    text = (
        '<fetch count="2"><entity name="asyncoperation"><attribute name="name" />'
        '<order attribute="createdon" /></entity></fetch>'
    )
    pages = await client.run(lambda one: list(one.query.fetchxml(text).execute_pages()))
    assert [len(page) for page in pages] == [2, 2, 1]


async def test_tables_and_columns_are_described(client: Client) -> None:
    info = await client.run(lambda one: one.tables.get("asyncoperation"))
    assert info["entity_set_name"] == "asyncoperations"
    tables = await client.run(lambda one: one.tables.list(filter="SchemaName eq 'AsyncOperation'"))
    assert [one["LogicalName"] for one in tables] == ["asyncoperation"]
    columns = await client.run(
        lambda one: one.tables.list_columns("asyncoperation", filter="AttributeType eq 'Picklist'")
    )
    assert len(columns) == 3
