"""`POST /act`: runs an operation for each selected thing, after a preview where one is declared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from relevo import limits
from relevo.dashboard import rendering
from relevo.dashboard.page import command_of
from relevo.dashboard.requests import NOTICE, html, local_target, redirect
from relevo.dashboard.sessions import cookie
from relevo.dashboard.snippets import snippets
from relevo.errors import InvalidValue, RelevoError
from relevo.http.access.authenticator import authorise, call
from relevo.http.answers import detail
from relevo.http.operations import operation
from relevo.http.request import origin

if TYPE_CHECKING:
    from collections.abc import Mapping

    from relevo.dashboard.page import Action, Call
    from relevo.dashboard.requests import DashboardRequest, Fields
    from relevo.http.answers import Answer
    from relevo.http.services import Services

_OWN: tuple[str, ...] = ("csrf", "do", "next", "selected", "confirmed")


async def act(
    services: Services,
    request: DashboardRequest,
    form: Fields,
    actions: Mapping[str, Action],
    known: Mapping[str, Any],
) -> Answer:
    """Run the action of a form and come back with what has become of it.

    `do` names the operation, or operation and thing as `jobs.retry 0192…`; `selected` the things.
    All other fields are fields of the operation.
    """
    assert request.principal is not None
    name, _, thing = form.get("do", [""])[0].partition(" ")
    action = actions.get(name)
    if action is None:
        raise InvalidValue(f"{name!r} is no action of the dashboard")
    things = [thing] if thing else form.get("selected", [])
    back = local_target(request.prefix, form.get("next", ["/"])[0])
    if not things:
        return _back(request, back, request.language("actions.nothing_selected"))
    if len(things) > limits.SELECTED_MAX:
        raise InvalidValue(f"select at most {limits.SELECTED_MAX}, not {len(things)}")
    authorise(request.principal, operation(name))
    fields = {key: values[0] for key, values in form.items() if key not in _OWN}
    calls = [command_of(operation(name), {**fields, action.key: each}) for each in things]
    if action.confirm and "confirmed" not in form:
        return _preview(request, action, form, calls, things, known)
    return _back(request, back, await _run_all(services, request, action, calls))


async def _run_all(
    services: Services, request: DashboardRequest, action: Action, calls: list[Call]
) -> str:
    assert request.principal is not None
    done, refused = 0, list[str]()
    for each in calls:
        try:
            await call(each.operation, services, request.principal, each.command)
            done += 1
        except RelevoError as error:
            refused.append(detail(error))
    text = request.language
    label = text(f"actions.{action.operation}")
    said = text("actions.done", action=label, count=done)
    if refused:
        said += " " + text("actions.refused", count=len(refused), reason=refused[0])
    return said


def _preview(
    request: DashboardRequest,
    action: Action,
    form: Fields,
    calls: list[Call],
    things: list[str],
    known: Mapping[str, Any],
) -> Answer:
    text = request.language
    kept = [(name, value) for name, values in form.items() for value in values if name != "csrf"]
    variables = dict(known) | {
        "title": text(f"actions.{action.operation}"),
        "action": action,
        "things": things,
        "kept": kept,
        "back": local_target(request.prefix, form.get("next", ["/"])[0]),
        "snippets": [snippets(each, origin(request.head)) for each in calls[:1]],
    }
    return html(rendering.page("confirm.html", variables))


def _back(request: DashboardRequest, target: str, notice: str) -> Answer:
    text = quote(notice[: limits.NOTICE_LENGTH_MAX])
    return redirect(target, cookie(request.head, NOTICE, text, path=request.prefix, seconds=60))
