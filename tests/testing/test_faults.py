"""Fault points, armed in the test and reached in real child processes."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import threading
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Literal

import pytest

from relevo.errors import InvalidValue
from relevo.kernel.faults import LivePoints
from relevo.testing.faults import FaultBoard

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.anyio

CHILD = """
import asyncio, sys, threading
from relevo.kernel import faults

async def visit(name, company):
    talk = [asyncio.to_thread(print, "company", flush=True)] if company else []
    others = asyncio.gather(*talk)
    await faults.point(name)
    await others

def act(way, name):
    try:
        faults.hit(name) if way == "hit" else asyncio.run(visit(name, way == "company"))
    except faults.FaultInjected as error:
        print("failed:", error, flush=True)
    else:
        print("passed", flush=True)

for line in sys.stdin:
    way, name = line.split()
    if way == "thread":
        thread = threading.Thread(target=act, args=("hit", name))
        thread.start()
        thread.join()
    else:
        act(way, name)
"""

Way = Literal["point", "company", "hit", "thread"]


class Child:
    """A process that visits a fault point each time it is asked to, and says how it went."""

    def __init__(self, variables: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", CHILD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **variables},
        )

    def visit(self, point: str, way: Way = "point") -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{way} {point}\n".encode())
        self.process.stdin.flush()

    def answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().decode().strip()

    def is_silent(self) -> bool:
        assert self.process.stdout is not None
        return not select.select([self.process.stdout], [], [], 0)[0]

    def wait_for_stop(self) -> bool:
        _, status = os.waitpid(self.process.pid, os.WUNTRACED)
        return os.WIFSTOPPED(status) and os.WSTOPSIG(status) == signal.SIGSTOP

    def outcome(self, point: str, way: Way = "point") -> str:
        self.visit(point, way)
        return self.answer()


@contextmanager
def child(variables: dict[str, str]) -> Iterator[Child]:
    one = Child(variables)
    with one.process:
        try:
            yield one
        finally:
            one.process.kill()


@pytest.fixture
def board(tmp_path: Path) -> FaultBoard:
    return FaultBoard(tmp_path / "faults")


def points(board: FaultBoard, process: str | None = None) -> LivePoints:
    live = LivePoints.from_environment(board.env(process))
    assert live is not None
    return live


async def test_without_the_variable_a_point_touches_no_file(board: FaultBoard) -> None:
    board.arm("mid_handoff", "kill")
    script = (
        "import asyncio, sys\n"
        "from relevo.kernel import faults\n"
        "async def visits():\n"
        "    events = []\n"
        "    sys.addaudithook(lambda event, args: events.append(event))\n"
        "    await faults.point('mid_handoff')\n"
        "    faults.hit('mid_handoff')\n"
        "    return list(events)\n"
        "print(asyncio.run(visits()))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert done.stdout == b"[]\n"
    assert board.hits("mid_handoff") == 0
    assert LivePoints.from_environment({"RELEVO_FAULTS_DIR": ""}) is None


@pytest.mark.parametrize("way", ["point", "hit", "thread"])
async def test_a_point_that_is_not_armed_lets_everybody_pass(board: FaultBoard, way: Way) -> None:
    board.arm("elsewhere", "kill")
    with child(board.env()) as one:
        assert one.outcome("mid_handoff", way) == "passed"


@pytest.mark.parametrize("way", ["point", "hit", "thread"])
async def test_kill_ends_the_process_at_the_point(board: FaultBoard, way: Way) -> None:
    board.arm("mid_handoff", "kill")
    with child(board.env()) as one:
        one.visit("mid_handoff", way)
        await board.reached("mid_handoff")
        assert one.process.wait() == -signal.SIGKILL
        assert one.answer() == ""
    assert board.hits("mid_handoff") == 1


@pytest.mark.parametrize("way", ["point", "hit", "thread"])
async def test_stop_freezes_the_process_at_the_point(board: FaultBoard, way: Way) -> None:
    board.arm("mid_handoff", "stop")
    with child(board.env()) as one:
        one.visit("mid_handoff", way)
        await board.reached("mid_handoff")
        assert one.wait_for_stop()
        assert one.is_silent()
        one.process.send_signal(signal.SIGCONT)
        assert one.answer() == "passed"


@pytest.mark.parametrize("way", ["point", "hit", "thread"])
async def test_raise_fails_with_an_error_that_names_the_point(board: FaultBoard, way: Way) -> None:
    board.arm("mid_handoff", "raise")
    with child(board.env()) as one:
        assert re.fullmatch(r"failed: .*'mid_handoff'", one.outcome("mid_handoff", way))
        assert one.outcome("mid_handoff", way) == "passed"


@pytest.mark.parametrize("way", ["point", "hit", "thread"])
async def test_delay_goes_on_by_itself(board: FaultBoard, way: Way) -> None:
    board.arm("mid_handoff", "delay", seconds=0.01)
    with child(board.env()) as one:
        assert one.outcome("mid_handoff", way) == "passed"
    assert board.hits("mid_handoff") == 1


def test_delay_asks_for_the_seconds_it_was_armed_with(board: FaultBoard) -> None:
    board.arm("mid_handoff", "delay", seconds=2.5)
    assert list(points(board).pauses("mid_handoff")) == [2.5]


@pytest.mark.parametrize("way", ["point", "hit", "thread"])
async def test_wait_holds_until_the_point_is_disarmed(board: FaultBoard, way: Way) -> None:
    board.arm("mid_handoff", "wait")
    with child(board.env()) as one:
        one.visit("mid_handoff", way)
        await board.reached("mid_handoff")
        assert one.is_silent()
        board.disarm("mid_handoff")
        assert one.answer() == "passed"


async def test_other_tasks_of_the_loop_run_while_a_point_holds_one(board: FaultBoard) -> None:
    board.arm("mid_handoff", "wait")
    with child(board.env()) as one:
        assert one.outcome("mid_handoff", "company") == "company"
        await board.reached("mid_handoff")
        assert one.is_silent()
        board.disarm("mid_handoff")
        assert one.answer() == "passed"


async def test_arming_anew_frees_who_waits_under_the_old_arming(board: FaultBoard) -> None:
    board.arm("mid_handoff", "wait")
    with child(board.env()) as one:
        one.visit("mid_handoff")
        await board.reached("mid_handoff")
        board.arm("mid_handoff", "wait")
        assert one.answer() == "passed"


async def test_skip_and_times_choose_the_hits_of_each_process(board: FaultBoard) -> None:
    board.arm("mid_handoff", "raise", skip=1, times=2)
    with child(board.env()) as one, child(board.env()) as other:
        for each in (one, other):
            outcomes = [each.outcome("mid_handoff").partition(":")[0] for _ in range(5)]
            assert outcomes == ["passed", "failed", "failed", "passed", "passed"]
    assert board.hits("mid_handoff") == 4


async def test_arming_anew_counts_afresh(board: FaultBoard) -> None:
    with child(board.env()) as one:
        for _ in range(2):
            board.arm("mid_handoff", "raise")
            assert board.hits("mid_handoff") == 0
            assert one.outcome("mid_handoff").startswith("failed")
            assert one.outcome("mid_handoff") == "passed"
            assert board.hits("mid_handoff") == 1


async def test_only_the_named_process_is_hit(board: FaultBoard) -> None:
    board.arm("mid_handoff", "kill", process="a")
    with (
        child(board.env("a")) as a,
        child(board.env("b")) as b,
        child(board.env()) as nameless,
    ):
        assert b.outcome("mid_handoff") == "passed"
        assert nameless.outcome("mid_handoff") == "passed"
        a.visit("mid_handoff")
        assert a.process.wait() == -signal.SIGKILL
    assert board.hits("mid_handoff") == 1


async def test_hits_of_many_processes_are_all_counted(board: FaultBoard) -> None:
    board.arm("mid_handoff", "delay", times=None)
    with ExitStack() as stack:
        children = [stack.enter_context(child(board.env())) for _ in range(3)]
        for each in children * 20:
            each.visit("mid_handoff", "hit")
        await board.reached("mid_handoff", count=60)
        assert [each.answer() for each in children * 20] == ["passed"] * 60
    assert board.hits("mid_handoff") == 60


def test_threads_of_one_process_share_the_count(board: FaultBoard) -> None:
    board.arm("mid_handoff", "delay", skip=5, times=10)
    live = points(board)
    threads = [
        threading.Thread(target=lambda: [list(live.pauses("mid_handoff")) for _ in range(10)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert board.hits("mid_handoff") == 10


def test_a_point_never_sees_half_an_arming(board: FaultBoard) -> None:
    armed = threading.Event()

    def arm_often() -> None:
        for _ in range(300):
            board.arm("mid_handoff", "delay", seconds=1.0, process="a" * 1000)
        armed.set()

    arming = threading.Thread(target=arm_often)
    arming.start()
    live = points(board)
    while not armed.is_set():
        assert list(live.pauses("mid_handoff")) == []
    arming.join()


async def test_a_point_that_is_not_reached_is_named_by_the_time_out(board: FaultBoard) -> None:
    board.arm("mid_handoff", "kill", process="a")
    with pytest.raises(TimeoutError, match=r"'mid_handoff' was reached 0 of 2 times.*'a'"):
        await board.reached("mid_handoff", count=2, timeout=0.0)


async def test_waiting_for_a_point_that_was_never_armed_is_refused(board: FaultBoard) -> None:
    with pytest.raises(InvalidValue, match="never armed"):
        await board.reached("mid_handoff")


def test_disarming_what_is_not_armed_changes_nothing(board: FaultBoard) -> None:
    board.disarm("mid_handoff")
    assert board.hits("mid_handoff") == 0


def test_what_cannot_be_armed_is_refused(board: FaultBoard) -> None:
    with pytest.raises(InvalidValue, match="not a fault point"):
        board.arm("../mid_handoff", "kill")
    with pytest.raises(InvalidValue, match="not a fault action"):
        board.arm("mid_handoff", "explode")  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match="times=0"):
        board.arm("mid_handoff", "kill", times=0)
    with pytest.raises(InvalidValue, match="skip=-1"):
        board.arm("mid_handoff", "kill", skip=-1)
