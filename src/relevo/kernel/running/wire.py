"""Messages between a host and the process of a handler: length-prefixed JSON.

Errors travel as data, never pickled. One of Relevo's own classes is made again from its fields;
any other becomes a class of the same names, by which a part tells what to do about it.

An order carries the number of its run, and so does all that is said for it in either direction.
"""

from __future__ import annotations

import importlib
from typing import Any, Final

import msgspec

from relevo.kernel import error_text

HEADER_BYTES: Final = 4
TEXT_MAX: Final = 100_000
"""Characters of a text that travels with an error."""
OVER: Final = (
    "the run of this context is over, and its process may run another one; let the handler wait for"
    " its threads before it returns"
)
"""The error for code that a handler has left running."""
_SPOKEN: Final = ("sqlstate", "pgcode", "status", "status_code")
"""Attributes of drivers' and HTTP clients' errors that are kept."""
_COMMON: Final = ("object", "BaseException", "Exception")


class ProcessError(Exception):
    """An error of a handler in its own process; its class has the name that it had there."""


def packed(message: Any) -> bytes:
    """Return a message as it goes over the pipe."""
    body = msgspec.json.encode(message)
    return len(body).to_bytes(HEADER_BYTES, "big") + body


def error_fields(error: BaseException) -> dict[str, Any]:
    """Return an error as data, also one that cannot say what it is."""
    if isinstance(error, BaseExceptionGroup):
        return {
            "text": error_text.fit(error.message, TEXT_MAX),
            "group": [error_fields(exception) for exception in error.exceptions],
        }
    kind = type(error)
    message: dict[str, Any] = {
        "text": error_text.message(error, TEXT_MAX),
        "names": [one.__name__ for one in kind.__mro__ if one.__name__ not in _COMMON],
        "spoken": _spoken(error),
        "trace": error_text.trace(error, TEXT_MAX),
    }
    if kind.__module__.startswith("relevo.") and "<" not in kind.__qualname__:
        message["own"] = [kind.__module__, kind.__qualname__]
        message["fields"] = _plain(vars(error))
    return message


def _spoken(error: BaseException) -> dict[str, Any]:
    found = {
        name: _asked(holder, name)
        for holder in (_asked(error, "response"), error)
        for name in _SPOKEN if _asked(holder, name) is not None
    }  # fmt: skip
    return _plain(found)


def _asked(holder: Any, name: str) -> Any:
    """Return an attribute of a foreign class, which may be code that fails."""
    try:
        return getattr(holder, name, None)
    except Exception:
        return None


def _plain(fields: dict[str, Any]) -> dict[str, Any]:
    """Those fields that JSON has words for."""
    return {
        name: error_text.fit(value, TEXT_MAX) if isinstance(value, str) else value
        for name, value in fields.items()
        if value is None
        or isinstance(value, bool | float | str)
        or (isinstance(value, int) and abs(value) < 1 << 63)
    }


def heard(message: dict[str, Any]) -> Exception:
    """Return the error that data tells."""
    if "group" in message:
        return ExceptionGroup(message["text"], [heard(one) for one in message["group"]])
    error = _own(message) if "own" in message else _namesake(message)
    error.add_note(f"In the process of the handler:\n{message['trace']}")
    return error


def _own(message: dict[str, Any]) -> Exception:
    module, name = message["own"]
    found = getattr(importlib.import_module(module), name, None)
    if not (isinstance(found, type) and issubclass(found, Exception)):
        return _namesake(message)
    error = found.__new__(found, message["text"])
    for name, value in message["fields"].items():
        setattr(error, name, value)
    return error


def _namesake(message: dict[str, Any]) -> Exception:
    kind: type[Exception] = ProcessError
    for name in reversed(message["names"]):
        kind = type(name, (kind,), {})
    error = kind(message["text"])
    for name, value in message["spoken"].items():
        setattr(error, name, value)
    return error
