"""A catalogue for tests of FetchXML: jobs, the people who own them, and notes about them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final
from uuid import UUID

import pytest

from relevo.errors import InvalidQuery
from relevo.kernel.querying.catalogue import Catalogue, Column, Table
from relevo.kernel.querying.fetchxml import reader as fetchxml
from relevo.kernel.querying.model import Caller, Query

if TYPE_CHECKING:
    from relevo.kernel.expressions.tree import Expression

NOW: Final = datetime(2026, 3, 11, 14, 35, 20, 500, tzinfo=UTC)
"""A Wednesday."""
ME: Final = UUID(int=1)
UNIT: Final = UUID(int=2)
TEAM: Final = UUID(int=3)
CALLER: Final = Caller(user_id=ME, unit=UNIT, teams=(TEAM,), scope="all", may_read_payload=True)

KEY: Final = bytes(range(32))

STATES: Final = {0: {"en": "Ready"}, 1: {"en": "Suspended"}, 2: {"en": "Locked"}, 3: {"en": "Done"}}
_PLAIN: Final = (
    "friendlymessage message messagename primaryentitytype recurrencepattern workflowstagename"
)
_WHOLE: Final = "depth errorcode retrycount utcconversiontimezonecode"
_DATES: Final = "completedon modifiedon postponeuntil recurrencestarttime startedon"
_LOOKUPS: Final = "createdby modifiedby owningbusinessunit owningextensionid owningteam owninguser"

JOBS: Final = Table(
    name="asyncoperation",
    set_name="asyncoperations",
    schema_name="AsyncOperation",
    key="asyncoperationid",
    primary_name="name",
    source="public.fetch_jobs",
    columns=(
        Column(name="asyncoperationid", type="guid", required=True),
        Column(name="name", type="text"),
        Column(name="dependencytoken", type="text"),
        Column(name="data", type="memo", payload=True),
        Column(name="operationtype", type="int"),
        Column(name="sequence", type="bigint", required=True),
        Column(name="executiontimespan", type="float"),
        Column(name="iswaitingforevent", type="bool"),
        Column(name="statecode", type="choice", labels=STATES),
        Column(name="createdon", type="datetime", required=True),
        Column(name="ownerid", type="lookup", targets=("systemuser",)),
        Column(name="regardingobjectid", type="lookup", stored="text", targets=("annotation",)),
        *(Column(name=name, type="text") for name in _PLAIN.split()),
        *(Column(name=name, type="int") for name in _WHOLE.split()),
        *(Column(name=name, type="datetime") for name in _DATES.split()),
        *(Column(name=n, type="lookup", targets=("systemuser",)) for n in _LOOKUPS.split()),
    ),
)
PEOPLE: Final = Table(
    name="systemuser",
    set_name="systemusers",
    schema_name="SystemUser",
    key="systemuserid",
    primary_name="fullname",
    source="public.fetch_people",
    columns=(
        Column(name="systemuserid", type="guid", required=True),
        Column(name="fullname", type="text"),
        Column(name="hiredon", type="datetime"),
    ),
)
NOTES: Final = Table(
    name="annotation",
    set_name="annotations",
    schema_name="Annotation",
    key="annotationid",
    primary_name="subject",
    source="public.fetch_notes",
    columns=(
        Column(name="annotationid", type="guid", required=True),
        Column(name="subject", type="text"),
        Column(name="stars", type="int"),
        Column(name="objectid", type="lookup", targets=("asyncoperation",)),
    ),
)
CATALOGUE: Final = Catalogue((JOBS, PEOPLE, NOTES))


def fetch(text: str, *, caller: Caller = CALLER, now: datetime = NOW) -> Query:
    """The query of a document."""
    return fetchxml.parse(text, CATALOGUE, table="asyncoperation", caller=caller, now=now, key=KEY)


def entity(parts: str, attributes: str = "") -> Query:
    """The query with these parts of its entity, and attributes of `fetch`."""
    return fetch(f"<fetch {attributes}><entity name='asyncoperation'>{parts}</entity></fetch>")


def where(conditions: str, *, caller: Caller = CALLER, now: datetime = NOW) -> Expression | None:
    """The filter with these conditions."""
    text = f"<fetch><entity name='asyncoperation'><filter>{conditions}</filter></entity></fetch>"
    return fetch(text, caller=caller, now=now).filter


def refused_code(text: str) -> str:
    """The code that a document is refused with."""
    with pytest.raises(InvalidQuery) as error:
        fetch(text)
    return error.value.dataverse


def refused_parts(parts: str, attributes: str = "") -> str:
    """The code that parts of an entity, or attributes of `fetch`, are refused with."""
    return refused_code(
        f"<fetch {attributes}><entity name='asyncoperation'>{parts}</entity></fetch>"
    )
