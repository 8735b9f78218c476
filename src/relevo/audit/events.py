"""The event of the audit."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from relevo.kernel.events import EventType


class AuditData(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Who has changed what."""

    by_id: str
    """The id of the key, `local` for the command line beside the database."""
    by_name: str
    operation: str
    resource: str
    """The path of the operation, with what it names."""
    outcome: str
    """`done`, or the code of the error."""
    reason: str | None = None
    caller: str | None = None
    """`agent` for an AI agent."""


RECORDED: Final = "relevo.audit.recorded"
TYPES: Final = (
    EventType(
        name=RECORDED,
        payload=AuditData,
        sentence="An operator or a key has changed something, or has tried to.",
    ),
)
