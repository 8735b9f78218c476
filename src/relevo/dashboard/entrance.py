"""Signing in and out, and choosing language and theme."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from relevo.dashboard import languages, rendering
from relevo.dashboard.requests import THEMES, html, local_target, redirect
from relevo.dashboard.sessions import SESSION_SECONDS, cookie
from relevo.errors import Forbidden, Unauthenticated
from relevo.kernel.networks import is_loopback

if TYPE_CHECKING:
    from relevo.dashboard.requests import DashboardRequest, Fields
    from relevo.dashboard.sessions import Sessions
    from relevo.http.answers import Answer

PREFERENCE_SECONDS: Final = 365 * 86_400.0


def ask_to_sign_in(request: DashboardRequest) -> Answer:
    """Lead a visitor without a session to the sign-in, and back afterwards."""
    back = "" if request.here == "/" else f"?next={quote(request.here, safe='')}"
    return redirect(f"{request.prefix}/sign-in{back}")


def sign_in_page(sessions: Sessions, request: DashboardRequest) -> Answer:
    """Return the sign-in; a one-time link signs in at once."""
    code = request.query.get("code", [""])[0]
    if not code:
        return _form(request, "")
    if not is_loopback(request.head.client):
        raise Forbidden("sign-in links work on the machine of the host only; use an access key")
    try:
        made = sessions.sign_in_by_link(code)
    except Unauthenticated as error:
        return _form(request, error.message)
    return _signed_in(sessions, request, made, "/")


async def sign_in(sessions: Sessions, request: DashboardRequest, form: Fields) -> Answer:
    """Sign in with an access key, or show the form again."""
    try:
        made = await sessions.sign_in(form.get("key", [""])[0].strip())
    except Unauthenticated:
        return _form(request, request.language("sign_in.refused"))
    return _signed_in(sessions, request, made, form.get("next", ["/"])[0])


def sign_out(sessions: Sessions, request: DashboardRequest) -> Answer:
    """End the session of this browser."""
    gone = cookie(request.head, sessions.cookie, "", path=request.prefix, seconds=0)
    return redirect(f"{request.prefix}/sign-in", gone)


def choose(request: DashboardRequest, form: Fields) -> Answer:
    """Remember the language or theme."""
    chosen = []
    for name, known in (("language", tuple(languages.NAMES)), ("theme", THEMES)):
        value = form.get(name, [""])[0]
        if value in known:
            chosen.append(
                cookie(
                    request.head, f"relevo_{name}", value, path=request.prefix,
                    seconds=PREFERENCE_SECONDS,
                )
            )  # fmt: skip
    return redirect(local_target(request.prefix, form.get("next", ["/"])[0]), *chosen)


def _signed_in(sessions: Sessions, request: DashboardRequest, made: str, back: str) -> Answer:
    kept = cookie(request.head, sessions.cookie, made, path=request.prefix, seconds=SESSION_SECONDS)
    return redirect(local_target(request.prefix, back), kept)


def _form(request: DashboardRequest, problem: str) -> Answer:
    known = request.variables() | {
        "title": request.language("sign_in.title"),
        "problem": problem,
        "next": request.query.get("next", ["/"])[0],
    }
    return html(rendering.page("sign_in.html", known), status=401 if problem else 200)
