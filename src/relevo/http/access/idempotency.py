"""`Idempotency-Key` on every POST of `/v1`: a repeat gets the first answer and does nothing.

Kept are answers, and errors of the caller that will come again. Where nothing has happened (the
host was overloaded, the caller may not do this), the key is free again. Where that is not known,
the request is never run a second time: its repeats are told so.
"""

from __future__ import annotations

import asyncio
import hashlib
from typing import TYPE_CHECKING, Final, Literal, assert_never

import msgspec
import structlog
from msgspec import Struct

from relevo import limits
from relevo.errors import (
    AnswerNotKept,
    EarlierOutcomeUnknown,
    Forbidden,
    IdempotencyKeyInUse,
    IdempotencyKeyReused,
    InvalidValue,
    RelevoError,
)
from relevo.http.answers import Answer
from relevo.idempotency.service import KeyedRequest
from relevo.kernel import faults
from relevo.kernel.operation import IDEMPOTENCY_KEY

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from relevo.http.access.authenticator import Principal
    from relevo.http.services import Services
    from relevo.idempotency.service import EarlierRequest
    from relevo.kernel.operation import Operation

REPLAYED: Final = "Idempotent-Replayed"
"""The header of an answer that is a copy of the first one."""

log = structlog.get_logger(__name__)


class _KeptAnswer(Struct, frozen=True, array_like=True):
    """An answer as it is stored."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes


class _Verdict(Struct, frozen=True):
    """How a request has ended; without a state, its key is free again."""

    state: Literal["answered", "unknown"] | None
    answer: Answer | None = None


def keyed_request(
    operation: Operation, principal: Principal, keys: list[bytes], target: bytes, body: bytes
) -> KeyedRequest:
    """Return the request that has these keys; raises `InvalidValue` unless there is a good one."""
    key = b", ".join(keys)
    if len(keys) > 1 or not 1 <= len(key) <= limits.IDEMPOTENCY_KEY_LENGTH_MAX:
        raise InvalidValue(
            f"send one {IDEMPOTENCY_KEY} of 1 to {limits.IDEMPOTENCY_KEY_LENGTH_MAX} characters",
            pointer=IDEMPOTENCY_KEY,
        )
    if not all(0x21 <= byte <= 0x7E for byte in key):
        raise InvalidValue(
            f"{IDEMPOTENCY_KEY} takes visible ASCII characters only, no spaces",
            pointer=IDEMPOTENCY_KEY,
        )
    asked = b"%s\n%s\n" % (operation.name.encode(), target)
    return KeyedRequest(
        principal=principal.id, key=key.decode("ascii"),
        fingerprint=hashlib.sha256(asked + body).digest(), own=operation.knows_repeats,
    )  # fmt: skip


async def once(
    services: Services,
    request: KeyedRequest,
    run: Callable[[], Awaitable[Answer]],
    refuse: Callable[[RelevoError], Answer],
) -> Answer:
    """Run a request unless one with its key has begun before; `refuse` renders its errors."""
    kept = services.app.idempotency
    earlier = await kept.begin(request)
    if earlier is not None and earlier.fingerprint != request.fingerprint:
        raise IdempotencyKeyReused(
            f"{IDEMPOTENCY_KEY} {request.key!r} was sent with another path or body"
            f" {earlier.age_seconds:.0f} s ago; use a new key for each request",
            pointer=IDEMPOTENCY_KEY,
        )
    if request.own:
        return await run()
    if earlier is not None:
        return await _repeated(services, request, earlier)
    try:
        answer = await run()
    except asyncio.CancelledError:
        await asyncio.shield(_store(services, request, _Verdict("unknown")))
        raise
    except Exception as error:
        await _store(services, request, _verdict(error, refuse))
        raise
    await faults.point("before_answer_kept")
    streamed = answer.chunks is not None
    await _store(services, request, _Verdict(None if streamed else "answered", answer))
    return answer


async def _repeated(services: Services, request: KeyedRequest, earlier: EarlierRequest) -> Answer:
    match earlier.state:
        case "answered":
            assert earlier.answer is not None
            key = await services.app.vault.key()
            try:
                plain = key.open(earlier.answer, _owner(request))
            except ValueError:  # the installation has another master key since
                raise _not_kept(request, "its answer can no longer be opened") from None
            answer = msgspec.msgpack.decode(plain, type=_KeptAnswer)
            headers = (*answer.headers, (REPLAYED.lower().encode(), b"true"))
            return Answer(answer.status, headers, answer.body)
        case "too_large":
            raise _not_kept(
                request,
                f"its answer had more than {limits.IDEMPOTENCY_ANSWER_BYTES_MAX} bytes",
            )
        case "running" if earlier.age_seconds < limits.IDEMPOTENCY_RUNNING_SECONDS:
            raise IdempotencyKeyInUse(
                f"the first request with {IDEMPOTENCY_KEY} {request.key!r} still runs; repeat it"
                " later",
                pointer=IDEMPOTENCY_KEY,
            )
        case "running" | "unknown" | "own":
            raise EarlierOutcomeUnknown(
                f"the request with {IDEMPOTENCY_KEY} {request.key!r} was broken off"
            )
        case _:
            assert_never(earlier.state)


def _verdict(error: Exception, refuse: Callable[[RelevoError], Answer]) -> _Verdict:
    """Return what an error says about its request."""
    if not isinstance(error, RelevoError):
        return _Verdict("unknown")
    if error.retryable or isinstance(error, Forbidden):
        return _Verdict(None)  # nothing has happened
    return _Verdict("answered", refuse(error)) if error.status < 500 else _Verdict("unknown")


async def _store(services: Services, request: KeyedRequest, verdict: _Verdict) -> None:
    """Store how a request has ended; its caller gets the answer even if that fails."""
    kept, answer = services.app.idempotency, verdict.answer
    try:
        if verdict.state is None:
            await kept.withdraw(request)
        elif answer is None:
            await kept.end(request, verdict.state)
        elif len(answer.body) > limits.IDEMPOTENCY_ANSWER_BYTES_MAX:
            await kept.end(request, "too_large")
        else:
            shown = _KeptAnswer(answer.status, list(answer.headers), answer.body)
            key = await services.app.vault.key()
            sealed = key.seal(msgspec.msgpack.encode(shown), _owner(request))
            await kept.end(request, "answered", sealed)
    except RelevoError as error:
        log.error("idempotency.not_ended", state=verdict.state, error=str(error))


def _not_kept(request: KeyedRequest, why: str) -> AnswerNotKept:
    return AnswerNotKept(
        f"the request with {IDEMPOTENCY_KEY} {request.key!r} was done, but {why}; read what it has"
        " changed",
        pointer=IDEMPOTENCY_KEY,
    )


def _owner(request: KeyedRequest) -> str:
    return f"idempotency {request.principal} {request.key}"
