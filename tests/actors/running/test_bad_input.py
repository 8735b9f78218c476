"""Bad input has a named error that says nothing was executed, and it changes nothing."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import Struct

from relevo import App
from relevo.actors import Actor, Interface, method
from relevo.errors import (
    ActorError,
    BadArguments,
    CallIdReused,
    Conflict,
    DeadlineExceeded,
    InvalidValue,
    NotFound,
    OutsideTurn,
    ReentrancyTooDeep,
    RemoteError,
    TooLarge,
    UnknownMethod,
)

if TYPE_CHECKING:
    from tests.actors.running.conftest import Host, Hosts

pytestmark = pytest.mark.anyio


class Box(Interface):
    async def put(self, count: int, text: str = "") -> int: ...
    async def wrong_result(self) -> int: ...
    async def descend(self) -> int: ...
    async def leak(self) -> None: ...
    async def take(self, other: Box) -> None: ...
    async def grow(self) -> None: ...
    @method(read_only=True)
    async def count(self) -> int: ...


class Unknown(Interface):
    async def put(self, count: int) -> int: ...


class BoxState(Struct):
    count: int = 0
    text: str = ""


class Outcome:
    leaked: Any = None


def define(app: App, *_: Any) -> Outcome:
    outcome = Outcome()

    @app.actor("box", implements=Box)
    class BoxActor(Actor[BoxState]):
        async def put(self, count: int, text: str = "") -> int:
            self.state.count += count
            return self.state.count

        async def wrong_result(self) -> Any:
            self.state.count += 1
            return "no number"

        async def descend(self) -> int:
            self.state.count += 1
            below = app.actor(Box, f"{self.ctx.key}+")
            return await below.descend()

        async def leak(self) -> None:
            gate = asyncio.Event()

            async def later() -> None:
                await gate.wait()
                self.state.count += 1

            outcome.leaked = (asyncio.create_task(later()), gate)

        async def take(self, other: Box) -> None:
            self.state.count += 1

        async def grow(self) -> None:
            self.state.text = "x" * (4 * 1024 * 1024 + 1)

        async def count(self) -> int:
            return self.state.count

    return outcome


@pytest.fixture
async def host(hosts: Hosts) -> Host:
    return await hosts.start(define)


async def refused(calling: Any, kind: type[Exception], *said: str) -> Any:
    """Expect an error that says nothing was executed."""
    with pytest.raises(kind) as caught:
        await calling
    assert all(one in str(caught.value) for one in said), caught.value
    if isinstance(caught.value, ActorError):
        assert caught.value.executed is False, caught.value  # I31
    return caught.value


async def test_calls_that_fit_nothing_are_refused_and_run_nothing(host: Host) -> None:
    box: Any = host.app.actor(Box, "a")
    assert await box.put(1) == 1
    await refused(box.call("pot", 1), UnknownMethod, "pot", "put")
    await refused(box.put("5"), BadArguments, "count")
    await refused(box.put(), BadArguments)
    await refused(box.put(1, more=2), BadArguments)
    await refused(box.put(2**70), BadArguments)
    await refused(box.put(object()), BadArguments)
    await refused(box.put(1, "x" * (17 * 1024 * 1024)), TooLarge, "bytes")
    with pytest.raises(NotFound, match="Unknown"):
        host.app.actor(Unknown, "a")
    untyped: Any = host.app.actor(Unknown, "a", type="box")
    await refused(untyped.put("x"), BadArguments)
    absent: Any = host.app.actor(Box, "a", type="bux")
    await refused(absent.put(1), NotFound, "bux")
    assert await box.count() == 1


async def test_keys_that_no_actor_has_are_refused_at_once(host: Host) -> None:
    for key in ("", "a\x00", "a\nb", "\x7f", "x" * 257, "\ud800", 2**63, True, 1.5, None, b"a"):
        with pytest.raises(InvalidValue):
            host.app.actor(Box, key)  # type: ignore[arg-type]
    text: Any = host.app.actor(Box, "42")
    number: Any = host.app.actor(Box, 42)
    await text.put(1)
    assert await number.count() == 0  # another actor, no error


async def test_a_result_of_the_wrong_type_undoes_its_turn(host: Host) -> None:
    box: Any = host.app.actor(Box, "r")
    with pytest.raises(ActorError, match="returned 'no number'") as caught:
        await box.wrong_result()
    assert caught.value.executed is True
    assert await box.count() == 0


async def test_a_state_that_is_too_large_is_not_stored(host: Host) -> None:
    box: Any = host.app.actor(Box, "large")
    await box.put(1)
    with pytest.raises(TooLarge):
        await box.grow()
    assert await box.count() == 1
    state = await host.app.actors.administration.state(box)
    assert state.value() == {"count": 1, "text": ""}


async def test_call_ids_options_and_deadlines_are_checked(host: Host) -> None:
    box: Any = host.app.actor(Box, "c")
    assert await box.with_(call_id="once").put(1) == 1
    await refused(box.with_(call_id="once").put(2), CallIdReused)
    for timeout in (0, -1, float("nan"), 1e9):
        with pytest.raises(InvalidValue):
            box.with_(timeout=timeout)
    for call_id in ("", "x" * 257):
        with pytest.raises(InvalidValue):
            box.with_(call_id=call_id)
    await refused(box.with_(timeout=1e-9).put(1), DeadlineExceeded)
    assert await box.count() == 1


async def test_calls_that_descend_too_deep_end_without_effect(host: Host) -> None:
    box: Any = host.app.actor(Box, "d")
    with pytest.raises(ActorError) as caught:
        await box.with_(timeout=20).descend()
    found: BaseException | None = caught.value
    assert isinstance(found, (ReentrancyTooDeep, RemoteError))
    for depth in range(40):
        deep: Any = host.app.actor(Box, "d" + "+" * depth)
        assert await deep.count() == 0


async def test_a_task_outside_its_turn_cannot_touch_the_state(hosts: Hosts) -> None:
    outcomes: list[Outcome] = []
    host = await hosts.start(lambda app, gates: outcomes.append(define(app, gates)))
    box: Any = host.app.actor(Box, "t")
    await box.leak()
    task, gate = outcomes[0].leaked
    gate.set()
    with pytest.raises(OutsideTurn):
        await task
    assert await box.count() == 0


async def test_a_proxy_of_another_app_is_refused(host: Host) -> None:
    other = App("postgresql://elsewhere/shop")
    define(other)
    stranger: Any = other.actor(Box, "x")
    box: Any = host.app.actor(Box, "p")
    await refused(box.take(stranger), BadArguments, "another app")
    assert await box.count() == 0
    await box.take(host.app.actor(Box, "x"))
    assert await box.count() == 1


async def test_a_type_is_defined_once(host: Host) -> None:
    with pytest.raises(Conflict, match="box"):
        define(host.app)
