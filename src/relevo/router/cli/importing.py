"""`relevo router import`: brings the configuration of another job router here."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from relevo.cli import exits, tree
from relevo.cli.calling.calls import way_to
from relevo.cli.options import ALWAYS, OUTPUT, REMOTE, WHERE, command
from relevo.cli.output.render import Renderer, new_console
from relevo.errors import NotFound
from relevo.router import importing, official

if TYPE_CHECKING:
    from relevo.cli.calling.calls import Calls
    from relevo.cli.session import Session
    from relevo.router.importing import Collection, Report, Taken
    from relevo.router.wire.documents import Document

KEY_VARIABLE: Final = "RELEVO_IMPORT_KEY"
PARTIAL: Final = 7
_NOUNS: Final = {
    "distributionPolicies": "distribution_policies",
    "queues": "queues",
    "classificationPolicies": "classification_policies",
    "exceptionPolicies": "exception_policies",
    "workers": "workers",
    "jobs": "jobs",
}
_SHARED: Final = (*WHERE, *(one for one in REMOTE if one.name != "key"), *OUTPUT, *ALWAYS)


class OverCalls:
    """The target of an import: operations, in this process or over HTTP."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def get(self, collection: Collection, resource_id: str) -> Document | None:
        """Return the resource of this id."""
        operation = tree.operation(f"router.{_NOUNS[collection]}.get")
        try:
            reply = await self._calls.call(operation, {**operation.fixed, "id": resource_id})
        except NotFound:
            return None
        found: Document = msgspec.json.decode(reply.body)
        return found

    async def put(
        self, collection: Collection, resource_id: str, change: Document, *, new: bool
    ) -> None:
        """Merge a change; with `new` only if there is nothing."""
        operation = tree.operation(f"router.{_NOUNS[collection]}.patch")
        values: dict[str, Any] = {**operation.fixed, "id": resource_id, "patch": change}
        if new:
            values["if_none_match"] = "*"
        await self._calls.call(operation, values)


@command("import", shared=_SHARED)
@click.option(
    "--endpoint",
    required=True,
    metavar="URL",
    help="The service to copy from, such as https://name.communication.azure.com.",
)
@click.option(
    "source_key",
    "--key",
    envvar=KEY_VARIABLE,
    required=True,
    metavar="KEY",
    help=f"An access key of that service. Better: {KEY_VARIABLE}, which ps does not show.",
)
@click.option("--workers", is_flag=True, help="Workers too; they come deregistered.")
@click.option("--jobs", is_flag=True, help="Jobs too that nobody has taken yet.")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@click.pass_obj
def take_over(
    session: Session, endpoint: str, source_key: str, workers: bool, jobs: bool, dry_run: bool
) -> int:
    """Copy policies and queues from another job router: the original, or another Relevo.

    What is there already is made like the source, and a second run changes nothing. Secrets of
    functions and webhooks are never given out; the report names where to set them. The source is
    read through the official client (`pip install 'relevo[router-import]'`). The key for --url is
    that of RELEVO_KEY or RELEVO_KEY_FILE.
    """
    session.log_quietly()

    async def work() -> Report:
        operation = tree.operation("router.queues.get")
        async with (
            way_to(operation, session) as calls,
            official.opened(endpoint, source_key) as source,
        ):
            with new_console(stderr=True).status("reading") as status:
                done = 0

                def notify(taken: Taken) -> None:
                    nonlocal done
                    done += 1
                    status.update(f"{done} done, now {taken.kind}")

                return await importing.copy(
                    source, OverCalls(calls), workers=workers, jobs=jobs, dry_run=dry_run,
                    notify=notify,
                )  # fmt: skip

    report = asyncio.run(work())
    _show(session, report)
    return exits.OK if report.complete else PARTIAL


def _show(session: Session, report: Report) -> None:
    out = Renderer(session.output)
    if session.output != "table":
        out.result(report)
        return
    if report.dry_run:
        out.console.print("Nothing was done; this is what would be:")
    out.table([{"kind": kind, **each} for kind, each in report.counts.items()])
    for heading, rows in (
        ("Not taken", report.not_taken),
        ("Secrets to set anew, where a rule needs one", report.secrets),
    ):
        if rows:
            out.console.print(f"{heading}:")
            out.table([msgspec.to_builtins(row) for row in rows])
