"""Calls operations of a host, over HTTP."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, get_origin
from urllib.parse import quote

import aiohttp
import msgspec
from yarl import URL

from relevo import limits
from relevo.cli.calling.calls import OperationReply, command_of, content_bytes
from relevo.errors import (
    CallerError,
    IdempotencyKeyInUse,
    InternalError,
    NotFound,
    OutcomeUnknown,
    RelevoError,
    SettingsError,
    Unauthenticated,
    Unavailable,
)
from relevo.http.answers import Problem
from relevo.http.tls import client_tls
from relevo.kernel.operation import IDEMPOTENCY_KEY, Text

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from relevo.cli.calling.calls import Calls
    from relevo.kernel.operation import Operation

_ANSWER_BYTES_SHOWN: Final = 200
_REPEAT_SECONDS: Final = (0.2, 0.5, 1.0, 2.0)
"""The pauses between repeats of a request whose connection broke."""


@asynccontextmanager
async def over_http(
    url: str, key: str | None, authorities: Path | None = None, *, agent: bool = False
) -> AsyncIterator[Calls]:
    """Open a client of the host at a URL; `authorities` replace the system's CA certificates.

    With `agent` the host writes each call into the audit, as that of an AI agent.
    """
    headers = {"Accept": "application/json"}
    if agent:
        headers["Relevo-Caller"] = "agent"
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

    async def call(
        self, operation: Operation, values: Mapping[str, Any], reason: str | None = None
    ) -> OperationReply:
        """Send one request; an error in the answer is raised as its class."""
        command_of(operation, values)  # raises for invalid values before anything is sent
        request = self._request(operation, values)
        if reason is not None:
            request["headers"]["Relevo-Reason"] = reason
        if not operation.takes_key or operation.knows_repeats:
            return await self._once(operation, request)
        request["headers"][IDEMPOTENCY_KEY] = secrets.token_hex(16)
        return await self._until_answered(operation, request)

    async def _until_answered(
        self, operation: Operation, request: dict[str, Any]
    ) -> OperationReply:
        """Send a request again when the connection breaks: by its key it is done once."""
        broken: OutcomeUnknown | None = None
        for pause in _REPEAT_SECONDS:
            try:
                return await self._once(operation, request)
            except OutcomeUnknown as error:
                if not isinstance(error.__cause__, aiohttp.ClientError | OSError):
                    raise  # the host says so, and would again
                broken = broken or error
            except (IdempotencyKeyInUse, Unavailable):
                if broken is None:
                    raise
            await asyncio.sleep(pause)
        assert broken is not None
        raise broken

    async def _once(self, operation: Operation, request: dict[str, Any]) -> OperationReply:
        try:
            async with self._session.request(
                operation.method, **request, allow_redirects=False
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
        raise _error(operation, reply, self._url)

    def _request(self, operation: Operation, values: Mapping[str, Any]) -> dict[str, Any]:
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
            sent["data"] = content_bytes(plain.pop(operation.body, b""))
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


def _native(operation: Operation, body: bytes) -> bytes:
    """Return a list in the form of an in-process answer."""
    if not _is_routing(operation):
        return body
    from relevo.router.http import surface as routing  # here, because it imports the router

    if get_origin(operation.response) is not routing.Listing:
        return body
    listed = msgspec.json.decode(body, type=routing.Listing[Any])
    return msgspec.json.encode(routing.page_of(listed))


def _is_routing(operation: Operation) -> bool:
    """Whether the operation's answers follow the conventions of the surface `/routing`."""
    return operation.name.startswith("router.")


def _error(operation: Operation, reply: OperationReply, url: str) -> RelevoError:
    """Return the error of an answer."""
    parts = _error_parts(operation, reply)
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


def _error_parts(
    operation: Operation, reply: OperationReply
) -> tuple[type[RelevoError], str, str | None, str] | None:
    """Return class, text, pointer and instance of an error in either form; None if it is none."""
    by_status = _of_status(reply.status)
    try:
        problem = msgspec.json.decode(reply.body, type=Problem)
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    else:
        kinds = (each for each in _kinds(RelevoError) if each.code == problem.code)
        return next(kinds, by_status), problem.detail, problem.pointer, problem.instance
    if not _is_routing(operation):
        return None
    from relevo.router.http import surface as routing

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
