"""`relevo job submit`, `show`, `wait`, `view` and `watch`: system jobs, for people."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from relevo.cli import exits, tree
from relevo.cli.calling.calls import way_to
from relevo.cli.generic.ids import IdText, full_id
from relevo.cli.generic.values import Instant, Json, JsonLines, Null, Text
from relevo.cli.options import EVERYWHERE, command
from relevo.cli.output.live import screen
from relevo.cli.output.printing import note, printable
from relevo.cli.output.render import Renderer
from relevo.jobs.cli.board import board
from relevo.jobs.cli.explanations import explanation, sentences
from relevo.jobs.cli.lines import check_lines, submit_lines
from relevo.jobs.core import codes
from relevo.jobs.http.models import WAIT_SECONDS_MAX, JobView
from relevo.jobs.http.views import VIEWS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from relevo.cli.calling.calls import Calls
    from relevo.cli.session import Session

_ID: Final = "The job's id, as `relevo job list` shows it; its first characters are enough."
_EMPTY: Final = "nothing"
_LATE: Final = 6
"""Exit code of a wait that was given up: the same command may be tried again."""


@command("submit", shared=EVERYWHERE)
@click.argument("handler", type=Text(), metavar="HANDLER", help="The name of what runs it.")
@click.argument(
    "data",
    type=Json(),
    required=False,
    metavar="[DATA]",
    help="The handler's arguments as a JSON object, @FILE, or - for standard input.",
)
@click.option(
    "--lines",
    type=JsonLines(),
    metavar="LINES",
    help="A job for each line, instead of DATA: - for standard input, or @FILE.",
)
@click.option("--batch", type=Text(), help="The id of the batch that it belongs to. Default: none.")
@click.option("--name", type=Text(), help="What people call it. Default: the handler's name.")
@click.option(
    "--token",
    type=Text(),
    help="Runs after the jobs of this token that came before. Default: none.",
)
@click.option("--start", type=Instant(), help="Not before this time, such as 2031-05-30T18:00:00Z.")
@click.option("--lane", type=Text(), help="Default: the lane of the handler.")
@click.option("--priority", type=click.IntRange(0, 9), help="Counts in lanes that go by it.")
@click.option("--unique", is_flag=True, help="If an equal job waits or runs, use that one.")
@click.option("--unique-key", type=Text(), help="Jobs of this key count as equal.")
@click.option(
    "--unique-window",
    type=click.FloatRange(0.0, min_open=True),
    metavar="SECONDS",
    help="Equal jobs also count after their success, for this time.",
)
@click.option(
    "--recurrence",
    metavar="RULE",
    help="Makes a series: FREQ=DAILY;INTERVAL=3, or cron: 0 3 * * *.",
)
@click.option(
    "--timezone", metavar="ZONE", help="Of the rule, such as Europe/Madrid. Default: UTC."
)
@click.option("--retain", is_flag=True, help="Keep the record in any case.")
@click.option("--hold", is_flag=True, help="If it fails, suspend the rest of its token.")
@click.option("--wait", is_flag=True, help="Wait for its end, as `relevo job wait` does.")
@click.pass_obj
def submit(session: Session, /, **given: Any) -> int:
    """Submit a job, or one for each line of a file; prints their ids.

    It runs on a host that has the handler, such as `relevo run module:app`. A handler's own
    token= is a Python function, which is not asked here: give --token.
    """
    session.log_quietly()
    wait, lines = given.pop("wait"), given.pop("lines")
    if lines is not None and (wait or given["data"] is not None):
        raise click.UsageError("--lines goes without DATA and --wait; wait for a --batch instead")
    rule, zone = given.pop("recurrence"), given.pop("timezone")
    if zone and not rule:
        raise click.UsageError("--timezone needs --recurrence")
    values = {name: each for name, each in given.items() if each not in (None, False, Null)}
    if not isinstance(values.get("data", {}), dict):
        raise click.UsageError('DATA is an object of arguments, such as {"customer": "ana"}')
    if values.pop("hold", False):
        values["on_failure"] = "hold"
    key, window = values.pop("unique_key", None), values.pop("unique_window", None)
    if values.pop("unique", False) or key or window:
        given = {"key": key, "window": window}
        values["unique"] = {name: each for name, each in given.items() if each is not None}
    if rule:
        start = values.pop("start", None)
        values["recurrence"] = {
            name: each
            for name, each in (("pattern", rule), ("start", start), ("timezone", zone))
            if each is not None
        }
    if lines is not None:
        check_lines(lines)
        return asyncio.run(submit_lines(session, values, lines))
    return asyncio.run(_submit(session, values, wait=wait))


async def _submit(session: Session, values: dict[str, Any], *, wait: bool) -> int:
    operation = tree.operation("jobs.submit")
    async with way_to(operation, session) as calls:
        reply = await calls.call(operation, values)
        made = msgspec.json.decode(reply.body)
        key = made["id"]
        if made["existed"]:
            note("the job of this key exists already")
        if made["warning"]:
            note(printable(f"warning: {made['warning']}"))
        if wait:
            note(f"submitted {key}")
            return await _wait(session, calls, key, None)
    if session.output != "table":
        Renderer(session.output).show(reply.body, operation.response)
    else:
        click.echo(key)
    return exits.OK


@command("show", shared=EVERYWHERE)
@click.argument("id", type=IdText(), metavar="ID", help=_ID)
@click.option("--payload", is_flag=True, help="Also what it was given, saved and returned.")
@click.pass_obj
def show(session: Session, id: Any, payload: bool) -> None:  # noqa: A002 - the word of the API
    """Show a job: its fields, its status, and the reason why it waits."""
    session.log_quietly()
    asyncio.run(_show(session, str(id), payload=payload))


async def _show(session: Session, key: str, *, payload: bool) -> None:
    names = ["jobs.get", *(["jobs.payload"] if payload else [])]
    found: dict[str, Any] = {}
    said: list[str] = []
    async with way_to(tree.operation("jobs.get"), session) as calls:
        key = await full_id(calls, "jobs", key)
        for name in names:
            reply = await calls.call(tree.operation(name), {"id": key})
            found[name] = msgspec.json.decode(reply.body)
        if session.output != "json" and found["jobs.get"]["state"] in ("ready", "suspended"):
            said = sentences(msgspec.json.decode(await explanation(calls, key)))
    job = found["jobs.get"]
    more = {k: v for k, v in found.get("jobs.payload", {}).items() if k != "id"}
    renderer = Renderer(session.output)
    if session.output != "table":
        body = {**job, "payload": more} if payload else job
        renderer.show(msgspec.json.encode(body), JobView)
        return
    for line in said or [_sentence(job)]:
        renderer.console.print(
            printable(f"{job['name']}: {line}" if line in said[:1] else line), soft_wrap=True
        )
    shown = {k: v for k, v in job.items() if v is not None}
    renderer.record(shown, JobView)
    if not payload:
        _hint(job)
    for line in attempts_told(more.pop("attempts", [])):
        renderer.console.print(printable(line), soft_wrap=True)
    for name, value in more.items():
        text = value if name == "message" else msgspec.json.encode(value).decode()
        if value is not None:
            renderer.console.print(f"\n{name}:", soft_wrap=True)
            renderer.console.print("\n".join(map(printable, str(text).splitlines())))


def attempts_told(attempts: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a line for each attempt that did not succeed."""
    lines = [""] if attempts else []
    for each in attempts:
        text = (each["message"] or "").strip().splitlines()[-1:]
        where = f" on {each['host']}" if each["host"] else ""
        lines.append(
            f"attempt {each['attempt']} {each['outcome']}{where} at {each['ended_at']}"
            + (f": {text[0]}" if text else "")
        )
    return lines


