"""The dashboard as an ASGI application: routes, sign-in, pages, forms, live parts."""

from __future__ import annotations

import asyncio
import functools
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import structlog
from msgspec import Struct
from msgspec.structs import replace

from relevo import limits
from relevo.dashboard import entrance, rendering, static_files
from relevo.dashboard.actions import act
from relevo.dashboard.live import Rendered, Samplers
from relevo.dashboard.page import Page, Visit, allowed
from relevo.dashboard.pages import ACTIONS, PAGES
from relevo.dashboard.requests import (
    NOTICE,
    DashboardRequest,
    fields_of,
    form_of,
    html,
    language_of,
    theme_of,
)
from relevo.dashboard.sessions import Sessions, check_csrf, check_origin, cookie, cookies_of
from relevo.dashboard.snippets import snippets
from relevo.errors import Forbidden, RelevoError, Unavailable
from relevo.http import streaming
from relevo.http.access.authenticator import authorise
from relevo.http.admission import RequestShares, Slot, Throttle
from relevo.http.answers import Answer, detail, public, send_answer, with_headers
from relevo.http.application import authenticator_of
from relevo.http.operations import operation
from relevo.http.request import check_host, head_of, origin, split_path
from relevo.http.routes import Routes
from relevo.http.services import Services, open_services
from relevo.kernel import uses
from relevo.kernel.networks import Networks, subscriber
from relevo.kernel.operation import Stream
from relevo.kernel.part import Part

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from relevo.app import App
    from relevo.http.request import Head
    from relevo.http.streaming import Message, Receive, Send

