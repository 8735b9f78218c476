"""Signing in and out, and choosing language and theme."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from relevo.dashboard import languages, rendering
from relevo.dashboard.requests import THEMES, html, local_target, redirect
from relevo.dashboard.sessions import ISSUER_SESSION_SECONDS, SESSION_SECONDS, cookie
from relevo.errors import Forbidden, Unauthenticated, Unavailable
from relevo.http.request import origin
from relevo.kernel.networks import is_loopback

if TYPE_CHECKING:
    from relevo.dashboard.requests import DashboardRequest, Fields
    from relevo.dashboard.sessions import Sessions
    from relevo.http.answers import Answer

BEGUN_SECONDS: Final = 600.0
"""How long somebody may take to sign in at the issuer."""
PREFERENCE_SECONDS: Final = 365 * 86_400.0


def ask_to_sign_in(request: DashboardRequest) -> Answer:
    """Lead a visitor without a session to the sign-in, and back afterwards."""
    back = "" if request.here == "/" else f"?next={quote(request.here, safe='')}"
    return redirect(f"{request.prefix}/sign-in{back}")


def sign_in_page(sessions: Sessions, request: DashboardRequest) -> Answer:
    """Return the sign-in; a one-time link signs in at once."""
    code = request.query.get("code", [""])[0]
    if not code:
        return _form(sessions, request, "")
    if not is_loopback(request.head.client):
        raise Forbidden("sign-in links work on the machine of the host only; use an access key")
    try:
        made = sessions.sign_in_by_link(code)
    except Unauthenticated as error:
        return _form(sessions, request, error.message)
    return _signed_in(sessions, request, made, "/")


async def sign_in(sessions: Sessions, request: DashboardRequest, form: Fields) -> Answer:
    """Sign in with an access key, or show the form again."""
    try:
        made = await sessions.sign_in(form.get("key", [""])[0].strip())
    except Unauthenticated:
        return _form(sessions, request, request.language("sign_in.refused"))
    return _signed_in(sessions, request, made, form.get("next", ["/"])[0])


async def go_to_issuer(sessions: Sessions, request: DashboardRequest) -> Answer:
    """Lead a visitor to the issuer; a sealed cookie keeps what its answer is held against."""
    target = request.query.get("next", ["/"])[0]
    try:
        address, begun = await sessions.begin_at_issuer(target, _callback(request))
    except Unavailable as error:
        return _form(sessions, request, error.message)
    # The issuer sends the browser back from another site, where strict cookies stay behind.
    kept = cookie(
        request.head, sessions.begun_cookie, begun, path=request.prefix,
        seconds=BEGUN_SECONDS, same_site="Lax",
    )  # fmt: skip
    return redirect(address, kept)


async def come_from_issuer(sessions: Sessions, request: DashboardRequest) -> Answer:
    """Sign in with the issuer's answer, or show why not."""
    fields = {name: values[0] for name, values in request.query.items()}
    if "error" in fields:
        said = fields.get("error_description", fields["error"])[:300]
        return _form(sessions, request, request.language("sign_in.issuer_said", text=said))
    code, state = fields.get("code", ""), fields.get("state", "")
    try:
        made, target = await sessions.end_at_issuer(request.head, code, state, _callback(request))
    except (Unauthenticated, Unavailable) as error:
        return _form(sessions, request, error.message)
    head, path = request.head, request.prefix
    gone = cookie(head, sessions.begun_cookie, "", path=path, seconds=0, same_site="Lax")
    kept = cookie(head, sessions.cookie, made, path=path, seconds=ISSUER_SESSION_SECONDS)
    known = request.variables() | {
        "title": request.language("sign_in.title"), "target": local_target(path, target),
    }  # fmt: skip
    # A redirect would still count as coming from the issuer's site: a page of ours goes on.
    return html(rendering.page("signed_in.html", known), gone, kept)


def _callback(request: DashboardRequest) -> str:
    return f"{origin(request.head)}{request.prefix}/sign-in/callback"


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


def _form(sessions: Sessions, request: DashboardRequest, problem: str) -> Answer:
    known = request.variables() | {
        "title": request.language("sign_in.title"),
        "at_issuer": sessions.at_issuer,
        "problem": problem,
        "next": request.query.get("next", ["/"])[0],
    }
    return html(rendering.page("sign_in.html", known), status=401 if problem else 200)
