"""Operations and synchronous steps: stages, order, transactions, images, inputs and outputs."""

from __future__ import annotations

import asyncio
import datetime
from typing import TYPE_CHECKING, Any

import pytest

from relevo.errors import ConditionNotMet, Conflict, InvalidValue, ItemExists, NotFound
from relevo.pipeline import ASYNC, POST, PRE_OPERATION, PRE_VALIDATION, Post, Pre, StepContext
from tests.pipeline.bundle import jobs

if TYPE_CHECKING:
    from relevo import App

pytestmark = pytest.mark.anyio


class Refused(Exception):
    """What a step raises."""


async def test_records_are_created_changed_read_found_and_deleted(app: App) -> None:
    service = app.service
    key = await service.create("order", {"status": "new", "total": 5})
    await service.update("order", key, {"status": "paid"})
    assert await service.retrieve("order", key) == {"id": key, "status": "paid", "total": 5}
    assert await service.retrieve("order", key, ["status", "x"]) == {
        "id": key, "status": "paid", "x": None,
    }  # fmt: skip
    other = await service.create("order", {"id": "b", "total": 7})
    assert other == "b"
    found, token = await service.retrieve_multiple("order", [("total", ">", 5)])
    assert ([one["id"] for one in found], token) == (["b"], None)
    await service.delete("order", key)
    with pytest.raises(NotFound):
        await service.retrieve("order", key)


async def test_pages_of_records_go_on_behind_the_last(app: App) -> None:
    for n in range(5):
        await app.service.create("order", {"id": f"{n}"})
    seen, token = await app.service.retrieve_multiple("order", limit=2)
    while token:
        more, token = await app.service.retrieve_multiple("order", limit=2, after=token)
        seen += more
    assert [one["id"] for one in seen] == ["0", "1", "2", "3", "4"]


async def test_refusals_of_the_store_keep_their_kind(app: App) -> None:
    await app.service.create("order", {"id": "1"})
    with pytest.raises(ItemExists):
        await app.service.create("order", {"id": "1"})
    with pytest.raises(NotFound):
        await app.service.update("order", "2", {"status": "x"})
    with pytest.raises(NotFound):
        await app.service.delete("order", "2")
    with pytest.raises(ConditionNotMet):
        await app.service.update("order", "1", {"status": "x"}, if_match='"0-0"')
    with pytest.raises(InvalidValue):
        await app.service.update("order", "1", {"id": "2"})
    with pytest.raises(NotFound, match="registered tables"):
        await app.service.create("strange", {})


async def test_a_container_with_another_partition_key_needs_it_said(app: App) -> None:
    sales = app.container("sales", partition_key="/city")
    app.table("sale", sales)
    await app.service.create("sale", {"id": "1", "city": "Vigo", "n": 1})
    with pytest.raises(InvalidValue, match="partition_key"):
        await app.service.update("sale", "1", {"n": 2})
    await app.service.update("sale", "1", {"n": 2}, partition_key="Vigo")
    assert (await sales.read("1", "Vigo")).body["n"] == 2
    with pytest.raises(InvalidValue, match="partition key"):
        await app.service.update("sale", "1", {"city": "Lugo"}, partition_key="Vigo")
    await app.service.delete("sale", "1", partition_key="Vigo")


async def test_steps_run_by_stage_then_rank_then_registration(app: App) -> None:
    ran: list[str] = []

    def note(name: str) -> Any:
        async def step(ctx: StepContext) -> None:
            ran.append(name)

        return step

    for name, stage, rank in (
        ("post 2", POST, 2), ("post 1 a", POST, 1), ("post 1 b", POST, 1),
        ("pre", PRE_OPERATION, 9), ("validate", PRE_VALIDATION, 99),
    ):  # fmt: skip
        app.step("Create", "order", stage=stage, rank=rank, name=name)(note(name))
    app.step("Create", None, stage=POST, rank=5, name="any table")(note("any table"))
    app.step("Create", "mail", stage=POST, name="another table")(note("another table"))
    await app.service.create("order", {})
    assert ran == ["validate", "pre", "post 1 a", "post 1 b", "post 2", "any table"]


