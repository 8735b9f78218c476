"""`POST /act`: runs an operation for each selected thing, after a preview where one is declared."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote

import msgspec
from msgspec import Struct

from relevo import limits
from relevo.dashboard import rendering
from relevo.dashboard.page import command_of
from relevo.dashboard.requests import NOTICE, fields_of, html, local_target, redirect
from relevo.dashboard.sessions import cookie
from relevo.dashboard.snippets import snippets
from relevo.errors import InvalidJson, InvalidValue, RelevoError
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

AT_ONCE: Final = 50
"""Calls under way at the same time; concurrent ones share a transaction."""
_OWN: Final = ("csrf", "do", "next", "selected", "confirmed", "matching", "typed")


class _Outcome(Struct):
    done: int = 0
    refused: list[str] = []
    untold: int = 0
    """Further refusals, whose reasons are not known."""
    left: bool = False
    """Whether time ran out before all was done."""
    last: Any = None


async def act(
    services: Services,
    request: DashboardRequest,
    form: Fields,
    actions: Mapping[str, Action],
    known: Mapping[str, Any],
) -> Answer:
    """Run the action of a form and come back with what has become of it.

    `do` names the operation, or operation and thing as `jobs.retry 0192…`; `selected` the things,
    or `matching` a query that finds them, whose number has to be `typed`. All other fields are
    fields of the operation: as text, `json.<name>` as JSON, `in.<name>` as seconds from now,
    `list.<name>` as one of several values, `body.<name>` as the bytes of a body.
    """
    assert request.principal is not None
    name, _, thing = form.get("do", [""])[0].partition(" ")
    action = actions.get(name)
    if action is None:
        raise InvalidValue(f"{name!r} is no action of the dashboard")
    authorise(request.principal, operation(name))
    back = local_target(request.prefix, form.get("next", ["/"])[0])
    if "matching" in form:
        return await _act_on_all(services, request, form, action, back)
    things = [thing] if thing else form.get("selected", [])
    if action.key and not things:
        return _back(request, back, request.language("actions.nothing_selected"))
    if len(things) > limits.SELECTED_MAX:
        raise InvalidValue(f"select at most {limits.SELECTED_MAX}, not {len(things)}")
    fields = await _fields(services, form)
    _check_fields(name, fields)
    calls = [
        command_of(operation(name), {**fields, **key_fields(action.key, each)})
        for each in (things if action.key else [""])
    ]
    asks = action.confirm or (action.among is not None and not thing)
    if asks and "confirmed" not in form:
        return _preview(request, action, form, calls, things, known)
    outcome = await _run_all(services, request, calls)
    if action.secret and outcome.done:
        return _shown_once(request, action, outcome, back, known)
    if action.then and not outcome.refused:
        found = {} if outcome.last is None else msgspec.to_builtins(outcome.last)
        back = request.prefix + action.then.format_map(found)
    return _back(request, back, _said(request, action, outcome))


def key_fields(key: str, thing: str) -> dict[str, str]:
    """Return the fields that name a thing.

    >>> key_fields("kind/unit", "feed/a%2Fb"), key_fields("", "")
    ({'kind': 'feed', 'unit': 'a/b'}, {})
    """
    names = key.split("/") if key else []
    values = [unquote(value) for value in thing.split("/")] if key else []
    if len(names) != len(values):
        raise InvalidValue(f"{thing[:100]!r} does not name one thing by its {key}")
    return dict(zip(names, values, strict=True))


async def _act_on_all(
    services: Services, request: DashboardRequest, form: Fields, action: Action, back: str
) -> Answer:
    """Run an action on all that a page's query finds, if their number is typed."""
    principal = request.principal
    assert principal is not None
    if action.among is None:
        raise InvalidValue(f"{action.operation} cannot be run on all that match; select some")
    whole = operation(action.among)
    known = {field.encode_name for field in msgspec.structs.fields(whole.request)}
    wanted = fields_of(form["matching"][0].encode("ascii", "replace"))
    fields: dict[str, Any] = await _fields(services, form)
    _check_fields(action.among, fields)
    fields |= {
        name: values if name == "status" else values[0]
        for name, values in wanted.items()
        if name in known and name not in ("cursor", "most", "dry_run")
    }
    seen = await call(
        whole, services, principal, command_of(whole, {**fields, "dry_run": True}).command
    )
    if form.get("typed", [""])[0] != str(seen.matched):
        return _back(request, back, request.language("actions.typed_wrong", count=seen.matched))
    outcome, cursor = _Outcome(), None
    give_up = time.monotonic() + limits.MATCHING_SECONDS_MAX
    while True:
        made = command_of(whole, {**fields, "cursor": cursor})
        page = await call(whole, services, principal, made.command)
        outcome.done += page.done
        outcome.refused += page.refusals.values()
        outcome.untold += page.refused - len(page.refusals)
        cursor = page.next
        outcome.left = cursor is not None
        if cursor is None or time.monotonic() > give_up:
            return _back(request, back, _said(request, action, outcome))


