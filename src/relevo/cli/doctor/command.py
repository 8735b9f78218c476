"""`relevo doctor`: checks an installation and says what to do about problems."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import click
from msgspec import Struct

from relevo.cli import exits
from relevo.cli.doctor.checks import CHECKS, Finding, Patient, State, examine
from relevo.cli.options import LOCAL, command
from relevo.cli.output.render import Renderer
from relevo.errors import NotFound, RelevoError
from relevo.kernel.postgres.database import Database

if TYPE_CHECKING:
    from relevo.cli.session import Session
    from relevo.settings import Settings


class Examined(Struct, frozen=True, kw_only=True):
    """A check and its finding."""

    check: str
    state: State
    detail: str
    advice: str


class Diagnosis(Struct, frozen=True):
    """All checks, in their order."""

    items: list[Examined]


@command("doctor", shared=LOCAL)
@click.pass_obj
def doctor(session: Session) -> int:
    """Check the database, the clock, the data folder and the hosts; change nothing.

    The exit code is 0 if no check failed (warnings are allowed), else 4.
    """
    session.log_quietly()
    try:
        diagnosis = asyncio.run(_diagnose(session.database_settings()))
    except NotFound as error:
        none = Finding("warn", error.message.partition(";")[0], "start a host with: relevo up")
        diagnosis = asyncio.run(_examine(Patient(session.settings()), {"database": none}))
    Renderer(session.output).result(diagnosis)
    failed = any(item.state == "fail" for item in diagnosis.items)
    return exits.REFUSED if failed else exits.OK


async def _diagnose(settings: Settings) -> Diagnosis:
    async with AsyncExitStack() as stack:
        try:
            database = await stack.enter_async_context(await Database.open(settings))
        except RelevoError as error:
            unreachable = Finding("fail", error.message)
            return await _examine(Patient(settings), {"database": unreachable})
        return await _examine(Patient(settings, database), {})


async def _examine(patient: Patient, known: dict[str, Finding]) -> Diagnosis:
    await patient.look()
    findings = {
        check.name: known.get(check.name) or await examine(check, patient) for check in CHECKS
    }
    return Diagnosis(
        [
            Examined(check=name, state=one.state, detail=one.detail, advice=one.advice)
            for name, one in findings.items()
        ]
    )
