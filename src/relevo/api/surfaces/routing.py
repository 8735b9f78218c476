"""The job router's surface: its ancestor's error envelope and headers, for official clients."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

from relevo import errors
from relevo.api.problem import JSON, Answer, Headers, InvalidJson, detail, retry_after
from relevo.api.surface import SECURITY, Surface

if TYPE_CHECKING:
    from relevo.api.request import Head

_ID: Final = re.compile(rb"[!-~]{1,128}")
VERSIONS: Final = b"2023-11-01, 2024-01-18-preview"

CODES: Final[dict[type[errors.RelevoError], str]] = {
    errors.CallerError: "BadRequest",
    errors.InvalidValue: "InvalidValue",
    InvalidJson: "InvalidJson",
    errors.Unauthenticated: "Denied",
    errors.Forbidden: "Forbidden",
    errors.NotFound: "NotFound",
    errors.MethodNotAllowed: "MethodNotAllowed",
    errors.Conflict: "Conflict",
    errors.ConditionNotMet: "ConditionNotMet",
    errors.TooLarge: "RequestTooLarge",
    errors.UnsupportedMediaType: "UnsupportedMediaType",
    errors.RateLimited: "ThrottleLimitExceeded",
    errors.RelevoError: "InternalError",
    errors.Unavailable: "ServiceUnavailable",
    errors.OutcomeUnknown: "ServiceUnavailable",
}
"""The ancestor's names; an error that is not listed goes by its nearest listed ancestor."""


def code_of(error: errors.RelevoError) -> str:
    """Return the ancestor's code for one of our errors."""
    return next(CODES[kind] for kind in type(error).__mro__ if kind in CODES)


def render(error: errors.RelevoError, _: str) -> Answer:
    """Return an error in the ancestor's envelope."""
    code = code_of(error)
    content: dict[str, Any] = {"code": code, "message": detail(error)}
    if error.pointer:
        content["target"] = error.pointer
    headers = ((b"content-type", JSON), (b"x-ms-error-code", code.encode()), *retry_after(error))
    return Answer(error.status, headers, msgspec.json.encode({"error": content}))


def _headers(head: Head, request_id: str) -> Headers:
    ours: Headers = (
        (b"x-ms-request-id", request_id.encode()),
        (b"x-request-id", request_id.encode()),
        (b"api-supported-versions", VERSIONS),
        *SECURITY,
    )
    theirs = head.value(b"x-ms-client-request-id") or b""
    wanted = head.value(b"x-ms-return-client-request-id") or b""
    if wanted.lower() != b"true" or not _ID.fullmatch(theirs):
        return ours
    return (*ours, (b"x-ms-client-request-id", theirs))


SURFACE: Final = Surface(
    segment="routing", render=render, challenge=b"HMAC-SHA256", strict=False, headers=_headers
)