_log = structlog.get_logger(__name__)
HEADERS: Final = (
    (
        b"content-security-policy",
        b"default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none';"
        b" object-src 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"vary", b"cookie, accept-language"),
)
NOT_KEPT: Final = (b"cache-control", b"no-store")


class _Route(Struct, frozen=True):
    """A path that is no page."""

    name: str
    method: str
    path: str
    parameters: tuple[str, ...] = ()


_OTHERS: Final = (
    _Route("sign-in", "GET", "/sign-in"),
    _Route("sign-in", "POST", "/sign-in"),
    _Route("issuer", "GET", "/sign-in/issuer"),
    _Route("callback", "GET", "/sign-in/callback"),
    _Route("sign-out", "POST", "/sign-out"),
    _Route("preferences", "POST", "/preferences"),
    _Route("act", "POST", "/act"),
    _Route("assets", "GET", "/assets/{version}/{name}", ("version", "name")),
)
SEGMENTS: Final = frozenset(
    split_path(path.encode())[0]
    for path in (*(page.path for page in PAGES), *(route.path for route in _OTHERS))
)
"""The first segments of the dashboard's paths."""


class _Opened(Struct, frozen=True):
    services: Services
    sessions: Sessions


class _DashboardPart(Part["Dashboard"]):
    """Closes the dashboard when its app disconnects."""

    async def close(self) -> None:
        await self.service.close()


class Dashboard:
    """The pages of an app, for a web server of your own.

    >>> Mount("/relevo", Dashboard(app))  # doctest: +SKIP

    The app must be connected while it serves. `prefix` is the path that it is mounted at, where the
    web framework does not say it in `root_path`.
    """

    def __init__(
        self,
        app: App,
        *,
        prefix: str = "",
        services: Services | None = None,
        samplers: Samplers | None = None,
    ) -> None:
        self._app = app
        self._prefix = prefix.rstrip("/")
        self._given = services
        self._opening = asyncio.Lock()
        self._opened: _Opened | None = None
        self._closing: AbstractAsyncContextManager[Services] | None = None
        self._routes: Routes[Page | _Route] = Routes([*PAGES, *_OTHERS])
        self._samplers = samplers or Samplers()
        self._trusted = Networks.parse("trusted_proxies", app.settings.trusted_proxies)
        self._requests = RequestShares("pages", limits.DASHBOARD_REQUESTS_MAX)
        self._streams = RequestShares("live pages", limits.DASHBOARD_STREAMS_MAX)
        self._tries = Throttle(limits.SIGN_INS_PER_SECOND, limits.SIGN_IN_BURST)
        self._stopping = asyncio.Event()
        app.parts.add(_DashboardPart(self))

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request (ASGI)."""
        if scope["type"] != "http":
            return
        prefix = scope.get("root_path", "").rstrip("/") or self._prefix
        head = _below(head_of(scope, self._trusted), prefix)
        slot = Slot()
        try:
            answer = await self._answer(head, prefix, receive, slot)
            answer = with_headers(answer, HEADERS)
            if not any(name == b"cache-control" for name, _ in answer.headers):
                answer = with_headers(answer, (NOT_KEPT,))
            if answer.chunks is None:
                await send_answer(send, head, answer)
            else:
                await streaming.send_stream(send, receive, answer, self._stopping)
        finally:
            slot.leave()

    def stop(self) -> None:
        """End live pages, which would otherwise delay the stop."""
        self._stopping.set()

    @property
    def open_pages(self) -> int:
        """How many live pages are rendered; viewers who may do the same share one."""
        return len(self._samplers)

    async def link_code(self) -> str:
        """Return a code for `/sign-in?code=`, which signs in once as the local administrator."""
        return (await self._open()).sessions.link_code()

    async def close(self) -> None:
        """Finish the look-ups of keys."""
        self.stop()
        if self._closing is not None:
            await self._closing.__aexit__(None, None, None)
            self._closing = self._opened = None

    async def _open(self) -> _Opened:
        async with self._opening:
            if self._opened is None:
                services = self._given
                if services is None:
                    self._closing = open_services(self._app)
                    services = await self._closing.__aenter__()
                sessions = Sessions(
                    await self._app.vault.key(), authenticator_of(services),
                    roles_claim=self._app.settings.oidc_roles_claim,
                )  # fmt: skip
                self._opened = _Opened(services, sessions)
            return self._opened

    async def _answer(self, head: Head, prefix: str, receive: Receive, slot: Slot) -> Answer:
        request = DashboardRequest(
            head=head, path="/" + "/".join(head.segments), prefix=prefix, parameters={}, query={},
            language=language_of(head), theme=theme_of(head), session=None, principal=None,
        )  # fmt: skip
        try:
            slot.take(self._requests, f"peer {subscriber(head.client)}")
            async with asyncio.timeout(limits.REQUEST_SECONDS_MAX):
                return await self._route(request, receive, slot)
        except TimeoutError:
            return _error_page(request, Unavailable("took too long"))
        except RelevoError as error:
            if error.fault == "system":
                _log.warning("page_failed", path=request.path, reason=str(error))
            return _error_page(request, error)
        except Exception as error:
            _log.exception("page_failed", path=request.path)
            return _error_page(request, public(error))

    async def _route(self, request: DashboardRequest, receive: Receive, slot: Slot) -> Answer:
        head = request.head
        check_host(head)
        match = self._routes.find(head.method, head.segments)
        route = match.operation
        if route.name == "assets":
            return static_files.answer(match.parameters["version"], match.parameters["name"])
        opened = await self._open()
        uses.begin("requests", f"dashboard {subscriber(head.client)}")
        request = _with(request, parameters=match.parameters, query=fields_of(head.query))
        found = await opened.sessions.of(head)
        if found is not None:
            request = _with(request, session=found[0], principal=found[1])
        if isinstance(route, Page):
            return await self._page(opened, route, request, slot)
        if route.name == "issuer":
            return await entrance.go_to_issuer(opened.sessions, request)
        if route.name == "callback":
            self._tries.take(subscriber(head.client))
            return await entrance.come_from_issuer(opened.sessions, request)
        if head.method == "GET":
            return entrance.sign_in_page(opened.sessions, request)
        check_origin(head)
        form = await form_of(head, receive)
        match route.name:
            case "sign-in":
                self._tries.take(subscriber(head.client))
                return await entrance.sign_in(opened.sessions, request, form)
            case "preferences":
                return entrance.choose(request, form)
            case "sign-out":
                _check_form(request, form)
                return entrance.sign_out(opened.sessions, request)
            case _:
                _check_form(request, form)
                return await act(opened.services, request, form, ACTIONS, _variables(request))

    async def _page(
        self, opened: _Opened, page: Page, request: DashboardRequest, slot: Slot
    ) -> Answer:
        if request.principal is None:
            return entrance.ask_to_sign_in(request)
        authorise(request.principal, operation(page.operation))
        visit = Visit(
            opened.services, request.principal, page=page, parameters=request.parameters,
            query=request.query, language=request.language, prefix=request.prefix,
        )  # fmt: skip
        if page.live and streaming.wanted(request.head):
            slot.take(self._streams, request.principal.id)
            render = functools.partial(_live, visit, request)
            events = self._samplers.follow(_shared_by(page, request), render)
            return Answer(200, streaming.HEADERS, b"", streaming.chunks(Stream(events)))
        data = await page.load(visit)
        if isinstance(data, Answer):
            return data
        variables = _page_variables(visit, request) | data
        notice = cookies_of(request.head).get(NOTICE)
        if notice is None:
            return html(rendering.page(_template(page), variables))
        variables["notice"] = unquote(notice)[: limits.NOTICE_LENGTH_MAX]
        gone = cookie(request.head, NOTICE, "", path=request.prefix, seconds=0)
        return html(rendering.page(_template(page), variables), gone)


def _shared_by(page: Page, request: DashboardRequest) -> str:
    """Return what viewers of the same live parts have in common.

    That are the page with its fields, the language and the permissions, but not the key: ten
    viewers with ten keys of one role cost as much as one. Rows of a user are the user's alone.
    """
    principal = request.principal
    assert principal is not None
    who = sorted(principal.permissions), principal.scopes, principal.disabled
    reach = sorted(principal.reach.items())
    owner = (principal.id, principal.user) if reach else None
    where = page.name, request.here, request.language.code, request.prefix, origin(request.head)
    return repr((where, who, reach, owner))


async def _live(visit: Visit, request: DashboardRequest) -> Rendered:
    visit.calls.clear()
    with uses.used_for("queries"), uses.counted() as taken:
        data = await visit.page.load(visit)
    assert not isinstance(data, Answer), "live pages have no files"
    variables = _page_variables(visit, request) | data
    variables["csrf"] = ""  # parts are shared by sessions
    parts = rendering.live_parts(_template(visit.page), variables)
    return Rendered(parts, taken.number)


def _page_variables(visit: Visit, request: DashboardRequest) -> dict[str, Any]:
    base = origin(request.head)
    return _variables(request) | {
        "visit": visit,
        "page": visit.page,
        "title": request.language(f"{visit.page.name}.title"),
        "snippets": [snippets(each, base) for each in visit.calls],
    }


def _variables(request: DashboardRequest) -> dict[str, Any]:
    """Return what every page behind the sign-in knows: the navigation, and what may be done."""
    assert request.principal is not None
    principal = request.principal
    groups: dict[str, list[Page]] = {}
    for page in PAGES:
        if page.group is not None and allowed(principal, page.operation):
            groups.setdefault(page.group, []).append(page)
    return request.variables() | {
        "navigation": groups,
        "paths": {page.path for pages in groups.values() for page in pages},
        "actions": {name: each for name, each in ACTIONS.items() if allowed(principal, name)},
        "page": None,
        "snippets": [],
    }


def _template(page: Page) -> str:
    return page.template or f"{page.area}/{page.name.rpartition('.')[2]}.html"


def _with(request: DashboardRequest, **changes: Any) -> DashboardRequest:
    return replace(request, **changes)


def _below(head: Head, prefix: str) -> Head:
    """Return a request as if the dashboard were at the root."""
    above = tuple(prefix.split("/")[1:]) if prefix else ()
    if above and head.segments[: len(above)] == above:
        rest = head.segments[len(above) :]
        return replace(head, segments=rest or ("",))
    return head


def _check_form(request: DashboardRequest, form: dict[str, list[str]]) -> None:
    if request.session is None:
        raise Forbidden("your session has ended; sign in and repeat")
    check_csrf(request.session, form.get("csrf", [""])[0])


def _error_page(request: DashboardRequest, error: RelevoError) -> Answer:
    text = request.language
    known = request.variables() | {
        "title": text.known(f"errors.{error.code}", text("errors.title")),
        "status": error.status,
        "code": error.code,
        "message": detail(error),
    }
    return html(rendering.page("error.html", known), status=error.status)


class ApiAndDashboard:
    """The API, and the dashboard on the paths that the API does not have."""

    def __init__(self, api: Any, dashboard: Dashboard) -> None:
        self._api = api
        self._dashboard = dashboard

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request (ASGI)."""
        raw: bytes = scope.get("raw_path") or scope.get("path", "").encode()
        segments = split_path(raw)
        mine = bool(segments) and segments[0] in SEGMENTS
        await (self._dashboard if mine else self._api)(scope, receive, send)

    def stop(self) -> None:
        """End streams and long polls."""
        self._dashboard.stop()
        self._api.stop()

    def refuse(self, target: bytes, error: RelevoError) -> Answer:
        """Return the answer to a request whose head could not be read."""
        answer: Answer = self._api.refuse(target, error)
        return answer
