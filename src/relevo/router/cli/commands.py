"""The commands `relevo router explain`, `classify` and `watch`."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec
from rich.live import Live

from relevo import limits
from relevo.cli import tree
from relevo.cli.calling.calls import way_to
from relevo.cli.generic.commands import all_pages
from relevo.cli.generic.values import Key
from relevo.cli.options import EVERYWHERE, command
from relevo.cli.output.printing import printable
from relevo.cli.output.render import Renderer
from relevo.router.cli.board import waited
from relevo.router.overview import QueueStanding

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from relevo.cli.session import Session

REASONS: Final = {
    "unavailable": "not registered",
    "queue": "does not serve the queue",
    "channel": "does not serve the channel",
    "capacity": "too little capacity left",
    "channelLimit": "as many jobs of the channel as it may have",
    "selector": "a selector does not hold",
    "offered": "has an open offer for this job",
    "declined": "has declined this job",
    "offerLimit": "as many offers as it may have",
    "unrated": "the scoring rule gave no score",
}
OPERATORS: Final = {
    "equal": "=",
    "notEqual": "!=",
    "lessThan": "<",
    "lessThanOrEqual": "<=",
    "greaterThan": ">",
    "greaterThanOrEqual": ">=",
}
_ID: Final = "Chosen by whoever made it."


class Label(click.ParamType[tuple[str, Any]]):
    """A label: `vip=true`, `level=7` and `city=Vigo` are a boolean, a number and a text."""

    name = "name=value"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, Any]:
        """Return key and value."""
        if isinstance(value, tuple):
            return value
        key, equals, text = str(value).partition("=")
        if not equals or not key:
            self.fail(f"{value!r} is not of the form name=value", param, ctx)
        found = Key().read(text, param, ctx)
        return key, found if isinstance(found, str | int | float | bool) else text


@command("job", shared=EVERYWHERE)
@click.argument("id", metavar="ID", help=_ID)
@click.pass_obj
def explain_job(session: Session, /, **given: Any) -> None:
    """Explain why a job waits, which worker is next, and what rules out the others."""
    found, out = _ask(session, "router.explain.job", given)
    if out is None:
        return
    where = f" in queue {found['queue_id']}" if found["queue_id"] else ""
    place = f", at place {found['position']}" if found["position"] else ""
    _say(out, f"Job {found['job_id']} is {found['status']}{where}{place}: {found['says']}.")
    _table(out, "Eligible, who is next first", found["candidates"])
    _table(
        out,
        "Ruled out",
        [
            {**_ruled_out(one), "workers": _some(one["workers"], one["count"])}
            | {"labels": one["labels"]}
            for one in found["ruled_out"]
        ],
    )
    offers = [{k: v for k, v in one.items() if k != "offer_id"} for one in found["offers"]]
    _table(out, "Offered so far, the latest first", offers)


@command("worker", shared=EVERYWHERE)
@click.argument("id", metavar="ID", help=_ID)
@click.pass_obj
def explain_worker(session: Session, /, **given: Any) -> None:
    """Say which waiting jobs a worker could get, and why no others."""
    found, out = _ask(session, "router.explain.worker", given)
    if out is None:
        return
    load = f"{found['load_ratio']:.0%} of its capacity is taken"
    _say(out, f"Worker {found['worker_id']} is {found['state']}, {load}: {found['says']}.")
    eligible = [{"job": job} for job in found["eligible_for"]]
    _table(out, "Waiting jobs that it could get, in their order", eligible)
    _table(
        out,
        "Waiting jobs that are not for it",
        [
            {**_ruled_out(one), "queue": one["queue_id"], "channel": one["channel_id"]}
            | {"jobs": _some(one["jobs"], one["count"])}
            for one in found["ruled_out"]
        ],
    )


@command("classify", shared=EVERYWHERE)
@click.argument("id", metavar="POLICY", help="The classification policy.")
@click.option(
    "labels",
    "--label",
    type=Label(),
    multiple=True,
    help="A label of the job, such as vip=true, level=7 or city=Vigo. May be repeated.",
)
@click.option("--queue-id", metavar="QUEUE", help="The queue that the job names.")
@click.option(
    "--priority",
    type=click.IntRange(limits.ROUTER_PRIORITY_MIN, limits.ROUTER_PRIORITY_MAX),
    help="The priority of the job. Default: 1.",
)
@click.pass_obj
def classify(session: Session, /, **given: Any) -> None:
    """Classify a job on trial, without creating it.

    Functions and webhooks that the policy names are really called.
    """
    values = {name: value for name, value in given.items() if value is not None}
    values["labels"] = dict(given["labels"])
    found, out = _ask(session, "router.classify", values)
    if out is None:
        return
    if found["classified"]:
        by = {"selectors": "its selectors match", "job": "the job names it"}
        why = by.get(found["queue_by"], "it is the fallback")
        _say(out, f"Queue {found['queue_id']} ({why}), priority {found['priority']}.")
    else:
        _say(out, "It would fail:")
        for one in found["errors"]:
            at = f" ({one['target']})" if one["target"] else ""
            _say(out, f"  {one['message']}{at}")
    _table(out, "Asked of workers", [{"selector": _selector(one)} for one in found["attached"]])
    _table(out, "Step by step", [_step(one) for one in found["trail"]])


def _ask(session: Session, name: str, values: dict[str, Any]) -> tuple[Any, Renderer | None]:
    """Return an answer and where to show it; None if it was shown as the JSON that it is."""
    session.log_quietly()
    operation = tree.operation(name)

    async def work() -> bytes:
        async with way_to(operation, session) as calls:
            return (await calls.call(operation, values)).body

    body = asyncio.run(work())
    renderer = Renderer(session.output)
    if session.output != "table":
        renderer.show(body, operation.response)
        return None, None
    return msgspec.json.decode(body), renderer


def _say(out: Renderer, text: str) -> None:
    out.console.print(printable(text), soft_wrap=True)


def _table(out: Renderer, heading: str, rows: Sequence[dict[str, Any]]) -> None:
    if rows:
        _say(out, f"\n{heading}:" if out.console.is_terminal else f"{heading}:")
        out.table([{name: _short(each) for name, each in row.items()} for row in rows])


def _short(value: Any) -> Any:
    return f"{value:.2f}" if isinstance(value, float) else value


def _ruled_out(one: dict[str, Any]) -> dict[str, Any]:
    reason = REASONS.get(one["reason"], one["reason"])
    return {"reason": reason, "selector": _selector(one["selector"]), "count": one["count"]}


def _selector(one: dict[str, Any] | None) -> str | None:
    """Return a selector as people write it.

    >>> _selector({"key": "English", "label_operator": "greaterThan", "value": 5})
    'English > 5'
    """
    if one is None:
        return None
    sign = OPERATORS.get(one["label_operator"], one["label_operator"])
    return f"{one['key']} {sign} {msgspec.json.encode(one['value']).decode()}"


def _some(names: list[str], count: int) -> str:
    more = count - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")


def _step(one: dict[str, Any]) -> dict[str, Any]:
    value = one["value"]
    return {
        "place": one["place"],
        "kind": one["kind"],
        "value": None if value is None else msgspec.json.encode(value).decode(),
        "selectors": ", ".join(str(_selector(each)) for each in one["selectors"]),
        "failure": one["failure"],
    }


@command("watch", shared=EVERYWHERE)
@click.option("--queue", metavar="QUEUE", help="Only this queue.")
@click.option("--once", is_flag=True, help="Look once, and end.")
@click.option(
    "--every",
    type=click.FloatRange(0.1, 3_600.0),
    default=1.0,
    metavar="SECONDS",
    help="How often it looks. Default: 1.",
)
@click.pass_obj
def watch(session: Session, queue: str | None, once: bool, every: float) -> None:
    """Watch queues: waiting jobs and their wait, offers, assignments and workers.

    On a terminal one table is drawn in place, until Ctrl-C; into a pipe one after the other, and
    with --output json a line each time.
    """
    session.log_quietly()
    asyncio.run(_watch(session, queue, None if once else every))


async def _watch(session: Session, queue: str | None, every: float | None) -> None:
    operation = tree.operation("router.queues.overview")
    values = {} if queue is None else {"queue": queue}
    async with way_to(operation, session) as calls, _screen(session, every) as show:
        while True:
            show((await all_pages(calls, operation, dict(values))).body)
            if every is None:
                return
            await asyncio.sleep(every)


@asynccontextmanager
async def _screen(session: Session, every: float | None) -> AsyncIterator[Callable[[bytes], None]]:
    """Yield the function that prints an answer: in place on a terminal, else in lines."""
    renderer = Renderer(session.output)
    if session.output != "table":
        line = every is not None
        yield lambda body: renderer.data(msgspec.json.decode(body), line=line)
    elif every is None or not renderer.console.is_terminal:
        yield lambda body: renderer.table(_standings(body))
    else:
        with Live(console=renderer.console, auto_refresh=False) as live:
            yield lambda body: live.update(renderer.drawn(_standings(body)), refresh=True)


def _standings(body: bytes) -> list[dict[str, Any]]:
    found = msgspec.convert(msgspec.json.decode(body)["items"], list[QueueStanding])
    return [
        {
            "queue": one.queue_id, "waiting": one.waiting,
            "longest_wait": waited(one.longest_wait_seconds), "offers": one.offers,
            "at_work": one.assigned, "active": one.workers_active,
            "draining": one.workers_draining, "inactive": one.workers_inactive,
        }
        for one in found
    ]  # fmt: skip
