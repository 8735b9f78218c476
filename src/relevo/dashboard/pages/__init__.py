"""All pages and actions of the dashboard, in the order of the navigation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from relevo.dashboard.pages import (
    actors,
    board,
    events,
    feeds,
    job,
    jobs,
    messages,
    operating,
    overview,
    router,
    schedules,
    system_jobs,
)

if TYPE_CHECKING:
    from relevo.dashboard.page import Action, Page

_MODULES: Final = (
    overview, jobs, job, schedules, system_jobs, board, router, messages, feeds, actors, events,
    operating,
)  # fmt: skip
PAGES: Final[tuple[Page, ...]] = tuple(page for module in _MODULES for page in module.PAGES)
ACTIONS: Final[dict[str, Action]] = {
    action.operation: action for module in _MODULES for action in module.ACTIONS
}
