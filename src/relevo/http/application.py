"""The ASGI application: bounds, route, authenticate, rate, authorise, decode, handle, encode.

Every failure on the way is an error of `relevo.errors`, rendered by the surface that the path
lies under, also before there is a route.
"""

from __future__ import annotations

import asyncio
import secrets
import time
import traceback
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from relevo import limits
from relevo.errors import (
    Closed,
    InvalidValue,
    MethodNotAllowed,
    NotFound,
    OutcomeUnknown,
    Overloaded,
    RelevoError,
    TooLarge,
    Unauthenticated,
    Unavailable,
)
from relevo.http import streaming
from relevo.http.access.auditing import CALLER_HEADER, HEADER, caller_of, reason_of
from relevo.http.access.authenticator import (
    ANONYMOUS,
    AuthenticatedCaller,
    Authenticator,
    admit,
    call,
)
from relevo.http.access.code_flow import CodeFlow
from relevo.http.access.idempotency import keyed_request, once
from relevo.http.access.oidc import Issuer
from relevo.http.admission import RequestShares, Slot, Throttle
from relevo.http.answers import (
    Answer,
    RequestTimeout,
    UrlTooLong,
    encode,
    public,
    send_answer,
    with_headers,
)
from relevo.http.operations import OPERATIONS, SURFACES
from relevo.http.request import Head, check_host, command_of, head_of
from relevo.http.routes import Routes
from relevo.kernel import cpu, uses
from relevo.kernel.networks import Networks, subscriber
from relevo.kernel.operation import IDEMPOTENCY_KEY, PUBLIC, Operation
from relevo.kernel.telemetry import tracing
from relevo.kernel.telemetry.logs import get_logger

if TYPE_CHECKING:
    from relevo.audit.service import CallerKind
    from relevo.http.answers import Surface, Surfaces
    from relevo.http.services import Services
    from relevo.settings import Settings

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

KEY_HEADER: Final = IDEMPOTENCY_KEY.lower().encode()
TRACEPARENT: Final = tracing.TRACEPARENT.encode()

_log = get_logger(__name__)


class RequestBounds(Struct, frozen=True, kw_only=True):
    """The load that a host accepts; sizes in bytes."""

    url_bytes: int = limits.URL_BYTES_MAX
    body_bytes: int = limits.BODY_BYTES_MAX
    in_flight: int = limits.REQUESTS_IN_FLIGHT_MAX
    long_polls: int = limits.LONG_POLLS_MAX
    streams: int = limits.STREAMS_MAX
    request_seconds: float = limits.REQUEST_SECONDS_MAX
    requests_per_second: float = limits.REQUESTS_PER_SECOND_PER_KEY
    burst: float = limits.REQUEST_BURST_PER_KEY

    @classmethod
    def of(cls, settings: Settings) -> RequestBounds:
        """Return the bounds that the settings ask for; a burst is two seconds' worth."""
        rate = settings.requests_per_second
        return cls(requests_per_second=rate, burst=2 * rate)


class _Exchange:
    """A request under way, with everything needed to answer it in any case."""

    def __init__(self, head: Head, surface: Surface, receive: Receive) -> None:
        self.head = head
        self.surface = surface
        self.receive = receive
        self.request_id = secrets.token_hex(8)
        self.operation = "none"
        self.route: str | None = None
        self.caller: CallerKind | None = None
        self.slot = Slot()
        self.begun = False
        """Whether a handler was called: from then on effects are possible."""

    def unfinished(self, not_begun: RelevoError) -> RelevoError:
        """Return the error for a caller whose request is broken off."""
        if not self.begun:
            return not_begun
        if self.head.method in ("GET", "HEAD"):
            return Unavailable("broken off while reading")
        return OutcomeUnknown("broken off while the handler ran")


