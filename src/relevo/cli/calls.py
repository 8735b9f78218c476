"""Calls operations: in this process on the database, or over HTTP on a host.

Both take the same values and return the same bytes, so commands do not depend on the way.
"""

from __future__ import annotations

import secrets
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol, get_origin
from urllib.parse import quote

import msgspec
from msgspec import Struct

from relevo import limits
from relevo.app import App
from relevo.cli.generic.values import worded
from relevo.errors import (
    CallerError,
    InternalError,
    InvalidValue,
    NotFound,
    OutcomeUnknown,
    RelevoError,
    SettingsError,
    Unauthenticated,
    Unavailable,
)
from relevo.http.access.authenticator import LOCAL_ADMIN, call
from relevo.http.access.keys import Keys
from relevo.http.answers import Problem
from relevo.http.request import takes_raw
from relevo.http.services import Services, open_services
from relevo.http.tls import client_tls
from relevo.kernel.decoding import converted
from relevo.kernel.operation import Text, encoded
from relevo.kernel.sealing import MasterKey
from relevo.router.http import surface as routing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    import aiohttp

    from relevo.cli.session import Session
    from relevo.kernel.operation import Operation
    from relevo.settings import Settings

ABOUT_ONE_HOST: Final = frozenset(
    {"system.livez", "system.readyz", "system.health", "system.metrics"}
)
"""Operations that only a running host can answer; they always go over HTTP."""
_ANSWER_BYTES_SHOWN: Final = 200


class OperationReply(Struct, frozen=True):
    """The answer of an operation; `body` is JSON unless the operation returns text."""

    status: int
    body: bytes


class Calls(Protocol):
    """Calls operations."""

    async def call(self, operation: Operation, values: Mapping[str, Any]) -> OperationReply:
        """Call an operation with values under their API names; raises `RelevoError`."""


def way_to(operation: Operation, session: Session) -> AbstractAsyncContextManager[Calls]:
    """Return the calls that the options select: in this process, or over HTTP."""
    url = session.url
    if url is None and operation.name in ABOUT_ONE_HOST:
        from relevo.http.server import Address

        settings = session.settings()
        own = Address(settings.host, settings.port, "https" if settings.tls_cert else "http")
        url = own.url
    if url is not None:
        return over_http(url, session.key(), session.authorities)
    settings = session.settings()
    # A command must not migrate a shared database as a side effect.
    migrate = settings.migrate and settings.database_url is None
    return in_process(msgspec.structs.replace(settings, migrate=migrate))


@asynccontextmanager
async def in_process(settings: Settings) -> AsyncIterator[Calls]:
    """Connect as a client with all rights, which access to the database implies anyway."""
    async with App(settings=settings) as app:
        yield LocalCalls(app)


class LocalCalls:
    """Operations of an app in this process."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def call(self, operation: Operation, values: Mapping[str, Any]) -> OperationReply:
        """Run an operation as the local administrator."""
        command = _command(operation, values)
        async with self._services(operation, values) as services:
            response = await call(operation, services, LOCAL_ADMIN, command)
        return OperationReply(operation.status_of(response), encoded(response))

    @asynccontextmanager
    async def _services(
        self, operation: Operation, values: Mapping[str, Any]
    ) -> AsyncIterator[Services]:
        if operation.name == "keys.create" and values.get("kind") == "signing":
            async with open_services(self._app) as services:
                yield services
            return
        # Nothing else needs the master key, so commands work without it: on an operator's machine,
        # or after the key was lost and others must be revoked.
        keys = Keys(self._app.database, MasterKey(secrets.token_bytes(32)))
        try:
            yield Services(self._app, keys)
        finally:
            await keys.close()


@asynccontextmanager
async def over_http(
    url: str, key: str | None, authorities: Path | None = None
) -> AsyncIterator[Calls]:
    """Open a client of the host at a URL; `authorities` replace the system's CA certificates."""
    import aiohttp  # here, because the import takes as long as all others together

    headers = {"Accept": "application/json"}
    if key is not None:
        headers["Authorization"] = f"Bearer {key}"
    timeout = aiohttp.ClientTimeout(
        total=limits.REQUEST_SECONDS_MAX + 5.0, connect=limits.CONNECT_SECONDS_MAX
    )
    connector = aiohttp.TCPConnector(ssl=client_tls(authorities) if authorities else True)
    async with aiohttp.ClientSession(
        headers=headers, timeout=timeout, connector=connector
    ) as session:
        yield RemoteCalls(url, session)


