"""System jobs from the command line, in process and over HTTP, and `relevo run`."""

from __future__ import annotations

import re
import signal
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.conftest import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.conftest import Cli, Result, Site

WAYS = ("database", "http")
PROGRAM = """
import relevo

app = relevo.App()


@app.job("receipt")
async def receipt(ctx, customer: str) -> str:
    return f"receipt for {customer}"


@app.job("count", lane="bulk")
async def count(ctx) -> int:
    return 3


@app.job("broken")
async def broken(ctx) -> None:
    raise relevo.Fail(None, "the printer is on fire")


@app.job("silent", retries=0)
async def silent(ctx) -> None:
    raise ValueError("17 is odd")


@app.job("steps", lane="bulk")
async def steps(ctx) -> None:
    import asyncio

    await ctx.progress(0.25)
    while True:
        await asyncio.sleep(0.05)
        await ctx.checkpoint()
"""


class Desk:
    """Commands of one way, with a handler name of its own that no host has."""

    def __init__(self, site: Site, way: str) -> None:
        self.handler = f"mail-{uuid.uuid4().hex[:8]}"
        self._site = site
        self._way = way

    def run(self, *arguments: str) -> Result:
        return self._site.run(*arguments, way=self._way)

    def json(self, *arguments: str) -> Any:
        done = self.run(*arguments, "-o", "json")
        assert done.code == 0, done
        return done.json

    def submit(self, *arguments: str) -> str:
        done = self.run("job", "submit", self.handler, *arguments)
        assert done.code == 0, done
        return done.out.strip()


@pytest.fixture(params=WAYS)
def desk(site: Site, request: pytest.FixtureRequest) -> Desk:
    return Desk(site, str(request.param))


def test_a_job_is_submitted_listed_and_shown(desk: Desk) -> None:
    first = desk.submit('{"to": "ana"}', "--token", desk.handler, "--name", "a letter")
    second = desk.submit("--token", desk.handler)
    listed = desk.json("job", "list", "--handler", desk.handler, "--order", "oldest")
    assert [one["id"] for one in listed["items"]] == [first, second]
    shown = desk.run("job", "show", second)
    assert f"waits for job {first}" in shown.out
    told = desk.json("job", "show", first, "--payload")
    assert (told["name"], told["payload"]["data"]) == ("a letter", {"to": "ana"})
    table = desk.run("job", "list", "--handler", desk.handler)
    assert "a letter" in table.out
    assert "waiting_for_resources" in table.out


def test_an_equal_job_is_submitted_once(desk: Desk) -> None:
    first = desk.submit('{"n": 1}', "--unique")
    again = desk.run("job", "submit", desk.handler, '{"n": 1}', "--unique")
    assert (again.out.strip(), "exists already" in again.err) == (first, True)
    assert desk.submit('{"n": 2}', "--unique") != first
    keyed = [desk.submit("--unique-key", desk.handler, "--unique-window", "60") for _ in range(2)]
    assert keyed[0] == keyed[1]


def test_the_lines_of_a_file_become_the_jobs_of_a_batch(desk: Desk, tmp_path: Path) -> None:
    batch = desk.json("batch", "create", "--name", "mails")["id"]
    lines = tmp_path / "lines"
    lines.write_text('{"n": 1}\n\n{"n": 2}\n')
    ids = desk.submit("--lines", f"@{lines}", "--batch", batch).split()
    listed = desk.json("job", "list", "--batch", batch, "--order", "oldest")
    assert [each["id"] for each in listed["items"]] == ids
    assert len(ids) == 2
    lines.write_text("[1]")
    refused = desk.run("job", "submit", desk.handler, "--lines", f"@{lines}")
    assert (refused.code, "line 1 is not an object" in refused.err) == (2, True)
    assert desk.run("batch", "close", batch).code == 0
    closed = desk.run("job", "submit", desk.handler, "--batch", batch)
    assert (closed.code, "is closed" in closed.err) == (4, True)
    assert desk.run("batch", "cancel", batch).code == 0
    shown = desk.json("batch", "show", batch)
    assert (shown["state"], shown["canceled"]) == ("ended", 2)
    assert desk.json("batch", "wait", batch)["state"] == "ended"
    assert batch in [each["id"] for each in desk.json("batch", "list")["items"]]


