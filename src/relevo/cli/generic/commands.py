"""The command of an operation: `hosts.list` is `relevo host list`."""

from __future__ import annotations

import asyncio
import sys
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click
import msgspec

from relevo import limits
from relevo.cli import exits
from relevo.cli.calling.calls import ABOUT_ONE_HOST, OperationReply, way_to
from relevo.cli.generic import fields
from relevo.cli.generic.ids import with_full_id
from relevo.cli.options import EVERYWHERE, RelevoCommand
from relevo.cli.output.live import screen
from relevo.cli.output.printing import echo_text, note
from relevo.cli.output.render import Renderer
from relevo.errors import InvalidValue
from relevo.kernel.operation import Text

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from relevo.cli.calling.calls import Calls
    from relevo.cli.session import Session
    from relevo.kernel.operation import Operation

_ONE_HOST: Final = (
    "Calls the host at --url; by default the one on this machine, at the settings `host` and"
    " `port`."
)

_DOCUMENTS: Final = {"feeds.export": "places"}
"""Operations whose answer another command reads from a file, and the list in their pages: the
command shows all pages as one document, always as JSON."""


class OperationCommand(RelevoCommand):
    """The command of an operation.

    Its parameters are made when they are needed: to make those of all operations takes longer than
    most commands.
    """

    def __init__(self, operation: Operation, verb: str, *, must_exist: bool = False) -> None:
        @click.pass_obj
        def run(session: Session, /, **given: Any) -> int:
            if must_exist and given.get("if_match") is None:
                given["if_match"] = "*"
            return _run(operation, session, given)

        about = f"\n\n{_ONE_HOST}" if operation.name in ABOUT_ONE_HOST else ""
        summary = _of_update(operation.summary) if must_exist else operation.summary
        super().__init__(verb, callback=run, help=f"{summary}{about}", short_help=summary)
        self._operation = operation
        del self.params  # the empty list hides the property

    @cached_property
    def params(self) -> list[click.Parameter]:  # type: ignore[override]
        """The parameters of the operation, then the shared options."""
        operation = self._operation
        parameters = [
            one
            for one in fields.parameters(operation)
            if one.name != "cursor" or operation.name not in _DOCUMENTS
        ]
        if _is_paged(operation):
            parameters.append(
                click.Option(["follow", "--all"], is_flag=True, help="Return all pages.")
            )
        if _is_watchable(operation):
            parameters += _watching()
        if _is_final(operation):
            parameters.append(
                click.Option(["yes", "--yes"], is_flag=True, help="Do not ask for confirmation.")
            )
        if _takes_reason(operation):
            parameters.append(click.Option(["reason", "--reason"], help="Why, for the audit."))
        return [*parameters, *self.shared_options(parameters, EVERYWHERE)]


def _of_update(summary: str) -> str:
    """Return the summary of a merge patch that also creates, for the command that does not.

    >>> _of_update("Create a queue, or change it by a merge patch.")
    'Change a queue by a merge patch; one that is missing is not created.'
    """
    what = summary.removeprefix("Create ").partition(", or ")[0]
    return f"Change {what} by a merge patch; one that is missing is not created."


def _is_final(operation: Operation) -> bool:
    """Whether an operation cannot be undone; some of these delete nothing."""
    return (
        operation.method == "DELETE"
        or operation.name == "jobs.cancel"
        or operation.name.endswith(".purge")
    )


def _takes_reason(operation: Operation) -> bool:
    """Whether a reason is asked for the audit; some operations have a reason of their own."""
    from relevo.http.access.auditing import is_audited

    names = {field.name for field in msgspec.structs.fields(operation.request)}
    return is_audited(operation) and "reason" not in names


def _is_watchable(operation: Operation) -> bool:
    """Whether an operation shows something that may change."""
    return operation.method == "GET" and not (
        operation.response in (Text, None) or operation.wait or operation.name in _DOCUMENTS
    )


