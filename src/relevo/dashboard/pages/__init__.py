"""All pages and actions of the dashboard, in the order of the navigation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from relevo.dashboard.pages import actors, feeds, job, jobs, messages, operating, overview, router

if TYPE_CHECKING:
    from relevo.dashboard.page import Action, Page

_MODULES: Final = (overview, jobs, job, router, messages, feeds, actors, operating)
PAGES: Final[tuple[Page, ...]] = tuple(page for module in _MODULES for page in module.PAGES)
ACTIONS: Final[dict[str, Action]] = {
    action.operation: action for module in _MODULES for action in module.ACTIONS
}
