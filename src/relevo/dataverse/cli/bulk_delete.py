"""`relevo dataverse bulk-delete create`: conditions, a count and a sample first."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from relevo.cli import exits, tree
from relevo.cli.calling.calls import way_to
from relevo.cli.generic.values import Instant, JsonLines, Key, Null, Text, Where
from relevo.cli.options import EVERYWHERE, command
from relevo.cli.output.printing import note, printable
from relevo.cli.output.render import Renderer, new_console
from relevo.errors import Forbidden, InvalidValue
from relevo.jobs.http.models import JobView
from relevo.store.query import OPERATORS

if TYPE_CHECKING:
    from relevo.cli.calling.calls import OperationReply
    from relevo.cli.session import Session

_JOBS: Final = "jobs"
_CONTAINERS_SHOWN: Final = 20
_BODY_SHOWN: Final = 100


@command("create", shared=EVERYWHERE)
@click.argument(
    "queries",
    type=JsonLines(),
    required=False,
    metavar="[QUERIES]",
    help="Instead of --container, --jobs, --where and --filter: objects with `container` or"
    " `jobs`, and `where`, as a JSON array or one object per line, @FILE, or - for standard input.",
)
@click.option("--container", type=Text(), help="Delete items of this container.")
@click.option("--jobs", is_flag=True, help="Delete records of jobs.")
@click.option(
    "--where",
    type=(Text(), click.Choice(OPERATORS), Key()),
    multiple=True,
    metavar="PATH OP VALUE",
    help="Only rows that meet this, such as: paid = true. May be repeated; all must hold.",
)
@click.option(
    "--filter",
    type=Text(),
    metavar="TEXT",
    help="Only rows that also meet this OData filter, such as: statuscode eq 31 or depth gt 1.",
)
@click.option("--name", type=Text(), help="Name of the job.")
@click.option("--start", type=Instant(), help="Not before this time, such as 2031-05-30T18:00:00Z.")
@click.option("--recurrence", metavar="RULE", help="Repeat, such as FREQ=DAILY;INTERVAL=3.")
@click.option(
    "--timezone",
    metavar="ZONE",
    help="Time zone of --recurrence, such as Europe/Madrid. Default: UTC.",
)
@click.option("--max-failures", type=click.IntRange(0), help="Fail if more rows than this fail.")
@click.option("--yes", is_flag=True, help="Create the job without a preview.")
@click.pass_obj
def create(session: Session, /, **given: Any) -> int:
    """Create a job that deletes many items, or many job records; print its id.

    A preview shows how many rows the job would delete, and the first ten. On a terminal the command
    asks for missing options: the rows, one condition after the other, and a confirmation. Without
    a terminal it creates nothing unless --yes is given.

    Only completed jobs are deleted, unless a condition names statecode or statuscode.
    """
    session.log_quietly()
    if given["container"] is not None and given["jobs"]:
        raise click.UsageError("give --container or --jobs, not both")
    if given["queries"] is not None:
        return _create_all(session, given)
    if given["timezone"] and not given["recurrence"]:
        raise click.UsageError("--timezone needs --recurrence; give both or neither")
    asks = not given["yes"] and sys.stdin.isatty() and sys.stdout.isatty()
    query = _query(session, given, asks=asks)
    steps = not given["where"] and given["filter"] is None
    if not given["yes"] and not _agreed(session, query, asks=asks, steps=steps):
        return exits.REFUSED
    return _create(session, {"queries": [query], **_options(given)})


def _create_all(session: Session, given: dict[str, Any]) -> int:
    """Create the job for queries that are given as such, which are not previewed."""
    if given["container"] is not None or given["jobs"] or given["where"] or given["filter"]:
        raise click.UsageError("give QUERIES, or the options that select rows, not both")
    if not given["yes"]:
        raise click.UsageError("queries are not previewed; add --yes to create the job")
    return _create(session, {"queries": given["queries"], **_options(given)})


def _create(session: Session, values: dict[str, Any]) -> int:
    reply = _call(session, "bulk_deletes.create", values)
    if session.output != "table":
        Renderer(session.output).show(reply.body, None)
    else:
        click.echo(msgspec.json.decode(reply.body)["id"])
    return exits.OK


def _options(given: dict[str, Any]) -> dict[str, Any]:
    """Return the given options other than the rows, under their names in the API."""
    options = {name: given[name] for name in ("name", "start", "max_failures")}
    if given["recurrence"]:
        rule = {"pattern": given["recurrence"], "timezone": given["timezone"]}
        options["recurrence"] = _present({**rule, "start": options.pop("start")})
    return _present(options)


def _present(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _query(session: Session, given: dict[str, Any], *, asks: bool) -> dict[str, Any]:
    """Return the query for the rows; asks on a terminal."""
    where = [{"path": path, "op": op, "value": _plain(value)} for path, op, value in given["where"]]
    chosen = _present({"where": where, "filter": given["filter"]})
    if given["jobs"]:
        return {"jobs": True, **chosen}
    container = given["container"]
    if container is None and not asks:
        raise click.UsageError("give --container NAME or --jobs")
    if container is None:
        _tell_containers(session)
        container = click.prompt("Delete from which container (or jobs)", type=Text(), err=True)
        if container == _JOBS:
            return {"jobs": True, **chosen}
    return {"container": container, **chosen}


def _tell_containers(session: Session) -> None:
    try:
        reply = _call(session, "containers.list", {"limit": _CONTAINERS_SHOWN})
    except Forbidden:
        return  # a key that may delete need not be allowed to list
    page = msgspec.json.decode(reply.body)
    more = " and more" if page["next"] else ""
    note(f"containers: {', '.join(printable(one['name']) for one in page['items'])}{more}")


def _agreed(session: Session, query: dict[str, Any], *, asks: bool, steps: bool) -> bool:
    """Show a preview, let the user add conditions, and ask for a confirmation."""
    if not asks:
        reply = _call(session, "bulk_deletes.preview", query)
        _show(Renderer(session.output), reply.body, query)
        note("nothing was created; add --yes to create the job")
        return False
    renderer = Renderer("table", new_console(stderr=True))
    count = _show(renderer, _call(session, "bulk_deletes.preview", query).body, query)
    while steps and (added := _condition()) is not None:
        query["where"].append(added)
        try:
            reply = _call(session, "bulk_deletes.preview", query)
        except InvalidValue as error:
            note(printable(error.message))
            query["where"].pop()
            continue
        count = _show(renderer, reply.body, query)
    if click.confirm(f"Delete {_rows(count)}?", err=True):
        return True
    note("nothing was created")
    return False


def _condition() -> dict[str, Any] | None:
    """Ask for one more condition; None if there are no more."""

    def read(text: str) -> Any:
        return Where().convert(text, None, None) if text.strip() else None

    prompt = "Add a condition, such as paid = true (empty to finish)"
    condition: dict[str, Any] | None = click.prompt(
        prompt, default="", show_default=False, value_proc=read, err=True
    )
    return None if condition is None else {**condition, "value": _plain(condition["value"])}


def _plain(value: Any) -> Any:
    return None if value is Null else value


def _show(renderer: Renderer, body: bytes, query: dict[str, Any]) -> int:
    """Show the count and the sample; return the count."""
    if renderer.output != "table":
        renderer.show(body, None)
        return 0
    preview = msgspec.json.decode(body)
    count: int = preview["count"]
    renderer.console.print(f"{_rows(count)} would be deleted", style="bold")
    if query.get("jobs"):
        renderer.table(preview["sample"], JobView)
    else:
        for one in preview["sample"]:
            text = printable(msgspec.json.encode(one).decode())
            cut = text if len(text) <= _BODY_SHOWN else f"{text[:_BODY_SHOWN]}…"
            renderer.console.print(f"  {cut}", soft_wrap=True)
    if count > len(preview["sample"]):
        renderer.console.print(f"  and {count - len(preview['sample'])} more", style="dim")
    return count


def _rows(count: int) -> str:
    return f"{count} row{'' if count == 1 else 's'}"


def _call(session: Session, name: str, values: dict[str, Any]) -> OperationReply:
    """Run an operation on its own connection, because the user may pause between two."""
    operation = tree.operation(name)

    async def work() -> OperationReply:
        async with way_to(operation, session) as calls:
            return await calls.call(operation, values)

    return asyncio.run(work())