async def _fields(services: Services, form: Fields) -> dict[str, Any]:
    """Return the fields of the operation that a form brings."""
    found: dict[str, Any] = {}
    for name, values in form.items():
        if name in _OWN or not values[0].strip():
            continue
        kind, _, field = name.rpartition(".")
        match kind:
            case "json":
                try:
                    found[field] = msgspec.json.decode(values[0])
                except (msgspec.DecodeError, RecursionError) as error:
                    raise InvalidJson(f"{field} is not JSON: {error}") from None
            case "body":
                found[field] = values[0].encode()
            case "list":
                found[field] = [value for value in values if value.strip()]
            case "in":
                if not (values[0].isascii() and values[0].isdecimal()) or len(values[0]) > 9:
                    raise InvalidValue(f"{values[0][:20]!r} is not a number of seconds")
                found[field] = await services.app.now() + timedelta(seconds=int(values[0]))
            case _:
                found[field] = values[0]
    return found


def _check_fields(name: str, fields: Mapping[str, Any]) -> None:
    """Refuse a form with fields that its operation does not have; no page sends one."""
    known = {field.encode_name for field in msgspec.structs.fields(operation(name).request)}
    for field in fields:
        if field not in known:
            raise InvalidValue(f"{name} has no field {field[:100]!r}")


async def _run_all(services: Services, request: DashboardRequest, calls: list[Call]) -> _Outcome:
    principal = request.principal
    assert principal is not None
    outcome = _Outcome()

    async def run(each: Call) -> None:
        try:
            outcome.last = await call(each.operation, services, principal, each.command)
            outcome.done += 1
        except RelevoError as error:
            outcome.refused.append(detail(error))

    for at in range(0, len(calls), AT_ONCE):
        await asyncio.gather(*(run(each) for each in calls[at : at + AT_ONCE]))
    return outcome


def _said(request: DashboardRequest, action: Action, outcome: _Outcome) -> str:
    text = request.language
    label = text(f"actions.{action.operation}")
    said = text("actions.done", action=label, count=outcome.done)
    if outcome.refused:
        count = len(outcome.refused) + outcome.untold
        said += f" {text('actions.refused', count=count, reason=outcome.refused[0])}"
    if outcome.left:
        said += f" {text('actions.left')}"
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


def _shown_once(
    request: DashboardRequest,
    action: Action,
    outcome: _Outcome,
    back: str,
    known: Mapping[str, Any],
) -> Answer:
    """Return the page with a secret; it is neither in a cookie nor in a URL."""
    said = _said(request, action, outcome)
    title = request.language(f"actions.{action.operation}")
    variables = dict(known) | {
        "title": title, "notice": said, "secret": outcome.last.secret, "back": back,
    }  # fmt: skip
    return html(rendering.page("secret.html", variables))


def _back(request: DashboardRequest, target: str, notice: str) -> Answer:
    text = quote(notice[: limits.NOTICE_LENGTH_MAX])
    return redirect(target, cookie(request.head, NOTICE, text, path=request.prefix, seconds=60))
