"""The call gateway: `POST /v1/actors/{type}/{key}/methods/{method}`, for any language."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from relevo import limits
from relevo.actors.calls.gateway import NamedMethod
from relevo.actors.calls.proxies import CallOptions
from relevo.actors.http.models import ONE, SCOPE, ByActor
from relevo.errors import (
    ActivationFailed,
    BadArguments,
    CallIdReused,
    CommitFailed,
    Conflict,
    DeadlineExceeded,
    InvalidValue,
    MailboxFull,
    MethodRaised,
    NoHost,
    NotFound,
    OutcomeUnknown,
    RemoteError,
    StatePoisoned,
    TurnTimeout,
    UnknownMethod,
)
from relevo.kernel.operation import Operations

if TYPE_CHECKING:
    from relevo.http.access.authenticator import Principal
    from relevo.http.services import Services

WAIT_SECONDS_MAX: Final = limits.REQUEST_SECONDS_MAX - 5.0
_WAIT: Final = re.compile(r"(?:^|[,;])\s*wait\s*=\s*\"?(\d{1,5}(?:\.\d{1,3})?)\"?\s*(?:$|[,;])")

operation = Operations(scope=SCOPE)


class CallActor(ByActor, frozen=True, kw_only=True):
    """Which method of which actor."""

    method: Annotated[
        str, Meta(min_length=1, max_length=limits.NAME_LENGTH_MAX, description="The method.")
    ]
    arguments: Annotated[
        dict[str, Any], Meta(description="The arguments, by name, as a JSON object.")
    ] = msgspec.field(default_factory=dict)
    call_id: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=limits.ACTOR_CALL_ID_LENGTH_MAX,
                pattern=r"^[\x21-\x7e]+$",
                description="The call's id: a repeat with the same id, method and arguments gets"
                " the recorded answer, and does not run.",
            ),
        ]
        | None
    ) = None
    prefer: (
        Annotated[
            str,
            Meta(
                max_length=200,
                description="`wait=5` is the deadline of the call in seconds. Default: 30.",
            ),
        ]
        | None
    ) = None

    @property
    def seconds(self) -> float:
        """How long the caller waits."""
        found = None if self.prefer is None else _WAIT.search(self.prefer)
        if found is None:
            return limits.ACTOR_CALL_SECONDS
        seconds = float(found[1])
        if not 0 < seconds <= WAIT_SECONDS_MAX:
            raise InvalidValue(
                f"wait is {seconds:g}; give above 0 and at most {WAIT_SECONDS_MAX:g} s",
                pointer="Prefer",
            )
        return seconds


class CallResult(Struct, frozen=True):
    """What a method returned."""

    result: Any


@operation(
    "actors.call",
    f"POST {ONE}/methods/{{method}}",
    "actors:call",
    headers={"call_id": "Idempotency-Key", "prefer": "Prefer"},
    body="arguments",
    errors=(
        NotFound, UnknownMethod, BadArguments, CallIdReused, Conflict, MethodRaised, RemoteError,
        NoHost, MailboxFull, ActivationFailed, StatePoisoned, CommitFailed, TurnTimeout,
        DeadlineExceeded, OutcomeUnknown,
    ),
)  # fmt: skip
async def call_actor(services: Services, principal: Principal, command: CallActor) -> CallResult:
    """Call a method of an actor; an error says by `executed` whether it ran."""
    actors = services.app.actors
    if not command.method.isidentifier() or command.method.startswith("_"):
        raise UnknownMethod(f"{command.method!r} is no method", pointer="/method")
    if not await actors.ways.is_stateless(command.ref.type):  # raises NotFound
        await actors.administration.place(command.ref)
    call_id = None
    if command.call_id is not None:  # the keys of two callers have nothing to do with each other
        call_id = hashlib.sha256(f"{principal.id} {command.call_id}".encode()).hexdigest()
    options = CallOptions(timeout=command.seconds, call_id=call_id)
    body = msgspec.json.encode(command.arguments)
    result = await actors.call(command.ref, NamedMethod(command.method), body, options)
    return CallResult(result)