async def test_stage_10_of_a_top_level_operation_is_outside_its_transaction(app: App) -> None:
    seen: dict[str, Any] = {}

    @app.step("Create", "order", stage=PRE_VALIDATION)
    async def validate(ctx: StepContext) -> None:
        seen["outer"] = ctx.tx
        await ctx.service.create("mail", {"id": "kept"})

    @app.step("Create", "order", stage=PRE_OPERATION)
    async def refuse(ctx: StepContext) -> None:
        assert ctx.tx is not None
        await ctx.service.create("mail", {"id": "undone"})
        raise Refused

    @app.step("Create", "mail", stage=PRE_VALIDATION)
    async def validate_mail(ctx: StepContext) -> None:
        seen[ctx.target.id] = ctx.tx

    with pytest.raises(Refused):
        await app.service.create("order", {})
    assert seen["outer"] is None
    assert seen["kept"] is None
    assert seen["undone"] is not None
    assert [one["id"] for one in (await app.service.retrieve_multiple("mail"))[0]] == ["kept"]


async def test_an_exception_of_a_step_undoes_everything_and_reaches_the_caller(app: App) -> None:
    @app.step("Update", "order", stage=POST)
    async def refuse(ctx: StepContext) -> None:
        assert ctx.tx is not None
        await ctx.tx.execute("create table own (n int)")
        await ctx.service.create("mail", {})
        raise Refused("no")

    await app.service.create("order", {"id": "1", "status": "new"})
    with pytest.raises(Refused, match="no"):
        await app.service.update("order", "1", {"status": "paid"})
    assert (await app.service.retrieve("order", "1"))["status"] == "new"
    assert (await app.service.retrieve_multiple("mail"))[0] == []
    assert await app.database.fetchval("select to_regclass('own')") is None


async def test_a_step_that_catches_the_error_of_a_nested_operation_goes_on(app: App) -> None:
    @app.step("Create", "order", stage=POST)
    async def mail(ctx: StepContext) -> None:
        await ctx.service.create("mail", {"id": "1"})
        with pytest.raises(ItemExists):
            await ctx.service.create("mail", {"id": "1"})
        await ctx.service.create("mail", {"id": "2"})

    await app.service.create("order", {})
    assert len((await app.service.retrieve_multiple("mail"))[0]) == 2


async def test_steps_change_input_before_and_output_after(app: App) -> None:
    @app.step("Create", "order", stage=PRE_OPERATION)
    async def complete(ctx: StepContext) -> None:
        ctx.target["status"] = "new"

    @app.step("Retrieve", "order", stage=POST)
    async def hide(ctx: StepContext) -> None:
        ctx.output["record"]["card"] = "…"

    key = await app.service.create("order", {"card": "4111"})
    assert await app.service.retrieve("order", key) == {"id": key, "card": "…", "status": "new"}


async def test_a_nested_change_of_the_same_record_is_not_lost(app: App) -> None:
    @app.step("Update", "order", stage=PRE_OPERATION, filtering=["status"])
    async def count(ctx: StepContext) -> None:
        await ctx.service.update("order", ctx.target.id, {"changes": 1})

    await app.service.create("order", {"id": "1"})
    await app.service.update("order", "1", {"status": "paid"})
    assert await app.service.retrieve("order", "1") == {"id": "1", "changes": 1, "status": "paid"}


async def test_images_show_what_was_and_what_is(app: App) -> None:
    seen: dict[str, Any] = {}

    @app.step("Update", "order", stage=POST, images=[Pre("status", "note"), Post()])
    async def look(ctx: StepContext) -> None:
        seen["update"] = (ctx.pre, ctx.post)

    @app.step("Update", "order", stage=PRE_VALIDATION, images=[Pre("status")])
    async def early(ctx: StepContext) -> None:
        seen["early"] = ctx.pre

    @app.step("Create", "order", stage=POST, images=[Post("status")])
    async def made(ctx: StepContext) -> None:
        seen["create"] = ctx.post

    @app.step("Delete", "order", stage=POST, images=[Pre()])
    async def gone(ctx: StepContext) -> None:
        seen["delete"] = ctx.pre

    await app.service.create("order", {"id": "1", "status": "new"})
    await app.service.update("order", "1", {"status": "paid"})
    await app.service.delete("order", "1")
    assert seen == {
        "create": {"status": "new"},
        "early": {"status": "new"},
        "update": ({"status": "new", "note": None}, {"id": "1", "status": "paid"}),
        "delete": {"id": "1", "status": "paid"},
    }