def _sentence(job: dict[str, Any]) -> str:
    """Return how a job ended, or where it runs; `relevo job explain` says why it waits."""
    name = f"{job['name']}: "
    match job["status"]:
        case "in_progress":
            done = "" if job["progress"] is None else f", {job['progress']:.0%} done"
            return f"{name}runs on {job['host']}{done}."
        case "failed":
            return f"{name}failed ({job['error_code']}): {_reason(job).rstrip('.')}."
        case status:
            return f"{name}{status.replace('_', ' ')}."


def _reason(job: dict[str, Any]) -> str:
    """Return why a job failed, without confidential details."""
    code = job["error_code"]
    meaning = None if code is None else codes.TEXTS.get(codes.stored(int(code, 16)))
    return str(job["friendly_message"] or meaning or "its handler gave this code")


def _hint(job: dict[str, Any]) -> None:
    if job["status"] == "failed":
        note(f"its error with the trace: relevo job show {job['id']} --payload")
        note(f"to run it again: relevo job retry {job['id']}")


@command("wait", shared=EVERYWHERE)
@click.argument("id", type=IdText(), metavar="ID", help=_ID)
@click.option(
    "--timeout",
    type=click.FloatRange(0.0),
    metavar="SECONDS",
    help="Give up after this time, with exit code 6. Default: never.",
)
@click.pass_obj
def wait(session: Session, id: Any, timeout: float | None) -> int:  # noqa: A002
    """Wait until a job has ended, and show it.

    Ends with 0 if the job succeeded and with 4 if it failed or was canceled.
    """
    session.log_quietly()

    async def work() -> int:
        async with way_to(tree.operation("jobs.wait"), session) as calls:
            return await _wait(session, calls, await full_id(calls, "jobs", id), timeout)

    return asyncio.run(work())


