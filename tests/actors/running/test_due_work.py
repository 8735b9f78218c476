"""Reminders and durable messages."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest
from msgspec import Struct, field

from relevo.actors import Actor, Interface, Tick, reminder_handler
from relevo.errors import InvalidValue, RemoteError
from relevo.kernel.backoff import Backoff
from relevo.testing.clock import Clock
from tests.jobs.office import until

if TYPE_CHECKING:
    from relevo import App
    from tests.actors.bank import Gates
    from tests.actors.running.conftest import Host, Hosts

pytestmark = pytest.mark.anyio


class Diary(Interface):
    async def remind(self, name: str, options: dict[str, Any], fail: bool = False) -> None: ...
    async def cancel(self, name: str) -> None: ...
    async def replace(self, name: str, other: str, options: dict[str, Any]) -> None: ...
    async def ticks(self) -> list[list[Any]]: ...
    async def break_it(self, failures: int) -> None: ...
    async def write(self, text: str) -> None: ...
    async def post(self, to: str, texts: list[str], fail: bool, block: bool) -> None: ...
    async def texts(self) -> list[str]: ...


class DiaryState(Struct):
    ticks: list[list[Any]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    number: int = 0


def define_diary(app: App, gates: Gates) -> None:
    @app.actor("diary", implements=Diary)
    class DiaryActor(Actor[DiaryState]):
        failures = 0

        async def remind(self, name: str, options: dict[str, Any], fail: bool = False) -> None:
            for key in ("at", "until"):
                if key in options:
                    options[key] = datetime.fromisoformat(options[key])
            if "backoff" in options:
                options["backoff"] = Backoff(**options["backoff"])
            await self.reminders.set(name, self.on_tick, **options)
            if fail:
                raise RuntimeError("not set")

        async def cancel(self, name: str) -> None:
            await self.reminders.cancel(name)

        async def replace(self, name: str, other: str, options: dict[str, Any]) -> None:
            await gates.hold("replace")
            await self.remind(name, options)
            await self.cancel(other)

        @reminder_handler
        async def on_tick(self, tick: Tick[Any]) -> None:
            at = round((tick.scheduled_at - START).total_seconds())
            gates.log.append(tick.attempt)
            self.state.ticks.append([tick.name, at, tick.missed, tick.payload])
            if self.failures:
                self.failures -= 1
                raise RuntimeError("not now")
            if tick.payload == "last":
                await self.reminders.cancel(tick.name)

        async def ticks(self) -> list[list[Any]]:
            return self.state.ticks

        async def break_it(self, failures: int) -> None:
            self.failures = failures

        async def write(self, text: str) -> None:
            self.state.number += 1
            gates.log.append(text)
            if text.startswith("bad"):
                raise RuntimeError("cannot write")
            self.state.texts.append(text)

        async def post(self, to: str, texts: list[str], fail: bool, block: bool) -> None:
            on_dead: Any = "block" if block else "continue"
            sending: Any = self.send(app.actor(Diary, to), attempts=1, on_dead=on_dead)
            for text in texts:
                await sending.write(text)
            if fail:
                raise RuntimeError("not sent")

        async def texts(self) -> list[str]:
            return self.state.texts


START = datetime(2040, 1, 1, tzinfo=UTC)


class Calendar:
    """A host whose time stands where the test puts it."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.clock = Clock(host.app.database)

    def diary(self, key: str) -> Any:
        return self.host.app.actor(Diary, key)

    async def to(self, seconds: float) -> None:
        """Move the time to so many seconds after `START`."""
        now = await self.clock.now()
        await self.clock.advance(START + timedelta(seconds=seconds) - now)

    async def until_ticks(self, key: str, wanted: list[list[Any]]) -> None:
        async def same() -> bool:
            return bool(await self.diary(key).ticks() == wanted)

        async def found() -> str:
            return str(await self.diary(key).ticks())

        await until(same, found)

    async def due(self, key: str) -> dict[str, int]:
        """When reminders are due, in seconds after `START`."""
        rows = await self.host.rows(
            "select name, due from relevo.actor_reminder where actor = $1", f"diary/s:{key}"
        )
        return {name: round((due - START).total_seconds()) for name, due in rows}


@pytest.fixture
async def calendar(hosts: Hosts) -> Calendar:
    calendar = Calendar(await hosts.start(define_diary))
    await calendar.to(0)
    return calendar


def at(seconds: float) -> str:
    return (START + timedelta(seconds=seconds)).isoformat()


async def test_reminders_fire_on_their_grid_and_fold_what_was_missed(calendar: Calendar) -> None:
    diary = calendar.diary
    grid = {"at": at(100), "every": 10.0}
    await diary("c").remind("r", {**grid, "payload": "p"})
    await diary("s").remind("r", {**grid, "missed": "skip"})
    await diary("a").remind("r", {**grid, "missed": "all", "until": at(130)})
    await diary("f").remind("r", grid)
    with pytest.raises(RemoteError):
        await diary("f").remind("r", {"at": at(1)}, True)  # I23
    with pytest.raises(RemoteError):
        await diary("n").remind("r", {"at": at(1)}, True)
    await diary("f").cancel("r")
    await calendar.to(134)
    await calendar.until_ticks("c", [["r", 100, 3, "p"]])
    await calendar.until_ticks("a", [["r", at, 0, None] for at in (100, 110, 120, 130)])
    await until(lambda: _due(calendar, "s", {"r": 140}), "it waits for the next")
    assert await calendar.due("a") == {}
    await calendar.to(141)
    await calendar.until_ticks("c", [["r", 100, 3, "p"], ["r", 140, 0, "p"]])  # I35
    await calendar.until_ticks("s", [["r", 140, 0, None]])
    assert await calendar.due("c") == {"r": 150}
    for key in "fn":
        assert await diary(key).ticks() == []