async def test_filtering_asks_what_is_in_the_request_not_what_differs(app: App) -> None:
    ran: list[str] = []

    @app.step("Update", "order", stage=POST, filtering=["status", "total"])
    async def look(ctx: StepContext) -> None:
        ran.append(ctx.target.get("status", "-"))

    await app.service.create("order", {"id": "1", "status": "new"})
    await app.service.update("order", "1", {"note": "x"})
    await app.service.update("order", "1", {"status": "new"})
    await app.service.update("order", "1", {"total": 1})
    assert ran == ["new", "-"]


async def test_shared_variables_reach_later_stages_as_json(app: App) -> None:
    seen: list[Any] = []

    @app.step("Create", "order", stage=PRE_VALIDATION)
    async def first(ctx: StepContext) -> None:
        ctx.shared_variables["at"] = datetime.date(2026, 1, 2)
        ctx.shared_variables["pair"] = (1, 2)

    @app.step("Create", "order", stage=POST)
    async def last(ctx: StepContext) -> None:
        seen.append(dict(ctx.shared_variables))

    await app.service.create("order", {})
    assert seen == [{"at": "2026-01-02", "pair": [1, 2]}]


@pytest.mark.parametrize("value", [object(), {"deep": [object()]}, float("nan"), "\ud800"])
async def test_the_step_that_leaves_a_bad_variable_fails(app: App, value: Any) -> None:
    @app.step("Create", "order", stage=PRE_OPERATION)
    async def good(ctx: StepContext) -> None:
        ctx.shared_variables["n"] = 1

    @app.step("Create", "order", stage=PRE_OPERATION, rank=2)
    async def bad(ctx: StepContext) -> None:
        ctx.shared_variables["lock"] = value

    with pytest.raises(InvalidValue, match="step 'bad': shared_variables has a value 'lock'"):
        await app.service.create("order", {"id": "1"})
    with pytest.raises(NotFound):
        await app.service.retrieve("order", "1")


@pytest.mark.parametrize("what", ["target", "more"])
async def test_the_step_that_leaves_a_bad_input_fails_by_name(app: App, what: str) -> None:
    @app.step("Create", "order", mode=ASYNC)
    async def later(ctx: StepContext) -> None: ...

    @app.step("Create", "order", stage=PRE_OPERATION)
    async def bad(ctx: StepContext) -> None:
        (ctx.target if what == "target" else ctx.input)["lock"] = object()

    with pytest.raises(InvalidValue, match="step 'bad': input"):
        await app.service.create("order", {"id": "1"})


@pytest.mark.parametrize("what", ["shared_variables", "input", "output"])
async def test_the_body_that_leaves_what_is_not_json_fails(app: App, what: str) -> None:
    @app.message("Weigh")
    async def weigh(ctx: StepContext) -> None:
        getattr(ctx, what)["lock"] = object()

    with pytest.raises(InvalidValue, match=f"the body of 'Weigh': {what}"):
        await app.service.execute("Weigh")


async def test_plain_functions_and_classes_are_steps_too(app: App) -> None:
    @app.step("Create", "order", stage=POST)
    def mail(ctx: StepContext) -> None:
        ctx.service.create("mail", {"id": "m", "order": ctx.target.id})

    @app.step("Create", "mail", stage=PRE_OPERATION, configuration="es", secure="key")
    class Translate:
        def __init__(self, configuration: str | None, secure: str | None) -> None:
            self.told = f"{configuration} {secure}"

        async def execute(self, ctx: StepContext) -> None:
            ctx.target["language"] = f"{self.told} {ctx.configuration}"

    await app.service.create("order", {"id": "1"})
    assert await app.service.retrieve("mail", "m") == {
        "id": "m", "order": "1", "language": "es key es",
    }  # fmt: skip


async def test_custom_messages_have_a_body_and_stages(app: App) -> None:
    @app.message("Approve")
    async def approve(ctx: StepContext) -> dict[str, Any]:
        await ctx.service.update("order", ctx.target.id, {"status": ctx.input["as"]})
        return {"approved": True}

    @app.step("Approve", "order", stage=PRE_OPERATION)
    async def before(ctx: StepContext) -> None:
        ctx.input["as"] = ctx.input["as"].upper()

    @app.step("Approve", "order", stage=POST)
    async def after(ctx: StepContext) -> None:
        ctx.output["by"] = "ana"

    await app.service.create("order", {"id": "1"})
    output = await app.service.execute("Approve", "order", "1", input={"as": "ok"})
    assert output == {"approved": True, "by": "ana"}
    assert (await app.service.retrieve("order", "1"))["status"] == "OK"
    with pytest.raises(InvalidValue, match="no message"):
        await app.service.execute("Reject", "order", "1")


