"""Items written in somebody else's transaction, by a plain SQL function."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from relevo.store import keys
from relevo.store.keys import epk
from tests.conftest import examples

if TYPE_CHECKING:
    from relevo.kernel.postgres import Database

pytestmark = pytest.mark.anyio

component = (
    st.none()
    | st.booleans()
    | st.text(max_size=40).filter(lambda t: "\x00" not in t)
    | (st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False))
)


@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=component)
async def test_sql_and_python_agree_on_hash_and_key(database: Database, value: Any) -> None:  # F8
    text = msgspec.json.encode(value).decode()
    row = await database.fetchrow(
        "select relevo.epk_component($1::jsonb) as hash, relevo.pk_component($1::jsonb) as key",
        text,
    )
    assert row is not None
    parts = keys.of_caller([value], ["/x"])
    assert row["hash"] == epk(parts)
    assert f"[{row['key']}]" == keys.text(parts)
    assert keys.parse(keys.text(parts)) == parts


async def test_a_missing_path_is_undefined_in_both(database: Database) -> None:  # F8
    row = await database.fetchrow(
        "select relevo.epk_component(null) as hash, relevo.pk_component(null) as key"
    )
    assert row is not None
    parts = keys.of_item({}, ["/x"])
    assert (row["hash"], f"[{row['key']}]") == (epk(parts), keys.text(parts))
