"""`relevo router work`: the desk of a worker, for a person at a terminal or for a command."""

from __future__ import annotations

import asyncio
import sys
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
import msgspec

from relevo.cli import exits, tree
from relevo.cli.calling.calls import way_to
from relevo.cli.hosts.signals import StopSignals
from relevo.cli.options import ALWAYS, REMOTE, SELECTION, WHERE, command
from relevo.cli.output.printing import note
from relevo.cli.output.render import Renderer
from relevo.errors import Conflict, OfferGone, OutcomeUnknown, RelevoError, Unavailable

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from relevo.cli.calling.calls import Calls
    from relevo.cli.session import Session

T = TypeVar("T")
WAIT_SECONDS: Final = 20.0
"""How long one request waits for offers."""
AGAIN_SECONDS: Final = 1.0


class TerminalDesk:
    """The offers and jobs of a worker; each call is an HTTP operation."""

    def __init__(self, calls: Calls, worker_id: str) -> None:
        self._calls = calls
        self.worker_id = worker_id

    async def offers(self, stop: asyncio.Event) -> AsyncGenerator[dict[str, Any], None]:
        """Yield every offer that is open or comes, each once, until `stop`.

        A host that is not there for a while is waited for.
        """
        values: dict[str, Any] = {"worker": self.worker_id, "wait_seconds": WAIT_SECONDS}
        while not stop.is_set():
            page = await _unless(stop, self._page(values))
            for one in page["items"] if page else ():
                yield one
            if page:
                values["continuation"] = page["continuation"]

    async def open_offers(self) -> list[dict[str, Any]]:
        """Return the open offers."""
        found: list[dict[str, Any]] = (await self.ask("offers.list", worker=self.worker_id))[
            "items"
        ]
        return found

    async def worker(self) -> dict[str, Any]:
        """Return the worker as it is."""
        found: dict[str, Any] = await self.ask("workers.get", id=self.worker_id)
        return found

    async def register(self, *, available: bool) -> None:
        """Be there for offers, or not any more."""
        change = {"availableForOffers": available}
        await self.ask("workers.patch", id=self.worker_id, patch=change)

    async def accept(self, offer: dict[str, Any]) -> str:
        """Take the job of an offer and return the assignment; raises `OfferGone`."""
        taken = await self.ask("offers.accept", id=self.worker_id, offerId=offer["offer_id"])
        return str(taken["assignmentId"])

    async def decline(self, offer: dict[str, Any]) -> None:
        """Give an offer back, for good."""
        await self.ask("offers.decline", id=self.worker_id, offerId=offer["offer_id"])

    async def finish(self, verb: str, job_id: str, assignment_id: str) -> None:
        """Report the end of a job: `complete`, `close` or `unassign`."""
        await self.ask(f"jobs.{verb}", id=job_id, assignmentId=assignment_id)

    async def ask(self, name: str, **values: Any) -> Any:
        """Run an operation of the router."""
        operation = tree.operation(f"router.{name}")
        reply = await self._calls.call(operation, {**operation.fixed, **values})
        return msgspec.json.decode(reply.body) if reply.body else None

    async def _page(self, values: dict[str, Any]) -> Any:
        if "continuation" not in values:
            return await self.ask("offers.list", **values)
        return await _surely(lambda: self.ask("offers.list", **values))


async def _surely(call: Callable[[], Awaitable[T]]) -> T:
    """Return the result of a call; retry while its host is away, so it may run twice."""
    while True:
        try:
            return await call()
        except (Unavailable, OutcomeUnknown) as error:
            note(f"{error.message}; trying again")
            await asyncio.sleep(AGAIN_SECONDS)


@command("work", shared=(*WHERE, *REMOTE, *SELECTION, *ALWAYS))
@click.argument("worker", metavar="WORKER", help="Whose desk it is.")
@click.option("--auto-accept", is_flag=True, help="Accept every offer.")
@click.option(
    "program",
    "--command",
    metavar="COMMAND",
    help="With --auto-accept: run this for each job, with the job as JSON on standard input.",
)
@click.option("--count", type=click.IntRange(1), metavar="N", help="End after so many jobs.")
@click.option("--register", is_flag=True, help="Make the worker available while the desk is open.")
@click.pass_obj
def work(
    session: Session, worker: str, auto_accept: bool, program: str | None,
    count: int | None, register: bool,
) -> int:  # fmt: skip
    """Sit down at the desk of a worker: offers appear, and keys answer them.

    With --auto-accept every offer is accepted. A command that then ends with 0 completes and closes
    its job; with any other code the job is unassigned, and so offered again. As many commands run
    at a time as the worker's capacity allows. Without a command, each accepted job is written as a
    line of JSON. Ctrl-C takes no more jobs and lets running commands end.
    """
    session.log_quietly()
    if (program or count) and not auto_accept:
        raise click.UsageError("--command and --count go with --auto-accept")
    if not auto_accept and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError(
            "keys need a terminal; without one use --auto-accept, best with --command"
        )
    return asyncio.run(_work(session, worker, program, count, register, auto_accept=auto_accept))


