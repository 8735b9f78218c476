"""Jobs that wait together, and those who do not know of it: other locks, older hosts, plain SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

import asyncpg
import pytest

from tests.jobs.office import Worker
from tests.jobs.test_waiting_parcels import MANY, counts, ids, submitted, waiting

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.jobs.office import Office

pytestmark = pytest.mark.anyio


@pytest.fixture
async def worker(office: Office) -> AsyncIterator[Worker]:
    connection = await asyncpg.connect(office.url)
    yield await Worker(connection).join()
    await connection.close()


async def test_rows_that_another_has_locked_hold_up_no_parcel_behind_them(
    office: Office, worker: Worker
) -> None:  # 4.4
    row = await office.jobs.submit("work")
    jobs = await submitted(office)
    async with office.database.transaction() as tx:
        await tx.execute("select from relevo.job where id = $1 for update", row.id)
        assert ids(await worker.work(1000)) == ids(jobs)
    assert ids(await worker.work(1000)) == [row.id]


@pytest.mark.parametrize(
    "arguments",
    [
        "$1::uuid[], '{work}', $2::text[], priorities => '{99}'",
        "$1::uuid[] || ($1::uuid[])[1:1], '{work}', $2::text[] || ($2::text[])[1:1]",
        "$1::uuid[], array[null::text], $2::text[]",
    ],
    ids=["priority", "a key twice", "no handler"],
)
async def test_what_no_row_could_be_is_refused(office: Office, arguments: str) -> None:
    keys = [uuid4() for _ in range(MANY)]
    with pytest.raises(asyncpg.IntegrityConstraintViolationError):
        await office.database.write(f"select relevo.submit_jobs({arguments})", keys, ["{}"] * MANY)
    assert await counts(office) == {}


async def test_short_arrays_are_filled_with_nulls(office: Office, worker: Worker) -> None:
    keys = [uuid4() for _ in range(MANY)]
    await office.database.write("select relevo.submit_jobs($1, '{work}', '{}')", keys)
    assert sorted(ids(await worker.work(1000))) == sorted(keys)


async def test_behind_locked_rows_no_more_parcels_become_rows_than_are_needed(
    office: Office, worker: Worker
) -> None:  # 4.4
    row = await office.jobs.submit("work")
    jobs = [one for _ in range(3) for one in await submitted(office)]
    async with office.database.transaction() as tx:
        await tx.execute("select from relevo.job where id = $1 for update", row.id)
        assert ids(await worker.work(8)) == ids(jobs[:8])
    assert await waiting(office) == [MANY, MANY]