def test_a_job_is_postponed_resumed_canceled_and_deleted(desk: Desk) -> None:
    key = desk.submit()
    assert desk.run("job", "postpone", key, "--until", "2100-01-01T00:00:00Z").code == 0
    assert "it starts at 2100-01-01T00:00:00Z" in desk.run("job", "show", key).out
    assert desk.run("job", "resume", key).code == 0
    refused = desk.run("job", "pause", key)
    assert (refused.code, "cannot be paused" in refused.err) == (4, True)
    assert desk.run("job", "cancel", key).code == 0
    assert desk.json("job", "show", key)["status"] == "canceled"
    assert desk.run("job", "wait", key).code == 4
    assert desk.run("job", "delete", key).code == 0
    assert desk.run("job", "show", key).code == 3


def test_an_operator_lifts_what_blocks_a_chain(desk: Desk) -> None:
    head = desk.submit("--token", desk.handler, "--start", "2100-01-01T00:00:00Z")
    key = desk.submit("--token", desk.handler)
    assert f"waits for job {head} of the same token" in desk.run("job", "show", key).out
    assert desk.json("job", "unblock", key) == {"taken_out": head}
    said = f"no host has ever registered the handler '{desk.handler}'"
    assert said in desk.run("job", "show", key).out
    assert said in desk.run("job", "explain", key).out
    assert desk.json("job", "explain", key)["reason"] == "never_registered"
    refused = desk.run("job", "unblock", key)
    assert (refused.code, "waits for no other job" in refused.err) == (4, True)


def test_a_wait_that_takes_too_long_is_given_up(desk: Desk) -> None:
    key = desk.submit()
    late = desk.run("job", "wait", key, "--timeout", "0.1")
    assert (late.code, "has not ended within 0.1 s" in late.err) == (6, True)


def test_a_series_is_submitted_with_a_rule(desk: Desk) -> None:
    key = desk.submit(
        "--recurrence", "FREQ=DAILY", "--timezone", "Europe/Madrid",
        "--start", "2100-06-01T03:00:00Z",
    )  # fmt: skip
    assert desk.json("job", "show", key)["pattern"] == "FREQ=DAILY"
    assert desk.run("job", "cancel", key, "--series").code == 0
    refused = desk.run("job", "submit", desk.handler, "--timezone", "UTC")
    assert refused.code == 2


def test_views_and_the_picture_tell_how_jobs_stand(desk: Desk) -> None:
    desk.submit("--name", desk.handler)
    desk.submit("--start", "2100-01-01T00:00:00Z")
    found = desk.json("job", "view")
    assert set(found) == {
        "counts", "running", "waiting", "suspended", "failures", "chains", "volumes",
    }  # fmt: skip
    assert desk.handler in {one["name"] for one in found["volumes"]["items"]}
    one = desk.run("job", "view", "suspended", "--hours", "2")
    assert desk.handler in one.out
    picture = desk.run("job", "watch", "--once")
    assert re.search(r"default +0 +\d+", picture.out)
    assert "nothing runs at this moment" in picture.out
    assert "lanes" in desk.json("job", "watch", "--once")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("job", "submit", "x", "[1]"), "DATA"),
        (("job", "submit", "x", "{"), "JSON"),
        (("job", "show", "7"), "not an id"),
        (("job", "submit", ""), "handler takes a text of length >= 1"),
        (("job", "postpone", str(uuid.UUID(int=1))), "Missing option '--until'"),
        (("job", "list", "--limit", "0"), "'--limit': limit takes a whole number >= 1"),
        (("job", "list", "--state", "odd"), "odd"),
        (("run", "nothing_here"), "no module"),
        (("run", "json:loads"), "not a relevo.App"),
    ],
)
def test_what_cannot_be_meant_is_a_usage_error(
    site: Site, arguments: tuple[str, ...], text: str
) -> None:
    refused = site.run(*arguments)
    assert (refused.code, text in refused.err) == (2, True), refused


