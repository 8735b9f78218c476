"""`relevo job submit HANDLER --lines`: a job for each line of a file or of standard input."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec

from relevo import limits
from relevo.cli import exits, tree
from relevo.cli.calling.calls import way_to
from relevo.cli.output.printing import note, printable
from relevo.cli.output.render import Renderer
from relevo.errors import RelevoError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from relevo.cli.session import Session


def check_lines(lines: Any) -> None:
    """Refuse lines that are not objects, before anything is submitted."""
    for number, line in enumerate(lines, 1):
        if not isinstance(line, dict):
            raise click.UsageError(
                f'line {number} is not an object of arguments, such as {{"customer": "ana"}}'
            )


async def submit_lines(session: Session, values: dict[str, Any], lines: Sequence[Any]) -> int:
    """Submit a job for each line, 1,000 in one transaction; prints their ids."""
    operation = tree.operation("jobs.submit_many")
    ids: list[str] = []
    existed, warning = 0, None
    async with way_to(operation, session) as calls:
        for start in range(0, len(lines), limits.JOBS_SUBMITTED_MAX):
            data = lines[start : start + limits.JOBS_SUBMITTED_MAX]
            try:
                reply = await calls.call(operation, {**values, "data": data})
            except RelevoError:
                if start:
                    note(f"the jobs of the first {start} lines are stored, the others are not")
                raise
            made = msgspec.json.decode(reply.body)
            ids += made["ids"]
            existed += len(made["existed"])
            warning = warning or made["warning"]
            if session.output == "table":
                for key in made["ids"]:
                    click.echo(key)
            if len(lines) > limits.JOBS_SUBMITTED_MAX:
                note(f"{start + len(data)} of {len(lines)} submitted")
    if session.output != "table":
        Renderer(session.output).data({"ids": ids, "existed": existed}, line=True)
    if existed:
        note(f"{existed} jobs existed already")
    if warning:
        note(printable(f"warning: {warning}"))
    return exits.OK