async def _wait(session: Session, calls: Calls, key: str, timeout: float | None) -> int:
    operation = tree.operation("jobs.wait")
    end = None if timeout is None else time.monotonic() + timeout
    while True:
        left = WAIT_SECONDS_MAX if end is None else end - time.monotonic()
        seconds = max(0.0, min(left, WAIT_SECONDS_MAX))
        reply = await calls.call(operation, {"id": key, "wait_seconds": seconds})
        found = msgspec.json.decode(reply.body)
        if found["done"]:
            break
        if end is not None and time.monotonic() >= end:
            note(f"job {key} has not ended within {timeout:g} s")
            return _LATE
    renderer, job = Renderer(session.output), found["job"]
    if session.output != "table":
        renderer.show(reply.body, operation.response)
    elif job is None:
        said = "was deleted" if found.get("deleted") else "succeeded; its record is removed"
        renderer.console.print(said)
    else:
        renderer.console.print(printable(_sentence(job)), soft_wrap=True)
        _hint(job)
    succeeded = not found.get("deleted") if job is None else job["status"] == "succeeded"
    return exits.OK if succeeded else exits.REFUSED


@command("view", shared=EVERYWHERE)
@click.argument(
    "names",
    nargs=-1,
    type=click.Choice([one.name.rpartition(".")[2] for one in VIEWS]),
    metavar="[VIEW]...",
    help="Which: counts, running, waiting, suspended, failures, chains, volumes. Default: all.",
)
@click.option(
    "--hours",
    type=click.FloatRange(0.0, min_open=True),
    default=24.0,
    help="Completed jobs count if they ended so lately. Default: 24.",
)
@click.pass_obj
def view(session: Session, names: tuple[str, ...], hours: float) -> None:
    """Show views of jobs: counts, running, waiting, suspended, failing, blocked, storage."""
    session.log_quietly()
    wanted = [one for one in VIEWS if not names or one.name.rpartition(".")[2] in names]

    async def work() -> dict[str, bytes]:
        found = {}
        async with way_to(wanted[0], session) as calls:
            for one in wanted:
                fields = {field.name for field in msgspec.structs.fields(one.request)}
                values = {"hours": hours} if "hours" in fields else {}
                found[one.name] = (await calls.call(one, values)).body
        return found

    found = asyncio.run(work())
    renderer = Renderer(session.output)
    if session.output != "table":
        raw = {name.rpartition(".")[2]: msgspec.Raw(body) for name, body in found.items()}
        renderer.show(msgspec.json.encode(raw), None)
        return
    for one in wanted:
        renderer.console.print(f"{one.summary.rstrip('.')}:", style="bold")
        if msgspec.json.decode(found[one.name])["items"]:
            renderer.show(found[one.name], one.response)
        else:
            renderer.console.print(_EMPTY, style="dim")
        renderer.console.print()


@command("watch", shared=EVERYWHERE)
@click.option("--once", is_flag=True, help="Look once, and end.")
@click.option(
    "--every",
    type=click.FloatRange(0.1, 3_600.0),
    default=1.0,
    metavar="SECONDS",
    help="How often it looks. Default: 1.",
)
@click.pass_obj
def watch(session: Session, once: bool, every: float) -> None:
    """Watch jobs: the contents of each lane, and running jobs with their progress.

    On a terminal it is drawn in place, until Ctrl-C; into a pipe one picture after the other, and
    with --output json a line each time.
    """
    session.log_quietly()
    asyncio.run(_watch(session, None if once else every))


async def _watch(session: Session, every: float | None) -> None:
    lanes, running = (tree.operation(n) for n in ("lanes.list", "jobs.views.running"))
    renderer = Renderer(session.output)
    async with way_to(lanes, session) as calls:
        with screen(renderer, live=every is not None) as draw:
            while True:
                held = msgspec.json.decode((await calls.call(lanes, {})).body)["items"]
                runs = msgspec.json.decode((await calls.call(running, {})).body)["items"]
                if session.output != "table":
                    renderer.data({"lanes": held, "running": runs}, line=True)
                else:
                    draw(board(renderer, held, runs))
                if every is None:
                    return
                await asyncio.sleep(every)
