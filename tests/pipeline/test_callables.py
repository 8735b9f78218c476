"""Steps and bodies of every kind: what they return is awaited, or refused by name."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import pytest

from relevo.errors import InvalidValue
from relevo.pipeline import ASYNC, StepContext
from tests.pipeline.bundle import finished

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from relevo import App

pytestmark = pytest.mark.anyio


async def mail(ctx: StepContext) -> None:
    await ctx.service.create("mail", {"id": ctx.target.id})


class Mailer:
    async def __call__(self, ctx: StepContext) -> None:
        await mail(ctx)


def logged(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(ctx: Any) -> Any:
        return function(ctx)

    return call


KINDS: dict[str, Any] = {
    "lambda": lambda ctx: mail(ctx), "decorated": logged(mail), "object": Mailer(),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
async def test_whatever_a_step_returns_that_can_be_awaited_is(app: App, kind: str) -> None:
    app.step("Create", "order", name="mail")(KINDS[kind])
    async with app.host():
        await app.service.create("order", {"id": "a"})
        assert await app.service.retrieve("mail", "a")


@pytest.mark.parametrize("kind", KINDS)
async def test_whatever_a_step_of_a_job_returns_that_can_be_awaited_is(app: App, kind: str) -> None:
    app.step("Create", "order", mode=ASYNC, name="mail")(KINDS[kind])
    async with app.host():
        await app.service.create("order", {"id": "a"})
        assert [one["status"] for one in await finished(app)] == [30]
        assert await app.service.retrieve("mail", "a")


async def test_a_coroutine_of_a_plain_step_may_use_the_transaction_of_its_job(app: App) -> None:
    async def work(ctx: StepContext) -> None:
        async with ctx.transaction() as tx:
            await ctx.service.create("mail", {"id": ctx.target.id}, tx=tx)

    app.step("Create", "order", mode=ASYNC, name="mail")(lambda ctx: work(ctx))
    async with app.host():
        await app.service.create("order", {"id": "a"})
        assert [one["status"] for one in await finished(app)] == [30]
        assert await app.service.retrieve("mail", "a")


async def test_whatever_a_body_returns_that_can_be_awaited_is(app: App) -> None:
    async def approve(ctx: StepContext) -> dict[str, Any]:
        return {"approved": ctx.input["id"]}

    app.message("Approve")(lambda ctx: approve(ctx))
    async with app.host():
        assert await app.service.execute("Approve", input={"id": "a"}) == {"approved": "a"}


async def test_a_step_or_body_may_do_without_a_context(app: App) -> None:
    calls: list[str] = []

    async def on_loop() -> None:
        calls.append("on loop")

    app.step("Create", "order", name="on loop")(on_loop)
    app.step("Create", "order", name="plain")(lambda: calls.append("plain"))
    app.step("Create", "order", mode=ASYNC, name="later")(lambda: calls.append("later"))
    app.message("Count")(lambda: {"calls": len(calls)})
    async with app.host():
        await app.service.create("order", {"id": "a"})
        await finished(app)
        assert calls == ["on loop", "plain", "later"]
        assert await app.service.execute("Count") == {"calls": 3}


class Empty:
    """A class without `execute`."""


class Yielding:
    def execute(self, ctx: Any) -> Iterator[None]:
        yield


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (Empty, "a class with execute"), (Yielding, "generator function"),
        (Yielding().execute, "generator function"), (5, "cannot be called"),
        (lambda ctx, more: None, r"called with \(ctx\)"),
    ],
)  # fmt: skip
async def test_what_can_be_no_step_is_refused_when_it_is_registered(
    app: App, body: Any, why: str
) -> None:
    with pytest.raises(InvalidValue, match=why):
        app.step("Create", "order", name="strange")(body)
    with pytest.raises(InvalidValue, match=why):
        app.message("Strange")(body)
