"""Mistakes in a registration fail where they are written, and the error says how to repair them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from relevo import App
from relevo.actors import Actor, Interface
from relevo.errors import Conflict, InvalidValue

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from relevo.jobs import JobContext


class Account(Interface):
    async def add(self, amount: int) -> int: ...


class Ledger(Actor[None]):
    async def add(self, amount: int) -> int:
        return amount


async def late_context(number: int, ctx: JobContext) -> None: ...


def shared_default(ctx: Any, names: list[str] = []) -> None: ...  # noqa: B006


def fine(ctx: Any, context: str = "data") -> None: ...


def other(ctx: Any) -> None: ...


async def changed(changes: Any) -> None: ...


async def yielding(changes: Any) -> AsyncIterator[None]:
    yield


MISTAKES: list[tuple[Callable[[Any], Any], str]] = [
    (lambda app: app.job(fine), r'write @app\.job\("fine"\)'),
    (lambda app: app.job(5), r'takes a name, as @app\.job\("name"\), not 5'),
    (lambda app: app.job("a")(late_context), "behind other parameters; put it first"),
    (lambda app: app.job("a")(shared_default), "write names=None, and make a new list inside"),
    (lambda app: app.job("a", retries=-1), "retries=-1; give a number from 0"),
    (lambda app: app.job("a")(yielding), "is a generator function"),
    (lambda app: app.workflow(fine), r'write @app\.workflow\("fine"\)'),
    (lambda app: app.workflow("a")(fine), "is not an async generator"),
    (lambda app: app.step(fine), r'write @app\.step\("fine"\)'),
    (lambda app: app.message(fine), r'write @app\.message\("fine"\)'),
    (lambda app: app.container("a").on_changes(fine), r'on_changes\("fine"\)'),
    (lambda app: app.container("a").on_changes("b", laness=2)(changed), "mean lanes"),
    (lambda app: app.container("a").on_changes("b")(yielding), "is a generator function"),
    (lambda app: app.queue("a").on_messages(fine), r'on_messages\("fine"\)'),
    (lambda app: app.queue("a").on_messages("b", concurency=2), "do you mean concurrency"),
    (lambda app: app.consumers(fine, sources=[]), r'\("fine"\)'),
    (lambda app: app.consumers("b", sources=["a"]), r"such as app\.queue\('a'\), not 'a'"),
    (lambda app: app.actor(Ledger), r'write @app\.actor\("Ledger"\)'),
    (lambda app: app.actor("a"), "needs implements=, the interface that callers use"),
    (lambda app: app.actor("a", implements=Account, idle=3), "no option 'idle'; there are"),
    (lambda app: app.actor("a", implements=Account)(fine), "derived from relevo.actors.Actor"),
    (lambda app: app.stateless(Ledger), r'write @app\.stateless\("Ledger"\)'),
]


def test_a_mistake_in_a_registration_fails_at_once() -> None:
    for register, refusal in MISTAKES:
        with pytest.raises(InvalidValue, match=refusal):
            register(App())


def test_a_name_that_is_taken_says_by_which_functions() -> None:
    app = App()
    messages = app.queue("q")
    for register, first, second in (
        (app.job("a"), fine, other),
        (messages.on_messages("a"), fine, other),
        (app.container("c").on_changes("a"), changed, other),
    ):
        again: Any = register
        again(first)
        where = rf"mistakes\.{first.__name__} \(line \d+\), and now .*\.{second.__name__} \(line"
        with pytest.raises(Conflict, match=where):
            again(second)
