"""The tables of a catalogue as CSDL, the schema language of OData 4.0, for `$metadata`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from xml.sax.saxutils import quoteattr

from relevo.dataverse.http.surface import NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from relevo.kernel.querying.catalogue import Catalogue, Column, ColumnType, Navigation, Table

_TYPES: Final[dict[ColumnType, str]] = {
    "guid": "Edm.Guid",
    "text": "Edm.String",
    "memo": "Edm.String",
    "json": "Edm.String",
    "int": "Edm.Int32",
    "bigint": "Edm.Int64",
    "float": "Edm.Double",
    "bool": "Edm.Boolean",
    "datetime": "Edm.DateTimeOffset",
    "choice": "Edm.Int32",
    "lookup": "Edm.Guid",
}
_HEAD: Final = (
    '<?xml version="1.0" encoding="utf-8"?>\n'
    '<edmx:Edmx Version="4.0" xmlns:edmx="http://docs.oasis-open.org/odata/ns/edmx">'
    "<edmx:DataServices>"
    f'<Schema Namespace="{NAMESPACE}" Alias="mscrm"'
    ' xmlns="http://docs.oasis-open.org/odata/ns/edm">'
)
_TAIL: Final = "</Schema></edmx:DataServices></edmx:Edmx>"


def document(catalogue: Catalogue) -> bytes:
    """Return the description of all tables and their navigations."""
    parts = [_HEAD]
    for table in catalogue.tables:
        parts += _entity(table, catalogue)
    parts += _container(catalogue)
    return "".join([*parts, _TAIL]).encode()


def _type(column: Column) -> str:
    """Return the type of a column; keys stored as text, and references to them, are strings."""
    return "Edm.String" if column.sql_type == "text" else _TYPES[column.type]


def _entity(table: Table, catalogue: Catalogue) -> Iterator[str]:
    yield f"<EntityType Name={quoteattr(table.name)}><Key>"
    yield f"<PropertyRef Name={quoteattr(table.key)}/></Key>"
    for column in table.columns:
        yield _property(table, column)
    for navigation in table.navigations:
        yield _navigation(table, navigation, catalogue.by_name[navigation.table])
    yield "</EntityType>"


def _property(table: Table, column: Column) -> str:
    nullable = ' Nullable="false"' if column.name == table.key else ""
    return f'<Property Name={quoteattr(column.wire)} Type="{_type(column)}"{nullable}/>'


def _navigation(table: Table, one: Navigation, there: Table) -> str:
    target = f"mscrm.{one.table}"
    if one.collection:
        target = f"Collection({target})"
    opening = f"<NavigationProperty Name={quoteattr(one.name)} Type={quoteattr(target)}"
    lookup, key = table.by_name[one.column], there.by_name[one.target_column]
    if one.collection or _type(lookup) != _type(key):  # a constraint needs equal types
        return f"{opening}/>"
    return (
        f"{opening}><ReferentialConstraint Property={quoteattr(lookup.wire)}"
        f" ReferencedProperty={quoteattr(key.name)}/></NavigationProperty>"
    )


def _container(catalogue: Catalogue) -> Iterator[str]:
    yield '<EntityContainer Name="System">'
    for table in catalogue.tables:
        yield f"<EntitySet Name={quoteattr(table.set_name)}"
        yield f" EntityType={quoteattr(f'{NAMESPACE}.{table.name}')}>"
        for one in table.navigations:
            there = catalogue.by_name[one.table].set_name
            yield f"<NavigationPropertyBinding Path={quoteattr(one.name)}"
            yield f" Target={quoteattr(there)}/>"
        yield "</EntitySet>"
    yield "</EntityContainer>"
