"""Metadata of the Dataverse surface: the service document and `EntityDefinitions`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final
from uuid import UUID, uuid5

from msgspec import Meta

from relevo.dataverse.http import csdl as dataverse_csdl
from relevo.dataverse.http.requester import READ, Requester, catalogue, requester_of
from relevo.dataverse.http.rows import ERRORS, Rows
from relevo.dataverse.http.surface import (
    BASE,
    NAMESPACE,
    WEB_API,
    RowsRequest,
    WebApiRequest,
    key_in,
)
from relevo.errors import InvalidQuery, NotFound
from relevo.kernel.expressions import to_python
from relevo.kernel.operation import Operations, Reply, Text
from relevo.kernel.querying.catalogue import Catalogue, Column, ColumnType, Table
from relevo.kernel.querying.errors import UNKNOWN_COLUMN
from relevo.kernel.querying.odata.filters import Reader
from relevo.kernel.querying.reading import reading

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from relevo.http.access.authenticator import Principal
    from relevo.http.services import Services

_SPACE: Final = UUID("0f6f4b51-7f53-5a0e-9d2d-6a7d3f8f5a11")
"""Namespace of the `MetadataId` of tables and columns."""
_LANGUAGES: Final = {"en": 1033, "es": 3082}
_KINDS: Final[dict[ColumnType, tuple[str, str]]] = {
    "guid": ("Uniqueidentifier", "UniqueIdentifier"),
    "text": ("String", "String"),
    "memo": ("Memo", "Memo"),
    "json": ("Memo", "Memo"),
    "int": ("Integer", "Integer"),
    "bigint": ("BigInt", "BigInt"),
    "float": ("Double", "Double"),
    "bool": ("Boolean", "Boolean"),
    "datetime": ("DateTime", "DateTime"),
    "choice": ("Picklist", "Picklist"),
    "lookup": ("Lookup", "Lookup"),
}
"""`AttributeType` of a column, and the class that describes it."""
_ENTITY: Final = f"{BASE}/EntityDefinitions({{entity}})"
_NOT_HERE: Final = frozenset({"$orderby", "$apply", "$skiptoken"})

EntityKey = Annotated[str, Meta(description="`LogicalName='…'`, or the table's `MetadataId`.")]
AttributeKey = Annotated[str, Meta(description="`LogicalName='…'`, or its `MetadataId`.")]


operation = Operations(WEB_API, errors=ERRORS)


class ListEntities(RowsRequest, frozen=True, kw_only=True):
    """A query for tables."""


class GetEntity(RowsRequest, frozen=True, kw_only=True):
    """A table."""

    entity: EntityKey


class GetAttribute(RowsRequest, frozen=True, kw_only=True):
    """A column of a table."""

    entity: EntityKey
    attribute: AttributeKey


class CastAttributes(RowsRequest, frozen=True, kw_only=True):
    """The columns of one kind of a table."""

    entity: EntityKey
    kind: Annotated[str, Meta(description=f"Such as `{NAMESPACE}.PicklistAttributeMetadata`.")]


@operation("dataverse.root", f"GET {BASE}/", READ, response=dict[str, Any])
@operation("dataverse.service", f"GET {BASE}", READ, response=dict[str, Any])
async def service(services: Services, principal: Principal, command: WebApiRequest) -> Reply:
    """List the entity sets."""
    shown = catalogue(services, principal)
    sets = [
        {"name": table.set_name, "kind": "EntitySet", "url": table.set_name}
        for table in shown.tables
    ]
    return Reply(body={"@odata.context": f"{command.base}/$metadata", "value": sets})


@operation("dataverse.metadata", f"GET {BASE}/$metadata", READ)
async def metadata(services: Services, principal: Principal, _: WebApiRequest) -> Text:
    """Describe the tables in the schema language of OData (CSDL)."""
    return Text("application/xml", dataverse_csdl.document(catalogue(services, principal)))


@operation("dataverse.entities.list", f"GET {BASE}/EntityDefinitions", READ, response=Rows)
async def list_entities(services: Services, principal: Principal, command: ListEntities) -> Reply:
    """Describe tables."""
    requester = await requester_of(services, principal)
    entities = [_entity(table) for table in requester.catalogue.tables]
    return await _answered(requester, command, entities, "EntityDefinitions")


@operation("dataverse.entities.get", f"GET {_ENTITY}", READ, response=dict[str, Any])
async def get_entity(services: Services, principal: Principal, command: GetEntity) -> Reply:
    """Describe a table."""
    table = _table(catalogue(services, principal), command.entity)
    return _single(command, _entity(table), "EntityDefinitions")


@operation("dataverse.attributes.list", f"GET {_ENTITY}/Attributes", READ, response=Rows)
async def list_attributes(services: Services, principal: Principal, command: GetEntity) -> Reply:
    """Describe the columns of a table."""
    requester = await requester_of(services, principal)
    table = _table(requester.catalogue, command.entity)
    attributes = [_attribute(table, column) for column in table.columns]
    return await _answered(requester, command, attributes, "Attributes")


@operation("dataverse.attributes.cast", f"GET {_ENTITY}/Attributes/{{kind}}", READ, response=Rows)
async def cast_attributes(
    services: Services, principal: Principal, command: CastAttributes
) -> Reply:
    """Describe the columns of one kind of a table."""
    requester = await requester_of(services, principal)
    table = _table(requester.catalogue, command.entity)
    wanted = f"#{command.kind}"
    described = (_attribute(table, column) for column in table.columns)
    attributes = [one for one in described if one["@odata.type"] == wanted]
    if not attributes and command.kind not in {f"{NAMESPACE}.{_class(one)}" for one in _KINDS}:
        raise NotFound(f"there is no attribute type {command.kind[:96]!r}; see $metadata")
    return await _answered(requester, command, attributes, "Attributes")


@operation(
    "dataverse.attributes.get",
    f"GET {_ENTITY}/Attributes({{attribute}})",
    READ,
    response=dict[str, Any],
)
async def get_attribute(services: Services, principal: Principal, command: GetAttribute) -> Reply:
    """Describe a column of a table."""
    table = _table(catalogue(services, principal), command.entity)
    wanted = key_in(command.attribute, "LogicalName")
    for column in table.columns:
        described = _attribute(table, column)
        if wanted in (column.name, described["MetadataId"]):
            return _single(command, described, "Attributes")
    raise NotFound(f"{table.name} has no column {wanted[:64]!r}")


def _class(kind: ColumnType) -> str:
    return f"{_KINDS[kind][1]}AttributeMetadata"


def _table(found: Catalogue, key: str) -> Table:
    wanted = key_in(key, "LogicalName")
    for table in found.tables:
        if wanted.lower() in (table.name, _id(table.name)):
            return table
    raise NotFound(f"there is no table {wanted[:64]!r}; EntityDefinitions lists them")


def _id(*names: str) -> str:
    return str(uuid5(_SPACE, "/".join(names)))


def _label(texts: Mapping[str, str]) -> dict[str, Any]:
    labels = [
        {"Label": text, "LanguageCode": _LANGUAGES[language], "IsManaged": True}
        for language, text in texts.items()
    ]
    return {"LocalizedLabels": labels, "UserLocalizedLabel": labels[0]}


def _entity(table: Table) -> dict[str, Any]:
    return {
        "MetadataId": _id(table.name),
        "LogicalName": table.name,
        "SchemaName": table.schema_name,
        "EntitySetName": table.set_name,
        "LogicalCollectionName": table.set_name,
        "PrimaryIdAttribute": table.key,
        "PrimaryNameAttribute": table.primary_name,
        "IsPrivate": False,
        "IsCustomEntity": False,
        "DisplayName": _label({"en": table.schema_name}),
    }


def _attribute(table: Table, column: Column) -> dict[str, Any]:
    # A key stored as text need not be a GUID.
    kind = "text" if (column.type, column.sql_type) == ("guid", "text") else column.type
    described: dict[str, Any] = {
        "@odata.type": f"#{NAMESPACE}.{_class(kind)}",
        "MetadataId": _id(table.name, column.name),
        "LogicalName": column.name,
        "SchemaName": column.name,
        "EntityLogicalName": table.name,
        "AttributeType": _KINDS[kind][0],
        "IsPrimaryId": column.name == table.key,
        "IsPrimaryName": column.name == table.primary_name,
        "IsValidForRead": True,
        "IsValidForUpdate": False,
        "DisplayName": _label({"en": column.name}),
    }
    if column.type == "lookup":
        described["Targets"] = list(column.targets)
    if column.type == "choice":
        options = [
            {"Value": number, "Label": _label(texts)} for number, texts in column.labels.items()
        ]
        described["OptionSet"] = {
            "MetadataId": _id(table.name, column.name, "options"),
            "Name": f"{table.name}_{column.name}",
            "IsGlobal": False,
            "Options": options,
        }
    return described


async def _answered(
    requester: Requester, command: RowsRequest, rows: list[dict[str, Any]], what: str
) -> Reply:
    """Filter and select without blocking the event loop: a filter is evaluated for every row."""
    filtered = "$filter" in command.options.system
    size = len(rows) * command.options.size if filtered else command.options.size
    return await reading(size, _answer, requester, command, rows, what)


def _answer(
    requester: Requester, command: RowsRequest, rows: list[dict[str, Any]], what: str
) -> Reply:
    """Filter and select; there are few descriptions, so there are no pages."""
    system = command.options.system
    for name in sorted(_NOT_HERE & system.keys()):
        raise InvalidQuery(f"{name} does not apply to {what}; leave it out", pointer=name)
    if "$filter" in system:
        rows = _filtered(requester, rows, system["$filter"])
    if "$top" in system and system["$top"].isascii() and system["$top"].isdigit():
        rows = rows[: int(system["$top"])]
    body = {
        "@odata.context": f"{command.base}/$metadata#{what}",
        "value": [_picked(command, row) for row in rows],
    }
    return Reply(body=body)


def _single(command: RowsRequest, row: dict[str, Any], what: str) -> Reply:
    context = f"{command.base}/$metadata#{what}/$entity"
    return Reply(body={"@odata.context": context, **_picked(command, row)})


def _filtered(requester: Requester, rows: list[dict[str, Any]], text: str) -> list[dict[str, Any]]:
    table = _described(rows)
    condition = Reader(Catalogue((table,)), requester.caller, requester.user.now).filter(
        text, table
    )
    holds = to_python.function(condition.tree)
    return [row for row in rows if holds({name: row.get(name) for name in table.by_name}) is True]


def _described(rows: Iterable[Mapping[str, Any]]) -> Table:
    """Return the table that filters over descriptions refer to: text and boolean properties."""
    kinds: dict[str, ColumnType] = {}
    for row in rows:
        for name, value in row.items():
            if isinstance(value, bool | str) and "@" not in name:
                kinds[name] = "bool" if isinstance(value, bool) else "text"
    columns = tuple(Column(name=name, type=kind) for name, kind in kinds.items())
    return Table(
        name="metadata",
        set_name="metadata",
        schema_name="Metadata",
        key="MetadataId",
        primary_name="LogicalName",
        columns=columns,
        source="",
    )


def _picked(command: RowsRequest, row: dict[str, Any]) -> dict[str, Any]:
    """Return the selected properties; the key and the type are always included."""
    system = command.options.system
    wanted = [one.strip() for one in system.get("$select", "").split(",") if one.strip()]
    for name in wanted:
        if name not in row and name not in _ENTITY_NAMES:
            raise InvalidQuery(
                f"unknown property {name[:64]!r}; remove it",
                dataverse=UNKNOWN_COLUMN,
                pointer="$select",
            )
    expanded = "OptionSet" in system.get("$expand", "")
    if not wanted:
        return {name: value for name, value in row.items() if name != "OptionSet" or expanded}
    kept = {"MetadataId", "@odata.type", *wanted, *(["OptionSet"] if expanded else ())}
    return {name: value for name, value in row.items() if name in kept}


_ENTITY_NAMES: Final = frozenset({"Targets", "OptionSet"})
"""Properties that only some descriptions have."""
