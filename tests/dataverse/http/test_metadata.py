"""What there is: the service document, `$metadata`, and descriptions of tables and columns."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest

from tests.dataverse.http.conftest import code

if TYPE_CHECKING:
    from tests.dataverse.http.conftest import Dataverse

pytestmark = pytest.mark.anyio

EDM = "{http://docs.oasis-open.org/odata/ns/edm}"
PICKLISTS = (
    "EntityDefinitions(LogicalName='asyncoperation')"
    "/Attributes/Microsoft.Dynamics.CRM.PicklistAttributeMetadata"
    "?$select=LogicalName&$expand=OptionSet($select=Options)"
)


@pytest.mark.parametrize("version", ["v9.0", "v9.1", "v9.2"])
async def test_every_version_lists_its_sets(dataverse: Dataverse, version: str) -> None:
    for path in (f"/api/data/{version}", f"/api/data/{version}/"):
        reply = await dataverse.site.ask("GET", path, key="reader")
        assert reply.json["@odata.context"].endswith(f"/api/data/{version}/$metadata")
        assert "asyncoperations" in [one["name"] for one in reply.json["value"]]


async def test_other_versions_are_refused(dataverse: Dataverse) -> None:
    reply = await dataverse.site.ask("GET", "/api/data/v8.2/asyncoperations", key="reader")
    assert (reply.status, code(reply)) == (400, "0x80040203")


async def test_the_schema_describes_jobs_and_their_navigations(dataverse: Dataverse) -> None:
    app = dataverse.site.services.app
    app.table("account", schema_name="Account")
    reply = await dataverse.ask("GET", "$metadata")
    assert reply.type == "application/xml"
    root = ElementTree.fromstring(reply.body)
    types = {one.get("Name"): one for one in root.iter(f"{EDM}EntityType")}
    job = types["asyncoperation"]
    properties = {one.get("Name"): one.get("Type") for one in job.iter(f"{EDM}Property")}
    assert properties["asyncoperationid"] == "Edm.Guid"
    assert properties["_ownerid_value"] == "Edm.Guid"
    assert properties["sequence"] == "Edm.Int64"
    ways = {one.get("Name"): one.get("Type") for one in job.iter(f"{EDM}NavigationProperty")}
    assert ways["regardingobjectid_account"] == "mscrm.account"
    there = {
        one.get("Name"): one.get("Type")
        for one in types["account"].iter(f"{EDM}NavigationProperty")
    }
    assert there["Account_AsyncOperations"] == "Collection(mscrm.asyncoperation)"
    keys = {one.get("Name"): one.get("Type") for one in types["account"].iter(f"{EDM}Property")}
    assert keys == {"accountid": "Edm.String"}  # items have any text as their key
    assert properties["_regardingobjectid_value"] == "Edm.String"
    tied = {
        one.get("Name")
        for one in job.iter(f"{EDM}NavigationProperty")
        if one.find(f"{EDM}ReferentialConstraint") is not None
    }
    assert {"owninguser", "regardingobjectid_account"} <= tied
    assert "regardingobjectid_systemuser" not in tied  # a GUID here, text there
    path = "EntityDefinitions(LogicalName='account')/Attributes(LogicalName='accountid')"
    assert (await dataverse.ask("GET", path)).json["AttributeType"] == "String"
    sets = {one.get("Name") for one in root.iter(f"{EDM}EntitySet")}
    assert {"asyncoperations", "systemusers", "accounts"} <= sets


async def test_a_table_is_described_by_its_name(dataverse: Dataverse) -> None:
    (found,) = await dataverse.rows(
        "EntityDefinitions?$select=LogicalName,SchemaName,EntitySetName,PrimaryIdAttribute,"
        "PrimaryNameAttribute,MetadataId&$filter=LogicalName eq 'asyncoperation'"
    )
    metadata_id = found.pop("MetadataId")
    assert found == {
        "LogicalName": "asyncoperation", "SchemaName": "AsyncOperation",
        "EntitySetName": "asyncoperations", "PrimaryIdAttribute": "asyncoperationid",
        "PrimaryNameAttribute": "name",
    }  # fmt: skip
    for key in (metadata_id, "LogicalName='asyncoperation'"):
        reply = await dataverse.ask("GET", f"EntityDefinitions({key})?$select=EntitySetName")
        assert reply.json["EntitySetName"] == "asyncoperations"
    assert await dataverse.rows("EntityDefinitions?$filter=LogicalName eq 'x'") == []


async def test_choices_are_described_with_their_options(dataverse: Dataverse) -> None:
    found = {row["LogicalName"]: row for row in await dataverse.rows(PICKLISTS)}
    assert set(found) == {"operationtype", "statecode", "statuscode"}
    options = found["statuscode"]["OptionSet"]["Options"]
    texts = {one["Value"]: one["Label"]["LocalizedLabels"][0]["Label"] for one in options}
    assert texts[0] == "Waiting For Resources"
    assert texts[32] == "Canceled"


async def test_columns_are_described_one_by_one(dataverse: Dataverse) -> None:
    entity = "EntityDefinitions(LogicalName='asyncoperation')"
    names = [row["LogicalName"] for row in await dataverse.rows(f"{entity}/Attributes")]
    assert "relevo_blockedby" in names
    reply = await dataverse.ask("GET", f"{entity}/Attributes(LogicalName='ownerid')")
    assert reply.json["Targets"] == ["systemuser", "team"]
    reply = await dataverse.ask("GET", f"{entity}/Attributes(LogicalName='nothing')")
    assert (reply.status, code(reply)) == (404, "0x80040217")