def _watching() -> list[click.Parameter]:
    return [
        click.Option(
            ["watch", "--watch", "-w"], is_flag=True, help="Show it again and again, until Ctrl-C."
        ),
        click.Option(
            ["every", "--every"],
            type=click.FloatRange(0.1, 3_600.0),
            default=2.0,
            metavar="SECONDS",
            help="How often --watch looks. Default: 2.",
        ),
    ]


def _is_paged(operation: Operation) -> bool:
    names = {field.name for field in msgspec.structs.fields(operation.request)}
    return {"cursor", "limit"} <= names


def _run(operation: Operation, session: Session, given: dict[str, Any]) -> int:
    session.log_quietly()
    values = fields.values(operation, given)
    if _is_final(operation) and not given["yes"] and not _confirmed(operation, values):
        note("nothing was done")
        return exits.REFUSED

    reason = given.get("reason") if _takes_reason(operation) else None

    async def work() -> OperationReply:
        async with way_to(operation, session) as calls:
            whole = await with_full_id(calls, operation, values)
            if given.get("follow") or operation.name in _DOCUMENTS:
                call = partial(all_pages, calls, operation, whole)
            else:
                call = partial(calls.call, operation, whole, reason)
            if given.get("watch"):
                await _watched(operation, session, call, given["every"])
            return await call()

    try:
        reply = asyncio.run(work())
    except InvalidValue as error:
        raise _pointed(operation, error) from error
    _show(operation, reply, session)
    return exits.OK if reply.status < 400 else exits.REFUSED


async def _watched(
    operation: Operation,
    session: Session,
    call: Callable[[], Awaitable[OperationReply]],
    every: float,
) -> NoReturn:
    """Show the answer again and again."""
    renderer = Renderer(session.output)
    with screen(renderer, live=True) as draw:
        while True:
            body = (await call()).body
            if session.output == "table":
                draw(renderer.picture(body, operation.response))
            else:
                renderer.data(msgspec.json.decode(body), operation.response, line=True)
            await asyncio.sleep(every)


async def all_pages(
    calls: Calls, operation: Operation, values: Mapping[str, Any]
) -> OperationReply:
    """Return all pages of a list as one page."""
    names = {field.name: field.encode_name for field in msgspec.structs.fields(operation.request)}
    if "limit" in names:
        values = {names["limit"]: limits.PAGE_ROWS_MAX, **values}
    values = dict(values)
    shared = _DOCUMENTS.get(operation.name, "items")
    items: list[Any] = []
    while True:
        page = msgspec.json.decode((await calls.call(operation, values)).body)
        items += page[shared]
        if page["next"] is None:
            return OperationReply(operation.status, msgspec.json.encode({**page, shared: items}))
        values[names["cursor"]] = page["next"]


def _show(operation: Operation, reply: OperationReply, session: Session) -> None:
    if operation.response is Text or operation.name in _DOCUMENTS:
        echo_text(reply.body.decode())
        return
    renderer = Renderer(session.output)
    if reply.body:
        renderer.show(reply.body, operation.response)
    elif session.output == "table":
        renderer.console.print("done")
    if _is_paged(operation) and session.output == "table":
        following = msgspec.json.decode(reply.body).get("next")
        if following:
            note(f"there are more: use --all, or --cursor {following}")


def _confirmed(operation: Operation, values: dict[str, Any]) -> bool:
    """Ask before an operation that cannot be undone; scripts are not asked."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return True
    named = ", ".join(f"{name} {values[name]}" for name in operation.parameters)
    return click.confirm(f"{operation.summary} ({named})\nContinue?", err=True)


def _pointed(operation: Operation, error: InvalidValue) -> InvalidValue:
    """Return an error that names the option instead of the field."""
    place = (error.pointer or "").strip("/").partition("/")[0]
    names = {field.encode_name: field.name for field in msgspec.structs.fields(operation.request)}
    for parameter in fields.parameters(operation):
        if parameter.name == names.get(place):
            hint = parameter.get_error_hint(None)
            return InvalidValue(f"{hint}: {error.message}", pointer=error.pointer)
    return error
