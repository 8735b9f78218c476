"""Items for the benches of the feed, one by one or millions at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from relevo.store import keys
from relevo.store.keys import epk

if TYPE_CHECKING:
    import asyncpg

    from relevo import App

BODY: Final = "x" * 150
KEYS: Final = 1_000
CHUNK: Final = 250_000


def item(number: int) -> dict[str, Any]:
    """An item of about 200 bytes of JSON."""
    return {"id": f"{number:08}", "city": f"c{number % KEYS}", "text": BODY}


async def fill(app: App, bare: asyncpg.Connection, name: str, ranges: int, count: int) -> None:
    """Make a container of so many items with set-based SQL, stamped as writers do."""
    orders = app.container(name, "/city", ranges=ranges)
    info, found = await orders.describe(), await orders.ranges()
    cities = [f"c{number}" for number in range(KEYS)]
    parts = [keys.of_caller(city, info.partition_key) for city in cities]
    points = [epk(part) for part in parts]
    for first in range(0, count, CHUNK):
        async with bare.transaction():
            await bare.execute("select relevo.lock_ranges($1)", [one.id for one in found.open])
            await bare.execute(
                _FILL, info.id, [found.at(point).id for point in points],
                [keys.text(part) for part in parts], points, cities, BODY, first,
                min(CHUNK, count - first), timeout=600,
            )  # fmt: skip
    await bare.execute("vacuum analyze relevo.item", timeout=600)


_FILL: Final = """
insert into relevo.item (container_id, range_id, ordinal, lsn, ts, pk, id, epk, body)
select $1, k.range_id, 1, nextval('relevo.lsn'), relevo.now(), k.pk, g.n::text, k.epk,
       jsonb_build_object('id', g.n::text, 'city', k.city, 'text', $6::text)
from (select n from generate_series($7::integer, $7 + $8 - 1) n order by n) g
join unnest($2::integer[], $3::text[], $4::text[], $5::text[]) with ordinality
  as k (range_id, pk, epk, city, i) on k.i = 1 + g.n % cardinality($5)
order by g.n
"""
