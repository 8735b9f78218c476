"""Operations: routing, OpenAPI, authorisation and CLI come from their declarations.

A handler takes the services, the principal and the command; it returns a plain value or raises an
error of `relevo.errors`. It knows nothing of HTTP, so the CLI calls it in its own process. Each
room `http` of a part makes an `Operations` and declares its handlers with it.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from datetime import datetime
from types import SimpleNamespace
from typing import (
    Any,
    Final,
    Generic,
    Literal,
    TypedDict,
    TypeVar,
    Unpack,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
from msgspec import UNSET, Struct

from relevo.errors import RelevoError

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
Handler = Callable[[Any, Any, Any], Awaitable[Any]]
"""`async def (services: Services, principal: Principal, command) -> response`"""
T = TypeVar("T")
H = TypeVar("H", bound=Handler)

PUBLIC: Final = "public"
"""The permission of an operation that needs no key; it has to be said, never left out."""

IDEMPOTENCY_KEY: Final = "Idempotency-Key"
"""The header by which a caller names a request, so that its repeat does nothing."""

_PARAMETER = re.compile(r"\{([A-Za-z][A-Za-z0-9_]*)\}")


class Text(Struct, frozen=True):
    """An answer that is not JSON."""

    content_type: str
    body: bytes


class Versioned(Struct, Generic[T], frozen=True, kw_only=True):
    """An answer that is a version of a resource: its tag and time go into the headers."""

    body: T
    etag: str
    """With its quotes."""
    modified_at: datetime
    created: bool = False
    """Whether this very call has made the resource."""


class Reply(Struct, frozen=True, kw_only=True):
    """An answer with its own status and headers, for the Dataverse surface."""

    body: Any = None
    """Sent as JSON, or as it is if it is bytes; None sends nothing."""
    status: int = 200
    headers: Mapping[str, str] = {}
    content_type: str = "application/json; charset=utf-8"


class Sent(Struct, frozen=True, kw_only=True):
    """An event of a stream."""

    event: str
    data: Any
    """Sent as JSON."""
    id: str | None = None
    """The `Last-Event-ID` of a client that reconnects."""


class Stream(Struct, frozen=True):
    """An answer that goes on: server-sent events; None is a sign of life."""

    events: AsyncIterator[Sent | None]


class OtherStatus(Struct, frozen=True):
    """A status other than the default, for responses that satisfy `when`."""

    status: int
    when: Callable[[Any], bool]
    sentence: str


class Operation(Struct, frozen=True, kw_only=True):
    """An operation of Relevo, callable over HTTP, from the CLI or in process.

    Fields of `request` that the path names come from the path, those in `headers` from a header.
    The others come from the query for GET and DELETE, from the members of the JSON body otherwise,
    but for those in `query`.
    With `body`, that field is the body as a whole, and the others come from the query.
    """

    name: str
    """Part and verb, such as `keys.create`: the CLI's command and the operation id."""
    method: Method
    path: str
    """`/v1/keys/{id}`; a last segment `{id}:verb` is an action on what `id` names."""
    summary: str
    request: type[Struct]
    response: type | None
    """None has an empty body; `Text` has the handler's own media type."""
    permission: str
    handler: Handler
    errors: tuple[type[RelevoError], ...] = ()
    """Its errors, beyond those that every operation has."""
    status: int = 200
    outcomes: tuple[OtherStatus, ...] = ()
    scope: str | None = None
    """The resource a key's scopes are held against, such as `queue:{name}`."""
    headers: Mapping[str, str] = {}
    """Fields that come from headers, and from which."""
    url: str | None = None
    """The field that is the URL as the client used it, with its query as it came."""
    body: str | None = None
    """The field that holds the body: raw if its type is `bytes`, else decoded."""
    query: frozenset[str] = frozenset()
    """Fields that come from the query though the others are members of the body."""
    stream: Handler | None = None
    """Answers instead of `handler`, with a `Stream`, a client that accepts `text/event-stream`."""
    wait: str | None = None
    """The field that says for how many seconds the answer may be held back. A request that waits
    holds no slot of the requests in flight, and ends when its client leaves."""
    checks_scopes: bool = False
    """Whether the handler itself checks a key's scopes."""
    minds_reach: bool = False
    """Whether the handler keeps to the reach of a permission; others need the widest."""
    fixed: Mapping[str, Any] = {}
    """Fields whose values our own clients fill in without asking."""
    audit: bool = True
    """Whether calls are written into the audit, if the permission is one of an administrator."""
    in_overload: bool = False
    """Answered even when the host refuses work: probes, which would otherwise kill a busy host."""

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the path's variable parts, in order."""
        return tuple(_PARAMETER.findall(self.path))

    @property
    def takes_body(self) -> bool:
        """Whether the command travels in the body."""
        return self.method not in ("GET", "DELETE")

    @property
    def takes_key(self) -> bool:
        """Whether its requests may carry an `Idempotency-Key`: each POST of `/v1`."""
        return self.method == "POST" and self.path.startswith("/v1/") and self.permission != PUBLIC

    @property
    def knows_repeats(self) -> bool:
        """Whether it recognises repeats by that key itself, in the commit of its effect."""
        return IDEMPOTENCY_KEY in self.headers.values()

    @property
    def elsewhere(self) -> frozenset[str]:
        """The fields that come neither from the query nor from members of the body."""
        return frozenset(
            {*self.parameters, *self.headers, *self.query, *filter(None, (self.body, self.url))}
        )

    def status_of(self, response: Any) -> int:
        """Return the HTTP status for a response."""
        if isinstance(response, Reply):
            return response.status
        for outcome in self.outcomes:
            if outcome.when(response):
                return outcome.status
        return self.status

    def resource(self, command: Any) -> str | None:
        """Return the resource a command touches, as scopes name it."""
        if self.scope is None:
            return None
        values = msgspec.structs.asdict(command)
        return _PARAMETER.sub(lambda match: str(values[match[1]]), self.scope)

    def __post_init__(self) -> None:
        fields = msgspec.structs.fields(self.request)
        on_the_wire = {field.encode_name for field in fields}
        for name in self.elsewhere | self.fixed.keys():
            assert name in on_the_wire, f"{self.name}: {name!r} is no field of {self.request}"
        assert self.wait is None or self.wait in {field.name for field in fields}, self.name
        for name in _PARAMETER.findall(self.scope or ""):
            assert name in {field.name for field in fields}, f"{self.name}: scope names {name!r}"
        assert self.path.startswith("/"), self.name
        assert self.summary.endswith("."), self.name
        assert self.permission, f"{self.name}: say PUBLIC, or which permission it needs"


