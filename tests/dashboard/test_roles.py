"""Pages and actions by role, generated from their declarations: also for requests made by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from relevo.audit.service import AuditFilter
from relevo.dashboard.pages import ACTIONS, PAGES
from relevo.http.access.key_model import NewKey
from relevo.http.access.roles import ROLES, permissions_of
from relevo.http.operations import operation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from relevo.dashboard.page import Page
    from tests.dashboard.conftest import Browser, Desk

pytestmark = pytest.mark.anyio


def path_of(page: Page) -> str:
    path = page.path
    for name in page.parameters:
        path = path.replace(f"{{{name}}}", "none")
    return path


def forms() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every action as one would forge it: on one thing, on several, on all that match."""
    for name, action in ACTIONS.items():
        thing = "/".join("none" for _ in action.key.split("/")) if action.key else ""
        yield name, {"do": f"{name} {thing}".strip(), "confirmed": "1"}
        yield name, {"do": name, "selected": thing, "confirmed": "1"}
        if action.among is not None:
            yield name, {"do": name, "matching": "", "typed": "0"}


async def signed_in(desk: Desk, browser: Browser, role: str) -> tuple[str, str]:
    """Sign in with a new key of a role; return its id and the token of its forms.

    The token is read from the session, since some roles see no page that has it.
    """
    opened = await desk.dashboard._open()
    made = await opened.services.keys.create(NewKey(name=role, roles=(role,)))
    await browser.sign_in(made.secret)
    cookies = {one.key: one.value for one in browser.session.cookie_jar}
    session = opened.sessions._opened(cookies[opened.sessions.cookie])
    assert session is not None
    return made.key.id, session.csrf


@pytest.mark.parametrize("role", ROLES)
async def test_each_page_and_action_lets_in_whom_its_operation_names(desk: Desk, role: str) -> None:
    allowed = permissions_of((role,))
    async with desk.browser() as browser:
        _, csrf = await signed_in(desk, browser, role)
        for page in PAGES:
            for accept in ("text/html", "text/event-stream"):
                may = operation(page.operation).permission in allowed
                if may and (accept != "text/html" or role == "admin"):
                    continue  # streams go on; the tests of pages look at each as admin
                answer = await browser.get(path_of(page), Accept=accept)
                assert (answer.status == 403) is not may, (page.name, accept, answer.status)
        for name, form in forms():
            may = operation(name).permission in allowed
            if may and "confirmed" in form:
                form = {key: value for key, value in form.items() if key != "confirmed"}
                if not ACTIONS[name].confirm:
                    continue  # it would act; the tests of actions do
            answer = await browser.post("/act", csrf=csrf, next="/jobs", follow=False, **form)
            assert (answer.status == 403) is not may, (form, answer.status, answer.text[:300])


@pytest.mark.parametrize("role", ["viewer", "reader"])
async def test_who_may_only_look_can_do_nothing(desk: Desk, role: str) -> None:
    async with desk.browser() as browser:
        key_id, csrf = await signed_in(desk, browser, role)
        for _, form in forms():
            assert (await browser.post("/act", csrf=csrf, next="/jobs", **form)).status == 403
        assert await desk.app.audit.list(AuditFilter(by=key_id)) == []
        overview = await browser.get("/jobs")
        assert 'name="do"' not in overview.text  # no buttons either


async def test_strangers_see_and_do_nothing(desk: Desk) -> None:
    async with desk.browser() as browser:
        for page in PAGES:
            async with browser.session.get(
                browser.base + path_of(page), allow_redirects=False
            ) as answer:
                assert (answer.status, answer.headers["Location"][:8]) == (303, "/sign-in"), page
        for _, form in forms():
            assert (await browser.post("/act", csrf="x", next="/jobs", **form)).status in (401, 403)
