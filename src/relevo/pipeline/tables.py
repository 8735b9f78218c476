"""Tables: containers under the names that operations and queries use."""

from __future__ import annotations

import enum
import re
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct
from msgspec import inspect as msgspec_inspect

from relevo.errors import InvalidValue
from relevo.kernel.querying import catalogue
from relevo.kernel.querying.catalogue import Column, ColumnType
from relevo.store import Container, items

if TYPE_CHECKING:
    from collections.abc import Mapping

    from relevo.store import ContainerInfo
    from relevo.store.items import Document, ItemKey

_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,99}")
_NOT_PLAIN: Final = re.compile(r"[^A-Za-z0-9_]")

_TYPES: Final[Mapping[type[msgspec_inspect.Type], ColumnType]] = {
    msgspec_inspect.StrType: "text",
    msgspec_inspect.IntType: "bigint",
    msgspec_inspect.FloatType: "float",
    msgspec_inspect.DecimalType: "float",
    msgspec_inspect.BoolType: "bool",
    msgspec_inspect.DateTimeType: "datetime",
    msgspec_inspect.UUIDType: "guid",
}
_SHAPES: Final[Mapping[ColumnType, tuple[str, str]]] = {
    "bigint": ("number", "::numeric::bigint"),
    "choice": ("number", "::numeric::bigint"),
    "float": ("number", "::float8"),
    "bool": ("boolean", "::boolean"),
    "datetime": ("string", "::timestamptz"),
    "guid": ("string", ""),
    "lookup": ("string", ""),
    "text": ("string", ""),
}
"""The JSON type of a column's values, and the SQL cast; values of other types read as null."""


_SOURCE: Final = """(select i.id, i.body, i.lsn, i.ts
from relevo.item i join relevo.container c on c.id = i.container_id
where c.name = '{name}' and (i.expires_at is null or i.expires_at > relevo.now()))"""


class Table(Struct, frozen=True, kw_only=True):
    """A container as operations and queries see it."""

    name: str
    """Logical name, lower case."""
    schema_name: str
    set_name: str
    """Entity set name, as in a path."""
    key: str
    """Logical name of the column that holds an item's id."""
    primary_name: str
    """The column with the display name of a record."""
    container: Container[Any]
    columns: tuple[Column, ...]

    @property
    def served(self) -> catalogue.Table:
        """The table as query surfaces read it."""
        name = self.container.name.replace("'", "''")
        return catalogue.Table(
            name=self.name, set_name=self.set_name, schema_name=self.schema_name, key=self.key,
            primary_name=self.primary_name, columns=self.columns,
            source=_SOURCE.replace("{name}", name),
        )  # fmt: skip

    def key_of(self, id: Any, partition_key: Any, info: ContainerInfo) -> ItemKey:  # noqa: A002
        """Return the key of a record; the partition key is optional if it is the id."""
        if partition_key is None and info.partition_key == ("/id",):
            partition_key = id
        if partition_key is None:
            raise InvalidValue(
                f"records of {self.name!r} are partitioned by {', '.join(info.partition_key)}; pass"
                " partition_key=…",
                pointer="partition_key",
            )
        return items.key_of_caller(id, partition_key, info)

    def document(self, record: Mapping[str, Any], info: ContainerInfo) -> Document:
        """Return the document of a record; raises `InvalidValue` if it does not fit the model."""
        document = items.document(record, info)
        model = self.container.model
        validate = getattr(model, "model_validate_json", None)
        try:
            if validate is not None:
                validate(document.text)
            elif model is not None:
                msgspec.json.decode(document.text, type=model)
        except ValueError as error:  # of msgspec and pydantic alike
            raise InvalidValue(
                f"the record does not fit the columns of table {self.name!r}: {error}",
                pointer="",
            ) from error
        return document


def described(
    name: str,
    container: Container[Any],
    *,
    key: str | None = None,
    primary_name: str | None = None,
    schema_name: str | None = None,
    set_name: str | None = None,
    lookups: Mapping[str, str] | None = None,
) -> Table:
    """Return a table; its columns are those of the container's model."""
    for logical in (name, key or name):
        if not _NAME.fullmatch(logical):
            raise InvalidValue(
                f"a logical name has lower-case letters, digits and _, not {logical!r}",
                pointer="name",
            )
    key = key or f"{name}id"
    columns = _columns(container.model, key, lookups or {})
    named = "name" if any(column.name == "name" for column in columns) else key
    return Table(
        name=name, schema_name=schema_name or name.capitalize(), set_name=set_name or f"{name}s",
        key=key, primary_name=primary_name or named, container=container, columns=columns,
    )  # fmt: skip


def _columns(model: Any, key: str, lookups: Mapping[str, str]) -> tuple[Column, ...]:
    first = Column(name=key, type="guid", sql="{t}.id", stored="text", required=True)
    try:
        shape = None if model is None else msgspec_inspect.type_info(model)
    except TypeError:  # of another library
        shape = None
    fields = getattr(shape, "fields", ())
    rest = [
        _column(field, lookups) for field in fields
        if field.encode_name != "id" and not _NOT_PLAIN.search(field.encode_name)
    ]  # fmt: skip
    return (first, *rest)


def _column(field: msgspec_inspect.Field, lookups: Mapping[str, str]) -> Column:
    name, kind = field.encode_name, field.type
    required = bool(field.required)
    if isinstance(kind, msgspec_inspect.UnionType):
        rest = [one for one in kind.types if not isinstance(one, msgspec_inspect.NoneType)]
        required = required and len(rest) == len(kind.types)
        kind = rest[0] if len(rest) == 1 else kind
    labels: dict[int, dict[str, str]] = {}
    column_type: ColumnType = _TYPES.get(type(kind), "json")
    if isinstance(kind, msgspec_inspect.EnumType) and issubclass(kind.cls, enum.IntEnum):
        column_type = "choice"
        labels = {one.value: {"en": one.name.replace("_", " ").capitalize()} for one in kind.cls}
    elif isinstance(kind, msgspec_inspect.EnumType):
        column_type = "text"
    targets: tuple[str, ...] = ()
    if name in lookups:
        column_type, targets = "lookup", (lookups[name],)
    return Column(
        name=name, type=column_type, sql=_sql(name, column_type), labels=labels, targets=targets,
        required=required, stored="text" if column_type in ("guid", "lookup") else None,
    )  # fmt: skip


def _sql(name: str, kind: ColumnType) -> str:
    """Return the SQL of a column; a value of another type reads as null instead of failing."""
    if kind == "json":
        return f"({{t}}.body -> '{name}')::text"
    shape, cast = _SHAPES[kind]
    return (
        f"(case when jsonb_typeof({{t}}.body -> '{name}') = '{shape}'"
        f" then ({{t}}.body ->> '{name}'){cast} end)"
    )
