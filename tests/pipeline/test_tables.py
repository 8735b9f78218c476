"""Tables as query surfaces read them, and the pure parts of the pipeline."""

from __future__ import annotations

import enum
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from relevo import App, settings
from relevo.errors import Conflict, InvalidValue
from relevo.jobs.errors import LoopDetected
from relevo.kernel.running.verdicts import Suspend
from relevo.pipeline import contexts, depth
from relevo.pipeline.model import Post, Pre, Step, StepStage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.anyio
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
async def app(relevo_url: str) -> AsyncIterator[App]:
    """An app without tables."""
    async with App(settings=settings.load({"database_url": relevo_url}, environ={})) as app:
        yield app


class Kind(enum.IntEnum):
    """A choice."""

    EAT_IN = 1
    TAKE_AWAY = 2


class Order(Struct):
    """What an order holds."""

    id: str
    name: str
    total: float
    count: int
    paid: bool
    kind: Kind
    at: datetime
    customer: UUID | None = None
    extras: list[str] = []


async def test_a_table_has_the_columns_of_its_model_and_sql_reads_them(app: App) -> None:
    orders = app.container("it's orders", partition_key="/id", model=Order)
    table = app.table("order", orders, set_name="orders", lookups={"customer": "contact"})
    made = Order(
        id="1", name="pizza", total=9.5, count=2, paid=True, kind=Kind.TAKE_AWAY, at=NOON,
        customer=UUID(int=7),
    )  # fmt: skip
    await app.service.create("order", made)
    served = table.served
    assert (served.key, served.primary_name, served.schema_name) == ("orderid", "name", "Order")
    assert [(one.name, one.type, one.required) for one in served.columns] == [
        ("orderid", "guid", True), ("name", "text", True), ("total", "float", True),
        ("count", "bigint", True), ("paid", "bool", True), ("kind", "choice", True),
        ("at", "datetime", True), ("customer", "lookup", False), ("extras", "json", False),
    ]  # fmt: skip
    assert served.by_name["kind"].label(2, "en") == "Take away"
    assert served.by_name["customer"].targets == ("contact",)
    columns = ", ".join(f"{one.of('o')} as {one.name}" for one in served.columns)
    row = await app.database.fetchrow(f"select {columns} from {served.source} o")
    assert row is not None
    assert dict(row) == {
        "orderid": "1", "name": "pizza", "total": 9.5, "count": 2, "paid": True, "kind": 2,
        "at": NOON, "customer": str(UUID(int=7)), "extras": "[]",
    }  # fmt: skip


async def test_a_record_must_fit_the_model_of_its_table(app: App) -> None:
    app.table("order", app.container("orders", partition_key="/id", model=Order))
    with pytest.raises(InvalidValue, match="does not fit the columns") as caught:
        await app.service.create("order", {"id": "1", "name": "pizza"})
    assert "class" not in str(caught.value)


async def test_names_of_tables_are_unique_and_logical(app: App) -> None:
    app.table("order")
    with pytest.raises(Conflict, match="'order'"):
        app.table("order")
    with pytest.raises(Conflict, match="'orders'"):
        app.table("purchase", set_name="orders")
    with pytest.raises(InvalidValue, match="lower-case"):
        app.table("Order")


@given(depth_=st.integers(1, 20), seconds=st.integers(0, 7200))
def test_no_chain_is_deeper_than_allowed_inside_the_window(depth_: int, seconds: int) -> None:
    now = NOON + timedelta(seconds=seconds)
    if seconds > 3600:
        assert depth.following(depth_, NOON, now) == 1
    elif depth_ >= 8:
        with pytest.raises(LoopDetected):
            depth.following(depth_, NOON, now)  # A14
    else:
        assert depth.following(depth_, NOON, now) == depth_ + 1


def test_images_show_copies_of_the_columns_that_were_asked_for() -> None:
    async def nothing(ctx: Any) -> None: ...

    step = Step(
        name="s", message="Update", table=None, function=nothing, stage=StepStage.POST,
        images=(Pre("a"), Pre("b"), Post()),
    )  # fmt: skip
    record = {"a": [1], "c": 2}
    shown = step.images_of("pre", record)
    assert shown == {"a": [1], "b": None}
    assert shown["a"] is not record["a"]
    assert step.images_of("post", record) == record
    assert step.images_of("post", None) is None


def test_a_context_of_a_newer_form_waits_for_a_newer_host() -> None:
    with pytest.raises(Suspend, match="update the hosts"):
        contexts.opened('{"version": 2}')
    with pytest.raises(InvalidValue, match="is not the context of a step"):
        contexts.opened('{"version": 1}')