class RemoteCalls:
    """Operations of a host, over HTTP."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self._url = url
        self._session = session

    async def call(self, operation: Operation, values: Mapping[str, Any]) -> OperationReply:
        """Send one request; an error in the answer is raised as its class."""
        import aiohttp

        _command(operation, values)  # raises for invalid values before anything is sent
        try:
            async with self._session.request(
                operation.method, **self._request(operation, values), allow_redirects=False
            ) as response:
                reply = OperationReply(response.status, await response.read())
                content_type = response.content_type
        except aiohttp.ClientConnectorCertificateError as error:
            raise SettingsError(
                f"the certificate of {self._url} is not trusted ({_reason(error)}); use the host"
                " name in the certificate, and set its authority with --ca or RELEVO_CA"
            ) from error
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise Unavailable(
                f"cannot reach {self._url} ({_reason(error)}); check the URL and that"
                " `relevo up` runs there"
            ) from error
        except (aiohttp.ClientError, OSError) as error:
            raise self._broken(operation, error) from error
        if _is_answer(operation, reply, content_type):
            return OperationReply(reply.status, _native(operation, reply.body))
        raise _error(reply, self._url)

    def _request(self, operation: Operation, values: Mapping[str, Any]) -> dict[str, Any]:
        from yarl import URL

        plain: dict[str, Any] = msgspec.to_builtins(dict(values), builtin_types=(bytes,))
        path = operation.path
        for name in operation.parameters:
            path = path.replace(f"{{{name}}}", quote(str(plain.pop(name)), safe=""))
        url = URL(f"{self._url}{path}", encoded=True)
        sent: dict[str, Any] = {
            "headers": {
                header: str(plain.pop(name))
                for name, header in operation.headers.items()
                if name in plain
            }
        }
        if operation.body is not None:
            sent["data"] = _bytes(plain.pop(operation.body, b""))
            sent["headers"]["Content-Type"] = "application/json"
        elif operation.takes_body:
            sent["json"] = {k: v for k, v in plain.items() if k not in operation.query}
            plain = {k: v for k, v in plain.items() if k in operation.query}
        pairs = [
            (name, _query_text(item))
            for name, value in plain.items()
            for item in (value if isinstance(value, list) else [value])
        ]
        return {**sent, "url": url.with_query(pairs)}

    def _broken(self, operation: Operation, error: Exception) -> RelevoError:
        what = f"the connection to {self._url} broke before the answer ({_reason(error)})"
        if operation.method == "GET":
            return Unavailable(f"{what}; try again")
        return OutcomeUnknown(
            f"{what}; the operation may have been done: check before you repeat it"
        )


def _is_answer(operation: Operation, reply: OperationReply, content_type: str) -> bool:
    """Whether this is the operation's answer; if not, it is an error or not from Relevo."""
    if reply.status not in {operation.status, 204, *(each.status for each in operation.outcomes)}:
        return False
    if operation.response is None or operation.response is Text:
        return reply.status < 300
    return content_type == "application/json"


def _query_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _reason(error: BaseException) -> str:
    return str(error) or type(error).__name__


def _command(operation: Operation, values: Mapping[str, Any]) -> Any:
    """Return the operation's command; raises `InvalidValue` with the field."""
    given = dict(values)
    if operation.body in given and takes_raw(operation):
        given[operation.body] = _bytes(given[operation.body])
    try:
        return converted(given, operation.request)
    except InvalidValue as error:
        raise type(error)(worded(error.message, error.pointer), pointer=error.pointer) from None


def _bytes(content: Any) -> bytes:
    """Return the bytes of a body; values from the command line are already decoded JSON."""
    return content if isinstance(content, bytes) else msgspec.json.encode(content)


def _native(operation: Operation, body: bytes) -> bytes:
    """Return a list in the form of an in-process answer."""
    if get_origin(operation.response) is not routing.Listing:
        return body
    listed = msgspec.json.decode(body, type=routing.Listing[Any])
    return msgspec.json.encode(routing.page_of(listed))


def _error(reply: OperationReply, url: str) -> RelevoError:
    """Return the error of an answer."""
    parts = _error_parts(reply)
    if parts is None:
        shown = reply.body[:_ANSWER_BYTES_SHOWN].decode("utf-8", "replace")
        return _of_status(reply.status)(
            f"{url} answered {reply.status} but is not Relevo: {shown!r}; check the URL"
        )
    kind, text, pointer, instance = parts
    if kind.fault == "system":
        text = f"{text.rstrip('.')} ({instance}); see the log of the host"
    elif issubclass(kind, Unauthenticated):
        text = f"{text}; set a valid key with RELEVO_KEY, RELEVO_KEY_FILE or --key"
    error = kind.__new__(kind)  # some classes take other arguments
    RelevoError.__init__(error, text, pointer=pointer)
    return error


def _error_parts(reply: OperationReply) -> tuple[type[RelevoError], str, str | None, str] | None:
    """Return class, text, pointer and instance of an error in either form; None if it is none."""
    by_status = _of_status(reply.status)
    try:
        problem = msgspec.json.decode(reply.body, type=Problem)
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    else:
        kinds = (each for each in _kinds(RelevoError) if each.code == problem.code)
        return next(kinds, by_status), problem.detail, problem.pointer, problem.instance
    try:
        error = msgspec.json.decode(reply.body, type=routing.RoutingErrorEnvelope).error
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    named = (each for each, code in routing.CODES.items() if code == error.code)
    return next(named, by_status), error.message, error.target, error.code


def _kinds(kind: type[RelevoError]) -> list[type[RelevoError]]:
    return [kind, *(below for child in kind.__subclasses__() for below in _kinds(child))]


def _of_status(status: int) -> type[RelevoError]:
    if status == 404:
        return NotFound
    if status in (401, 403):
        return Unauthenticated
    if status in (502, 503, 504):
        return Unavailable
    return CallerError if status < 500 else InternalError
