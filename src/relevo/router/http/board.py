"""`/v1/router/board`: what a wall board shows beside queues, workers and offers."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from relevo.kernel.operation import Operations
from relevo.router import overview
from relevo.router.overview import QueueService, SkillWaiting

if TYPE_CHECKING:
    from relevo.http.access.authenticator import Principal
    from relevo.http.services import Services

operation = Operations()


class ReadBoard(Struct, frozen=True, kw_only=True):
    """What counts as quick, and over how long."""

    target_seconds: Annotated[
        float, Meta(gt=0.0, le=86_400.0, description="A job that waits no longer is in time.")
    ] = 20.0
    window_seconds: Annotated[
        float, Meta(gt=0.0, le=86_400.0, description="How far back assignments count.")
    ] = 3_600.0


class BoardView(Struct, frozen=True, kw_only=True):
    """Service levels, and what waiting jobs ask of workers."""

    target_seconds: float
    window_seconds: float
    service: list[QueueService]
    """By queue; those in which no worker took a job are left out."""
    skills: list[SkillWaiting]
    """The most wanted first, at most 50, of 5,000 waiting jobs."""


@operation("router.board.read", "GET /v1/router/board", "router:read")
async def read_board(services: Services, _: Principal, command: ReadBoard) -> BoardView:
    """Show how quickly jobs are taken in each queue, and which skills waiting jobs ask for."""
    database = services.app.database
    window = timedelta(seconds=command.window_seconds)
    target = timedelta(seconds=command.target_seconds)
    return BoardView(
        target_seconds=command.target_seconds,
        window_seconds=command.window_seconds,
        service=await overview.service_levels(database, window, target),
        skills=await overview.skills(database),
    )