class OperationOptions(TypedDict, total=False):
    """Options of an operation besides its name, method, path and permission."""

    errors: tuple[type[RelevoError], ...]
    status: int
    outcomes: tuple[OtherStatus, ...]
    scope: str | None
    headers: Mapping[str, str]
    url: str | None
    body: str | None
    query: frozenset[str]
    stream: Handler | None
    wait: str | None
    checks_scopes: bool
    minds_reach: bool
    fixed: Mapping[str, Any]
    audit: bool
    in_overload: bool


class Operations:
    """The operations of one module, in the order of their handlers.

    >>> operation = Operations(scope="queue:{name}")  # options that all of them have
    >>> class ByName(Struct):
    ...     name: str
    >>> @operation("queues.drop", "DELETE /v1/queues/{name}", "queues:manage")
    ... async def drop(services: object, principal: object, command: ByName) -> None:
    ...     '''Remove a queue and its messages.'''
    >>> [(each.method, each.path, each.summary) for each in operation]
    [('DELETE', '/v1/queues/{name}', 'Remove a queue and its messages.')]
    """

    def __init__(self, *shared: OperationOptions, **common: Unpack[OperationOptions]) -> None:
        self._common = _merged(*shared, common)
        self._declared: list[Operation] = []

    def __iter__(self) -> Iterator[Operation]:
        return iter(self._declared)

    def __call__(
        self,
        name: str,
        route: str,
        permission: str,
        *shared: OperationOptions,
        summary: str | None = None,
        request: Any = UNSET,
        response: Any = UNSET,
        **options: Unpack[OperationOptions],
    ) -> Callable[[H], H]:
        """Declare the handler below as an operation; its route is `GET /v1/keys/{id}`, say.

        `shared` are options that it has in common with others, and `options` its own.
        Its command's type is the request and its return type the response; `response` says what
        a `Reply` carries, or how a surface shows a page, and `request` what one of several routes
        to the same handler asks for. The first line of its docstring is the summary.
        """

        def declare(handler: H) -> H:
            method, _, path = route.partition(" ")
            assert method in get_args(Method), f"{name}: {route!r} begins with no method"
            command, returned = types_of(handler)
            self._declared.append(
                Operation(
                    name=name,
                    method=cast(Method, method),
                    path=path,
                    summary=summary or (handler.__doc__ or "").partition("\n")[0],
                    request=command if request is UNSET else request,
                    response=_carried(returned) if response is UNSET else response,
                    permission=permission,
                    handler=handler,
                    **_merged(self._common, *shared, options),
                )
            )
            return handler

        return declare


def _merged(*each: OperationOptions) -> OperationOptions:
    """Return all options; of those that are there twice, the last."""
    merged: OperationOptions = {}
    for options in each:
        merged.update(options)
    return merged


def types_of(handler: Any) -> tuple[Any, Any]:
    """Return the types of a handler's command and result.

    The other annotations are not read: they name what is imported for type checkers alone.
    """
    command = handler.__code__.co_varnames[2]
    wanted = {name: handler.__annotations__[name] for name in (command, "return")}
    found = get_type_hints(
        SimpleNamespace(__annotations__=wanted), handler.__globals__, include_extras=True
    )
    returned = found["return"]
    return found[command], None if returned is type(None) else returned


def _carried(returned: Any) -> Any:
    """Return the type of an answer's body."""
    assert returned is not Reply, "a reply can hold anything: say `response=`"
    return get_args(returned)[0] if get_origin(returned) is Versioned else returned


def encoded(response: Any) -> bytes:
    """Return the body of an answer; an operation without an answer has an empty one."""
    match response:
        case None:
            return b""
        case Text():
            return response.body
        case Reply(body=bytes() as body):
            return body
        case Reply(body=None):
            return b""
        case Reply() | Versioned():
            return msgspec.json.encode(response.body)
        case _:
            return msgspec.json.encode(response)