async def _due(calendar: Calendar, key: str, wanted: dict[str, int]) -> bool:
    return await calendar.due(key) == wanted


async def test_a_reminder_that_is_replaced_while_it_waits_for_its_turn_does_not_fire(
    calendar: Calendar,
) -> None:
    diary, gates = calendar.diary("h"), calendar.host.gates
    for name in ("set", "canceled"):
        await diary.remind(name, {"at": at(10)})
    activation = calendar.host.activation("diary/s:h")
    assert activation is not None
    replacing = asyncio.create_task(diary.replace("set", "canceled", {"at": at(500)}))
    await gates.event("replace").wait()
    await calendar.to(20)
    await until(lambda: len(activation.mailbox.queued()) == 2, "both wait for their turns")
    behind = asyncio.create_task(diary.write("behind them"))
    gates.open("replace")
    await asyncio.gather(replacing, behind)
    assert await diary.texts() == ["behind them"]
    assert await diary.ticks() == []  # I34
    assert calendar.host.activation("diary/s:h") is activation  # nothing aborted it
    assert await calendar.due("h") == {"set": 500}
    await calendar.to(501)
    await calendar.until_ticks("h", [["set", 500, 0, None]])


async def test_a_reminder_survives_its_host_and_ends_itself(
    calendar: Calendar, hosts: Hosts
) -> None:
    await calendar.diary("z").remind(
        "day", {"recurrence": "FREQ=DAILY;BYHOUR=9", "timezone": "Europe/Berlin", "payload": 1}
    )
    assert await calendar.due("z") == {"day": 8 * 3600}  # 9:00 there
    await calendar.diary("z").remind("once", {"after": 60.0, "payload": "last"})
    activation = calendar.host.activation("diary/s:z")
    assert activation is not None
    activation.deactivate("requested")
    await activation.over.wait()
    await calendar.to(61)  # I34: it activates the actor
    await calendar.until_ticks("z", [["once", 60, 0, "last"]])
    assert await calendar.due("z") == {"day": 8 * 3600}
    for options in ({}, {"every": 0.5}, {"at": at(1), "after": 1.0}, {"after": -1.0}):
        with pytest.raises(RemoteError, match="InvalidValue") as refused:
            await calendar.diary("z").remind("x", options)
        assert refused.value.type_name == InvalidValue.__name__


async def test_failing_reminders_are_tried_again_and_die(calendar: Calendar) -> None:
    quick = {"first": 1.0, "longest": 1.0, "jitter": (1.0, 1.0)}
    diary = calendar.diary("d")
    await diary.break_it(1)
    await diary.remind("r", {"at": at(10), "backoff": quick})
    await calendar.to(10)
    await until(lambda: _due(calendar, "d", {"r": 10}), "it stays due")
    await until(lambda: calendar.host.gates.log == [1], "it has failed")

    async def tried() -> bool:
        await calendar.clock.advance(1)
        return bool(await diary.ticks())

    await until(tried, "it has fired")
    assert calendar.host.gates.log == [1, 2]
    assert await diary.ticks() == [["r", 10, 0, None]]  # I21, I35
    await diary.break_it(9)
    await diary.remind("dies", {"after": 1.0, "attempts": 2, "backoff": quick})

    async def dead() -> bool:
        await calendar.clock.advance(1)
        rows = await calendar.host.rows(
            "select name from relevo.actor_reminder where dead_at is not null"
        )
        return rows == [("dies",)]

    await until(dead, "it is a dead letter")


async def test_messages_are_handled_in_order_and_once(calendar: Calendar) -> None:
    diary = calendar.diary
    with pytest.raises(RemoteError):
        await diary("a").post("b", ["never"], True, False)
    await diary("a").post("b", ["1", "2", "bad", "3"], False, False)
    await diary("c").post("d", ["1", "bad", "2"], False, True)

    async def arrived() -> bool:
        return bool(await diary("b").texts() == ["1", "2", "3"])

    await until(arrived, "three are handled")  # I29

    async def letters() -> bool:
        rows = await calendar.host.rows(
            "select receiver from relevo.actor_message where dead_at is not null order by 1"
        )
        return rows == [("diary/s:b",), ("diary/s:d",)]

    await until(letters, "dead letters stay")
    assert await diary("d").texts() == ["1"]  # the last one waits behind it
    assert calendar.host.gates.log.count("2") == 1

    outside = calendar.host.app.actors.send(diary("e"))
    await outside.write("from outside")

    async def came() -> bool:
        return bool(await diary("e").texts() == ["from outside"])

    await until(came, "it is handled")
    connection = await asyncpg.connect(calendar.host.app.settings.database_url)
    try:
        transaction = connection.transaction()
        await transaction.start()
        await calendar.host.app.actors.send(diary("e"), tx=connection).write("undone")
        await transaction.rollback()
    finally:
        await connection.close()
    assert await calendar.host.rows(
        "select 1 from relevo.actor_message where receiver = $1", "diary/s:e"
    ) == []  # fmt: skip
