"""Handlers and token functions of every kind: what they return is awaited, or refused by name."""

from __future__ import annotations

import asyncio
import functools
from typing import TYPE_CHECKING, Any

import pytest

from relevo.errors import InvalidValue
from relevo.jobs import states
from relevo.jobs.core import codes
from relevo.jobs.errors import JobFailed
from relevo.workflows import Return
from tests.jobs import process_handlers

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator

    from relevo.jobs import JobContext
    from tests.jobs.office import Office

pytestmark = pytest.mark.anyio


async def count(ctx: Any, to: int = 3) -> int:
    """Use all of a context that waits, on the loop."""
    for n in range(to):
        await ctx.checkpoint(progress=(n + 1) / to, state=n)
    await ctx.save(to)
    await ctx.progress(1.0)
    return int(ctx.state)


async def complete(ctx: Any, table: str) -> None:
    async with ctx.transaction(result="stored") as tx:
        await tx.execute(f"insert into {table} values (1)")


def logged(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return call


class Counter:
    async def __call__(self, ctx: Any, to: int = 3) -> int:
        return await count(ctx, to)


@pytest.mark.parametrize(
    "handler",
    [
        lambda ctx, to=3: count(ctx, to), logged(count), Counter(), functools.partial(count),
        functools.partial(Counter(), to=3),
    ],
    ids=["lambda", "decorated", "object", "partial", "partial of an object"],
)  # fmt: skip
async def test_whatever_a_handler_returns_that_can_be_awaited_is(
    office: Office, handler: Any
) -> None:
    await office.host({"count": handler})
    job = await office.jobs.submit("count", {"to": 3})
    assert await job.wait(30) == 3
    assert (await office.row(job))["progress"] == 1.0


async def test_a_coroutine_of_a_plain_function_completes_its_job_in_a_transaction(
    office: Office,
) -> None:
    await office.database.write("create table if not exists once (n integer)")
    await office.database.write("truncate once")
    await office.host({"complete": lambda ctx: complete(ctx, "once")})
    job = await office.jobs.submit("complete")
    assert await job.wait(30) == "stored"
    assert await office.database.fetchval("select count(*) from once") == 1


async def test_a_coroutine_of_a_plain_function_is_cut_off_when_its_job_is_canceled(
    office: Office,
) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def hang(ctx: Any) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    await office.host({"hang": lambda ctx: hang(ctx)}, timeout=0.3)
    job = await office.jobs.submit("hang")
    await begun.wait()
    await ended.wait()
    await office.until_status(job, states.WAITING)


async def test_a_process_awaits_what_a_plain_function_returns(office: Office) -> None:
    app = office.new_app()
    app.job("count", process=True)(process_handlers.counted_elsewhere)
    await office.serve(app)
    job = await office.jobs.submit("count", {"to": 3})
    assert await job.wait(60) == 3


async def test_a_result_that_has_done_nothing_is_a_failure(office: Office) -> None:
    await office.host({"lazy": lambda ctx: map(print, [1])})
    job = await office.jobs.submit("lazy")
    with pytest.raises(JobFailed, match="until somebody iterates") as failed:
        await job.wait(30)
    assert failed.value.error_code == codes.HANDLER_FAILED


@pytest.mark.parametrize("wrapped", [False, True])
async def test_a_token_function_may_be_a_coroutine(office: Office, wrapped: bool) -> None:
    async def token(to: int) -> str:
        await asyncio.sleep(0)
        return f"chain {to}"

    def plain(to: int) -> Any:
        return token(to)

    app = office.new_app()
    made = app.job("count", token=plain if wrapped else token)(count)
    await office.serve(app)
    job = await made.submit(to=2)
    assert (await office.row(job))["token"] == "chain 2"
    (other,) = await app.jobs.submit_many("count", [{"to": 3}])
    assert (await office.row(other))["token"] == "chain 3"
    assert await job.wait(30) == 2


async def test_a_token_that_is_no_text_is_refused(office: Office) -> None:
    app = office.new_app()
    app.job("count", token=lambda to: to)(count)
    await office.serve(app)
    with pytest.raises(InvalidValue, match="returned a int; a token is text"):
        await app.jobs.submit("count", {"to": 3})


def yields(ctx: Any) -> Iterator[None]:
    yield


async def yields_async(ctx: Any) -> AsyncIterator[None]:
    yield


@pytest.mark.parametrize(
    ("handler", "why"),
    [
        (yields, "generator function"), (yields_async, "generator function"),
        (Counter, "is the class Counter"), (5, "cannot be called"),
        (getattr, "does not say"),
    ],
)  # fmt: skip
async def test_what_can_be_no_handler_is_refused_when_it_is_registered(
    office: Office, handler: Any, why: str
) -> None:
    app = office.new_app()
    with pytest.raises(InvalidValue, match=why):
        app.job("strange")(handler)
    if why == "generator function":
        with pytest.raises(InvalidValue, match=why):
            app.job("fine", token=handler)(count)


async def test_a_handler_may_do_without_a_context(office: Office) -> None:
    async def on_loop(a: int, b: int = 2) -> int:
        return a * b

    def in_thread(*, a: int, b: int = 2) -> int:
        return a * b

    app = office.new_app()
    jobs: list[Any] = [
        app.job("on loop", token=lambda a: str(a))(on_loop),
        app.job("in thread")(in_thread),
        app.job("in process", process=True)(process_handlers.multiply),
        app.job("in words", token=lambda a: str(a))(functools.partial(on_loop, b=5)),
    ]
    nothing = app.job("nothing")(lambda: "done")

    @app.workflow("double")
    async def double(number: int) -> AsyncGenerator[Any, Any]:
        yield Return(2 * number)

    await office.serve(app)
    assert [await (await job.submit(a=4)).wait(60) for job in jobs] == [8, 8, 8, 20]
    assert (await (await jobs[0].submit(4)).get()).token == "4"
    assert await (await nothing.submit()).wait(60) == "done"
    assert await (await double.submit(number=4)).wait(60) == 8


async def test_the_context_is_known_by_its_name_or_its_annotation(office: Office) -> None:
    def annotated(run: JobContext) -> str:
        return str(run.id)

    def unused(_: Any, text: str) -> str:
        return text

    await office.host({"annotated": annotated, "unused": unused})
    job = await office.jobs.submit("annotated")
    assert await job.wait(60) == str(job.id)
    assert await (await office.jobs.submit("unused", {"text": "x"})).wait(60) == "x"