class HttpApi:
    """Serves a table of operations over HTTP.

    >>> async with open_services(app) as services:  # doctest: +SKIP
    ...     async with serving(HttpApi(services), "127.0.0.1", 8080) as address:
    ...         print(address.url)
    """

    def __init__(
        self,
        services: Services,
        *,
        operations: tuple[Operation, ...] = OPERATIONS,
        surfaces: Surfaces = SURFACES,
        bounds: RequestBounds | None = None,
    ) -> None:
        settings = services.app.settings
        self._services = services
        self._routes = Routes(operations)
        self._surfaces = surfaces
        self._bounds = bounds or RequestBounds.of(settings)
        self._throttle = Throttle(self._bounds.requests_per_second, self._bounds.burst)
        self._authenticator = authenticator_of(services)
        self._seconds = services.app.metrics.http_request_seconds
        self._trusted = Networks.parse("trusted_proxies", settings.trusted_proxies)
        self._requests = RequestShares("requests in flight", self._bounds.in_flight)
        self._long_polls = RequestShares("requests that wait", self._bounds.long_polls)
        self._streams = RequestShares("streams", self._bounds.streams)
        self._stopping = asyncio.Event()

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request (ASGI)."""
        if scope["type"] != "http":
            return
        started = time.perf_counter()
        head = head_of(scope, self._trusted)
        exchange = _Exchange(head, self._surfaces.of(head), receive)
        try:
            with tracing.serving(head.method, head.values(TRACEPARENT)) as span:
                answer = await self._answer(exchange)
                told = (head.method, exchange.route, exchange.operation, answer.status)
                tracing.show_request(span, *told)
        except asyncio.CancelledError:
            exchange.slot.leave()
            await send_answer(
                send, head, self._refusal(exchange, exchange.unfinished(Closed("stopped")))
            )
            raise
        seconds = time.perf_counter() - started
        self._seconds.labels(exchange.operation, str(answer.status)).observe(seconds)
        if answer.chunks is None:
            exchange.slot.leave()  # a peer that reads slowly holds none
            await send_answer(send, head, answer)
            return
        try:
            await streaming.send_stream(send, receive, answer, self._stopping)
        finally:
            exchange.slot.leave()

    def stop(self) -> None:
        """End streams and long polls, which would otherwise delay the stop."""
        self._stopping.set()

    def refuse(self, target: bytes, error: RelevoError) -> Answer:
        """Return the answer to a request whose head could not be read."""
        head = head_of(
            {"method": "", "raw_path": target.partition(b"?")[0], "path": "", "headers": ()}
        )
        return self._refusal(_Exchange(head, self._surfaces.of(head), _nothing), error)

    async def _answer(self, exchange: _Exchange) -> Answer:
        try:
            async with asyncio.timeout(self._bounds.request_seconds) as timeout:
                answer = await self._handle(exchange)
        except TimeoutError as error:
            late = RequestTimeout("the request did not arrive completely in time; send it again")
            return self._refusal(
                exchange, exchange.unfinished(late) if timeout.expired() else error
            )
        except Exception as error:
            return self._refusal(exchange, error)
        return with_headers(answer, exchange.surface.headers(exchange.head, exchange.request_id))

    async def _handle(self, exchange: _Exchange) -> Answer:
        head = exchange.head
        check_host(head)
        self._check_size(head, exchange.surface)
        if head.method == "OPTIONS":
            return self._options(head)
        match = self._routes.find(head.method, head.segments)
        operation = match.operation
        exchange.operation, exchange.route = operation.name, operation.path
        caller = await self._admit(operation, exchange)
        exchange.surface.check(head)
        body = await self._body(head, exchange)
        if caller.check_body is not None:
            caller.check_body(body)
        strict = exchange.surface.strict
        made = partial(command_of, operation, match.parameters, head, body, strict=strict)
        command = await cpu.decoded(len(body), made)
        uses.begin("requests", caller.principal.id)
        exchange.begun = True

        async def run() -> Answer:
            response = await self._call(exchange, operation, caller, command)
            return encode(operation, exchange.surface, head, response)

        if not operation.takes_key or not (keys := head.values(KEY_HEADER)):
            return await run()
        await admit(operation, self._services, caller.principal, exchange.caller, command)
        request = keyed_request(operation, caller.principal, keys, head.target, body)
        return await once(
            self._services, request, run, lambda e: exchange.surface.render(e, exchange.request_id)
        )

    async def _call(
        self, exchange: _Exchange, operation: Operation, caller: AuthenticatedCaller, command: Any
    ) -> Any:
        """Run the handler in a slot of its kind: long polls and streams have their own."""
        principal = caller.principal
        streams = operation.stream is not None and streaming.wanted(exchange.head)
        reason = reason_of(exchange.head.values(HEADER))
        handling = call(
            operation, self._services, principal, command, stream=streams, reason=reason,
            caller=exchange.caller,
        )  # fmt: skip
        waits = operation.wait is not None and getattr(command, operation.wait) > 0
        if not streams and not waits:
            return await handling
        try:
            kind = self._streams if streams else self._long_polls
            exchange.slot.take(kind, principal.id or _peer(exchange.head))
        except RelevoError:
            handling.close()
            raise
        return await (handling if streams else self._while_connected(exchange, handling))

    async def _while_connected(
        self, exchange: _Exchange, handling: Coroutine[Any, Any, Any]
    ) -> Any:
        """Run a handler as long as its client is there and the host is not about to stop."""
        handler, left, stopping = ends = [
            asyncio.ensure_future(each)
            for each in (handling, streaming.left(exchange.receive), self._stopping.wait())
        ]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if handler.done():
                return handler.result()
            if left.done():
                raise RequestTimeout("the client has disconnected")
            assert stopping.done()
            raise Closed("the host is stopping; send the request to another host, or later")
        finally:
            for each in ends:
                each.cancel()
            await asyncio.gather(*ends, return_exceptions=True)

    def _check_size(self, head: Head, surface: Surface) -> None:
        most = surface.url_bytes or self._bounds.url_bytes
        if len(head.target) > most:
            raise UrlTooLong(f"the URL has {len(head.target)} bytes; at most {most} are taken")
        declared = head.value(b"content-length") or b"0"
        if not declared.isdigit():
            raise InvalidValue("Content-Length is not a number", pointer="Content-Length")
        if len(declared) > 18 or int(declared) > self._body_bytes(surface):
            raise _too_large(self._body_bytes(surface))

    def _body_bytes(self, surface: Surface) -> int:
        return surface.body_bytes or self._bounds.body_bytes

    def _options(self, head: Head) -> Answer:
        allowed = self._routes.allowed(head.segments)
        if not allowed:
            raise NotFound("there is no resource at this path; /openapi.json lists all paths")
        return Answer(204, ((b"allow", ", ".join(allowed).encode()),), b"")

    async def _admit(self, operation: Operation, exchange: _Exchange) -> AuthenticatedCaller:
        """Authenticate and authorise, in a slot: first of the address, then of the key."""
        head = exchange.head
        if not operation.in_overload:
            if head.crowded is not None:
                raise Overloaded(head.crowded)
            exchange.slot.take(self._requests, _peer(head))
        if operation.permission == PUBLIC:
            return AuthenticatedCaller(ANONYMOUS)
        caller = await self._authenticator.authenticate(head)
        self._throttle.take(caller.principal.id)
        exchange.caller = caller_of(head.values(CALLER_HEADER))
        path = head.target.partition(b"?")[0].decode("ascii", "replace")
        await admit(operation, self._services, caller.principal, exchange.caller, path=path)
        if not operation.in_overload:
            exchange.slot.take(self._requests, caller.principal.id)
        return caller

    async def _body(self, head: Head, exchange: _Exchange) -> bytes:
        lengths = head.values(b"content-length")
        if not head.values(b"transfer-encoding") and all(length == b"0" for length in lengths):
            return b""
        most, receive = self._body_bytes(exchange.surface), exchange.receive
        chunks: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise RequestTimeout("the connection was closed before the body was complete")
            chunk: bytes = message.get("body", b"")
            size += len(chunk)
            if size > most:
                raise _too_large(most)
            chunks.append(chunk)
            if not message.get("more_body", False):
                return b"".join(chunks)

    def _refusal(self, exchange: _Exchange, error: Exception) -> Answer:
        """Render an error, and keep its own words in the log if they are not for the caller."""
        shown = public(error)
        # Overload is counted, not written down line by line: that would be more of it.
        if shown.fault == "system" and not isinstance(shown, Overloaded | Closed):
            _report(exchange, shown, error)
        surface = exchange.surface
        extra = surface.headers(exchange.head, exchange.request_id)
        if isinstance(shown, Unauthenticated):
            extra = (*extra, (b"www-authenticate", surface.challenge))
        if isinstance(shown, MethodNotAllowed):
            allowed = ", ".join(self._routes.allowed(exchange.head.segments))
            extra = (*extra, (b"allow", allowed.encode()))
        return with_headers(surface.render(shown, exchange.request_id), extra)


def _peer(head: Head) -> str:
    """Return the holder of an unauthenticated caller's slots; ids of keys have no space."""
    return f"peer {subscriber(head.client)}"


