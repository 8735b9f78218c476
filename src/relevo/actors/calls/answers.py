"""Answers of calls as errors, and errors as answers.

Errors of Relevo travel by their code. An error that a method declares travels as itself. Any other
error of a method becomes `RemoteError`, also one of Relevo's that the method got from a call of its
own: that one says nothing about the call that is answered.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, Final, TypeVar, overload

from relevo import errors
from relevo.actors.core.calls import MovedTo, Raised, Refused, Returned
from relevo.errors import ActorError, Moved, OutcomeUnknown, RelevoError, RemoteError
from relevo.kernel import error_text

if TYPE_CHECKING:
    from relevo.actors.calls.gateway import NamedMethod
    from relevo.actors.signatures import MethodSpec

E = TypeVar("E", bound=BaseException)

MESSAGE_MAX: Final = 10_000
TRACE_MAX: Final = 20_000
"""Characters of a text that travels with an error."""
_OF_METHOD: Final = "_relevo_of_method"
_ERROR_ID: Final = "_relevo_error_id"
_KINDS: Final[dict[str, type[RelevoError]]] = {
    kind.code: kind
    for name in errors.__all__
    if isinstance(kind := getattr(errors, name), type) and issubclass(kind, RelevoError)
}


def raised_by_method(error: E) -> E:
    """Note that an error came out of code of the actor, and return it.

    Without this an error of Relevo is taken for one of the runtime. Errors of calls that the method
    made are noted already.
    """
    return _noted(error, _OF_METHOD, True)


def error_id_of(error: BaseException) -> str:
    """Return the number of an error, which its log record and its caller share."""
    found = getattr(error, _ERROR_ID, None)
    if not isinstance(found, str):
        found = secrets.token_hex(6)
        _noted(error, _ERROR_ID, found)
    return found


def answer_of_error(
    error: BaseException, method: MethodSpec | None, *, with_trace: bool = True
) -> Raised | Refused | MovedTo:
    """Return the answer for a call that ended with an error."""
    of_method = getattr(error, _OF_METHOD, False) or not isinstance(error, RelevoError)
    if isinstance(error, Moved) and not of_method:
        return MovedTo(error.epoch, error.address, error.retry_after)
    if of_method or not isinstance(error, ActorError):
        kind = method.options.declared_for(error) if method is not None else None
        body = method.encode_error(error) if method is not None and kind is not None else None
        if kind is not None and body is not None:
            return Raised(kind.__name__, body, error_text.message(error, MESSAGE_MAX))
    if not of_method and isinstance(error, RelevoError) and type(error) is _KINDS.get(error.code):
        return _refused(error)
    return Refused(
        RemoteError.code,
        error_text.message(error, MESSAGE_MAX),
        executed=True,
        type_name=type(error).__name__,
        error_id=error_id_of(error),
        trace=error_text.trace(error, TRACE_MAX) if with_trace else "",
    )


@overload
def error_of(answer: Refused | MovedTo, method: MethodSpec | NamedMethod | None) -> RelevoError: ...


@overload
def error_of(
    answer: Returned | Raised | Refused | MovedTo, method: MethodSpec | NamedMethod | None
) -> Exception: ...


def error_of(
    answer: Returned | Raised | Refused | MovedTo, method: MethodSpec | NamedMethod | None
) -> Exception:
    """Return what the caller raises for an answer that is no result."""
    match answer:
        case Refused():
            error: Exception = _refusal(answer)
        case MovedTo():
            error = Moved(
                "the actor has moved to another host",
                epoch=answer.epoch, address=answer.address, pause=answer.pause,
            )  # fmt: skip
        case Raised():
            known = method and method.decode_error(answer.name, answer.body, answer.message)
            error = known or RemoteError(answer.name, answer.message)
        case Returned():
            raise TypeError("a result is no error")
    return raised_by_method(error)


def _refused(error: RelevoError) -> Refused:
    if isinstance(error, RemoteError):
        return Refused(
            error.code, error.remote_message, True, type_name=error.type_name,
            error_id=error.error_id, trace="\n".join(getattr(error, "__notes__", ())),
        )  # fmt: skip
    wait = getattr(error, "retry_after", None)
    return Refused(
        error.code,
        error_text.fit(error.message, MESSAGE_MAX),
        getattr(error, "executed", True),
        retry_after=float(wait) if isinstance(wait, (int, float)) else 0.0,
    )


def _refusal(answer: Refused) -> RelevoError:
    kind = _KINDS.get(answer.code)
    if answer.type_name or kind is RemoteError:
        error: RelevoError = RemoteError(
            answer.type_name or "Exception", answer.message, answer.error_id
        )
        if answer.trace:
            error.add_note(f"Traceback at the actor:\n{answer.trace}")
        return error
    if kind is None:
        error = ActorError(f"{answer.message} ({answer.code})")
    else:
        error = kind(answer.message)
    if isinstance(error, (ActorError, OutcomeUnknown)) or hasattr(error, "executed"):
        error.executed = answer.executed
    if answer.retry_after and hasattr(error, "retry_after"):
        error.retry_after = answer.retry_after
    return error


def _noted(error: E, name: str, value: Any) -> E:
    vars(error)[name] = value  # not setattr, which frozen dataclasses refuse
    return error