@pytest.mark.parametrize(
    ("target", "program", "said"),
    [
        ("./shop.py", "", "give its module: shop:app"),
        ("shop.py:kitchen", "", "give its module: shop:kitchen"),
        (".shop", "", "not of the form module:app"),
        ("shop", "import relevo\n\nkitchen = relevo.App()\n", "use shop:kitchen"),
        ("shop", "import json\n\njson.loads('{')\n", "shop could not be loaded: JSONDecodeError"),
        ("shop", "def app(:\n", "shop could not be loaded: SyntaxError"),
        ("shop", "from json import nothing\n", "shop could not be loaded: ImportError"),
        ("shop", "import no_such_thing.at_all\n", "needs the module 'no_such_thing', which"),
        ("shop.tables", "", "there is no module 'shop.tables'"),
    ],
)
def test_faults_of_a_program_are_told_as_its_own(
    cli: Cli, target: str, program: str, said: str
) -> None:
    (cli.folder / "shop.py").write_text(program)
    done = cli("run", target)
    assert said in done.err.splitlines()[-1]
    for refused in (done, cli("feed", "run", target.partition(":")[0] + ":app")):
        assert refused.code == 2, refused
        assert "report it" not in refused.err
        assert "importlib" not in refused.err
        own = 'shop.py", line' in refused.err
        assert own == ("could not be loaded" in said or "needs" in said)


def test_on_a_terminal_a_cancel_asks_first(cli: Cli) -> None:
    key = cli("job", "submit", "mail").out.strip()
    terminal = cli.on_terminal("job", "cancel", key)
    terminal.read_until("Continue?")
    terminal.type("n\n")
    assert terminal.end() == 4
    assert cli("job", "show", key, "-o", "json").json["status"] == "waiting_for_resources"
    assert cli("job", "cancel", key, "--yes").code == 0


def test_a_program_is_served_until_a_signal(cli: Cli) -> None:
    (cli.folder / "shop.py").write_text(PROGRAM)
    host = cli.spawn("run", "shop", "--name", "printer")
    done = cli("job", "submit", "receipt", '{"customer": "ana"}', "--wait", "-o", "json")
    assert done.code == 0, (done, host.log)
    assert (done.json["job"]["status"], done.json["job"]["host"]) == ("succeeded", "printer")
    failed = cli("job", "submit", "broken", "--wait")
    assert (failed.code, "the printer is on fire" in failed.out) == (4, True), failed
    silent = cli("job", "submit", "silent", "--wait")
    key = silent.err.split()[1]
    assert silent.out == (
        "silent: failed (0x80040224): The handler ended with an error, or its host was lost.\n"
    )
    assert f"relevo job show {key} --payload" in silent.err
    assert "0x80040224): The handler" in cli("job", "show", key).out
    assert "serving broken, count, receipt, silent, steps as host printer" in host.log
    assert host.stop().code == 0


def test_a_job_from_before_the_first_run_runs_and_new_arguments_wait(cli: Cli) -> None:
    (cli.folder / "shop.py").write_text(PROGRAM)
    early = cli("job", "submit", "count").out.strip()
    data = '{"customer": "ana", "color": "red"}'
    newer = cli("job", "submit", "receipt", data).out.strip()
    cli.spawn("run", "shop")
    assert cli("job", "wait", early, "--timeout", "60").code == 0
    assert cli("job", "show", early, "-o", "json").json["lane"] == "bulk"
    said = "receipt: waits for a host whose handler 'receipt' takes 'color'; the next try is at 20"
    until(lambda: said in cli("job", "show", newer).out, "the job says what it waits for")


def test_on_a_terminal_what_runs_is_drawn_with_its_progress(cli: Cli) -> None:
    (cli.folder / "shop.py").write_text(PROGRAM)
    terminal = cli.on_terminal("run", "shop:app")
    terminal.read_until("nothing runs at this moment")
    key = cli("job", "submit", "steps").out.strip()
    terminal.read_until("25%")
    assert cli("job", "pause", key).code == 0

    def status() -> str:
        return str(cli("job", "show", key, "-o", "json").json["status"])

    until(lambda: status() == "waiting", "the job has yielded")  # A10
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.end() == 0