async def _work(
    session: Session, worker: str, program: str | None, count: int | None, register: bool,
    *, auto_accept: bool,
) -> int:  # fmt: skip
    operation = tree.operation("router.offers.list")
    async with way_to(operation, session) as calls:
        desk = TerminalDesk(calls, worker)
        await desk.worker()  # so that an unknown name is reported at once
        with StopSignals() as signals:
            signals.starting = False
            if register:
                await desk.register(available=True)
            try:
                if auto_accept:
                    return await serve(desk, signals.asked, program, count)
                from relevo.router.cli.keys import by_hand  # needs a terminal of the right kind

                await by_hand(desk, signals.asked)
            finally:
                if register:
                    await desk.register(available=False)
    return exits.OK


async def serve(
    desk: TerminalDesk, stop: asyncio.Event, program: str | None, count: int | None
) -> int:
    """Accept offers and have their jobs done, until `stop` or `count`; return an exit code."""
    for one in (await desk.worker())["assignedJobs"]:
        note(
            f"job {one['jobId']} is assigned from before; to give it back:"
            f" relevo router job unassign {one['jobId']} {one['assignmentId']}"
        )
    running: list[asyncio.Task[bool]] = []
    ended: RelevoError | None = None
    async with asyncio.TaskGroup() as group:
        try:
            async with aclosing(_accepted(desk, stop, count)) as accepted:
                async for offer, assignment in accepted:
                    running.append(group.create_task(_do(desk, offer, assignment, program)))
        except RelevoError as error:
            ended = error  # reported when the running work has ended
    if ended is not None:
        raise ended
    return exits.OK if all(one.result() for one in running) else exits.REFUSED


async def _accepted(
    desk: TerminalDesk, stop: asyncio.Event, count: int | None
) -> AsyncGenerator[tuple[dict[str, Any], str], None]:
    """Accept offers and yield each with its assignment, `count` of them at most."""
    taken = 0
    async with aclosing(desk.offers(stop)) as offers:
        async for offer in offers:
            try:
                assignment = await _surely(partial(desk.accept, offer))
            except OfferGone:
                continue  # another worker was faster, or the offer expired
            yield offer, assignment
            taken += 1
            if taken == count:
                return


async def _do(
    desk: TerminalDesk, offer: dict[str, Any], assignment_id: str, program: str | None
) -> bool:
    """Do a job; return whether it went well."""
    job_id = offer["job_id"]
    job = {**offer, "assignment_id": assignment_id}
    if program is None:
        Renderer("json").data(job, line=True)
        return True
    code = await _run(program, msgspec.json.encode(job) + b"\n")
    try:
        if code == 0:
            for verb in ("complete", "close"):
                await _surely(partial(desk.finish, verb, job_id, assignment_id))
            note(f"job {job_id}: closed")
            return True
        note(f"job {job_id}: the command ended with {code}, so it is offered again")
        await _surely(partial(desk.finish, "unassign", job_id, assignment_id))
    except Conflict as error:  # canceled meanwhile, or taken back too often
        note(f"job {job_id}: {error.message}")
    except RelevoError as error:
        note(f"job {job_id}: {error.message}; it is still assigned to {desk.worker_id}")
    return False


async def _run(program: str, job: bytes) -> int:
    """Run a command in a group of its own, so that Ctrl-C at the desk does not end it."""
    process = await asyncio.create_subprocess_shell(
        program, stdin=asyncio.subprocess.PIPE, start_new_session=True
    )
    await process.communicate(job)
    assert process.returncode is not None
    return process.returncode


async def _unless(stop: asyncio.Event, work: Any) -> Any:
    """Return the result of some work, or None if the command stops first."""
    doing, asked = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({doing, asked}, return_when=asyncio.FIRST_COMPLETED)
        return doing.result() if doing.done() else None
    finally:
        for one in (doing, asked):
            one.cancel()
