"""Effects and checkpoint are one commit, whatever a handler does with its transaction."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Any

import pytest

from relevo.errors import Conflict, HandlerError
from tests.feed.shop import Shop, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from relevo import App
    from relevo.feed import Change, ChangeContext

    Misuse = Callable[[ChangeContext], Awaitable[None]]

pytestmark = pytest.mark.anyio
EFFECT = "insert into effect values ($1)"


@pytest.fixture
async def shop(relevo_url: str, app: App) -> AsyncIterator[Shop]:
    async with AsyncExitStack() as stack:
        shop = Shop(relevo_url, app, stack)
        await shop.orders.describe()
        await app.database.write("create table effect (id text)")
        yield shop


async def effects(shop: Shop) -> list[str]:
    return [row["id"] for row in await shop.client.database.fetch("select id from effect")]


async def lag(shop: Shop) -> int:
    return (await shop.orders.change_feed_estimator("kitchen").total()).estimated_lag


_kept: list[Any] = []


async def left_open(ctx: ChangeContext) -> None:
    tx = await ctx.transaction().__aenter__()
    await tx.execute(EFFECT, "misuse")


async def left_open_and_kept(ctx: ChangeContext) -> None:
    manager = ctx.transaction()
    tx = await manager.__aenter__()
    _kept.append((manager, tx))
    await tx.execute(EFFECT, "misuse")


async def left_open_by_a_task(ctx: ChangeContext) -> None:
    inside = asyncio.Event()

    async def work() -> None:
        async with ctx.transaction() as tx:
            await tx.execute(EFFECT, "misuse")
            inside.set()
            with pytest.raises(Conflict, match="is over"):
                while True:
                    await tx.execute("select pg_sleep(0.01)")

    _kept.append(asyncio.ensure_future(work()))
    await inside.wait()


async def left_open_then_another(ctx: ChangeContext) -> None:
    first = await ctx.transaction().__aenter__()
    await first.execute(EFFECT, "misuse")
    with suppress(Conflict):
        async with ctx.transaction() as second:
            await second.execute(EFFECT, "misuse")


async def committed_by_hand(ctx: ChangeContext) -> None:
    async with ctx.transaction() as tx:
        await tx.execute(EFFECT, "misuse")
        await tx.execute("/* now */ COMMIT -- done")


async def committed_among_others(ctx: ChangeContext) -> None:
    async with ctx.transaction() as tx:
        await tx.execute("insert into effect values ('misuse;'); commit; begin")


async def rolled_back_by_hand(ctx: ChangeContext) -> None:
    async with ctx.transaction() as tx:
        await tx.execute(EFFECT, "misuse")
        await tx.fetch("rollback")


async def reset_by_hand(ctx: ChangeContext) -> None:
    async with ctx.transaction() as tx:
        await tx.execute(EFFECT, "misuse")
        await tx.reset()


async def nested(ctx: ChangeContext) -> None:
    async with ctx.transaction() as outer:
        await outer.execute(EFFECT, "misuse")
        async with ctx.transaction() as inner:
            await inner.execute(EFFECT, "misuse")


async def confirmed_inside(ctx: ChangeContext) -> None:
    async with ctx.transaction() as tx:
        await tx.execute(EFFECT, "misuse")
        await ctx.confirm()


MISUSES: list[tuple[Misuse, str]] = [
    (left_open, "returned inside of ctx.transaction"),
    (left_open_and_kept, "returned inside of ctx.transaction"),
    (left_open_by_a_task, "returned inside of ctx.transaction"),
    (left_open_then_another, "returned inside of ctx.transaction"),
    (committed_by_hand, "ends with its block, not by 'COMMIT'"),
    (committed_among_others, "ends with its block, not by 'commit'"),
    (rolled_back_by_hand, "ends with its block, not by 'rollback'"),
    (reset_by_hand, r"has no reset\(\)"),
    (nested, "open already"),
    (confirmed_inside, "leave its block"),
]


@pytest.mark.parametrize(("misuse", "why"), MISUSES, ids=lambda one: getattr(one, "__name__", ""))
@pytest.mark.parametrize("lanes", [1, 4])
async def test_a_misuse_is_refused_and_the_batch_comes_again(
    shop: Shop, misuse: Misuse, why: str, lanes: int
) -> None:
    errors: list[HandlerError] = []

    async def cook(ctx: ChangeContext, changes: list[Change[Any]]) -> None:
        if ctx.attempt == 1:
            await misuse(ctx)
            return
        async with ctx.transaction() as tx:
            await tx.executemany(EFFECT, [(change.id,) for change in changes])

    async with shop.hosting(
        "a", cook, lanes=lanes, listeners={"on_error": lambda _, error: errors.append(error)}
    ):
        await shop.write(1)
        await until(lambda: lag_is_gone(shop), "the batch is through")
    assert await effects(shop) == ["1"]
    (error,) = errors
    assert isinstance(error, HandlerError)
    with pytest.raises((HandlerError, Conflict), match=why):
        raise error.__cause__ or error
    await _tidy()


async def lag_is_gone(shop: Shop) -> bool:
    return await lag(shop) == 0


async def _tidy() -> None:
    for one in _kept:
        if isinstance(one, asyncio.Future):
            with suppress(Conflict):
                await one
        else:
            with pytest.raises(Conflict, match="is over"):
                await one[1].execute("select 1")
            with pytest.raises(Conflict, match="is over"):
                await one[0].__aexit__(None, None, None)
    _kept.clear()


async def test_a_batch_of_a_misuse_that_never_ends_is_never_checkpointed(shop: Shop) -> None:
    attempts: list[int] = []

    async def cook(ctx: ChangeContext, changes: list[Change[Any]]) -> None:
        attempts.append(ctx.attempt)
        await left_open(ctx)

    async with shop.hosting("a", cook) as processor:
        await shop.write(1)
        await until(
            lambda: len(attempts) > 20, "it was tried more often than there are connections"
        )
        assert await lag(shop) == 1
        assert processor.health().state == "degraded"
    assert await effects(shop) == []


@pytest.mark.parametrize("at_once", [True, False])
async def test_a_transaction_is_not_used_after_its_end(shop: Shop, at_once: bool) -> None:
    refused: list[str] = []

    async def cook(ctx: ChangeContext, changes: list[Change[Any]]) -> None:
        async with ctx.transaction() as tx:
            await tx.execute(EFFECT, "1")
            kept = tx.execute
        if not at_once:
            await asyncio.sleep(0.01)
        uses: list[Any] = [kept, lambda *sql: tx.fetch(*sql), lambda *_: tx.transaction()]
        for use in uses:
            with pytest.raises(Conflict, match="this transaction is over"):
                await use(EFFECT, "late")
        refused.append(changes[0].id)

    await shop.host("a", cook)
    await shop.write(1)
    await until(lambda: bool(refused), "it was refused")
    assert await effects(shop) == ["1"]


async def test_savepoints_and_caught_errors_stay_possible(shop: Shop) -> None:
    async def cook(ctx: ChangeContext, changes: list[Change[Any]]) -> None:
        async with ctx.transaction() as tx:
            for change in changes:
                with suppress(ZeroDivisionError):
                    async with tx.transaction():
                        await tx.execute(EFFECT, f"undone {change.id}")
                        raise ZeroDivisionError
                await tx.execute("savepoint by_hand")
                await tx.execute(EFFECT, "undone, too")
                await tx.execute("rollback to savepoint by_hand; release savepoint by_hand")
                await tx.execute("insert into effect values ('end; commit;')")
                prepared = await tx.prepare(EFFECT)
                await prepared.fetch(change.id)

    await shop.host("a", cook)
    await shop.write(1)
    await until(lambda: lag_is_gone(shop), "the batch is through")
    assert sorted(await effects(shop)) == ["1", "end; commit;"]


async def test_a_transaction_of_a_call_that_failed_commits_nothing(shop: Shop) -> None:
    contexts: list[ChangeContext] = []

    async def cook(ctx: ChangeContext, changes: list[Change[Any]]) -> None:
        contexts.append(ctx)
        if len(contexts) == 1:
            raise ValueError("burnt")
        async with ctx.transaction() as tx:
            await tx.execute(EFFECT, "1")

    await shop.host("a", cook, checkpoint="manual")
    await shop.write(1)
    await until(lambda: lag_is_gone(shop), "the batch is through")
    with pytest.raises(Conflict, match="call is over"):
        async with contexts[0].transaction() as tx:
            await tx.execute(EFFECT, "late")
    assert await effects(shop) == ["1"]


async def test_a_manual_checkpoint_may_come_later_in_a_transaction(shop: Shop) -> None:
    contexts: list[ChangeContext] = []

    async def cook(ctx: ChangeContext, changes: list[Change[Any]]) -> None:
        contexts.append(ctx)

    await shop.host("a", cook, checkpoint="manual")
    await shop.write(1)
    await until(lambda: len(contexts) == 1, "it was delivered")
    await shop.write(1)
    await until(lambda: len(contexts) == 2, "it was delivered again, so the first call is over")
    async with contexts[0].transaction() as tx:
        await tx.execute(EFFECT, "1")
    assert (await lag(shop), await effects(shop)) == (1, ["1"])


async def test_a_task_inside_a_transaction_goes_on_when_a_manual_call_ends(shop: Shop) -> None:
    contexts: list[ChangeContext] = []
    inside, goes_on = asyncio.Event(), asyncio.Event()

    async def work(ctx: ChangeContext) -> None:
        async with ctx.transaction() as tx:
            inside.set()
            await goes_on.wait()
            await tx.execute(EFFECT, "1")

    async def cook(ctx: ChangeContext, changes: list[Change[Any]]) -> None:
        contexts.append(ctx)
        if len(contexts) == 1:
            _kept.append(asyncio.ensure_future(work(ctx)))
            await inside.wait()

    await shop.host("a", cook, checkpoint="manual")
    await shop.write(1)
    await until(lambda: len(contexts) == 1, "it was delivered")
    await shop.write(1)
    await until(lambda: len(contexts) == 2, "it was delivered again, so the first call is over")
    goes_on.set()
    await _kept[-1]
    assert (await lag(shop), await effects(shop)) == (1, ["1"])


async def test_a_letter_of_a_misuse_stays(shop: Shop) -> None:
    async def cook(ctx: ChangeContext, changes: list[Change[Any]]) -> None:
        if not ctx.redrive:
            raise ValueError("burnt")
        await left_open(ctx)

    app = shop.app()
    orders = app.container("orders")
    orders.processor(
        "kitchen", cook, start="beginning", poll_interval=0.05, dead_letter=True, max_attempts=1
    )
    async with app.host(name="a"):
        await shop.write(1)
        letters = orders.dead_letters("kitchen")

        async def there() -> bool:
            return bool(
                await shop.client.database.fetchval("select count(*) from relevo.dead_letter")
            )

        await until(there, "it is a letter")
        (letter,) = await letters.list()
        with pytest.raises(HandlerError, match="returned inside of"):
            await letters.redrive(letter.id)
        assert len(await letters.list()) == 1
    assert await effects(shop) == []
