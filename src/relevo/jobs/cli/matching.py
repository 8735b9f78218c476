"""Commands on many jobs: `relevo job retry`, `cancel-all`, `pause-all` and so on.

A preview shows how many jobs match; `--yes`, or the answer on a terminal, carries it out.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec
from msgspec import Struct

from relevo.cli import exits, tree
from relevo.cli.calling.calls import way_to
from relevo.cli.generic.ids import IdText, full_id
from relevo.cli.generic.values import Instant, Text
from relevo.cli.options import EVERYWHERE, command
from relevo.cli.output.printing import note, printable
from relevo.cli.output.render import Renderer
from relevo.errors import CallerError
from relevo.jobs import states

if TYPE_CHECKING:
    from collections.abc import Callable

    from relevo.cli.calling.calls import Calls
    from relevo.cli.session import Session

RETRIED_AT_ONCE: Final = 50
"""Calls under way at the same time; concurrent ones share a transaction."""
_SHOWN: Final = 10
_CHOICES: Final = (
    click.option("--handler", type=Text(), help="Only of this handler."),
    click.option("--lane", type=Text(), help="Only of this lane."),
    click.option("--token", type=Text(), help="Only of this token."),
    click.option("--batch", type=Text(), help="Only of the batch with this id."),
    click.option("--created-after", type=Instant(), help="Only jobs submitted from then on."),
    click.option("--created-before", type=Instant(), help="Only jobs submitted before then."),
    click.option("--filter", type=Text(), help="An OData filter, as `relevo job list` takes it."),
    click.option("--yes", is_flag=True, help="Do it without a preview."),
)


class _Verb(Struct, frozen=True):
    """What a command does, and how it is told."""

    operation: str
    would: str
    done: str


_RETRY: Final = _Verb("jobs.retry_all", "would run again", "{} will run again")


def _choosing(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(_CHOICES):
        function = option(function)
    return function


@command("retry", shared=EVERYWHERE)
@click.argument("ids", type=IdText(), nargs=-1, metavar="[ID]...", help="Which jobs.")
@click.option("--failed", is_flag=True, help="All failed jobs that the other options name.")
@click.option("--canceled", is_flag=True, help="All canceled jobs that the other options name.")
@_choosing
@click.pass_obj
def retry(session: Session, /, **given: Any) -> int:
    """Run failed or canceled jobs again.

    They keep their data, saved state and count of attempts, and wait behind the jobs of their
    lane. Without ids, a preview shows how many jobs match; on a terminal the command asks for a
    confirmation, elsewhere it retries nothing unless --yes is given.
    """
    session.log_quietly()
    ids = [str(each) for each in given.pop("ids")]
    yes, failed, canceled = (given.pop(name) for name in ("yes", "failed", "canceled"))
    values = {name: value for name, value in given.items() if value is not None}
    statuses = [name for name, wanted in (("failed", failed), ("canceled", canceled)) if wanted]
    if bool(ids) == bool(statuses):
        raise click.UsageError("give the ids of jobs, or --failed or --canceled")
    if ids and (values or yes):
        raise click.UsageError("--yes and the options that choose jobs go without ids")
    if ids:
        return asyncio.run(_retry_by_id(session, ids))
    return asyncio.run(_all(session, _RETRY, {**values, "status": statuses}, yes=yes))


def _of_all(verb: _Verb, does: str, *options: Callable[..., Any]) -> click.Command:
    """Return the command that does something to all jobs that match."""

    def run(session: Session, /, **given: Any) -> int:
        session.log_quietly()
        yes = given.pop("yes")
        values = {name: value for name, value in given.items() if value not in (None, ())}
        if not values.keys() - {"until"}:
            raise click.UsageError("name the jobs, as by --status or --handler")
        return asyncio.run(_all(session, verb, values, yes=yes))

    run.__doc__ = f"""{does}

    A preview shows how many jobs match; on a terminal the command asks for a confirmation,
    elsewhere it changes nothing unless --yes is given.
    """
    words = click.Choice(list(states.WORDS.values()))
    status = click.option("--status", type=words, multiple=True, help="Only with this status.")
    function: Callable[..., Any] = click.pass_obj(run)
    for option in (*reversed(options), _choosing, status):
        function = option(function)
    name = verb.operation.removeprefix("jobs.").replace("_", "-")
    made: click.Command = command(name, shared=EVERYWHERE)(function)
    return made


cancel_all: Final = _of_all(
    _Verb("jobs.cancel_all", "would be canceled", "canceled or asked to stop: {}"),
    "Cancel all jobs that match; running handlers are asked to stop.",
)
pause_all: Final = _of_all(
    _Verb("jobs.pause_all", "would be asked to pause", "asked to pause: {}"),
    "Ask all running jobs that match to yield at their next checkpoints.",
)
resume_all: Final = _of_all(
    _Verb("jobs.resume_all", "would be resumed", "resumed: {}"),
    "Let all suspended jobs that match go on.",
)
postpone_all: Final = _of_all(
    _Verb("jobs.postpone_all", "would be postponed", "postponed: {}"),
    "Let all jobs that match wait until an instant.",
    click.option("--until", type=Instant(), required=True, help="When they may run."),
)
delete_all: Final = _of_all(
    _Verb("jobs.delete_all", "would be deleted", "deleted: {}"),
    "Remove all jobs that match, and their records.",
)


async def _all(session: Session, verb: _Verb, values: dict[str, Any], *, yes: bool) -> int:
    async with way_to(tree.operation(verb.operation), session) as calls:
        if not yes:
            found = await _each_page(calls, verb, {**values, "dry_run": True})
            if not _agreed(session, verb, found):
                return exits.REFUSED
        found = await _each_page(calls, verb, values)
    if session.output != "table":
        told = {name: found[name] for name in ("matched", "done", "refused", "refusals")}
        Renderer(session.output).data(told, line=True)
    else:
        for key, reason in found["refusals"].items():
            note(printable(f"{key}: {reason}"))
        if (left := found["refused"] - len(found["refusals"])) > 0:
            note(f"and {_jobs(left)} more refused")
        click.echo(verb.done.format(_jobs(found["done"])))
    return exits.REFUSED if found["refused"] else exits.OK


async def _each_page(calls: Calls, verb: _Verb, values: dict[str, Any]) -> dict[str, Any]:
    """Ask again until nothing more matches; returns the sums."""
    sums: dict[str, Any] = {
        "matched": 0, "done": 0, "refused": 0, "refusals": {}, "handlers": Counter()
    }  # fmt: skip
    while True:
        reply = await calls.call(tree.operation(verb.operation), values)
        page = msgspec.json.decode(reply.body)
        for name in ("matched", "done", "refused"):
            sums[name] += page[name]
        sums["refusals"] |= page["refusals"] if len(sums["refusals"]) < _SHOWN else {}
        sums["handlers"].update(page["handlers"])
        if page["next"] is None:
            return sums
        values = {**values, "cursor": page["next"]}
        said = "match" if values.get("dry_run") else "done"
        note(f"{_jobs(sums['matched'])} {said} so far")


def _agreed(session: Session, verb: _Verb, found: dict[str, Any]) -> bool:
    """Show what would be done, and ask where somebody can answer."""
    counts, matched = found["handlers"].most_common(), found["matched"]
    if session.output != "table":
        Renderer(session.output).data({"count": matched, "handlers": dict(counts)}, line=True)
    else:
        renderer = Renderer("table")
        renderer.console.print(f"{_jobs(matched)} {verb.would}", soft_wrap=True)
        for handler, count in counts[:_SHOWN]:
            renderer.console.print(printable(f"  {count:>7}  {handler}"), soft_wrap=True)
        if len(counts) > _SHOWN:
            renderer.console.print(f"  and {len(counts) - _SHOWN} more handlers")
    if matched and sys.stdin.isatty() and sys.stdout.isatty():
        return click.confirm(f"{_jobs(matched)} {verb.would}. Continue?", err=True)
    note("nothing was retried; add --yes to do so" if verb is _RETRY else
         "nothing was changed; add --yes to do so")  # fmt: skip
    return False


async def _retry_by_id(session: Session, ids: list[str]) -> int:
    operation, refused = tree.operation("jobs.retry"), dict[str, str]()
    async with way_to(operation, session) as calls:
        ids = [await full_id(calls, "jobs", each) for each in ids]

        async def one(key: str) -> None:
            try:
                await calls.call(operation, {"id": key})
            except CallerError as error:
                refused[key] = error.message

        for start in range(0, len(ids), RETRIED_AT_ONCE):
            await asyncio.gather(*map(one, ids[start : start + RETRIED_AT_ONCE]))
    done = len(ids) - len(refused)
    if session.output != "table":
        Renderer(session.output).data({"retried": done, "refused": refused}, line=True)
    else:
        for key, reason in refused.items():
            note(printable(f"{key}: {reason}"))
        click.echo(f"{_jobs(done)} will run again")
    return exits.REFUSED if refused else exits.OK


def _jobs(count: int) -> str:
    return f"{count} job" if count == 1 else f"{count} jobs"