def _too_large(most: int) -> TooLarge:
    return TooLarge(f"the body has more than {most} bytes; send less at once")


def authenticator_of(services: Services) -> Authenticator:
    """Return the authenticator of requests, as the settings ask for it."""
    settings = services.app.settings
    issuer = flow = None
    if settings.oidc_issuer is not None:
        client, claim = services.app.router.client, settings.oidc_roles_claim
        issuer = Issuer(client, settings.oidc_issuer, settings.oidc_audience, claim)
        if settings.oidc_client_id is not None:
            flow = CodeFlow(issuer, client, settings.oidc_client_id, settings.oidc_client_secret)
    return Authenticator(
        services.keys.ring,
        public_hosts=settings.public_hosts,
        skew_seconds=settings.signature_skew,
        issuer=issuer,
        flow=flow,
    )


def _report(exchange: _Exchange, shown: RelevoError, error: Exception) -> None:
    """Log a system fault: neither headers nor query nor body, for these hold secrets."""
    known = isinstance(error, Unavailable | OutcomeUnknown)
    # Formatted here and without local variables: a pretty logger would print those, keys included.
    trace = None if known else "".join(traceback.format_exception(error))
    _log.log(
        30 if known else 40,
        "request_failed",
        request_id=exchange.request_id,
        operation=exchange.operation,
        code=shown.code,
        reason=str(error),
        **({"exception": trace} if trace else {}),
    )


async def _nothing() -> Message:
    return {"type": "http.disconnect"}
