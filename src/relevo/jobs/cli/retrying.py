"""`relevo job retry`: run failed and canceled jobs again, by id or all that match."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from relevo import limits
from relevo.cli import exits, tree
from relevo.cli.calling.calls import way_to
from relevo.cli.generic.ids import IdText, full_id
from relevo.cli.generic.values import Instant, Text
from relevo.cli.options import EVERYWHERE, command
from relevo.cli.output.printing import note, printable
from relevo.cli.output.render import Renderer
from relevo.errors import CallerError

if TYPE_CHECKING:
    from relevo.cli.calling.calls import Calls
    from relevo.cli.session import Session

RETRIED_AT_ONCE: Final = 50
"""Calls under way at the same time; concurrent ones share a transaction."""
PAGE_ROWS: Final = limits.PAGE_ROWS_MAX
JOBS_MAX: Final = 100_000
_SHOWN: Final = 10


@command("retry", shared=EVERYWHERE)
@click.argument("ids", type=IdText(), nargs=-1, metavar="[ID]...", help="Which jobs.")
@click.option("--failed", is_flag=True, help="All failed jobs that the other options name.")
@click.option("--canceled", is_flag=True, help="All canceled jobs that the other options name.")
@click.option("--handler", type=Text(), help="Only of this handler.")
@click.option("--lane", type=Text(), help="Only of this lane.")
@click.option("--created-after", type=Instant(), help="Only jobs submitted from then on.")
@click.option("--created-before", type=Instant(), help="Only jobs submitted before then.")
@click.option("--filter", type=Text(), help="An OData filter, as `relevo job list` takes it.")
@click.option("--yes", is_flag=True, help="Retry all that match without a preview.")
@click.pass_obj
def retry(session: Session, /, **given: Any) -> int:
    """Run failed or canceled jobs again.

    They keep their data, saved state and count of attempts, and wait behind the jobs of their
    lane. Without ids, a preview shows how many jobs match; on a terminal the command asks for a
    confirmation, elsewhere it retries nothing unless --yes is given.
    """
    session.log_quietly()
    ids = [str(one) for one in given.pop("ids")]
    yes, failed, canceled = (given.pop(name) for name in ("yes", "failed", "canceled"))
    values = {name: value for name, value in given.items() if value is not None}
    statuses = [name for name, wanted in (("failed", failed), ("canceled", canceled)) if wanted]
    if bool(ids) == bool(statuses):
        raise click.UsageError("give the ids of jobs, or --failed or --canceled")
    if ids and (values or yes):
        raise click.UsageError("--yes and the options that choose jobs go without ids")
    return asyncio.run(_retry(session, ids, {**values, "status": statuses}, yes=yes))


async def _retry(session: Session, ids: list[str], values: dict[str, Any], *, yes: bool) -> int:
    async with way_to(tree.operation("jobs.retry"), session) as calls:
        if not ids:
            jobs = await _matching(calls, values)
            if not yes and not _agreed(session, jobs):
                return exits.REFUSED
            ids = [job["id"] for job in jobs]
        else:
            ids = [await full_id(calls, "jobs", each) for each in ids]
        refused = await _retry_all(calls, ids)
    done = len(ids) - len(refused)
    if session.output != "table":
        Renderer(session.output).data({"retried": done, "refused": refused}, line=True)
    else:
        for key, reason in refused.items():
            note(printable(f"{key}: {reason}"))
        click.echo(f"{_jobs(done)} will run again")
    return exits.REFUSED if refused else exits.OK


async def _matching(calls: Calls, values: dict[str, Any]) -> list[dict[str, Any]]:
    """Return all jobs that match, oldest first; those that come meanwhile are left alone."""
    listing = tree.operation("jobs.list")
    found: list[dict[str, Any]] = []
    values = {**values, "order": "oldest", "limit": PAGE_ROWS}
    while True:
        page = msgspec.json.decode((await calls.call(listing, values)).body)
        found += page["items"]
        if len(found) > JOBS_MAX:
            raise click.UsageError(f"more than {JOBS_MAX} jobs match; choose fewer at a time")
        if page["next"] is None:
            return found
        values["cursor"] = page["next"]
        note(f"{_jobs(len(found))} match so far")


def _agreed(session: Session, jobs: list[dict[str, Any]]) -> bool:
    """Show what would be retried, and ask where somebody can answer."""
    counts = Counter(job["handler"] for job in jobs).most_common()
    if session.output != "table":
        found = {"count": len(jobs), "handlers": dict(counts)}
        Renderer(session.output).data(found, line=True)
    else:
        renderer = Renderer("table")
        renderer.console.print(f"{_jobs(len(jobs))} would run again", soft_wrap=True)
        for handler, count in counts[:_SHOWN]:
            renderer.console.print(printable(f"  {count:>7}  {handler}"), soft_wrap=True)
        if len(counts) > _SHOWN:
            renderer.console.print(f"  and {len(counts) - _SHOWN} more handlers")
    if jobs and sys.stdin.isatty() and sys.stdout.isatty():
        return click.confirm(f"Run {_jobs(len(jobs))} again?", err=True)
    note("nothing was retried; add --yes to do so")
    return False


async def _retry_all(calls: Calls, ids: list[str]) -> dict[str, str]:
    """Retry jobs; return the reasons of those that were refused."""
    operation, refused = tree.operation("jobs.retry"), dict[str, str]()

    async def one(key: str) -> None:
        try:
            await calls.call(operation, {"id": key})
        except CallerError as error:
            refused[key] = error.message

    for start in range(0, len(ids), RETRIED_AT_ONCE):
        await asyncio.gather(*map(one, ids[start : start + RETRIED_AT_ONCE]))
        if start and start % PAGE_ROWS == 0:
            note(f"{start} of {_jobs(len(ids))} retried")
    return refused


def _jobs(count: int) -> str:
    return f"{count} job" if count == 1 else f"{count} jobs"
