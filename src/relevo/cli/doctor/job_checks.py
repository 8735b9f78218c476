"""The check of `relevo doctor` for jobs that no host runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from relevo.cli.doctor.patient import Finding
from relevo.jobs.querying.explanations import Explanations

if TYPE_CHECKING:
    from relevo.cli.doctor.patient import Patient
    from relevo.jobs.querying.explanations import UnservedHandler

SHOWN_MAX: Final = 4


async def unserved(patient: Patient) -> Finding:
    """Check for ready jobs whose handler no live host serves."""
    found = await Explanations(patient.database).unserved()
    if not found:
        return Finding("ok", "live hosts serve all handlers with ready jobs")
    more = f" and {len(found) - SHOWN_MAX} more" if len(found) > SHOWN_MAX else ""
    named = ", ".join(map(_named, found[:SHOWN_MAX]))
    return Finding(
        "warn",
        f"jobs wait for handlers that no live host has: {named}{more}",
        "start a host that has them: `relevo run MODULE:APP`; `relevo job explain ID` says why"
        " a single job waits",
    )


def _named(handler: UnservedHandler) -> str:
    if handler.served_at is not None:
        return f"{handler.name!r} (last served at {handler.served_at:%Y-%m-%d %H:%M} UTC)"
    similar = f"; similar: {', '.join(handler.similar)}" if handler.similar else ""
    return f"{handler.name!r} (never registered{similar})"
