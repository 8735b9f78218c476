"""`/v1/history`: figures of all parts over an hour, a day or 30 days."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from relevo.history.service import FigureHistory, Span
from relevo.kernel.operation import Operations

if TYPE_CHECKING:
    from relevo.http.access.authenticator import Principal
    from relevo.http.services import Services

operation = Operations()


class ReadHistory(Struct, frozen=True, kw_only=True):
    """How far back."""

    span: Annotated[
        Span,
        Meta(description="`hour` has a sample every 10 s, `day` every minute, `month` every hour."),
    ] = "hour"


@operation("history.read", "GET /v1/history", "history:read")
async def read_history(services: Services, _: Principal, command: ReadHistory) -> FigureHistory:
    """Show the figures of all parts over the last hour, day or 30 days."""
    return await services.app.history.read(command.span)
