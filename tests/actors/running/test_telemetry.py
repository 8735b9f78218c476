"""What operators see of turns: figures, log lines and spans."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from typing import TYPE_CHECKING, Any

import pytest

from relevo import App
from relevo.actors import Actor, Deferred, Interface, TurnFilter
from relevo.kernel.telemetry.logs import OwnHandler, get_logger
from relevo.testing import ActorTest
from tests.jobs.office import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.actors.bank import Gates
    from tests.actors.running.conftest import Hosts
    from tests.support.spans import Spans

pytestmark = pytest.mark.anyio


async def test_waiting_calls_deferred_answers_and_waits_at_the_gate_are_figures(
    hosts: Hosts,
) -> None:
    host = await hosts.start()
    measure = host.app.measure

    def shows(name: str, value: int) -> bool:
        return f'relevo_actor_{name}{{type="account"}} {value}.0' in measure().decode()

    alice = host.account("alice")
    held = asyncio.create_task(alice.wait("door"))
    await host.gates.event("door").wait()
    behind = [asyncio.create_task(alice.deposit(1)) for _ in range(3)]
    answer = asyncio.create_task(host.account("bob").later())
    await until(lambda: shows("waiting_calls", 3), "three calls wait")
    await until(lambda: shows("deferred_answers", 1), "an answer is pending")
    host.gates.open("door")
    await asyncio.gather(held, *behind)
    await host.account("bob").resolve(7)
    assert await answer == 7
    assert shows("waiting_calls", 0)
    assert shows("deferred_answers", 0)
    gate = re.search(r'relevo_actor_gate_seconds_count{type="account"} (\d+)', measure().decode())
    assert gate is not None
    assert int(gate[1]) >= 3, "the deposits were stored before they were answered"


class Talk(Interface):
    async def say(self) -> None: ...
    async def shout(self) -> None: ...


def define_talk(app: App, _: Gates) -> None:
    @app.actor("talk", implements=Talk)
    class TalkActor(Actor[None]):
        async def say(self) -> None:
            logging.getLogger("shop").warning("mine")
            get_logger("relevo.tests").warning("ours", actor="named", size=3)

        def shout(self) -> None:
            logging.getLogger("shop").warning("from a thread")


class Lines(logging.Handler):
    """Keeps formatted lines and fields."""

    def __init__(self) -> None:
        super().__init__()
        self.addFilter(TurnFilter())
        self.setFormatter(logging.Formatter("%(message)s|%(relevo_turn)s"))
        self.lines: list[str] = []
        self.fields: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))
        self.fields.append(getattr(record, "relevo", {}))


@pytest.fixture
def lines() -> Iterator[Lines]:
    found = Lines()
    logging.getLogger("shop").addHandler(found)
    yield found
    logging.getLogger("shop").removeHandler(found)


async def test_log_lines_of_a_turn_say_whose_it_is(
    hosts: Hosts, lines: Lines, capsys: pytest.CaptureFixture[str]
) -> None:
    own = OwnHandler("json")
    logging.getLogger("relevo").addHandler(own)
    try:
        host = await hosts.start(define_talk, host_name="east-1")
        talk: Any = host.app.actor(Talk, "k")
        await talk.say()
        await talk.shout()
        logging.getLogger("shop").warning("outside")
    finally:
        logging.getLogger("relevo").removeHandler(own)
    activation = host.activation("talk/s:k")
    assert activation is not None
    fence = activation.home.lease.fence
    said, shouted, outside = lines.fields
    assert said == {
        "actor": "talk/s:k", "turn": "method say", "host": "east-1",
        "slot": f"default/{fence.name}", "epoch": fence.epoch, "chain": said["chain"],
    }  # fmt: skip
    assert shouted["turn"] == "method shout"
    assert shouted["chain"] != said["chain"]
    assert outside == {}
    assert lines.lines[0].startswith("mine|actor=talk/s:k turn=method say host=east-1 slot=")
    assert lines.lines[2] == "outside|"
    ours = [json.loads(one) for one in capsys.readouterr().err.splitlines() if "ours" in one]
    assert [(one["actor"], one["size"], one["turn"]) for one in ours] == [
        ("named", 3, "method say")
    ]


class Desk(Interface):
    async def ask(self) -> int: ...
    async def flush(self) -> None: ...


async def test_a_deferred_answer_is_a_span_that_links_to_the_turn_that_gave_it(
    spans: Spans,
) -> None:
    app = App("postgresql://nowhere")

    @app.actor("desk", implements=Desk)
    class DeskActor(Actor[None]):
        def __init__(self, ctx: Any) -> None:
            super().__init__(ctx)
            self.asked: list[Deferred[int]] = []

        async def ask(self) -> int:
            self.asked.append(self.defer())
            return self.asked[-1]  # type: ignore[return-value]

        async def flush(self) -> None:
            for one in self.asked:
                one.resolve(7)

    async with ActorTest(DeskActor):
        desk = app.actor(Desk, "k")
        asked = asyncio.create_task(desk.ask())
        await asyncio.sleep(0)
        await desk.flush()
        assert await asked == 7
    [deferred] = [one for one in spans.ended if one.links]
    turns = {
        one.attributes["relevo.turn"]: one.context
        for one in spans.ended if one.name == "relevo.actor.turn" and one.attributes
    }  # fmt: skip
    assert deferred.name == "relevo.actor.deferred"
    assert [link.context for link in deferred.links] == [turns["method flush"]]
    assert deferred.parent == turns["method ask"]
