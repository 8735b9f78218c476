"""Rows as they are sent: names, dates, entity tags, annotations, envelopes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from relevo.kernel.querying import answers, planning, preferences
from relevo.kernel.querying.model import Caller
from tests.kernel.querying.job_tables import (
    ALL,
    ANA,
    CATALOGUE,
    CREW,
    NOW,
    answer,
    asked,
    create,
    insert,
    insert_jobs,
    job,
)

if TYPE_CHECKING:
    from relevo.kernel.postgres.database import Database

pytestmark = pytest.mark.anyio
FORMATTED = "OData.Community.Display.V1.FormattedValue"


@pytest.fixture
async def jobs(database: Database) -> Database:
    await create(database)
    account = UUID(int=77)
    stored = job(
        0,
        name="Ärger",
        waiting=True,
        status=30,
        due=datetime(2026, 12, 1, 0, 5, tzinfo=UTC),
        about_type="account",
        about_id=str(account),
        version=7,
    )
    await insert_jobs(database, [stored, job(1, owner=CREW)])
    await insert(database, "q_users", [{"id": ANA, "fullname": "Ana"}])
    await insert(database, "q_teams", [{"id": CREW, "name": "Crew"}])
    await insert(database, "q_accounts", [{"id": account, "name": "Acme"}])
    return database


async def test_without_the_preference_no_annotations_are_sent(jobs: Database) -> None:
    page = await answer(jobs, "$select=name,statecode,_ownerid_value&$top=1")
    assert page.rows == [
        {
            "@odata.etag": 'W/"7"',
            "name": "Ärger",
            "statecode": 3,
            "_ownerid_value": str(ANA),
            "asyncoperationid": str(UUID(int=1_000)),
        }
    ]


async def test_annotations_by_pattern(jobs: Database) -> None:
    select = (
        "$select=statecode,iswaitingforevent,postponeuntil,_ownerid_value,_regardingobjectid_value"
    )
    everything = await answer(jobs, select, prefer='odata.include-annotations="*"')
    first, second = everything.rows
    assert first[f"statecode@{FORMATTED}"] == "Completed"
    assert first[f"iswaitingforevent@{FORMATTED}"] == "Yes"
    assert first[f"postponeuntil@{FORMATTED}"] == "12/1/2026 12:05 AM"
    assert first[f"_ownerid_value@{FORMATTED}"] == "Ana"
    assert first["_ownerid_value@Microsoft.Dynamics.CRM.lookuplogicalname"] == "systemuser"
    navigation = "@Microsoft.Dynamics.CRM.associatednavigationproperty"
    assert first[f"_ownerid_value{navigation}"] == "owninguser"
    assert first[f"_regardingobjectid_value{navigation}"] == "regardingobjectid_account"
    assert first[f"_regardingobjectid_value@{FORMATTED}"] == "Acme"
    assert second["_ownerid_value@Microsoft.Dynamics.CRM.lookuplogicalname"] == "team"
    assert second[f"_ownerid_value@{FORMATTED}"] == "Crew"
    assert f"postponeuntil@{FORMATTED}" not in second

    some = await answer(jobs, select, prefer='odata.include-annotations="Microsoft.*"')
    names = {name.partition("@")[2] for name in some.rows[0] if not name.startswith("@")}
    assert names == {
        "",
        "Microsoft.Dynamics.CRM.lookuplogicalname",
        "Microsoft.Dynamics.CRM.associatednavigationproperty",
    }


async def test_grouped_lookups_have_their_names(jobs: Database) -> None:
    apply = "$apply=groupby((_ownerid_value,_regardingobjectid_value),aggregate($count as n))"
    page = await answer(jobs, apply, prefer='odata.include-annotations="*"')
    named = {
        (row[f"_ownerid_value@{FORMATTED}"], row.get(f"_regardingobjectid_value@{FORMATTED}"))
        for row in page.rows
    }
    assert named == {("Ana", "Acme"), ("Crew", None)}
    kinds = {row["_ownerid_value@Microsoft.Dynamics.CRM.lookuplogicalname"] for row in page.rows}
    assert kinds == {"systemuser", "team"}
    bare = await answer(jobs, apply)
    assert all(set(row) == {"_ownerid_value", "_regardingobjectid_value", "n"} for row in bare.rows)


async def test_texts_are_in_the_language_and_zone_of_the_caller(jobs: Database) -> None:
    caller = Caller(user_id=ANA, scope="all", language="es", zone="Europe/Madrid")
    page = await answer(
        jobs,
        "$select=statecode,iswaitingforevent,postponeuntil&$top=1",
        caller=caller,
        prefer=f"odata.include-annotations={FORMATTED}",
    )
    row = page.rows[0]
    assert row[f"statecode@{FORMATTED}"] == "Completada"
    assert row[f"iswaitingforevent@{FORMATTED}"] == "Sí"
    assert row[f"postponeuntil@{FORMATTED}"] == "1/12/2026 1:05"


async def test_expanded_rows_are_written_like_others(jobs: Database) -> None:
    page = await answer(
        jobs,
        "$expand=user_jobs($select=postponeuntil,statecode,_regardingobjectid_value)",
        table=CATALOGUE.by_name["systemuser"],
        prefer='odata.include-annotations="*"',
    )
    (inside,) = page.rows[0]["user_jobs"]
    assert inside["@odata.etag"] == 'W/"7"'
    assert inside["postponeuntil"] == "2026-12-01T00:05:00Z"
    assert inside[f"postponeuntil@{FORMATTED}"] == "12/1/2026 12:05 AM"
    assert inside[f"statecode@{FORMATTED}"] == "Completed"
    assert inside[f"_regardingobjectid_value@{FORMATTED}"] == "Acme"


def test_envelopes_and_contexts() -> None:
    page = answers.AnswerPage([{"a": 1}], False, None)
    wanted = preferences.read('odata.include-annotations="*"')
    plain = preferences.read(None)
    assert answers.envelope(page, context="c", preferences=plain, count=5_001) == {
        "@odata.context": "c",
        "@odata.count": 5_000,
        "value": [{"a": 1}],
    }
    found = answers.envelope(page, context="c", preferences=wanted, count=3, next_link="n")
    assert found["@Microsoft.Dynamics.CRM.totalrecordcountlimitexceeded"] is False
    assert found["@odata.nextLink"] == "n"
    shape = planning.plan(asked("$select=name&$expand=owninguser"), CATALOGUE, ALL).shape
    assert answers.context_url("https://h/api", shape) == (
        "https://h/api/$metadata#asyncoperations(name,owninguser())"
    )
    whole = planning.plan(asked(""), CATALOGUE, ALL).shape
    assert answers.context_url("b", whole, one=True) == "b/$metadata#asyncoperations/$entity"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (NOW, "2026-03-11T14:35:20Z"),
        (NOW + timedelta(milliseconds=250), "2026-03-11T14:35:20.25Z"),
        (NOW.astimezone(), "2026-03-11T14:35:20Z"),
    ],
)
def test_dates_are_sent_in_utc(value: datetime, expected: str) -> None:
    assert answers.written(value) == expected


@pytest.mark.parametrize(
    ("header", "size", "annotations", "applied"),
    [
        (None, None, (), None),
        ("odata.maxpagesize=50", 50, (), "odata.maxpagesize=50"),
        ("odata.maxpagesize=9999", 5_000, (), "odata.maxpagesize=5000"),
        ("odata.maxpagesize=0", None, (), None),
        ("odata.maxpagesize=x", None, (), None),
        (
            'odata.maxpagesize=2,odata.include-annotations="A.*,b"',
            2,
            ("A.*", "b"),
            'odata.maxpagesize=2, odata.include-annotations="A.*,b"',
        ),
        ('return=representation; x="y,z", odata.maxpagesize = 7', 7, (), "odata.maxpagesize=7"),
    ],
)
def test_preferences(
    header: str | None, size: int | None, annotations: tuple[str, ...], applied: str | None
) -> None:
    found = preferences.read(header)
    assert (found.page_size, found.annotations, found.applied()) == (size, annotations, applied)


def test_preferences_about_the_way_of_answering() -> None:
    found = preferences.read("return=representation, respond-async")
    assert (found.representation, found.respond_async) == (True, True)
    assert preferences.read("return=minimal").representation is False
    assert preferences.read("RETURN=other").representation is None