async def test_records_are_related_and_unrelated_until_one_is_deleted(app: App) -> None:
    service = app.service
    await service.create("order", {"id": "1"})
    await service.associate("order", "1", "order_mails", [("mail", "a"), ("mail", "b")])
    await service.associate("order", "1", "order_mails", [("mail", "a")])
    assert await service.related("order", "1", "order_mails") == [("mail", "a"), ("mail", "b")]
    await service.disassociate("order", "1", "order_mails", [("mail", "a")])
    assert await service.related("order", "1", "order_mails") == [("mail", "b")]
    await service.delete("order", "1")
    assert await service.related("order", "1", "order_mails") == []


async def test_an_operation_in_the_callers_transaction_commits_with_it(app: App) -> None:
    class Undone(Exception):
        pass

    with pytest.raises(Undone):
        async with app.database.transaction() as tx:
            await app.service.create("order", {"id": "1"}, tx=tx)
            assert (await app.service.retrieve("order", "1", tx=tx))["id"] == "1"
            raise Undone
    with pytest.raises(NotFound):
        await app.service.retrieve("order", "1")
    async with app.database.transaction() as tx:
        await app.service.create("order", {"id": "1"}, tx=tx)
        await app.service.update("order", "1", {"n": 2}, tx=tx)
    assert (await app.service.retrieve("order", "1"))["n"] == 2
    with pytest.raises(InvalidValue, match="tx is a str"):
        await app.service.create("order", {}, tx="transaction")


async def test_the_changes_are_in_the_feed_of_the_container(app: App) -> None:
    orders = app.container("orders", partition_key="/id")
    app.table("sale", orders)
    await app.service.create("sale", {"id": "1"})
    await app.service.update("sale", "1", {"n": 1})
    seen = [one.item async for page in orders.read_changes() for one in page.changes]
    assert seen == [{"id": "1", "n": 1}]


async def test_operations_that_a_step_makes_at_once_take_turns(app: App) -> None:
    @app.step("Create", "mail")
    async def counted(ctx: StepContext) -> None:
        await asyncio.gather(*(ctx.service.create("order", {}) for _ in range(2)))

    @app.step("Update", "mail")
    async def many(ctx: StepContext) -> None:
        other = ctx.service.of(None)
        await asyncio.gather(
            *(one.create("mail", {}) for one in (ctx.service, other) for _ in range(3)),
            ctx.service.related("mail", "1", "x"),
        )

    await app.service.create("mail", {"id": "1"})
    await app.service.update("mail", "1", {})
    assert len((await app.service.retrieve_multiple("mail"))[0]) == 7
    assert len((await app.service.retrieve_multiple("order"))[0]) == 14


async def test_a_service_is_refused_after_its_step(app: App) -> None:
    kept: list[Any] = []

    @app.step("Create", "order", stage=POST)
    async def keep(ctx: StepContext) -> None:
        kept.append(ctx.service)

    await app.service.create("order", {})
    with pytest.raises(Conflict, match="after its step had ended"):
        await kept[0].create("mail", {})


@pytest.mark.parametrize(
    ("message", "options"),
    [
        ("Create", {"images": [Pre()]}),
        ("Delete", {"images": [Post()]}),
        ("Update", {"images": [Post()], "stage": PRE_OPERATION}),
        ("Retrieve", {"images": [Pre()]}),
        ("Create", {"filtering": ["status"]}),
        ("Update", {"stage": PRE_OPERATION, "mode": 1}),
        ("Update", {"stage": 30}),
        ("Update", {"serialize": "record"}),
        ("Update", {"mode": 1, "serialize": "table"}),
    ],
)
async def test_steps_that_cannot_be_are_refused_at_registration(
    app: App, message: str, options: dict[str, Any]
) -> None:
    with pytest.raises(InvalidValue, match="step 'wrong'"):
        app.step(message, "order", name="wrong", **options)(lambda ctx: None)


async def test_a_step_of_an_unknown_table_keeps_a_host_from_starting(app: App) -> None:
    @app.step("Create", "oder")
    async def look(ctx: StepContext) -> None: ...

    with pytest.raises(NotFound, match="'oder'"):
        async with app.host():
            pass
    assert await jobs(app) == []
